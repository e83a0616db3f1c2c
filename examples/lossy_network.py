"""Orders are sent through a network that loses and repeats messages: each becomes one job, and is charged once.

python examples/lossy_network.py [ORDERS]
"""

import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import onejob

T = TypeVar("T")
CLIENTS = 8
REQUEST_LOSS, ANSWER_LOSS, REPETITION = 0.2, 0.3, 0.2  # the share of messages
DELAY_MAX = 0.12

app = onejob.App()
counts: Counter[str] = Counter()
charged: Counter[str] = Counter()  # how often each order was charged


class NoAnswer(Exception):
    """Whether the request was executed is not known."""


@app.job("charge_customer")
async def charge(order: dict[str, str], ctx: onejob.Context) -> dict[str, str]:
    charged[order["order"]] += 1
    await asyncio.sleep(random.random() * DELAY_MAX)
    return {"order": order["order"], "receipt": ctx.job_id[-12:]}


async def send(call: Callable[[], Awaitable[T]]) -> T:
    """The network: it loses requests, loses answers, and delivers some requests twice."""
    counts["requests sent"] += 1
    await asyncio.sleep(random.random() * DELAY_MAX)
    if random.random() < REQUEST_LOSS:
        counts["  lost on the way"] += 1
        raise NoAnswer
    if random.random() < REPETITION:
        counts["  delivered twice"] += 1
        answer, _ = await asyncio.gather(call(), call())
    else:
        answer = await call()
    if random.random() < ANSWER_LOSS:
        counts["  answers lost"] += 1
        raise NoAnswer
    return answer


async def submit_until_answered(queue: onejob.Ledger, order: str) -> str:
    """All that a client has to do: send the same key again until there is an answer."""

    async def submit() -> onejob.Receipt:
        return await queue.submit("charge_customer", {"order": order}, idempotency_key=f"charge-{order}")

    while True:
        try:
            return (await send(submit)).job_id
        except NoAnswer:
            counts["  retried with the same key"] += 1


async def main(number: int) -> bool:
    orders, ids = iter([f"ORD-{n + 1:03}" for n in range(number)]), list[str]()

    async def client(queue: onejob.Ledger) -> None:
        for order in orders:
            ids.append(await submit_until_answered(queue, order))

    with tempfile.TemporaryDirectory() as folder:
        async with onejob.open(f"sqlite:///{Path(folder) / 'demo.db'}") as queue, app.background_worker(queue):
            await asyncio.gather(*(client(queue) for _ in range(CLIENTS)))
            for job_id in ids:
                await queue.wait(job_id, timedelta(seconds=30))
            results = [await queue.result(job_id) for job_id in ids]
            outcomes = queue.admin.runtime_stats().outcomes
    counts["jobs created"] = outcomes.get("created", 0)
    counts["duplicates absorbed"] = outcomes.get("replayed", 0)
    counts["results"] = len(results)
    counts["orders charged exactly once"] = sum(times == 1 for times in charged.values())
    print("\n".join(f"{text:<30}{count:>6}" for text, count in counts.items()))
    return counts["jobs created"] == counts["results"] == counts["orders charged exactly once"] == number


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)) else 1)
