"""The sweeper skips facts that it cannot change, and continues where it stopped."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onejob.clock import FakeClock
from onejob.conformance.queries import store_facts
from onejob.conformance.samples import TENANT, a_job, a_record
from onejob.core.facts import FORMAT, Kind
from onejob.core.states import JobState
from onejob.engine import ListDueFacts, ListFacts, Page, Query
from onejob.engines.memory import MemoryEngine
from onejob.runtime import maintenance
from onejob.runtime.maintenance import Sweeper, SweepResult

PAGE = 3
UNREADABLE = 2 * PAGE + 1


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    """A store whose first due facts have a newer format, so that this program cannot sweep them."""
    monkeypatch.setattr(maintenance, "SWEEP_PAGE_SIZE", PAGE)
    engine = MemoryEngine(FakeClock())
    newer = FORMAT + 1
    await store_facts(engine, [a_record(f"n{n}", expires_at=n + 1, format=newer) for n in range(UNREADABLE)])
    await store_facts(engine, [a_job(state=JobState.SUCCESS, due_at=n + 1, format=newer) for n in range(UNREADABLE)])
    return engine


async def count_facts(engine: MemoryEngine, kind: Kind) -> int:
    return len((await engine.scan(ListFacts(tenant=TENANT, kind=kind))).items)


async def test_facts_that_must_stay_do_not_block_the_due_facts_after_them(engine: MemoryEngine) -> None:
    await store_facts(engine, [a_record(f"k{n}", expires_at=1000 + n) for n in range(2 * PAGE)])
    await store_facts(engine, [a_job(state=JobState.SUCCESS, due_at=1000 + n) for n in range(2 * PAGE)])
    assert await Sweeper(engine).sweep() == SweepResult(2 * PAGE, 2 * PAGE)
    assert (await count_facts(engine, Kind.RECORD), await count_facts(engine, Kind.JOB)) == (UNREADABLE, UNREADABLE)


async def test_a_sweep_that_ended_early_continues_the_next_time(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_ROUNDS_MAX", 1)
    await store_facts(engine, [a_record("behind", expires_at=1000)])
    sweeper = Sweeper(engine)
    assert [(await sweeper.sweep()).records for _ in range(4)] == [0, 0, 1, 0]


class WatchedEngine(MemoryEngine):
    """Calls `before_records` before each page of expired records is listed."""

    before_records: Callable[[], Awaitable[None]]

    async def scan(self, query: Query[Any], /) -> Page[Any]:
        if isinstance(query, ListDueFacts) and query.kind is Kind.RECORD:
            await self.before_records()
        return await super().scan(query)


async def test_expired_leases_are_ended_before_expired_records_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that expire while a hundred thousand records are being deleted."""
    monkeypatch.setattr(maintenance, "SWEEP_PAGE_SIZE", PAGE)
    engine = WatchedEngine(FakeClock())
    await store_facts(engine, [a_record(f"k{n}", expires_at=1000 + n) for n in range(3 * PAGE)])
    jobs = [a_job(state=JobState.RUNNING, due_at=due_at, lease_until=due_at, attempts_max=2) for due_at in (2000, 3000)]
    await store_facts(engine, jobs[:1])
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        ready = sum(job.state is JobState.PENDING for job in engine.facts[Kind.JOB].values())
        seen.append((len(engine.facts[Kind.RECORD]), ready))
        if len(engine.facts[Kind.JOB]) == 1:
            await store_facts(engine, jobs[1:])

    engine.before_records = look
    swept = await Sweeper(engine).sweep()
    assert seen[:2] == [(3 * PAGE, 1), (2 * PAGE, 2)]
    assert (swept.records, swept.jobs) == (3 * PAGE, 2)


async def test_a_job_is_never_deleted_before_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_PAGE_SIZE", PAGE)
    engine = WatchedEngine(FakeClock())
    jobs = [a_job(state=JobState.SUCCESS, due_at=1000 + n) for n in range(3 * PAGE)]
    await store_facts(engine, jobs)
    await store_facts(engine, [a_record(f"k{n}", job_ids=job.id, expires_at=1000) for n, job in enumerate(jobs)])

    async def look() -> None:
        assert len(engine.facts[Kind.JOB]) == len(jobs)

    engine.before_records = look
    assert await Sweeper(engine).sweep() == SweepResult(3 * PAGE, 3 * PAGE)


async def test_a_sweep_starts_over_after_it_reached_the_end(engine: MemoryEngine) -> None:
    sweeper = Sweeper(engine)
    await sweeper.sweep()
    await store_facts(engine, [a_record("early", expires_at=1)])
    assert (await sweeper.sweep()).records == 1
