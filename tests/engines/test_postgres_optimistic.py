"""Changes in two round trips: load without locks, decide, verify and store. Each is decided on what is stored, or again.

One round trip if this process has stored the facts last.
"""

import asyncio
import random
import re
import sys
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.conformance.samples import (
    ACTOR,
    OTHER,
    TENANT,
    USER,
    fence,
    key_id,
    quota_ids,
    reserve,
    set_limit,
    settle,
    submit,
    submit_counted,
)
from onejob.conformance.world import dump_store, expect
from onejob.core.facts import Kind
from onejob.core.maintenance import Purge
from onejob.core.replies import (
    Claimed,
    Created,
    Extended,
    Finished,
    KeyHeld,
    KeySettled,
    Refused,
    Replayed,
    SlotHeld,
    Started,
    UsageFound,
)
from onejob.core.reserve import Renew
from onejob.core.slots import ReserveSlot
from onejob.core.work import Claim, Extend, Finish, FinishOutcome, Start
from onejob.engine import ListReadyJobs
from onejob.engines.memory import MemoryEngine
from onejob.engines.postgres import PostgresEngine, fact_cache, store
from onejob.engines.postgres.parts import INLINE_ROWS_MAX
from onejob.engines.postgres.statements import Statements
from onejob.engines.postgres.transaction import STAMP_LAG_MS_MAX
from onejob.ids import new_holder
from tests.campaigns.postgres_races import (
    CHANGES,
    LONG_MS,
    RacingEngines,
    Stage,
    count_up,
    disable,
    forbid_locks,
    forget_facts,
)
from tests.support.postgres_server import StoreClock

from .postgres_proxy import run_postgres_proxy
from .test_postgres_connection_loss import wait_for_blocked_statement

PAIRS = 30


@pytest.fixture
async def racing(postgres_url: str, store_clock: StoreClock) -> AsyncIterator[RacingEngines]:
    async with RacingEngines.open(postgres_url, store_clock) as engines:
        yield engines


async def test_every_change_takes_two_round_trips_or_one(postgres_url: str) -> None:
    """A message that asks the server to answer is a round trip. Statements are prepared once, so each is executed twice."""
    async with run_postgres_proxy(postgres_url) as (proxy, url):
        engine = await PostgresEngine.open(url)
        trips = 0

        def count_trips(side: str, letter: bytes, _: bytes) -> bool:
            nonlocal trips
            trips += side == "query" and letter in b"QS"
            return False

        proxy.cut_rule = count_trips

        async def trips_of(command: Any, kind: type[Any]) -> Any:
            nonlocal trips
            trips = 0
            return await expect(engine, command, kind), trips

        measured: dict[str, int] = {}
        await expect(engine, set_limit(100), UsageFound)
        for n in range(2):
            held, _ = await trips_of(reserve(f"held{n}", tenant=TENANT, job_id=b""), KeyHeld)
            _, measured["renew"] = await trips_of(Renew(**fence(held), lease_ms=LONG_MS), KeyHeld)
            _, measured["settle"] = await trips_of(settle(held), KeySettled)
            held, _ = await trips_of(reserve(f"job{n}", lease_ms=LONG_MS), KeyHeld)
            _, measured["renew with a job"] = await trips_of(Renew(**fence(held), lease_ms=LONG_MS), KeyHeld)
            _, measured["settle with a job"] = await trips_of(settle(held), KeySettled)
            for name, submission in (("", submit), (" counted", submit_counted)):
                created, submit_trips = await trips_of(submission(f"{name}{n}", ttl_ms=LONG_MS), Created)
                # It first tries to insert as if there were no limits, unless it did so a moment ago.
                assert submit_trips <= 3 or not n
                claim = Claim(tenant=TENANT, job_id=created.job.id, holder=new_holder())
                claimed, measured[f"claim{name}"] = await trips_of(claim, Claimed)
                job = {"tenant": TENANT, "job_id": claimed.job.id, "token": claimed.job.token, "holder": claim.holder}
                _, measured[f"start{name}"] = await trips_of(Start(**job), Started)
                _, measured[f"extend{name}"] = await trips_of(Extend(**job, logs=("a",)), Extended)
                finish = Finish(**job, outcome=FinishOutcome.SUCCESS, result=b"1", actor=ACTOR)
                _, measured[f"finish{name}"] = await trips_of(finish, Finished)
            _, measured["set limits"] = await trips_of(set_limit(200 + n), UsageFound)
            slot = ReserveSlot(**quota_ids(), user=USER, reservation=f"slot{n}")
            _, measured["reserve a slot"] = await trips_of(slot, SlotHeld)
        proxy.cut_rule = None
        await engine.aclose()
    loaded = {
        "claim",
        "claim counted",
        "finish counted",
        "set limits",
        "reserve a slot",
    }
    assert measured == {name: 2 if name in loaded else 1 for name in measured}


