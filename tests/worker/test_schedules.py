"""Schedules: each tick becomes one job, missed ticks are caught up, a pause takes effect at once."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import onejob
from onejob import App, Delivery, JobState
from onejob.clock import FakeClock
from onejob.core.identity import Actor
from onejob.errors import Invalid, NotFound
from onejob.ledger.base import runtime_of
from onejob.ledger.service import ServiceLedger
from onejob.runtime.callers import Caller
from onejob.settings import IdempotencyConfig
from onejob.worker.scheduler import Scheduler
from tests.support.job_rows import load_job_row
from tests.support.ledger_settings import set_settings

MINUTE, HOUR, DAY = 60, 3600, 86_400
WORKER = Actor.client("worker")


@pytest.fixture
async def queue(url: str, clock: FakeClock) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open(url, clock=clock, sweep=False) as ledger:
        yield ledger


def hourly(**options: Any) -> App:
    app = App()
    app.every("0 * * * *", "report", **options)
    return app


def scheduler_of(app: App, queue: onejob.Ledger) -> Scheduler:
    return Scheduler(tuple(app.schedules.values()), queue)


async def ticks(queue: onejob.Ledger) -> list[str]:
    """The ticks that became jobs; a tick twice would be listed twice."""
    return sorted(str(job.labels["tick"]) for job in await queue.jobs(limit=1000))


async def test_every_tick_becomes_one_job_however_many_workers_submit_it(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    schedulers = [scheduler_of(hourly(), queue) for _ in range(3)]
    for _ in range(26):
        for scheduler in schedulers:
            wait = await scheduler.submit_due_ticks()
            assert 0 < wait <= 15
        clock.advance(HOUR)
    jobs = await queue.jobs(limit=1000)
    found = await ticks(queue)
    assert len(found) == len(set(found)) == 25
    assert {(job.type, job.scope, job.actor) for job in jobs} == {("report", "schedule", "system:schedule")}
    assert {job.key for job in jobs} == {f"report@{tick}" for tick in found}


@pytest.fixture
async def users(url: str, clock: FakeClock, queue: onejob.Ledger) -> AsyncIterator[tuple[onejob.Ledger, onejob.Ledger]]:
    """The ledgers of two workers that were opened for different users, where users own their keys."""
    await set_settings(queue, key_owner="user")
    if url.startswith("memory:"):
        yield (
            queue.acting_as(tenant="default", user="ann", actor=WORKER),
            queue.acting_as(tenant="default", user="bob", actor=WORKER),
        )
        return
    async with (
        onejob.open(url, clock=clock, user="ann", sweep=False) as a,
        onejob.open(url, clock=clock, user="bob", sweep=False) as b,
    ):
        yield a, b


async def test_a_tick_is_one_job_for_workers_of_different_users(
    users: tuple[onejob.Ledger, onejob.Ledger], clock: FakeClock
) -> None:
    schedulers = [scheduler_of(hourly(), queue) for queue in users]
    for scheduler in (*schedulers, *reversed(schedulers)):
        await scheduler.submit_due_ticks()
    for first, second in (schedulers, schedulers[::-1]):
        clock.advance(HOUR)
        await first.submit_due_ticks()
        await second.submit_due_ticks()
    ann, bob = users
    assert len(await ticks(ann)) == len(set(await ticks(ann))) == 2
    assert sorted(str(job.user) for job in await ann.jobs()) == ["ann", "bob"]
    for job in await ann.jobs():
        assert job.key is not None
        found = (await bob.explain(job.key, scope="schedule")).job
        assert found is not None
        assert found.id == job.id
    assert len(await ann.keys(scope="schedule")) == 2
    assert [key.user for key in await ann.keys(scope="schedule", user="bob")] == ["bob"]


async def test_a_caller_that_sees_only_its_own_keys_looks_up_and_forgets_no_tick(
    users: tuple[onejob.Ledger, onejob.Ledger], clock: FakeClock
) -> None:
    scheduler = scheduler_of(hourly(), users[0])
    await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    await scheduler.submit_due_ticks()
    (job,) = await users[0].jobs()
    assert job.key is not None
    eve = ServiceLedger.of(users[0]).for_caller(Caller(user="eve", actor="user:eve", oversees=False))
    for verb in (eve.explain, eve.forget):
        with pytest.raises(NotFound):
            await verb(job.key, scope="schedule")
    await scheduler_of(hourly(), users[1]).submit_due_ticks()
    assert len(await users[0].jobs()) == 1


async def test_a_new_schedule_begins_with_its_next_tick(queue: onejob.Ledger, clock: FakeClock) -> None:
    await scheduler_of(hourly(catch_up=100), queue).submit_due_ticks()
    assert await ticks(queue) == []
    clock.advance(HOUR)
    await scheduler_of(hourly(catch_up=100), queue).submit_due_ticks()
    assert len(await ticks(queue)) == 1


@pytest.mark.parametrize("catch_up", [0, 1, 3])
async def test_missed_ticks_are_caught_up_after_an_outage(
    queue: onejob.Ledger, clock: FakeClock, catch_up: int
) -> None:
    await scheduler_of(hourly(catch_up=catch_up), queue).submit_due_ticks()
    clock.advance(10 * HOUR)
    restarted = scheduler_of(hourly(catch_up=catch_up), queue)
    await restarted.submit_due_ticks()
    assert len(await ticks(queue)) == catch_up
    clock.advance(HOUR)
    await restarted.submit_due_ticks()
    assert len(await ticks(queue)) == catch_up + 1


async def test_a_worker_that_was_stopped_for_long_submits_the_newest_tick_and_what_it_catches_up(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    scheduler = scheduler_of(hourly(catch_up=2), queue)
    await scheduler.submit_due_ticks()
    clock.advance(10 * HOUR)
    await scheduler.submit_due_ticks()
    assert len(await ticks(queue)) == 3


async def test_a_paused_schedule_submits_nothing_until_it_is_resumed(queue: onejob.Ledger, clock: FakeClock) -> None:
    schedulers = [scheduler_of(hourly(catch_up=catch_up), queue) for catch_up in (0, 0)]
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    assert (await queue.admin.pause_schedule("report")).paused_by == "client:local"
    clock.advance(5 * HOUR)
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    await scheduler_of(hourly(catch_up=0), queue).submit_due_ticks()
    assert await ticks(queue) == []
    (view,) = await queue.admin.schedules()
    assert view.paused_at is not None
    await queue.admin.resume_schedule("report")
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    assert await ticks(queue) == []  # catch_up is 0
    clock.advance(HOUR)
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    assert len(await ticks(queue)) == 1


async def test_a_tick_is_refused_if_the_schedule_was_paused_after_it_was_read(
    queue: onejob.Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = scheduler_of(hourly(), queue)
    await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    submit_tick = scheduler._submit_tick

    async def pause_first(*args: Any) -> None:
        await queue.admin.pause_schedule("report")
        await submit_tick(*args)

    monkeypatch.setattr(scheduler, "_submit_tick", pause_first)
    await scheduler.submit_due_ticks()
    assert await ticks(queue) == []


async def test_a_tick_is_refused_after_its_window(
    queue: onejob.Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped between reading the time and submitting makes no second job of a tick."""
    scheduler = scheduler_of(hourly(), queue)
    await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    submit_tick = scheduler._submit_tick

    async def stop_first(*args: Any) -> None:
        clock.advance(2 * DAY)
        await submit_tick(*args)

    monkeypatch.setattr(scheduler, "_submit_tick", stop_first)
    await scheduler.submit_due_ticks()
    assert await ticks(queue) == []


