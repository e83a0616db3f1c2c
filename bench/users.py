"""What being counted costs: one user in a hurry, many users, and nobody counted, on the same engine."""

import asyncio
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from onejob.clock import SystemClock
from onejob.core.batch import decide_batch, load_facts_sync
from onejob.core.command import Footprint
from onejob.core.identity import policy_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME, CostLimit, Limits, Period, encode_limits
from onejob.core.replies import Created, UsageFound
from onejob.core.slots import SetLimits
from onejob.engine import Engine
from onejob.engines import open_engine
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.engines.sqlite import SqliteEngine
from onejob.ids import new_job_id
from onejob.ledger.parse import Caller, build_submit
from onejob.settings import IdempotencyConfig

from .database import database_server
from .measure import Laps, Report, Work, rates
from .submissions import random_keys, submission

CALLERS = 64
USERS = 1000
EACH = 60
# Everything is limited, and nothing is reached: only the counting is measured.
LIMITS = encode_limits(Limits(10**9, 10**9, 10**9, CostLimit(10**15, Period.MONTH)))


async def users(folder: Path, report: Report, rounds: int) -> None:
    """On each engine that many callers share."""
    await _compare("SQLite", await SqliteEngine.open(str(folder / "users.db")), report, rounds)
    server = database_server()
    try:
        server.init()
        server.start()
        await _compare("PostgreSQL", await open_engine(server.database()), report, rounds)
    finally:
        server.remove()
    _footprint(report, random_keys(random.Random(8)), rounds)


async def _compare(on: str, engine: Engine, report: Report, rounds: int) -> None:
    report.title(f"Submissions per second on {on} with quotas ({CALLERS} callers, every limit set)")
    keys = random_keys(random.Random(7))
    gate = Gate(Batcher(engine), IdempotencyConfig(), SystemClock().monotonic)
    names = {
        "hot user": ["hot"] * CALLERS,
        "many users": [f"user-{n}" for n in range(USERS)],
        "nobody counted": [f"free-{n}" for n in range(USERS)],
    }
    for name in ("hot user", "many users"):
        for user in dict.fromkeys(names[name]):
            await _limit(gate, user)

    async def worker(callers: list[Caller], share: list[str]) -> None:
        for number, key in enumerate(share):
            caller = callers[number % len(callers)]
            (reply,) = await gate.execute([build_submit(submission(key), caller, new_job_id())])
            assert isinstance(reply, Created), reply

    def lane(name: str) -> Work:
        callers = [Caller(user=user) for user in names[name]]

        async def work() -> int:
            shares = [(callers[n::CALLERS], list(islice(keys, EACH))) for n in range(CALLERS)]
            await asyncio.gather(*(worker(*share) for share in shares))
            return CALLERS * EACH

        return work

    seen = await rates({name: lane(name) for name in names}, rounds)
    await gate.aclose()
    for name, rate in seen.items():
        report.row(name, f"{rate:,.0f}")
    report.bar(f"{on}: hot user / many users", seen["hot user"] / seen["many users"], least=0.5)
    report.bar(f"{on}: many users / nobody counted", seen["many users"] / seen["nobody counted"], least=0.3)


async def _limit(gate: Gate, user: str) -> None:
    tenant = Caller().tenant
    (reply,) = await gate.execute(
        [
            SetLimits(
                tenant=tenant,
                usage_id=usage_id(tenant, user),
                policy_id=policy_id(tenant, QUOTA_POLICY_NAME),
                user=user,
                limits=LIMITS,
            )
        ]
    )
    assert isinstance(reply, UsageFound)


def _footprint(report: Report, keys: Iterator[str], rounds: int) -> None:
    """What it costs that every submission asks after a tally and a policy, where there are none."""
    laps = Laps(CALLERS)
    for _ in range(rounds * 20):
        batch = [build_submit(submission(key), Caller(), new_job_id()) for key in islice(keys, CALLERS)]
        named = [command.footprint for command in batch]
        bare = [Footprint(f.tenant, f.record, f.jobs, follow_jobs=True) for f in named]
        for name, footprints in (("with tally and policy", named), ("without", bare)):
            laps.begin()
            decide_batch(batch, footprints, load_facts_sync(footprints, lambda _: ()), 1)
            laps.lap(f"gather and fold {name}, µs")
    for name, value in laps.medians().items():
        report.row(name, f"{value:.2f}")
