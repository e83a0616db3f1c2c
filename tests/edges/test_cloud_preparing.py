"""Jobs that are prepared before they may run: one preparation for a key, and nothing of it is ever lost or doubled."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.core.limits import CostAction, CostLimit, Period
from onejob.core.money import MICRO
from onejob.core.states import JobState
from onejob.http.config import ServiceConfig
from onejob.http.preparing import Preparation

from .clouds import CONFIG, PATH, Blocking, Cloud, Told, Upload, cloud, limit, until

FULL = "Quota exceeded: Maximum 1 concurrent jobs allowed"


def begin(service: Cloud, key: str | None = "k", **members: Any) -> "asyncio.Task[Told]":
    return asyncio.create_task(service.submit(key, **members))


async def test_key_job_and_slot_are_taken_before_it_and_a_retry_sees_uploading(url: str) -> None:
    upload = Upload()
    async with cloud(url, replicate=upload) as service:
        await service.limit(max_concurrent=5)
        first = begin(service, tracker_run_name="gh-1", config={"steps": 7})
        await upload.begun.wait()
        (seen,) = upload.seen
        assert (await service.ledger.job(seen.job_id)).state is JobState.PREPARING
        assert ((await service.standing()).reserved, (await service.standing()).live) == (1, 0)
        again = await service.submit("k", config={"steps": 7}, tracker_run_name="gh-2")
        assert again == Told(True, seen.job_id, "uploading", False, True, None, [], None)
        upload.go.set()
        assert await first == Told(True, seen.job_id, "pending", True, False, None, [], None)
        assert await service.submit("k", config={"steps": 7}) == Told(
            True, seen.job_id, "pending", True, True, None, [], None
        )
        assert ((await service.standing()).reserved, (await service.standing()).live) == (0, 1)
        assert len(upload.seen) == 1


async def test_a_hook_is_told_what_it_prepares(lasting_url: str) -> None:
    upload = Upload()
    upload.go.set()
    async with cloud(lasting_url, replicate=upload) as service:
        told = await service.submit("k", config={"steps": 7}, tracker_run_name="r")
        (seen,) = upload.seen
        assert (seen.job_id, seen.provider, seen.user, seen.token) == (told.job_id, "replicate", "local", 1)
        assert (seen.config, seen.config_name) == ({"steps": 7}, "flux-lora")
        assert seen.labels == {"tracker_run_name": "r"}
        assert seen.cancelled  # it is over


async def test_a_hook_may_say_that_there_was_nothing_to_upload(lasting_url: str) -> None:
    upload = Upload()
    upload.gives = False
    upload.go.set()
    async with cloud(lasting_url, replicate=upload) as service:
        assert [(await service.submit("k")).data_uploaded for _ in range(2)] == [False, False]


@pytest.mark.parametrize("copies", [10])
async def test_many_at_once_and_many_during_it_make_one_preparation(url: str, copies: int) -> None:
    upload = Upload()
    async with cloud(url, replicate=upload) as service:
        tasks = [begin(service) for _ in range(copies)]
        await upload.begun.wait()
        # Who raced on the winner's own server need not wait for a sign of life.
        await until(lambda: sum(task.done() for task in tasks) == copies - 1, 3)
        during = await asyncio.gather(*(service.submit("k") for _ in range(copies)))
        assert {(one.status, one.idempotent_hit) for one in during} == {("uploading", True)}
        upload.go.set()
        told = await asyncio.gather(*tasks)
        assert len({one.job_id for one in (*told, *during)}) == 1
        assert sum(not one.idempotent_hit for one in told) == 1
        assert len(upload.seen) == 1
        assert len(await service.ledger.jobs()) == 1


async def test_without_a_key_every_preparation_is_new(lasting_url: str) -> None:
    upload = Upload()
    upload.go.set()
    async with cloud(lasting_url, replicate=upload) as service:
        first, second = await service.submit(), await service.submit()
        assert (first.success, second.success, len(upload.seen)) == (True, True, 2)
        assert first.job_id != second.job_id


async def test_a_mismatch_is_told_during_a_preparation_too(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, replicate=upload) as service:
        first = begin(service)
        await upload.begun.wait()
        told = await service.submit("k", config_name_to_load="other")
        assert (told.success, len(upload.seen)) == (False, 1)
        upload.go.set()
        assert (await first).success


@pytest.mark.parametrize(
    "fails", [RuntimeError("the bucket\nis gone"), StopIteration("over"), KeyError("config"), ValueError()]
)
async def test_a_failure_frees_the_slot_and_the_key_may_try_again_with_the_same_job(
    url: str, fails: Exception
) -> None:
    upload = Upload()
    upload.fails = fails
    upload.go.set()
    async with cloud(url, replicate=upload) as service:
        await service.limit(max_concurrent=1)
        told = await service.submit("k")
        assert (told.success, told.job_id, told.status) == (False, None, None)
        job_id = upload.seen[0].job_id
        assert job_id in str(told.error)
        assert "\n" not in str(told.error)
        assert (await service.standing()).used == 0
        upload.fails = None
        assert (await service.submit("k")) == Told(True, job_id, "pending", True, True, None, [], None)
        assert [seen.token for seen in upload.seen] == [1, 2]
        assert len(await service.ledger.jobs()) == 1


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(lasting_url: str) -> None:
    upload = Blocking()
    async with cloud(lasting_url, replicate=upload) as service:
        first = begin(service)
        await until(upload.begun.is_set)
        assert (await service.submit("k")).status == "uploading"
        upload.go.set()
        assert (await first).data_uploaded


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_asks_the_server_to_leave_is_a_failed_hook(lasting_url: str, kind: str) -> None:
    async def late(preparation: Preparation) -> None:
        raise SystemExit(3)

    def plain(preparation: Preparation) -> None:
        raise SystemExit(3)

    async with cloud(lasting_url, replicate=late if kind == "async" else plain) as service:
        told = await service.submit("k")
        assert "asked the server to leave" in str(told.error)
        assert (await service.submit("k", provider="other")).success


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ENDS = [
    BaseException("x"),
    BaseExceptionGroup("g", [SystemExit(1)]),
    GeneratorExit(),
    Wordless(),
    ValueError("\ud800"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
async def test_whatever_ends_a_hook_is_told_and_the_key_may_try_again(
    lasting_url: str, end: BaseException
) -> None:
    async def upload(preparation: Preparation) -> None:
        if preparation.token == 1:
            raise end

    def plain(preparation: Preparation) -> None:
        if preparation.token == 1:
            raise end

    def returned(preparation: Preparation) -> Any:
        return upload(preparation)

    async with cloud(lasting_url, upload=upload, plain=plain, returned=returned) as service:
        for provider in ("upload", "plain", "returned"):
            told = await service.submit("k", provider=provider)
            assert (told.success, told.error is not None) == (False, True)
            assert type(end).__name__ in str(told.error) or "ud800" in str(told.error)
            assert (await service.submit("k", provider=provider)).status == "pending"
        assert len(service.app.preparations) == 0


async def test_an_upload_longer_than_the_lease_keeps_key_and_slot(url: str) -> None:
    upload = Upload()
    async with cloud(url, lease=1.0, replicate=upload) as service:
        await service.limit(max_concurrent=1)
        first = begin(service)
        await upload.begun.wait()
        (seen,) = upload.seen
        for _ in range(10):
            await asyncio.sleep(0.25)
            assert (await service.submit("k")).status == "uploading"
            assert FULL in str((await service.submit("other")).error)
        assert not seen.cancelled
        upload.go.set()
        assert ((await first).job_id, seen.token, len(upload.seen)) == (seen.job_id, 1, 1)


async def test_a_request_waits_only_so_long_and_the_preparation_goes_on(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(
        lasting_url, config=ServiceConfig(preparation_wait_seconds=0.05), replicate=upload
    ) as service:
        await service.limit(max_concurrent=1)
        told = await service.submit("k")
        assert (told.status, told.data_uploaded, told.idempotent_hit) == ("uploading", False, False)
        assert told.quota_warnings == ["1 of 1 concurrent jobs are in use"]
        upload.go.set()
        await until(lambda: not len(service.app.preparations))
        again = await service.submit("k")
        assert (again.job_id, again.status, again.data_uploaded) == (told.job_id, "pending", True)
        assert len(upload.seen) == 1


async def test_a_client_that_hangs_up_stops_nothing(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, replicate=upload) as service:
        asking = asyncio.create_task(
            service.client.post(PATH + "replicate", {**CONFIG, "idempotency_key": "k"})
        )
        await upload.begun.wait()
        await service.client.close()
        asking.cancel()
        upload.go.set()
        await until(lambda: not len(service.app.preparations))
        told = await service.submit("k")
        assert (told.job_id, told.data_uploaded, len(upload.seen)) == (upload.seen[0].job_id, True, 1)


async def test_a_job_cancelled_during_its_preparation_stays_cancelled(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, lease=0.3, replicate=upload) as service:
        await service.limit(max_concurrent=1)
        first = begin(service)
        await upload.begun.wait()
        (seen,) = upload.seen
        await service.ledger.cancel(seen.job_id)
        assert (await service.submit("k")).status == "cancelled"
        told = await first  # nobody has let the upload go on
        assert (told.success, told.status, told.job_id) == (True, "cancelled", seen.job_id)
        assert seen.cancelled
        assert (await service.submit("k")).status == "cancelled"
        assert ((await service.standing()).used, len(upload.seen)) == (0, 1)


class Deaf:
    """A hook that hears no cancellation."""

    def __init__(self) -> None:
        self.heard = 0
        self.go = asyncio.Event()

    async def __call__(self, preparation: Preparation) -> None:
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.heard += 1


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_hears_nothing_is_left_alone_and_changes_nothing(
    lasting_url: str, kind: str
) -> None:
    deaf, blocking = Deaf(), Blocking()
    config = ServiceConfig(preparation_seconds_max=0.2, preparations_max=1)
    async with cloud(lasting_url, config=config, replicate=deaf if kind == "async" else blocking) as service:
        await service.limit(max_concurrent=1)
        told = await service.submit("k")
        assert "it took longer than 0.2 s" in str(told.error)
        assert (await service.standing()).used == 0
        # It still takes its place here: nobody may have more hooks at work than the limit.
        assert "too many preparations" in str((await service.submit("k")).error)
        deaf.go.set()
        blocking.go.set()
        await until(lambda: not service.app.preparations.closed_to_new)
        (job,) = await service.ledger.jobs()
        assert job.state is JobState.PREPARING  # what came late was not settled
        assert (await service.submit("k")).job_id == job.id


async def test_a_hit_is_answered_by_a_server_that_has_no_room(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, config=ServiceConfig(preparations_max=1), replicate=upload) as service:
        upload.go.set()
        done = await service.submit("done")
        upload.go.clear()
        upload.begun.clear()
        first = begin(service, "k")
        await upload.begun.wait()
        assert (await service.submit("done")).job_id == done.job_id
        assert (await service.submit("k")).status == "uploading"
        told = await service.submit("new")
        assert "too many preparations" in str(told.error)
        upload.go.set()
        assert (await first).success
        assert (await service.submit("new")).success


async def test_a_flood_of_new_keys_begins_no_more_preparations_than_there_is_room(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, config=ServiceConfig(preparations_max=3), replicate=upload) as service:
        tasks = [begin(service, f"k{n}") for n in range(20)]
        await until(lambda: sum(task.done() for task in tasks) == 17)
        assert len(upload.seen) == 3
        upload.go.set()
        assert sum(one.success for one in await asyncio.gather(*tasks)) == 3


@pytest.mark.parametrize("most", [0, 1])
async def test_a_full_quota_refuses_before_anything_is_prepared(lasting_url: str, most: int) -> None:
    upload = Upload()
    async with cloud(lasting_url, replicate=upload) as service:
        await service.limit(max_concurrent=most)
        tasks = [begin(service, f"k{n}") for n in range(5)]
        await until(lambda: sum(task.done() for task in tasks) == 5 - most)
        upload.go.set()
        told = await asyncio.gather(*tasks)
        assert sum(f"Maximum {most} concurrent jobs" in str(one.error) for one in told) == 5 - most
        assert len(upload.seen) == most
        assert len(await service.ledger.jobs()) == most


async def test_money_is_held_during_the_preparation_and_a_warning_is_told(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, replicate=upload) as service:
        await service.limit(cost_limit=CostLimit(10 * MICRO, Period.DAY, CostAction.BLOCK))
        first = begin(service, "a", estimated_cost=9)
        await upload.begun.wait()
        assert (await service.standing()).money_held == 9 * MICRO
        assert "Cost limit exceeded" in str((await service.submit("b", estimated_cost=2)).error)
        upload.go.set()
        assert str((await first).cost_limit_warning).startswith("Cost limit")


async def test_a_lost_slot_is_told_before_the_job_can_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease lapsed unrenewed, the slot went to somebody else, then the upload was done."""
    upload = Upload()
    async with cloud(url, lease=0.3, replicate=upload) as service:
        await service.limit(max_concurrent=1)
        renewed = asyncio.Event()

        async def stalled(held: onejob.Reservation) -> onejob.Reservation:
            await renewed.wait()
            return await onejob.Ledger.renew(service.ledger, held)

        monkeypatch.setattr(service.ledger, "renew", stalled)
        first = begin(service)
        await upload.begun.wait()
        await asyncio.sleep(0.4)
        other = await service.submit("other", provider="unprepared")
        assert other.success
        (seen,) = upload.seen
        upload.go.set()
        told = await first
        assert (told.success, told.job_id) == (False, None)
        assert "slot lost" in str(told.error)
        assert (await service.ledger.job(seen.job_id)).state is JobState.PREPARING
        assert ((await service.standing()).live, (await service.standing()).reserved) == (1, 0)
        # The key is free to try again, as the same job, as soon as there is room.
        monkeypatch.undo()
        await service.ledger.cancel(str(other.job_id))
        assert (await service.submit("k")).job_id == seen.job_id