@pytest.mark.parametrize("seconds", [0.03, 0.1])
async def test_changes_take_two_round_trips_to_a_server_far_away(postgres_url: str, seconds: float) -> None:
    """The clock of the load is too old for the change when it arrives, so the change is dated when it is decided."""
    async with run_postgres_proxy(postgres_url) as (proxy, url):
        engine = await PostgresEngine.open(url)
        proxy.delay_seconds = seconds
        letters: list[bytes] = []

        def record(side: str, letter: bytes, _: bytes) -> bool:
            if side == "query" and letter in b"QS":
                letters.append(letter)
            return False

        proxy.cut_rule = record
        holds = [reserve(f"k{n}", job_id=b"", lease_ms=LONG_MS) for n in range(2)]
        held = [await expect(engine, hold, KeyHeld) for hold in holds]
        forget_facts(engine)
        last = 0
        for n in range(2):
            letters.clear()  # statements are prepared in the first turn
            settled = await expect(engine, settle(held[n]), KeySettled)
            assert max(last, held[n].at) < settled.at
            last = settled.at
        assert len(letters) == 2
        for hold in holds:
            letters.clear()
            (reply,) = await engine.execute([hold])
            assert isinstance(reply, KeySettled | Replayed)
            assert last <= reply.at
        assert len(letters) == 1
        proxy.cut_rule = None
        await engine.aclose()


@pytest.mark.parametrize("path", ["without locks", "with locks"])
async def test_changes_are_stored_the_same_with_and_without_locks(racing: RacingEngines, path: str) -> None:
    """The same as by the memory engine, which has one path."""
    disable("_insert_fast", racing.first)
    if path == "with locks":
        disable("_change_fast", racing.first)
    else:
        forbid_locks(racing.first)
    for name in CHANGES.keys() - ({"purge"} if path == "without locks" else set()):
        assert not await racing.find_difference(CHANGES[name]), name


async def test_batches_of_any_size_are_stored_the_same(racing: RacingEngines, store_clock: StoreClock) -> None:
    """Rows are written out and filled up to a few numbers; batches of many rows take the locked path."""
    memory = MemoryEngine(store_clock)
    forbid_locks(racing.first)
    for size in (1, 2, 5, 11, INLINE_ROWS_MAX, INLINE_ROWS_MAX + 1):
        commands: list[Any] = [submit(f"{size}.{n}", ttl_ms=LONG_MS) for n in range(size)]
        await racing.second.execute(commands)
        claims = [Claim(tenant=TENANT, job_id=one.job_id, holder=new_holder(), start=True) for one in commands]
        await memory.execute(commands)
        for one in await memory.execute(claims):
            assert isinstance(one, Started)
            job: Any = {"tenant": TENANT, "job_id": one.job.id, "token": one.job.token, "holder": one.job.holder}
            commands.append(Finish(**job, outcome=FinishOutcome.SUCCESS, result=b"1", actor=ACTOR))
        finishes = commands[size:]
        await memory.execute(finishes)
        engine = racing.first if size <= INLINE_ROWS_MAX else racing.second
        await engine.execute(claims)
        assert [type(reply) for reply in await engine.execute(finishes)] == [Finished] * size
    assert await dump_store(racing.first) == await dump_store(memory)


@pytest.mark.parametrize("second", ["without locks", "with locks", "while the first remembers"])
async def test_a_race_of_two_changes_has_the_result_of_one_after_the_other(
    racing: RacingEngines, second: str, request: pytest.FixtureRequest
) -> None:
    """A few of all pairs; `make prove` executes all."""
    if second == "with locks":
        disable("_change_fast", racing.second)
    racing.first_remembers = second == "while the first remembers"
    rng = random.Random(request.config.getoption("randomly_seed", 0))
    for first, other in rng.sample(list(product(CHANGES, CHANGES)), PAIRS):
        assert not await racing.find_difference(CHANGES[first], CHANGES[other]), (first, other)
    assert racing.pauses > PAIRS // 2


def _created_again(stage: Stage) -> Any:
    """The same key once more: its record has the version that the deleted one had, and another holder."""
    return reserve("plain", lease_ms=LONG_MS, tenant=stage.tenant, job_id=b"")


def _deleted(stage: Stage) -> Any:
    return Purge(tenant=stage.tenant, record_id=key_id("plain", stage.tenant))


