"""Jobs that are prepared before they may run: one preparation for a key, and nothing of it is ever lost or doubled."""

import asyncio
from typing import Any

import pytest

from onejob.core.states import JobState
from onejob.http.config import ServiceConfig
from onejob.http.endpoints.preparation import Preparation

from .cloud_service import (
    CONFIG,
    PATH,
    BlockableHook,
    BlockableThreadHook,
    CloudReply,
    run_cloud_service,
    start_submission,
    wait_until,
)

FULL = "Quota exceeded: Maximum 1 concurrent jobs allowed"


async def test_key_job_and_slot_are_taken_before_it_and_a_retry_sees_uploading(url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        await service.set_limits(max_concurrent=5)
        first = start_submission(service, tracker_run_name="gh-1", config={"steps": 7})
        await upload.started.wait()
        (seen,) = upload.preparations
        assert (await service.ledger.job(seen.job_id)).state is JobState.PREPARING
        assert ((await service.usage_counts()).reserved, (await service.usage_counts()).live) == (1, 0)
        again = await service.submit("k", config={"steps": 7}, tracker_run_name="gh-2")
        assert again == CloudReply(True, seen.job_id, "uploading", False, True, None, [], None)
        upload.proceed.set()
        assert await first == CloudReply(True, seen.job_id, "pending", True, False, None, [], None)
        assert await service.submit("k", config={"steps": 7}) == CloudReply(
            True, seen.job_id, "pending", True, True, None, [], None
        )
        assert ((await service.usage_counts()).reserved, (await service.usage_counts()).live) == (0, 1)
        assert len(upload.preparations) == 1


async def test_a_hook_is_told_what_it_prepares(durable_url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        told = await service.submit("k", config={"steps": 7}, tracker_run_name="r")
        (seen,) = upload.preparations
        assert (seen.job_id, seen.provider, seen.user, seen.token) == (told.job_id, "replicate", "local", 1)
        assert (seen.config, seen.config_name) == ({"steps": 7}, "flux-lora")
        assert seen.labels == {"tracker_run_name": "r"}
        assert seen.cancelled  # it is over


async def test_a_hook_may_say_that_there_was_nothing_to_upload(durable_url: str) -> None:
    upload = BlockableHook()
    upload.result = False
    upload.proceed.set()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        assert [(await service.submit("k")).data_uploaded for _ in range(2)] == [False, False]


@pytest.mark.parametrize("copies", [10])
async def test_many_at_once_and_many_during_it_make_one_preparation(url: str, copies: int) -> None:
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        tasks = [start_submission(service) for _ in range(copies)]
        await upload.started.wait()
        # Who raced on the winner's own server need not wait for a sign of life.
        await wait_until(lambda: sum(task.done() for task in tasks) == copies - 1, 3)
        during = await asyncio.gather(*(service.submit("k") for _ in range(copies)))
        assert {(one.status, one.idempotent_hit) for one in during} == {("uploading", True)}
        upload.proceed.set()
        told = await asyncio.gather(*tasks)
        assert len({one.job_id for one in (*told, *during)}) == 1
        assert sum(not one.idempotent_hit for one in told) == 1
        assert len(upload.preparations) == 1
        assert len(await service.ledger.jobs()) == 1


async def test_without_a_key_every_preparation_is_new(durable_url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first, second = await service.submit(), await service.submit()
        assert (first.success, second.success, len(upload.preparations)) == (True, True, 2)
        assert first.job_id != second.job_id


async def test_a_mismatch_is_reported_during_a_preparation_too(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await upload.started.wait()
        told = await service.submit("k", config_name_to_load="other")
        assert (told.success, len(upload.preparations)) == (False, 1)
        upload.proceed.set()
        assert (await first).success


@pytest.mark.parametrize(
    "fails", [RuntimeError("the bucket\nis gone"), StopIteration("over"), KeyError("config"), ValueError()]
)
async def test_a_failure_frees_the_slot_and_the_key_may_try_again_with_the_same_job(url: str, fails: Exception) -> None:
    upload = BlockableHook()
    upload.error = fails
    upload.proceed.set()
    async with run_cloud_service(url, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        told = await service.submit("k")
        assert (told.success, told.job_id, told.status) == (False, None, None)
        job_id = upload.preparations[0].job_id
        assert job_id in str(told.error)
        assert "\n" not in str(told.error)
        assert (await service.usage_counts()).used == 0
        upload.error = None
        near = ["1 of 1 concurrent jobs are in use"]
        assert (await service.submit("k")) == CloudReply(True, job_id, "pending", True, True, None, near, None)
        assert [seen.token for seen in upload.preparations] == [1, 2]
        assert len(await service.ledger.jobs()) == 1


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(durable_url: str) -> None:
    upload = BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await wait_until(upload.started.is_set)
        assert (await service.submit("k")).status == "uploading"
        upload.proceed.set()
        assert (await first).data_uploaded


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_asks_the_server_to_leave_is_a_failed_hook(durable_url: str, kind: str) -> None:
    async def late(preparation: Preparation) -> None:
        raise SystemExit(3)

    def plain(preparation: Preparation) -> None:
        raise SystemExit(3)

    async with run_cloud_service(durable_url, replicate=late if kind == "async" else plain) as service:
        told = await service.submit("k")
        assert "asked the server to leave" in str(told.error)
        assert (await service.submit("k", provider="other")).success


class EmptyError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ENDS = [
    BaseException("x"),
    BaseExceptionGroup("g", [SystemExit(1)]),
    GeneratorExit(),
    EmptyError(),
    ValueError("\ud800"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
async def test_whatever_ends_a_hook_is_told_and_the_key_may_try_again(durable_url: str, end: BaseException) -> None:
    async def upload(preparation: Preparation) -> None:
        if preparation.token == 1:
            raise end

    def plain(preparation: Preparation) -> None:
        if preparation.token == 1:
            raise end

    def returned(preparation: Preparation) -> Any:
        return upload(preparation)

    async with run_cloud_service(durable_url, upload=upload, plain=plain, returned=returned) as service:
        for provider in ("upload", "plain", "returned"):
            told = await service.submit("k", provider=provider)
            assert (told.success, told.error is not None) == (False, True)
            assert type(end).__name__ in str(told.error) or "ud800" in str(told.error)
            assert (await service.submit("k", provider=provider)).status == "pending"
        assert len(service.app.preparations) == 0


async def test_a_request_waits_only_so_long_and_the_preparation_goes_on(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(
        durable_url, config=ServiceConfig(preparation_wait_seconds=0.05), replicate=upload
    ) as service:
        await service.set_limits(max_concurrent=1)
        told = await service.submit("k")
        assert (told.status, told.data_uploaded, told.idempotent_hit) == ("uploading", False, False)
        assert told.quota_warnings == ["1 of 1 concurrent jobs are in use"]
        upload.proceed.set()
        await wait_until(lambda: not len(service.app.preparations))
        again = await service.submit("k")
        assert (again.job_id, again.status, again.data_uploaded) == (told.job_id, "pending", True)
        assert len(upload.preparations) == 1


async def test_a_client_that_hangs_up_stops_nothing(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        asking = asyncio.create_task(service.client.post(PATH + "replicate", {**CONFIG, "idempotency_key": "k"}))
        await upload.started.wait()
        await service.client.close()
        asking.cancel()
        upload.proceed.set()
        await wait_until(lambda: not len(service.app.preparations))
        told = await service.submit("k")
        assert (told.job_id, told.data_uploaded, len(upload.preparations)) == (upload.preparations[0].job_id, True, 1)


async def test_a_job_cancelled_during_its_preparation_stays_cancelled(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, lease=0.3, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        first = start_submission(service)
        await upload.started.wait()
        (seen,) = upload.preparations
        await service.ledger.cancel(seen.job_id)
        assert (await service.submit("k")).status == "cancelled"
        told = await first  # nobody has let the upload go on
        assert (told.success, told.status, told.job_id) == (True, "cancelled", seen.job_id)
        assert seen.cancelled
        assert (await service.submit("k")).status == "cancelled"
        assert ((await service.usage_counts()).used, len(upload.preparations)) == (0, 1)


class HookIgnoringCancellation:
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
async def test_a_hook_that_ignores_cancellation_is_orphaned_and_changes_nothing(durable_url: str, kind: str) -> None:
    deaf, blocking = HookIgnoringCancellation(), BlockableThreadHook()
    config = ServiceConfig(preparation_seconds_max=0.2, preparations_max=1)
    async with run_cloud_service(
        durable_url, config=config, replicate=deaf if kind == "async" else blocking
    ) as service:
        await service.set_limits(max_concurrent=1)
        told = await service.submit("k")
        assert "it took longer than 0.2 s" in str(told.error)
        assert (await service.usage_counts()).used == 0
        # It still takes its place here: nobody may have more hooks at work than the limit.
        assert "too many preparations" in str((await service.submit("k")).error)
        deaf.go.set()
        blocking.proceed.set()
        await wait_until(lambda: not service.app.preparations.refusal_reason)
        (job,) = await service.ledger.jobs()
        assert job.state is JobState.PREPARING  # what came late was not settled
        assert (await service.submit("k")).job_id == job.id