async def test_a_renewal_without_a_slot_stops_the_upload(
    lasting_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = Upload()
    async with cloud(lasting_url, lease=0.3, replicate=upload) as service:
        await service.limit(max_concurrent=2)
        first = begin(service)
        await upload.begun.wait()
        (seen,) = upload.seen

        async def late(held: onejob.Reservation) -> onejob.Reservation:
            await asyncio.sleep(0.5)
            await limit(service.ledger, max_concurrent=0)
            return await onejob.Ledger.renew(service.ledger, held)

        monkeypatch.setattr(service.ledger, "renew", late)
        told = await first
        assert "slot lost" in str(told.error)
        assert seen.cancelled
        monkeypatch.undo()


async def test_leaving_gives_some_time_then_frees_the_key(lasting_url: str) -> None:
    upload, blocking = Upload(), Blocking()
    async with cloud(lasting_url, replicate=upload, other=blocking) as service:
        await service.limit(max_concurrent=5)
        tasks = [begin(service, "a"), asyncio.create_task(service.submit("b", provider="other"))]
        await upload.begun.wait()
        await until(blocking.begun.is_set)
        leaving = asyncio.create_task(service.app.preparations.leave(0.3))
        await asyncio.sleep(0)
        assert "being stopped" in str((await service.submit("c")).error)
        for told in await asyncio.gather(*tasks):
            assert "being stopped" in str(told.error)
        await leaving
        assert blocking.seen[0].cancelled
        assert (await service.standing()).used == 0
        blocking.go.set()


async def test_a_preparation_that_ends_while_the_server_leaves_is_kept(lasting_url: str) -> None:
    upload = Upload()
    async with cloud(lasting_url, replicate=upload) as service:
        first = begin(service)
        await upload.begun.wait()
        leaving = asyncio.create_task(service.app.preparations.leave(20))
        await asyncio.sleep(0)
        upload.go.set()
        assert (await first).data_uploaded
        await leaving


async def test_rates_hold_for_prepared_jobs_and_spare_their_retries(lasting_url: str) -> None:
    upload = Upload()
    upload.go.set()
    config = ServiceConfig(rate_per_second=0.001, rate_burst=1)
    async with cloud(lasting_url, config=config, replicate=upload) as service:
        first = await service.submit("a")
        assert "too many new submissions" in str((await service.submit("b")).error)
        assert (await service.submit("a")).job_id == first.job_id
        assert len(upload.seen) == 1


async def test_threads_of_hooks_do_not_keep_a_process_alive(lasting_url: str) -> None:
    upload = Blocking()
    async with cloud(lasting_url, replicate=upload) as service:
        first = begin(service)
        await until(upload.begun.is_set)
        assert [one.daemon for one in threading.enumerate() if one.name == "onejob-hook"] == [True]
        upload.go.set()
        assert (await first).success


async def abandoned(service: Cloud, **lease: float) -> onejob.Reservation:
    """A key whose holder is gone."""
    held = await service.ledger.check_or_reserve(
        "cloud.replicate", CONFIG, idempotency_key="k", lease=timedelta(**lease)
    )
    assert isinstance(held, onejob.Reservation)
    return held


async def test_a_holder_that_is_gone_is_waited_for_and_taken_over(url: str) -> None:
    upload = Upload()
    upload.go.set()
    async with cloud(url, replicate=upload) as service:
        held = await abandoned(service, seconds=0.5)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.data_uploaded) == (held.job_id, "pending", True)
        assert told.idempotent_hit
        assert upload.seen[0].token == 2