# A change, and what happens between its load and its write.
RACES = {
    "a changed version": ("settle", (CHANGES["settle otherwise"],)),
    "a record that was deleted and created again": ("settle", (_deleted, _created_again)),
    "a policy that was absent": ("submit", (CHANGES["set tenant limits"],)),
}
# What removes the check that notices it.
MUTATIONS = {
    "a changed version": (r" AND t\.version = u\.was(?: AND t\.xmin = u\.by)?", ""),
    "a record that was deleted and created again": (r" AND t\.xmin = u\.by", ""),
    "a policy that was absent": (r'"\w+"\.onejob_are_absent\([^)]*\)', r"(\g<0> IS NOT NULL)"),
}


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("race", RACES)
async def test_what_changed_after_the_load_is_noticed(racing: RacingEngines, race: str, remembers: bool) -> None:
    name, meanwhile = RACES[race]
    racing.first_remembers = remembers
    assert not await racing.find_difference(CHANGES[name], *meanwhile)
    assert racing.pauses == 1


@pytest.mark.parametrize(("race", "remembers"), [*((race, False) for race in RACES), ("a changed version", True)])
async def test_without_its_check_a_race_goes_wrong(
    postgres_url: str, store_clock: StoreClock, monkeypatch: pytest.MonkeyPatch, race: str, remembers: bool
) -> None:
    """The test above can fail: each check is removed from the statement, and the race shows it."""
    build = Statements._verified_changes_sql

    def mutated(*args: Any, **options: Any) -> str:
        return re.sub(*MUTATIONS[race], build(*args, **options))

    monkeypatch.setattr(Statements, "_verified_changes_sql", mutated)
    async with RacingEngines.open(postgres_url, store_clock) as racing:
        name, meanwhile = RACES[race]
        racing.first_remembers = remembers
        assert await racing.find_difference(CHANGES[name], *meanwhile)


async def test_another_connection_may_be_to_another_server(racing: RacingEngines) -> None:
    """After a failover a row may have the version and the xmin of one that was lost, so all is loaded again."""
    held = await expect(racing.first, reserve(job_id=b"", lease_ms=LONG_MS), KeyHeld)
    memory = racing.writers()[0]._fact_cache
    settling = settle(held)
    assert memory.recall([settling.footprint]) is not None
    for one in racing.writers():
        one.connector.terminate()
    await expect(racing.first, submit("other"), Created)
    assert memory.recall([settling.footprint]) is None
    await expect(racing.first, settling, KeySettled)


async def test_a_ready_job_that_a_scan_has_found_is_claimed_without_a_load(racing: RacingEngines) -> None:
    """Where others were faster, the claim is refused truthfully, and the next scans are not remembered for a while."""
    memory = racing.writers()[0]._fact_cache
    commands = [submit(f"k{n}", ttl_ms=LONG_MS) for n in range(3)]
    await racing.second.execute(commands)
    await expect(racing.first, submit("own", ttl_ms=LONG_MS), Created)  # it has a connection now
    claims = [Claim(tenant=TENANT, job_id=one.job_id, holder=new_holder(), start=True) for one in commands]
    scan = ListReadyJobs(types=(commands[0].type,), tenant=TENANT)

    assert not memory.recall([claims[0].footprint])
    ready = await racing.first.scan(scan)
    assert all(memory.recall([one.footprint]) for one in claims)
    started = await expect(racing.first, claims[0], Started)
    memory.remember_ready([(job, 1) for job in ready.items])  # as a scan that began before the claim and ended after it
    known = memory.recall([claims[0].footprint])
    assert known is not None
    assert known.working_set.tables[Kind.JOB][started.job.id] == started.job

    await expect(racing.second, claims[1], Started)
    other = replace(claims[1], holder=new_holder())
    await expect(racing.first, other, Refused)  # nothing would change, so it is loaded
    both = [replace(other, holder=new_holder()), claims[2]]
    assert [type(reply) for reply in await racing.first.execute(both)] == [Refused, Started]
    assert not memory.recall([other.footprint])
    late = submit("late", ttl_ms=LONG_MS)
    await expect(racing.second, late, Created)
    await racing.first.scan(scan)
    assert not memory.recall([Claim(tenant=TENANT, job_id=late.job_id, holder=new_holder()).footprint])


async def test_batches_of_all_sizes_need_few_statements(racing: RacingEngines) -> None:
    forbid_locks(racing.first)
    await expect(racing.first, submit("first"), Created)
    texts = racing.writers()[0]._statements.verified_changes_sql
    before = texts.cache_info().currsize
    for size in range(1, INLINE_ROWS_MAX + 1):
        held = await racing.first.execute([reserve(f"{size}.{n}", job_id=b"", lease_ms=LONG_MS) for n in range(size)])
        settled = await racing.first.execute([settle(one) for one in held if isinstance(one, KeyHeld)])
        assert [type(reply) for reply in settled] == [KeySettled] * size
    assert texts.cache_info().currsize - before <= 8


