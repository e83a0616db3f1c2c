"""Waiting for the end of a job: a bar on a terminal, a line for every change elsewhere."""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from onejob.clock import Clock, SystemClock
from onejob.core.states import ENDED, JobState
from onejob.http.wire import JobOut

from .door import Door
from .screen import clean, span

POLL_FIRST: Final = 0.1
POLL_MAX: Final = 2.0
WIDTH: Final = 24
ERASE: Final = "\r\x1b[K"


def waited(
    door: Door,
    job_id: str,
    *,
    timeout: timedelta | None,
    clock: Clock | None = None,
    pause: Callable[[float], None],
) -> JobOut:
    """Look at a job until it has ended, or the time is over; the job as it is then."""
    clock = clock or SystemClock()
    begin, poll = clock.monotonic(), POLL_FIRST
    shown, end = Bar(), float("inf") if timeout is None else begin + timeout.total_seconds()
    try:
        while True:
            found = door.job(job_id).job
            shown.show(found.state, clock.monotonic() - begin)
            left = end - clock.monotonic()
            if found.state in ENDED or left <= 0:
                return found
            pause(min(poll, left))
            poll = min(poll * 1.5, POLL_MAX)
    finally:
        shown.clear()


class Bar:
    """Written to standard error, so that standard output stays what it is."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        told = f"{clean(state)} for {span(timedelta(seconds=seconds))}"
        if self._terminal:
            sys.stderr.write(f"{ERASE}[{_moving(seconds)}] {told}")
        elif state != self._state:
            sys.stderr.write(f"onejob: the job is {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self._terminal and sys.stderr is not None:
            sys.stderr.write(ERASE)
            sys.stderr.flush()


def _moving(seconds: float) -> str:
    """How long it will take is not known, so the bar walks to and fro."""
    room = WIDTH - 3
    place = int(seconds * 4) % (2 * room)
    place = min(place, 2 * room - place)
    return "-" * place + "===" + "-" * (room - place)