async def test_a_server_without_the_hook_that_finishes_a_job_says_that_the_key_was_there(url: str) -> None:
    async with cloud(url) as service:
        held = await abandoned(service, seconds=0.5)
        told = await service.submit("k", config_name_to_load="other")
        assert (told.success, told.idempotent_hit) == (False, False)
        told = await service.submit("k")
        for _ in range(100):
            if told.status != "uploading":
                break
            await asyncio.sleep(0.05)
            told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "pending", True)


async def test_a_long_preparation_that_was_taken_over_says_so_at_once(lasting_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=1)
    upload = Upload()
    async with cloud(lasting_url, config=config, replicate=upload) as service:
        held = await abandoned(service, seconds=0.1)
        await asyncio.sleep(0.15)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "uploading", True)


async def test_of_a_holder_that_nobody_can_judge_uploading_is_told_in_time(lasting_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=0.5)
    async with cloud(lasting_url, config=config, replicate=Upload()) as service:
        held = await abandoned(service, hours=1)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "uploading", True)


async def test_a_holder_that_settles_is_answered_with_its_job(lasting_url: str) -> None:
    async with cloud(lasting_url, replicate=Upload()) as service:
        held = await abandoned(service, hours=1)
        waiting = begin(service)
        await asyncio.sleep(0.05)
        await service.ledger.commit(held)
        told = await waiting
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "pending", True)


async def test_whoever_watches_a_holder_is_released_when_the_server_leaves(lasting_url: str) -> None:
    async with cloud(lasting_url, replicate=Upload()) as service:
        await abandoned(service, hours=1)
        waiting = begin(service)
        await asyncio.sleep(0.05)
        await service.app.preparations.leave(0)
        async with asyncio.timeout(5):
            assert "being stopped" in str((await waiting).error)