async def test_what_is_remembered_is_bounded(racing: RacingEngines, store_clock: StoreClock) -> None:
    memory = racing.writers()[0]._fact_cache
    await expect(racing.first, submit("first"), Created)
    holds = [reserve(f"k{n}", job_id=b"", lease_ms=LONG_MS) for n in range(fact_cache.REMEMBERED_MAX + 1)]
    held = await racing.first.execute(holds)
    settles = [settle(one) for one in held if isinstance(one, KeyHeld)]
    assert len(settles) == len(holds)
    remembered = [one for one in settles if memory.recall([one.footprint])]
    assert len(remembered) == fact_cache.REMEMBERED_MAX
    await expect(racing.first, remembered[0], KeySettled)
    assert not memory.recall([remembered[0].footprint])
    assert memory.recall([remembered[1].footprint])
    store_clock.advance(fact_cache.REMEMBERED_SECONDS)
    await expect(racing.first, submit("other"), Created)
    assert not memory.recall([remembered[1].footprint])


async def test_a_change_that_comes_too_late_is_dated_again(racing: RacingEngines, store_clock: StoreClock) -> None:
    held = await expect(racing.second, reserve(job_id=b"", lease_ms=LONG_MS), KeyHeld)

    async def stall() -> None:
        store_clock.advance((STAMP_LAG_MS_MAX + 1) / 1000)

    settled = await racing.execute(settle(held), meanwhile=stall)
    assert isinstance(settled, KeySettled)
    assert settled.record.changed_at == settled.at == held.at + STAMP_LAG_MS_MAX + 1


async def test_a_barrier_waits_for_a_change_that_is_being_stored(racing: RacingEngines) -> None:
    disable("_insert_fast", racing.first)
    command = submit("new", **quota_ids())
    await racing.db.execute("BEGIN")
    await racing.db.execute("INSERT INTO attachment VALUES ($1, 0, 0, '')", command.job_id)
    call = asyncio.create_task(racing.first.execute([command]))
    await wait_for_blocked_statement(racing.db)
    await asyncio.wait_for(racing.second.barrier(OTHER), 60)
    barrier = asyncio.create_task(racing.second.barrier(TENANT, USER))
    done, _ = await asyncio.wait([barrier], timeout=0.1)
    assert not done
    await racing.db.execute("ROLLBACK")
    await asyncio.wait_for(barrier, 60)
    (created,) = await call
    assert isinstance(created, Created)


async def test_a_limit_that_is_set_between_load_and_write_counts_the_job(racing: RacingEngines) -> None:
    """No lock is held in between, so the barrier does not wait: the statement finds the limit."""
    disable("_insert_fast", racing.first)

    async def set_first_limit() -> None:
        await expect(racing.second, set_limit(5), UsageFound)
        await asyncio.wait_for(racing.second.barrier(TENANT, USER), 60)

    created = await racing.execute(submit("new", **quota_ids()), meanwhile=set_first_limit)
    assert isinstance(created, Created)
    assert created.job.usage_id


async def test_contended_facts_are_changed_under_locks_for_a_while(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines count jobs of one user: nothing is lost, and few attempts are wasted."""
    stored: list[bool] = []
    store_verified = store.PostgresStore._store_verified

    async def recorded(*args: Any) -> bool:
        stored.append(await store_verified(*args))
        return stored[-1]

    monkeypatch.setattr(store.PostgresStore, "_store_verified", recorded)
    engines = [await PostgresEngine.open(postgres_url) for _ in range(2)]
    await expect(engines[0], set_limit(1000), UsageFound)

    async def caller(number: int) -> None:
        for n in range(15):
            await expect(engines[number % 2], submit_counted(f"{number}.{n}"), Created)

    await asyncio.gather(*(caller(number) for number in range(6)))
    usage = (await expect(engines[0], set_limit(1000), UsageFound)).usage
    assert usage is not None
    assert usage.live == 90
    assert 1 <= stored.count(False) <= 30
    for engine in engines:
        await engine.aclose()


async def test_two_processes_lose_no_change(postgres_url: str) -> None:
    """One without locks, the other with locks, on the same facts."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.campaigns.postgres_races", "--count", postgres_url, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()  # it has begun
    own = await count_up(postgres_url, locking=True)
    (line,) = (await other.communicate())[0].splitlines()
    versions = [int(version) for version in line.split()]
    assert sorted(own + versions) == list(range(1, len(own) + len(versions) + 1))
