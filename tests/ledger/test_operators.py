"""What operators see and do, on every engine: counts, activity, workers, paused types, one act on many jobs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.facts import Kind
from onejob.core.identity import CALLBACK_TYPE, SYSTEM_TENANT, Actor
from onejob.core.ledger_settings import SETTINGS_POLICY_ID
from onejob.core.states import JobState
from onejob.engine import ListFacts
from onejob.errors import NotAllowed
from onejob.ledger.base import runtime_of
from onejob.ledger.operators import BulkAction
from onejob.ledger.reads import JobFilter
from onejob.ledger.service import ServiceLedger
from onejob.ledger.submissions import SubmissionOperations
from onejob.resources.jobs import JobView
from onejob.runtime.callers import Caller
from onejob.runtime.counts import ALL_TENANTS, INTERVAL_MS, CountsSnapshot, JobCounts, TypeCounts, fitted_snapshot
from onejob.runtime.paused_types import CACHE_SECONDS
from onejob.runtime.workers import WorkerInfo, announce_worker, withdraw_worker
from tests.support.ledger_settings import set_settings


@pytest.fixture
async def second(url: str, clock: FakeClock, queue: onejob.Ledger) -> AsyncIterator[onejob.Ledger]:
    """Another process on the same store; a store in memory has only one."""
    if url.startswith("memory:"):
        yield queue
        return
    async with onejob.open(url, clock=clock, sweep=False) as ledger:
        yield ledger


async def run_one(queue: onejob.Ledger, type: str) -> None:
    (attempt,) = await queue.claim(type, start=True)
    await queue.finish(attempt)


@pytest.mark.usefixtures("patient_counts")
async def test_jobs_are_counted_by_type_and_state(queue: onejob.Ledger) -> None:
    for n in range(3):
        await queue.submit("charge", n)
    await queue.submit("mail")
    await run_one(queue, "charge")
    counts = (await queue.admin.overview()).counts
    assert counts.types["charge"].states == {"pending": 2, "success": 1}
    assert counts.types["charge"].ready == 2
    assert counts.types["charge"].oldest_ready_at
    assert counts.by_state() == {"pending": 3, "success": 1}
    other = queue.acting_as(tenant="other", user="u", actor=Actor.user("u"))
    assert (await other.admin.overview()).counts.types == {}
    everything, _ = await runtime_of(queue).job_counts.load(ALL_TENANTS)
    assert everything.by_state() == {"pending": 3, "success": 1}


@pytest.mark.usefixtures("patient_counts")
async def test_a_count_is_a_snapshot_that_all_processes_share(
    queue: onejob.Ledger, url: str, clock: FakeClock, second: onejob.Ledger
) -> None:
    await queue.submit("charge")
    first = (await queue.admin.overview()).counts
    await queue.submit("charge")
    assert (await second.admin.overview()).counts == first
    clock.advance(INTERVAL_MS / 1000 + 1)
    assert (await second.admin.overview()).counts.types == first.types  # the old one, while the next is counted
    for ledger in (second, queue):
        async with asyncio.timeout(10):
            while (await ledger.admin.overview()).counts.types["charge"].states != {"pending": 2}:
                await asyncio.sleep(0.02)


@pytest.mark.usefixtures("patient_counts")
async def test_one_process_counts_while_the_others_wait(
    queue: onejob.Ledger, second: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[str | None] = []
    scan = JobCounts._scan

    async def counted_scan(self: JobCounts, tenant: str | None) -> CountsSnapshot:
        scans.append(tenant)
        return await scan(self, tenant)

    monkeypatch.setattr(JobCounts, "_scan", counted_scan)
    await queue.submit("charge")
    await asyncio.gather(*(runtime_of(ledger).job_counts.load("default") for ledger in (queue, second) * 5))
    assert (await queue.admin.overview()).counts.by_state() == {"pending": 1}
    assert scans == ["default"]


def test_a_large_store_is_counted_less_often() -> None:
    snapshot = CountsSnapshot(at=1_000_000, took_ms=2_000)
    assert not snapshot.is_outdated(1_000_000 + INTERVAL_MS + 1)
    assert snapshot.is_outdated(1_000_000 + 100_001)
    assert not CountsSnapshot(at=1, counting_until=500_000).is_outdated(400_000)


def test_more_types_than_fit_are_left_out_and_reported() -> None:
    snapshot = fitted_snapshot({f"{n:0100}": TypeCounts({"pending": n}) for n in range(500)}, is_complete=True)
    assert 50 < len(snapshot.types) < 500
    assert not snapshot.is_complete


async def test_activity_is_added_up_over_processes(queue: onejob.Ledger, second: onejob.Ledger) -> None:
    await queue.submit("charge", idempotency_key="k")
    await second.submit("charge", idempotency_key="k")
    await second.submit("charge", idempotency_key="other")
    with pytest.raises(onejob.IdempotencyConflict):
        await second.submit("charge", {"a": 1}, idempotency_key="k")
    await run_one(second, "charge")
    for ledger in (queue, second, second):
        await runtime_of(ledger).activity.report()
    series = (await queue.admin.overview()).activity.series
    sums = {name: sum(one.hours) for name, one in series.items()}
    assert sums == {"created": 2, "replayed": 1, "conflict": 1, "end:success": 1}
    assert (await second.admin.overview()).activity == (await queue.admin.overview()).activity
    assert sum((await queue.admin.overview()).activity.types["charge"]["success"].hours) == 1


async def test_a_paused_type_is_accepted_and_not_claimed(queue: onejob.Ledger, second: onejob.Ledger) -> None:
    await queue.submit("charge")
    await queue.submit("mail")
    await second.admin.pause_type("charge")
    await second.admin.pause_type("charge")
    (paused,) = await queue.admin.paused_types()
    assert (paused.type, paused.by) == ("charge", "client:local")
    await queue.submit("charge")
    assert [attempt.job.type for attempt in await queue.claim(["charge", "mail"], limit=9)] == ["mail"]
    await queue.admin.resume_type("charge")
    assert len(await queue.claim(["charge", "mail"], limit=9)) == 2
    await queue.admin.resume_type("charge")
    assert await second.admin.paused_types() == []


async def test_a_pause_takes_effect_in_other_processes_within_two_seconds(
    queue: onejob.Ledger, second: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CACHE_SECONDS == 2
    await queue.submit("charge")
    assert len(await second.claim("none")) == 0  # now the second process knows that nothing is paused
    await queue.admin.pause_type("charge")
    later = asyncio.get_running_loop().time() + 2.1
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: later)
    assert await second.claim("charge") == []


async def test_workers_are_listed_until_they_leave_or_fall_silent(queue: onejob.Ledger, clock: FakeClock) -> None:
    def worker(name: str, tenant: str | None) -> WorkerInfo:
        return WorkerInfo(
            id=name, name=name, host="h", pid=1, version="1", types=("charge",), concurrency=2, running=1, ended={},
            started_at=0, tenant=tenant,
        )  # fmt: skip

    gate = runtime_of(queue).gate
    for info in (worker("own", "default"), worker("all", None), worker("foreign", "other")):
        await announce_worker(gate, info)
    found = await queue.admin.workers()
    assert [one.name for one in found] == ["own", "all"]
    assert all(one.seen_at for one in found)
    await withdraw_worker(gate, worker("own", "default"))
    assert [one.name for one in await queue.admin.workers()] == ["all"]
    clock.advance(61)
    assert await queue.admin.workers() == []
    await queue.admin.sweep()
    left = (await gate.scan(ListFacts(tenant=SYSTEM_TENANT, kind=Kind.POLICY))).items
    assert [policy.id for policy in left] == [SETTINGS_POLICY_ID]


async def test_one_act_changes_all_jobs_that_match(queue: onejob.Ledger) -> None:
    for n in range(5):
        await queue.submit("charge", n, labels={"batch": "a" if n < 3 else "b"})
    await queue.submit("mail")
    wanted = JobFilter(type="charge", state=JobState.PENDING, label=("batch", "a"))
    assert await queue.admin.count_jobs(wanted) == (3, False)
    result = await queue.admin.bulk_action(BulkAction.CANCEL, wanted)
    assert (result.matched, result.changed, result.errors, result.next) == (3, 3, [], None)
    assert await queue.admin.count_jobs(wanted) == (0, False)
    assert len(await queue.jobs(state="pending")) == 3
    assert len(await queue.jobs(label=("batch", "a"))) == 3


async def test_one_act_that_fails_half_way_does_not_say_that_nothing_was_done(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await queue.submit("charge")
    cancel, cancelled = SubmissionOperations.cancel, list[str]()

    async def fail_at_the_second(verbs: SubmissionOperations, job_id: str, **options: str) -> JobView:
        if cancelled:
            raise onejob.Unavailable("no disk")
        cancelled.append(job_id)
        return await cancel(verbs, job_id, **options)

    monkeypatch.setattr(SubmissionOperations, "cancel", fail_at_the_second)
    pending = JobFilter(type="charge", state=JobState.PENDING)
    with pytest.raises(onejob.Unknown, match="1 jobs were changed"):
        await queue.admin.bulk_action(BulkAction.CANCEL, pending)
    assert await queue.admin.count_jobs(pending) == (2, False)
    with pytest.raises(onejob.Unavailable):
        await queue.admin.bulk_action(BulkAction.CANCEL, pending)


async def test_a_job_that_cannot_be_changed_does_not_stop_the_others(queue: onejob.Ledger) -> None:
    for _ in range(2):
        await queue.submit("charge")
        await run_one(queue, "charge")
    result = await queue.admin.bulk_action(BulkAction.RERUN, JobFilter(type="charge"))
    assert (result.matched, result.changed, len(result.errors)) == (2, 0, 2)


async def test_jobs_are_listed_by_the_time_they_were_created(url: str) -> None:
    async with onejob.open(url) as queue:  # by the system's clock, which also draws the ids
        first = await queue.submit("charge")
        await asyncio.sleep(0.01)
        second = await queue.submit("charge")
        assert first.job is not None
        border = first.job.created_at + timedelta(milliseconds=1)
        assert [job.id for job in await queue.jobs(created_before=border)] == [first.job_id]
        assert [job.id for job in await queue.jobs(created_after=border)] == [second.job_id]
        assert await queue.jobs(created_after=datetime(2100, 1, 1, tzinfo=UTC)) == []


async def test_whoever_sees_only_its_own_jobs_gets_no_overview(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    ann = ServiceLedger.of(queue).for_caller(Caller("default", "ann", "user:ann", oversees=False))
    for ask in (ann.admin.overview, lambda: ann.admin.count_jobs(JobFilter(type="x"))):
        with pytest.raises(NotAllowed):
            await ask()


async def test_an_act_on_many_jobs_leaves_their_callbacks_alone_unless_it_names_them(queue: onejob.Ledger) -> None:
    receipts = [await queue.submit("charge", n, callback="https://example.com/ends") for n in range(2)]
    for _ in receipts:
        await run_one(queue, "charge")
    await queue.submit("charge")
    pending = JobFilter(state=JobState.PENDING)
    assert await queue.admin.count_jobs(pending) == (1, False)
    result = await queue.admin.bulk_action(BulkAction.CANCEL, pending)
    assert (result.matched, result.changed, result.errors) == (1, 1, [])
    callbacks = JobFilter(state=JobState.PENDING, type=CALLBACK_TYPE)
    assert await queue.admin.count_jobs(callbacks) == (2, False)
    assert (await queue.admin.bulk_action(BulkAction.CANCEL, callbacks)).changed == 2
