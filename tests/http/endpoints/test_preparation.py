"""Jobs that are prepared before they may run: one preparation for each key, which is never lost or doubled."""

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


async def test_key_job_and_slot_are_acquired_before_the_hook_and_a_retry_sees_uploading(url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        await service.set_limits(max_concurrent=5)
        first = start_submission(service, tracker_run_name="gh-1", config={"steps": 7})
        await upload.started.wait()
        (preparation,) = upload.preparations
        assert (await service.ledger.job(preparation.job_id)).state is JobState.PREPARING
        assert ((await service.usage_counts()).reserved, (await service.usage_counts()).live) == (1, 0)
        again = await service.submit("k", config={"steps": 7}, tracker_run_name="gh-2")
        assert again == CloudReply(True, preparation.job_id, "uploading", False, True, None, [], None)
        upload.proceed.set()
        assert await first == CloudReply(True, preparation.job_id, "pending", True, False, None, [], None)
        assert await service.submit("k", config={"steps": 7}) == CloudReply(
            True, preparation.job_id, "pending", True, True, None, [], None
        )
        assert ((await service.usage_counts()).reserved, (await service.usage_counts()).live) == (0, 1)
        assert len(upload.preparations) == 1


async def test_a_hook_gets_the_job_that_it_prepares(durable_url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        reply = await service.submit("k", config={"steps": 7}, tracker_run_name="r")
        (preparation,) = upload.preparations
        assert (preparation.job_id, preparation.provider, preparation.user, preparation.token) == (
            reply.job_id,
            "replicate",
            "local",
            1,
        )
        assert (preparation.config, preparation.config_name) == ({"steps": 7}, "flux-lora")
        assert preparation.labels == {"tracker_run_name": "r"}
        assert preparation.cancelled  # the hook has ended


async def test_a_hook_that_returns_false_has_uploaded_nothing(durable_url: str) -> None:
    upload = BlockableHook()
    upload.result = False
    upload.proceed.set()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        assert [(await service.submit("k")).data_uploaded for _ in range(2)] == [False, False]


@pytest.mark.parametrize("copies", [10])
async def test_concurrent_and_later_duplicates_run_one_preparation(url: str, copies: int) -> None:
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        tasks = [start_submission(service) for _ in range(copies)]
        await upload.started.wait()
        # Requests on the winner's server need not wait to see that the holder is alive.
        await wait_until(lambda: sum(task.done() for task in tasks) == copies - 1, 3)
        during = await asyncio.gather(*(service.submit("k") for _ in range(copies)))
        assert {(one.status, one.idempotent_hit) for one in during} == {("uploading", True)}
        upload.proceed.set()
        reply = await asyncio.gather(*tasks)
        assert len({one.job_id for one in (*reply, *during)}) == 1
        assert sum(not one.idempotent_hit for one in reply) == 1
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
        reply = await service.submit("k", config_name_to_load="other")
        assert (reply.success, len(upload.preparations)) == (False, 1)
        upload.proceed.set()
        assert (await first).success


@pytest.mark.parametrize(
    "fails", [RuntimeError("the bucket\nis gone"), StopIteration("over"), KeyError("config"), ValueError()]
)
async def test_a_failure_frees_the_slot_and_a_retry_gets_the_same_job(url: str, fails: Exception) -> None:
    upload = BlockableHook()
    upload.error = fails
    upload.proceed.set()
    async with run_cloud_service(url, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        reply = await service.submit("k")
        assert (reply.success, reply.job_id, reply.status) == (False, None, None)
        job_id = upload.preparations[0].job_id
        assert job_id in str(reply.error)
        assert "\n" not in str(reply.error)
        assert (await service.usage_counts()).used == 0
        upload.error = None
        near = ["1 of 1 concurrent jobs are in use"]
        assert (await service.submit("k")) == CloudReply(True, job_id, "pending", True, True, None, near, None)
        assert [preparation.token for preparation in upload.preparations] == [1, 2]
        assert len(await service.ledger.jobs()) == 1


async def test_a_plain_function_runs_in_a_thread_and_does_not_block_the_loop(durable_url: str) -> None:
    upload = BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await wait_until(upload.started.is_set)
        assert (await service.submit("k")).status == "uploading"
        upload.proceed.set()
        assert (await first).data_uploaded


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_raises_system_exit_is_a_failed_hook(durable_url: str, kind: str) -> None:
    async def exiting_coroutine(preparation: Preparation) -> None:
        raise SystemExit(3)

    def plain(preparation: Preparation) -> None:
        raise SystemExit(3)

    async with run_cloud_service(durable_url, replicate=exiting_coroutine if kind == "async" else plain) as service:
        reply = await service.submit("k")
        assert "tried to exit the process" in str(reply.error)
        assert (await service.submit("k", provider="other")).success


class EmptyError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


HOOK_EXCEPTIONS = [
    BaseException("x"),
    BaseExceptionGroup("g", [SystemExit(1)]),
    GeneratorExit(),
    EmptyError(),
    ValueError("\ud800"),
]


@pytest.mark.parametrize("end", HOOK_EXCEPTIONS, ids=lambda end: type(end).__name__)
async def test_any_exception_of_a_hook_is_reported_and_the_key_can_be_retried(
    durable_url: str, end: BaseException
) -> None:
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
            reply = await service.submit("k", provider=provider)
            assert (reply.success, reply.error is not None) == (False, True)
            assert type(end).__name__ in str(reply.error) or "ud800" in str(reply.error)
            assert (await service.submit("k", provider=provider)).status == "pending"
        assert len(service.app.preparations) == 0


async def test_a_request_stops_waiting_and_the_preparation_continues(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(
        durable_url, config=ServiceConfig(preparation_wait_seconds=0.05), replicate=upload
    ) as service:
        await service.set_limits(max_concurrent=1)
        reply = await service.submit("k")
        assert (reply.status, reply.data_uploaded, reply.idempotent_hit) == ("uploading", False, False)
        assert reply.quota_warnings == ["1 of 1 concurrent jobs are in use"]
        upload.proceed.set()
        await wait_until(lambda: not len(service.app.preparations))
        again = await service.submit("k")
        assert (again.job_id, again.status, again.data_uploaded) == (reply.job_id, "pending", True)
        assert len(upload.preparations) == 1


async def test_a_client_that_disconnects_does_not_stop_the_preparation(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        request = asyncio.create_task(service.client.post(PATH + "replicate", {**CONFIG, "idempotency_key": "k"}))
        await upload.started.wait()
        await service.client.close()
        request.cancel()
        upload.proceed.set()
        await wait_until(lambda: not len(service.app.preparations))
        reply = await service.submit("k")
        assert (reply.job_id, reply.data_uploaded, len(upload.preparations)) == (upload.preparations[0].job_id, True, 1)


@pytest.mark.usefixtures("frequent_renewals")
async def test_a_job_cancelled_during_its_preparation_stays_cancelled(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, lease=3, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        first = start_submission(service)
        await upload.started.wait()
        (preparation,) = upload.preparations
        await service.ledger.cancel(preparation.job_id)
        assert (await service.submit("k")).status == "cancelled"
        reply = await first  # although the upload was not allowed to continue
        assert (reply.success, reply.status, reply.job_id) == (True, "cancelled", preparation.job_id)
        assert preparation.cancelled
        assert (await service.submit("k")).status == "cancelled"
        assert ((await service.usage_counts()).used, len(upload.preparations)) == (0, 1)


class HookIgnoringCancellation:
    """A hook that ignores its cancellation."""

    def __init__(self) -> None:
        self.cancellations = 0
        self.proceed = asyncio.Event()

    async def __call__(self, preparation: Preparation) -> None:
        while not self.proceed.is_set():
            try:
                await self.proceed.wait()
            except asyncio.CancelledError:
                self.cancellations += 1


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_ignores_cancellation_is_orphaned_and_changes_nothing(durable_url: str, kind: str) -> None:
    uncancellable, blocking = HookIgnoringCancellation(), BlockableThreadHook()
    config = ServiceConfig(preparation_seconds_max=0.2, preparations_max=1)
    async with run_cloud_service(
        durable_url, config=config, replicate=uncancellable if kind == "async" else blocking
    ) as service:
        await service.set_limits(max_concurrent=1)
        reply = await service.submit("k")
        assert "it took longer than 0.2 s" in str(reply.error)
        assert (await service.usage_counts()).used == 0
        # The hook still counts: the limit is on hooks that run.
        assert "too many preparations" in str((await service.submit("k")).error)
        uncancellable.proceed.set()
        blocking.proceed.set()
        await wait_until(lambda: not service.app.preparations.refusal_reason)
        (job,) = await service.ledger.jobs()
        assert job.state is JobState.PREPARING  # the late result was not settled
        assert (await service.submit("k")).job_id == job.id
