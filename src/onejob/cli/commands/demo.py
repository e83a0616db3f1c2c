"""Submit orders through a faulty network, and see one job and one result for each."""

import asyncio
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from onejob.cli.exit_codes import DONE, FAILED
from onejob.cli.render import to_json, write
from onejob.core.views import Receipt
from onejob.errors import Invalid, NotFound
from onejob.ids import new_holder
from onejob.ledger import Ledger
from onejob.ledger import open as open_ledger
from onejob.worker import App, Context

T = TypeVar("T")
EXAMPLE = "onejob demo --jobs 100"
JOBS_DEFAULT = 40
JOBS_MAX = 1000
CLIENT_COUNT = 8
SECONDS_MAX = 60
REQUEST_LOSS_RATE, RESPONSE_LOSS_RATE, DUPLICATE_RATE = 0.2, 0.3, 0.2
_DELAY_MAX = 0.12
_REPAINT_SECONDS = 0.1
_WAIT = timedelta(seconds=30)


class SimulatedLoss(Exception):
    """No response was received: whether the request was executed is unknown."""


class LossyNetwork:
    """Loses requests, loses responses, and delivers some requests twice."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    async def deliver(self, call: Callable[[], Awaitable[T]]) -> T:
        delay, request, response, double = (byte / 255 for byte in new_holder()[:4])
        self._counts["sent"] += 1
        await asyncio.sleep(delay * _DELAY_MAX)
        if request < REQUEST_LOSS_RATE:
            self._counts["requestsLost"] += 1
            raise SimulatedLoss
        if double < DUPLICATE_RATE:
            self._counts["deliveredTwice"] += 1
            result, _ = await asyncio.gather(call(), call())
        else:
            result = await call()
        if response < RESPONSE_LOSS_RATE:
            self._counts["answersLost"] += 1
            raise SimulatedLoss
        return result


class Demo:
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.counts: Counter[str] = Counter()
        self.charged: Counter[str] = Counter()  # how often each order was charged
        self.app = App()
        self.app.job("charge_customer")(self._charge)

    async def run(self, queue: Ledger) -> dict[str, Any]:
        network = LossyNetwork(self.counts)
        orders = iter([f"ORD-{n + 1:03}" for n in range(self.jobs)])
        ids: dict[str, str] = {}

        async def client() -> None:
            for order in orders:
                ids[order] = await self._submit_until_answered(queue, network, order)

        async with self.app.background_worker(queue):
            await asyncio.gather(*(client() for _ in range(CLIENT_COUNT)))
            results = [await self._result(queue, job_id) for job_id in ids.values()]
        outcomes = queue.runtime_stats().outcomes
        return {
            "orders": self.jobs,
            **self.counts,
            "jobs": outcomes.get("created", 0),
            "duplicatesAbsorbed": outcomes.get("replayed", 0),
            "results": len([one for one in results if one is not None]),
            "chargedOnce": sum(1 for times in self.charged.values() if times == 1),
        }

    async def _submit_until_answered(self, queue: Ledger, network: LossyNetwork, order: str) -> str:
        """Retry the submission with the same key until a response is received: a client has to do no more."""

        async def submit() -> Receipt:
            return await queue.submit("charge_customer", {"order": order}, idempotency_key=f"charge-{order}")

        while True:
            try:
                return (await network.deliver(submit)).job_id
            except SimulatedLoss:
                self.counts["retries"] += 1

    async def _result(self, queue: Ledger, job_id: str) -> Any:
        try:
            await queue.wait(job_id, _WAIT)
            return await queue.result(job_id)
        except (TimeoutError, NotFound):  # counted as missing
            return None

    async def _charge(self, order: dict[str, str], ctx: Context) -> dict[str, str]:
        self.charged[order["order"]] += 1
        await asyncio.sleep(new_holder()[0] / 255 * _DELAY_MAX)
        return {"order": order["order"], "receipt": ctx.job_id[-12:]}


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--jobs", type=int, default=JOBS_DEFAULT, metavar="N", help=f"1 to {JOBS_MAX}; default: %(default)s"
    )
    command.add_argument("--json", action="store_true", help="print only the figures, in JSON")


def run(options: Namespace) -> int:
    if not 1 <= options.jobs <= JOBS_MAX:
        raise Invalid("jobs", f"the demo creates 1 to {JOBS_MAX} jobs; choose another number")
    figures = asyncio.run(_run_with_progress(options))
    succeeded = figures["jobs"] == figures["results"] == figures["chargedOnce"] == options.jobs
    if options.json:
        write(to_json(figures))
    else:
        write("\n".join(_figure_lines(figures)))
    return DONE if succeeded else FAILED


async def _run_with_progress(options: Namespace) -> dict[str, Any]:
    demo = Demo(options.jobs)
    live = sys.stdout.isatty() and not options.json
    if not options.json:
        write(f"{options.jobs} orders are sent through a network that loses and duplicates messages …")
    with tempfile.TemporaryDirectory(prefix="onejob-demo-") as folder:
        async with open_ledger(f"sqlite:///{Path(folder) / 'demo.db'}", sweep=False) as queue:
            painting = asyncio.create_task(_paint_progress(demo)) if live else None
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    return await demo.run(queue)
            finally:
                if painting is not None:
                    painting.cancel()
                    sys.stdout.write("\r\x1b[2K")


async def _paint_progress(demo: Demo) -> None:
    while True:
        counts = demo.counts
        done = len(demo.charged)
        bar = "█" * round(20 * done / demo.jobs)
        sys.stdout.write(
            f"\r\x1b[2K  {bar:<20} charged {done}/{demo.jobs}   sent {counts['sent']}, "
            f"lost {counts['requestsLost'] + counts['answersLost']}, duplicated {counts['deliveredTwice']}"
        )
        sys.stdout.flush()
        await asyncio.sleep(_REPAINT_SECONDS)


def _figure_lines(figures: dict[str, Any]) -> list[str]:
    rows = [
        ("requests sent", "sent"),
        ("  lost on the way", "requestsLost"),
        ("  answers lost", "answersLost"),
        ("  delivered twice", "deliveredTwice"),
        ("  retried with the same key", "retries"),
        ("jobs created", "jobs"),
        ("duplicates absorbed", "duplicatesAbsorbed"),
        ("results", "results"),
        ("orders charged exactly once", "chargedOnce"),
    ]
    return [f"  {text:<30}{figures.get(name, 0):>6}" for text, name in rows]
