"""Reading large bodies leaves the event loop to the others."""

import asyncio
import time
from threading import Lock

from onejob.http.request import INLINE_BYTES_MAX, run_in_thread_if_large


async def test_large_bodies_are_parsed_one_at_a_time_off_the_event_loop() -> None:
    lock, running, most = Lock(), 0, 0

    def parse() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    await asyncio.gather(*(run_in_thread_if_large(INLINE_BYTES_MAX + 1, parse) for _ in range(8)))
    assert most == 1