async def test_another_timetable_ticks_from_its_registration_on(queue: onejob.Ledger, clock: FakeClock) -> None:
    old, new = App(), App()
    old.every("0 * * * *", "report", catch_up=5)
    new.every("30 * * * *", "report", catch_up=5)
    before = scheduler_of(old, queue)
    await before.submit_due_ticks()
    clock.advance(10 * HOUR)
    after = scheduler_of(new, queue)
    await after.submit_due_ticks()
    assert await ticks(queue) == []
    clock.advance(HOUR)
    for scheduler in (before, after):  # during a deployment both run
        await scheduler.submit_due_ticks()
    found = await ticks(queue)
    assert [tick[14:16] for tick in found].count("30") == 1
    assert [tick[14:16] for tick in found].count("00") == 6
    assert [view.timetable for view in await queue.admin.schedules()] == ["30 * * * * UTC"]


async def test_a_schedule_that_is_refused_stops_no_other_and_is_retried(queue: onejob.Ledger, clock: FakeClock) -> None:
    app = App()
    app.every("0 * * * *", "report", name="a")
    app.every("0 * * * *", "report", name="b")
    scheduler = scheduler_of(app, queue)
    await scheduler.submit_due_ticks()
    await queue.set_quota("local", onejob.Limits(max_concurrent=1))
    clock.advance(HOUR)
    assert await scheduler.submit_due_ticks() < 1
    (job,) = await queue.jobs()
    await queue.cancel(job.id)
    await scheduler.submit_due_ticks()
    assert sorted(job.labels["schedule"] for job in await queue.jobs()) == ["a", "b"]


