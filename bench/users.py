"""The cost of quotas: one busy user, many users, and users without quotas, on the same engine."""

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
from onejob.ledger.parse import build_submit
from onejob.runtime.callers import Caller
from onejob.settings import IdempotencyConfig

from .database import database_server
from .measure import Laps, Work, measure_here, ratios
from .report import Report
from .submissions import random_keys, submission

CALLERS = 64
USERS = 1000
EACH = 60
# Every limit is set and none is reached, so that only the counting is measured.
LIMITS = encode_limits(Limits(10**9, 10**9, 10**9, CostLimit(10**15, Period.MONTH)))


async def users(folder: Path, report: Report, rounds: int) -> None:
    await _compare("SQLite", await SqliteEngine.open(str(folder / "users.db")), report, rounds)
    server = database_server()
    try:
        server.init()
        server.start()
        await _compare("PostgreSQL", await open_engine(server.database()), report, rounds)
    finally:
        server.remove()
    _footprint(report, random_keys(random.Random(8)), rounds)


async def _compare(engine_name: str, engine: Engine, report: Report, rounds: int) -> None:
    report.title(f"Submissions per second on {engine_name} with quotas ({CALLERS} callers, every limit set)")
    keys = random_keys(random.Random(7))
    gate = Gate(Batcher(engine), IdempotencyConfig(), SystemClock().monotonic)
    names = {
        "hot user": ["hot"] * CALLERS,
        "many users": [f"user-{n}" for n in range(USERS)],
        "without quotas": [f"free-{n}" for n in range(USERS)],
    }
    for name in ("hot user", "many users"):
        for user in dict.fromkeys(names[name]):
            await _limit(gate, user)

    async def worker(callers: list[Caller], share: list[str]) -> None:
        for number, key in enumerate(share):
            caller = callers[number % len(callers)]
            (reply,) = await gate.execute([build_submit(submission(key), caller, new_job_id())])
            assert isinstance(reply, Created), reply

    def side(name: str) -> Work:
        callers = [Caller(user=user) for user in names[name]]

        async def work() -> int:
            shares = [(callers[n::CALLERS], list(islice(keys, EACH))) for n in range(CALLERS)]
            await asyncio.gather(*(worker(*share) for share in shares))
            return CALLERS * EACH

        return work

    runs = await measure_here({name: side(name) for name in names}, rounds)
    await gate.aclose()
    for name, measured in runs.items():
        report.rate(name, f"onejob, {engine_name}", measured)
    hot, many, free = (runs[name] for name in names)
    report.bar(f"{engine_name}: hot user / many users", ratios(hot, many).median, least=0.5)
    report.bar(f"{engine_name}: many users / without quotas", ratios(many, free).median, least=0.3)


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
    """The cost of a usage and a policy in every footprint, where neither exists."""
    laps = Laps(CALLERS)
    for _ in range(rounds * 20):
        batch = [build_submit(submission(key), Caller(), new_job_id()) for key in islice(keys, CALLERS)]
        full = [command.footprint for command in batch]
        bare = [Footprint(f.tenant, f.record, f.jobs, follow_jobs=True) for f in full]
        for name, footprints in (("with usage and policy", full), ("without", bare)):
            laps.begin()
            decide_batch(batch, footprints, load_facts_sync(footprints, lambda _: ()), 1)
            laps.lap(f"load_facts and decide_batch {name}, µs")
    for name, value in laps.medians().items():
        report.row(name, f"{value:.2f}")
