"""Two changes of one store at once: the second is executed between the load and the write of the first.

Whatever the two are, the result must be that of the second and then the first, as the memory engine has it.
`python -m tests.campaigns.postgres_races` executes all pairs on a server of its own.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, product
from typing import Any, NamedTuple

import asyncpg

from onejob.clock import Clock
from onejob.conformance.commands import FactsRead, IncrementCounter
from onejob.conformance.samples import (
    ACTOR,
    TENANT,
    USER,
    fence,
    key_id,
    quota_ids,
    reserve,
    set_limit,
    set_policy,
    settle,
    submit,
    submit_counted,
    submit_sequence,
)
from onejob.core.command import Command
from onejob.core.facts import Job, Kind
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, TenantLimits, encode_limits
from onejob.core.maintenance import Forget, Purge
from onejob.core.memo import BeginStep
from onejob.core.replies import AnyReply, Claimed, Created, KeyHeld
from onejob.core.reserve import Renew, Verdict
from onejob.core.slots import ReleaseSlot, ReserveSlot
from onejob.core.work import Cancel, Claim, Extend, Finish, FinishOutcome, Release, Start
from onejob.engine import Engine, ListFacts
from onejob.engines.memory import MemoryEngine
from onejob.engines.postgres import PostgresEngine, store
from onejob.ids import new_holder, new_job_id
from tests.support.postgres_server import Server, SharedDatabase, StoreClock

LONG_MS = 60_000
SLOT = "a-slot"
COUNTS = 60


class Stage(NamedTuple):
    """One tenant with a job in every state, and what its holders know."""

    tenant: str
    commands: list[Command[Any]]
    held: KeyHeld  # with a job that is being prepared
    plain: KeyHeld  # without a job
    pending: bytes
    claimed: Claimed
    running: Claimed

    def work(self, claimed: Claimed) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "job_id": claimed.job.id,
            "token": claimed.job.token,
            "holder": claimed.job.holder,
        }


async def prepare_stage(tenant: str, memory: Engine, *, is_counted: bool) -> Stage:
    commands: list[Command[Any]] = []

    async def execute(command: Command[Any]) -> Any:
        commands.append(command)
        (reply,) = await memory.execute([command])
        return reply

    if is_counted:
        await execute(set_limit(10, tenant))
    held = await execute(reserve("held", lease_ms=LONG_MS, **quota_ids(tenant)))
    plain = await execute(reserve("plain", lease_ms=LONG_MS, tenant=tenant, job_id=b""))
    jobs = []
    for name in ("pending", "claimed", "running"):
        created = await execute(submit_counted(name, tenant=tenant, ttl_ms=LONG_MS))
        assert isinstance(created, Created), created
        jobs.append(created.job.id)
    pending, *others = jobs
    claims = [
        await execute(Claim(tenant=tenant, job_id=id, holder=new_holder(), start=start))
        for id, start in zip(others, (False, True), strict=True)
    ]
    await execute(submit_sequence(1, tenant=tenant))
    await execute(ReserveSlot(**quota_ids(tenant), user=USER, reservation=SLOT))
    return Stage(tenant, commands, held, plain, pending, *claims)


def _tenant_limits(stage: Stage, most: int) -> Command[Any]:
    body = encode_limits(TenantLimits(ceiling=Limits(max_concurrent=most)))
    return set_policy(QUOTA_POLICY_NAME, stage.tenant, body=body)


def _finish(stage: Stage, outcome: FinishOutcome) -> Command[Any]:
    return Finish(**stage.work(stage.running), outcome=outcome, result=b"1", actor=ACTOR)


def _begin_step(stage: Stage) -> Command[Any]:
    return BeginStep(**stage.work(stage.running), name="charge", fingerprint=b"f", step_holder=new_holder())


Build = Callable[[Stage], Command[Any]]
# Every kind of change, on few facts, so that most pairs meet.
CHANGES: dict[str, Build] = {
    "submit": lambda s: submit_counted("new", tenant=s.tenant, job_id=new_job_id()),
    "submit the same key": lambda s: submit_counted("new", tenant=s.tenant, job_id=new_job_id(), input=b"{}"),
    "submit a known key": lambda s: submit_counted("pending", tenant=s.tenant),
    "submit without limits": lambda s: submit("free", **quota_ids(s.tenant, "bob"), user="bob"),
    "submit without a key": lambda s: submit("", **quota_ids(s.tenant)),
    "submit a number": lambda s: submit_sequence(2, tenant=s.tenant),
    "submit the number again": lambda s: submit_sequence(2, tenant=s.tenant, input=b"[]"),
    "reserve": lambda s: reserve("new", **quota_ids(s.tenant)),
    "renew": lambda s: Renew(**fence(s.held, s.tenant), lease_ms=LONG_MS),
    "commit": lambda s: settle(s.held, tenant=s.tenant),
    "reject": lambda s: settle(s.held, Verdict.REJECT, tenant=s.tenant, receipt=b"no"),
    "settle": lambda s: settle(s.plain, tenant=s.tenant, receipt=b"yes"),
    "settle otherwise": lambda s: settle(s.plain, tenant=s.tenant, receipt=b"no"),
    "claim": lambda s: Claim(tenant=s.tenant, job_id=s.pending, holder=new_holder()),
    "claim and start": lambda s: Claim(tenant=s.tenant, job_id=s.pending, holder=new_holder(), start=True),
    "start": lambda s: Start(**s.work(s.claimed)),
    "release": lambda s: Release(**s.work(s.claimed)),
    "extend": lambda s: Extend(**s.work(s.running), progress="1", logs=("a line",)),
    "finish": lambda s: _finish(s, FinishOutcome.SUCCESS),
    "fail": lambda s: _finish(s, FinishOutcome.FAILED),
    "begin a step": _begin_step,
    "cancel": lambda s: Cancel(tenant=s.tenant, job_id=s.running.job.id, actor=ACTOR),
    "cancel a pending job": lambda s: Cancel(tenant=s.tenant, job_id=s.pending, actor=ACTOR),
    "set limits": lambda s: set_limit(3, s.tenant),
    "set a user's first limits": lambda s: set_limit(0, s.tenant, "bob"),
    "set tenant limits": lambda s: _tenant_limits(s, 0),
    "set other tenant limits": lambda s: _tenant_limits(s, 7),
    "reserve a slot": lambda s: ReserveSlot(**quota_ids(s.tenant), user=USER, reservation="another-slot"),
    "release a slot": lambda s: ReleaseSlot(**quota_ids(s.tenant), reservation=SLOT),
    "forget": lambda s: Forget(tenant=s.tenant, record_id=key_id("pending", s.tenant), grace_ms=0, actor=ACTOR),
    "purge": lambda s: Purge(tenant=s.tenant, record_id=key_id("held", s.tenant)),
}


class RacingEngines:
    """Two engines on one database. The first does something else between the load and the write of a change."""

    def __init__(self, first: PostgresEngine, second: PostgresEngine, db: Any, clock: Clock) -> None:
        self.first = first
        self.second = second
        self.db = db
        self._clock = clock
        self._meanwhile: Callable[[], Awaitable[None]] | None = None
        self._tenants = (f"t{n}" for n in count())
        self.pauses = 0
        self.first_remembers = False  # True: the first has prepared all, so that its changes need no load
        for one in _stores(first):
            one._store_verified = self._paused(one._store_verified)  # type: ignore[method-assign]

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, clock: Clock) -> AsyncIterator["RacingEngines"]:
        async with AsyncExitStack() as stack:
            first, second = [await PostgresEngine.open(url, clock=clock) for _ in range(2)]
            for engine in (first, second):
                stack.push_async_callback(engine.aclose)
            db = await asyncpg.connect(url)
            stack.push_async_callback(db.close)
            yield cls(first, second, db, clock)

    def writers(self) -> list[store.PostgresStore]:
        return _stores(self.first)

    async def find_difference(self, first: Build, *second: Build) -> str:
        """Race two changes on a new tenant; empty if the result is that of the second and then the first.

        Without a second, the first alone.
        """
        memory = MemoryEngine(self._clock)
        # What counts a job is always loaded.
        stage = await prepare_stage(next(self._tenants), memory, is_counted=not self.first_remembers)
        if self.first_remembers:
            for one in stage.commands:
                await self.first.execute([one])
        else:
            await self.second.execute(stage.commands)
        command, others = first(stage), [build(stage) for build in second]
        expected = [*[(await memory.execute([other]))[0] for other in others], *await memory.execute([command])]
        replies: list[AnyReply] = []

        async def meanwhile() -> None:
            for other in others:
                replies.extend(await self.second.execute([other]))

        paused_before = self.pauses
        reply = await self.execute(command, meanwhile)
        if others and self.pauses == paused_before:  # the first has changed nothing, or it deletes
            return ""
        for found, right in zip([*replies, reply], expected, strict=True):
            if found != right:
                return f"replied {found}, not {right}"
        stored, right_ones = await self._dump(stage.tenant), _dump_memory(memory)
        return "" if stored == right_ones else f"stored {stored}, not {right_ones}"

    async def execute(self, command: Command[Any], meanwhile: Callable[[], Awaitable[None]]) -> AnyReply:
        """Execute a command on the first engine, and something else before its write, if it comes so far."""
        self._meanwhile = meanwhile
        (reply,) = await self.first.execute([command])
        self._meanwhile = None
        return reply

    def _paused(self, store_verified: Any) -> Any:
        async def store_paused(*args: Any) -> bool:
            meanwhile, self._meanwhile = self._meanwhile, None
            if meanwhile is not None:
                self.pauses += 1
                await meanwhile()
            return bool(await store_verified(*args))

        return store_paused

    async def _dump(self, tenant: str) -> list[Any]:
        found: list[Any] = []
        for kind in Kind:
            found += (await self.first.scan(ListFacts(tenant=tenant, kind=kind))).items
        jobs = [fact.id for fact in found if isinstance(fact, Job)]
        rows = await self.db.fetch("SELECT * FROM attachment WHERE job_id = ANY ($1) ORDER BY 1, 2, 3", jobs)
        return found + [tuple(row) for row in rows]


def _dump_memory(memory: MemoryEngine) -> list[Any]:
    facts = [fact for table in memory.facts for _, fact in sorted(table.items())]
    return facts + sorted((one.job_id, int(one.kind), int(one.index), one.data) for one in memory.attachments.values())


def _stores(engine: PostgresEngine) -> list[store.PostgresStore]:
    return list(engine._idle_writers._queue)  # type: ignore[attr-defined]


def disable(path: str, engine: PostgresEngine) -> None:
    """From now on the engine takes another path."""

    async def never_applies(*_: Any) -> None:
        return None

    for one in _stores(engine):
        setattr(one, path, never_applies)


def forget_facts(engine: PostgresEngine) -> None:
    """From now on the engine loads what it has stored before."""
    for one in _stores(engine):
        one._fact_cache.note_connection(lambda: None)  # one that it does not know


def forbid_locks(engine: PostgresEngine) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the locked path was taken")

    for one in _stores(engine):
        one._execute_locked = forbidden  # type: ignore[method-assign]


async def count_up(url: str, *, locking: bool) -> list[int]:
    """Increment one counter many times; returns the numbers that it had."""
    engine = await PostgresEngine.open(url)
    if locking:
        disable("_change_fast", engine)
    try:
        versions = []
        for _ in range(COUNTS):
            (reply,) = await engine.execute([IncrementCounter(tenant=TENANT)])
            assert isinstance(reply, FactsRead), reply
            assert reply.policy is not None
            versions.append(reply.policy.version)
        return versions
    finally:
        await engine.aclose()


async def race_all_pairs() -> int:
    server = Server()
    try:
        server.init()
        server.start()
        differences = []
        for mode in ("without locks", "with locks", "while the first remembers"):
            tables = SharedDatabase(server.database())
            async with RacingEngines.open(tables.url, StoreClock(tables)) as engines:
                if mode == "with locks":
                    disable("_change_fast", engines.second)
                engines.first_remembers = mode == "while the first remembers"
                for first, second in product(CHANGES, CHANGES):
                    difference = await engines.find_difference(CHANGES[first], CHANGES[second])
                    if difference:
                        differences.append(f"{first}, meanwhile {second} {mode}: {difference}")
                print(f"{len(CHANGES) ** 2} pairs, {engines.pauses} of them raced, the second {mode}")
            tables.close()
    finally:
        server.remove()
    print("\n".join(differences) or "each pair has the result of the second, then the first")
    return bool(differences)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        print("begun", flush=True)
        print(*asyncio.run(count_up(sys.argv[2], locking=False)))
    else:
        sys.exit(asyncio.run(race_all_pairs()))