async def test_jobs_of_a_schedule_have_the_options_of_their_handler(queue: onejob.Ledger, clock: FakeClock) -> None:
    app = App()

    @app.job("report", delivery="at_most_once", max_attempts=7)
    async def report(input: dict[str, Any]) -> None: ...

    app.every(timedelta(hours=1), report, {"full": True}, name="hourly", priority=3, labels={"team": "a"})
    scheduler = scheduler_of(app, queue)
    await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    await scheduler.submit_due_ticks()
    (job,) = await queue.jobs()
    attempts_max = (await load_job_row(queue, job.id)).attempts_max
    assert (job.type, job.priority, job.delivery, attempts_max) == ("report", 3, Delivery.AT_MOST_ONCE, 7)
    assert job.labels == {"team": "a", "schedule": "hourly", "tick": job.labels["tick"]}


async def test_a_worker_runs_its_schedules() -> None:
    app = App()

    @app.job("report")
    async def report(ctx: onejob.Context) -> str:
        return str(ctx.labels["tick"])

    app.every(timedelta(seconds=1), report)
    config = IdempotencyConfig()
    async with onejob.open("memory://", config=config) as queue:
        async with app.background_worker(queue):
            while not (jobs := await queue.jobs(state=JobState.SUCCESS)):
                pass
        tick = datetime.fromisoformat(await queue.result(jobs[0].id))
        assert tick.tzinfo is UTC or tick.utcoffset() == timedelta(0)
        assert jobs[0].key == f"report@{jobs[0].labels['tick']}"


async def test_a_deleted_schedule_is_unknown(queue: onejob.Ledger) -> None:
    await scheduler_of(hourly(), queue).submit_due_ticks()
    await queue.admin.pause_schedule("report")
    with pytest.raises(onejob.Invalid, match="resume it first"):
        await queue.admin.delete_schedule("report")
    await queue.admin.resume_schedule("report")
    await queue.admin.delete_schedule("report")
    assert await queue.admin.schedules() == []
    for verb in (queue.admin.delete_schedule, queue.admin.pause_schedule, queue.admin.resume_schedule):
        with pytest.raises(NotFound, match="onejob schedules"):
            await verb("report")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catch_up": 101}, "0 to 100"),
        ({"catch_up": True}, "0 to 100"),
        ({"name": ""}, "printable"),
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC)}, "leave run_at out"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"input": float("nan")}, "NaN"),
    ],
    ids=str,
)
def test_a_wrong_schedule_is_refused_when_it_is_registered(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        hourly(**options)


def test_two_schedules_need_two_names() -> None:
    app = hourly()
    with pytest.raises(Invalid, match="another name="):
        app.every("0 3 * * *", "report")
    app.every("0 3 * * *", "report", name="nightly")


async def test_nobody_but_the_scheduler_takes_the_key_of_a_tick(queue: onejob.Ledger, clock: FakeClock) -> None:
    scheduler = scheduler_of(hourly(), queue)
    await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    tick = datetime.fromtimestamp(clock.wall_ms() // 1000 // HOUR * HOUR, UTC)
    key = f"report@{tick:%Y-%m-%dT%H:%M:%SZ}"
    for refused in (
        queue.submit("report", idempotency_key=key, scope="schedule"),
        queue.submit("schedule", idempotency_key=key),
        queue.check_or_reserve("schedule", idempotency_key=key),
        queue.check_or_reserve("schedule", idempotency_key=key, job=False),
        queue.dry_run("schedule", idempotency_key=key),
        queue.store_idempotency_key(key, "job-elsewhere", scope="schedule"),
    ):
        with pytest.raises(Invalid, match="belong to the scheduler"):
            await refused
    (refusal,) = await queue.submit_many([onejob.Submission(type="schedule", idempotency_key=key)])
    assert isinstance(refusal, Invalid)
    await queue.store_idempotency_key(key, "job-elsewhere")  # for all types, and yet not for ticks
    await scheduler.submit_due_ticks()
    (job,) = await queue.jobs()
    assert (job.type, job.key) == ("report", key)
    assert (await queue.submit("schedule", idempotency_key="mine")).created, "other keys of the scope are free"


async def test_a_tick_whose_key_has_another_input_is_reported(
    queue: onejob.Ledger, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    schedulers = [scheduler_of(hourly(input={"version": n}), queue) for n in range(2)]
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    clock.advance(HOUR)
    for scheduler in schedulers:
        await scheduler.submit_due_ticks()
    assert len(await queue.jobs()) == 1
    assert [line.levelname for line in caplog.records if "no job was made" in line.message] == ["WARNING"]
    assert runtime_of(queue).attempt_stats.schedule_conflicts == 1
