"""`python -m tests.engines.stopped_transaction URL`: a process that is stopped inside a transaction, with locks held."""

import asyncio
import os
import signal
import sys

from onejob.conformance.commands import FactsRead, IncrementCounter
from onejob.conformance.samples import TENANT
from onejob.core.command import Facts, Step
from onejob.engines.postgres import PostgresEngine

stops: list[int] = []


class StopInsideTransaction(IncrementCounter, frozen=True, kw_only=True):
    def decide(self, facts: Facts, now: int) -> Step[FactsRead]:
        if (
            facts.policy is not None and not stops
        ):  # loaded, so locked; the fast path decides first as if there were none
            stops.append(now)
            os.kill(os.getpid(), signal.SIGSTOP)
        return IncrementCounter.decide(self, facts, now)


async def main(url: str) -> None:
    engine = await PostgresEngine.open(url)
    await engine.execute([StopInsideTransaction(tenant=TENANT)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
