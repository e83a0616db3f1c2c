"""Submit, run and wait in one plain script: no server, no event loop, one file.

    python examples/plain_script.py

Run it twice: the second run gets the jobs of the first run, and no customer is charged again.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import onejob
from onejob import sync

STORE = "sqlite:///shop.db"
app = onejob.App()


@app.job("charge_customer", timeout=30)
def charge_customer(order: dict[str, int], ctx: onejob.Context) -> dict[str, str]:
    # Pass ctx.job_id to the payment provider as its idempotency key: it is the same in every attempt.
    ctx.log(f"charging {order['amount']}")
    return {"payment": f"pay-{ctx.job_id[-6:]}"}


@contextmanager
def background_worker() -> Iterator[None]:
    """Run a worker in a thread; in production run `onejob worker plain_script:app` in another process."""
    stop = threading.Event()

    async def work() -> None:
        async with onejob.open(STORE) as queue, app.background_worker(queue):
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    with sync.open(STORE) as queue, background_worker():
        for order, amount in (("ORD-1", 42), ("ORD-2", 7), ("ORD-1", 42)):
            receipt = queue.submit("charge_customer", {"amount": amount}, idempotency_key=f"charge-{order}")
            job = queue.wait(receipt.job_id, timedelta(seconds=30))
            print(order, receipt.outcome, job.state, queue.result(job.id))


if __name__ == "__main__":
    main()
