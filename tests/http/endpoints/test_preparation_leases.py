"""The lease on the key of a job that is being prepared: renewal, take-over from dead holders, and shutdown."""

import asyncio
import threading
from datetime import timedelta

import onejob
from onejob.http.config import ServiceConfig
from onejob.ledger.service import ServiceLedger

from .cloud_service import (
    CONFIG,
    BlockableHook,
    BlockableThreadHook,
    CloudService,
    run_cloud_service,
    start_submission,
    wait_until,
)

FULL = "Quota exceeded: Maximum 1 concurrent jobs allowed"


async def test_an_upload_longer_than_the_lease_keeps_key_and_slot(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, lease=2.5, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        first = start_submission(service)
        await upload.started.wait()
        (preparation,) = upload.preparations
        for _ in range(12):
            await asyncio.sleep(0.25)
            assert (await service.submit("k")).status == "uploading"
            assert FULL in str((await service.submit("other")).error)
        await service.app._cloud.resume_abandoned(ServiceLedger.of(service.ledger))
        assert not preparation.cancelled
        upload.proceed.set()
        assert ((await first).job_id, preparation.token, len(upload.preparations)) == (preparation.job_id, 1, 1)


async def test_a_shutdown_waits_then_frees_the_key(durable_url: str) -> None:
    upload, blocking = BlockableHook(), BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload, other=blocking) as service:
        await service.set_limits(max_concurrent=5)
        tasks = [start_submission(service, "a"), asyncio.create_task(service.submit("b", provider="other"))]
        await upload.started.wait()
        await wait_until(blocking.started.is_set)
        shutdown = asyncio.create_task(service.app.preparations.shut_down(0.3))
        await asyncio.sleep(0)
        assert "shutting down" in str((await service.submit("c")).error)
        for reply in await asyncio.gather(*tasks):
            assert "shutting down" in str(reply.error)
        await shutdown
        assert blocking.preparations[0].cancelled
        assert (await service.usage_counts()).used == 0
        blocking.proceed.set()


async def test_a_preparation_that_ends_during_the_shutdown_is_stored(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await upload.started.wait()
        shutdown = asyncio.create_task(service.app.preparations.shut_down(20))
        await asyncio.sleep(0)
        upload.proceed.set()
        assert (await first).data_uploaded
        await shutdown


async def test_threads_of_hooks_do_not_keep_a_process_alive(durable_url: str) -> None:
    upload = BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await wait_until(upload.started.is_set)
        assert [one.daemon for one in threading.enumerate() if one.name == "onejob-hook"] == [True]
        upload.proceed.set()
        assert (await first).success


async def abandon_key(service: CloudService, **lease: float) -> onejob.HeldKey:
    """Hold a key without renewing its lease."""
    held = await service.ledger.check_or_reserve(
        "cloud.replicate", CONFIG, idempotency_key="k", lease=timedelta(**lease)
    )
    assert isinstance(held, onejob.HeldKey)
    return held


async def test_the_key_of_a_dead_holder_is_taken_over_after_its_lease(url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(url, replicate=upload) as service:
        held = await abandon_key(service, seconds=0.5)
        reply = await service.submit("k")
        assert (reply.job_id, reply.status, reply.data_uploaded) == (held.job_id, "pending", True)
        assert reply.idempotent_hit
        assert upload.preparations[0].token == 2


async def test_a_server_without_the_hook_finishes_the_job_and_reports_a_hit(url: str) -> None:
    async with run_cloud_service(url) as service:
        held = await abandon_key(service, seconds=0.5)
        reply = await service.submit("k", config_name_to_load="other")
        assert (reply.success, reply.idempotent_hit) == (False, False)
        reply = await service.submit("k")
        for _ in range(100):
            if reply.status != "uploading":
                break
            await asyncio.sleep(0.05)
            reply = await service.submit("k")
        assert (reply.job_id, reply.status, reply.idempotent_hit) == (held.job_id, "pending", True)


async def test_a_long_preparation_of_a_taken_over_key_is_reported_as_a_hit(durable_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=1)
    upload = BlockableHook()
    async with run_cloud_service(durable_url, config=config, replicate=upload) as service:
        held = await abandon_key(service, seconds=0.1)
        await asyncio.sleep(0.15)
        reply = await service.submit("k")
        assert (reply.job_id, reply.status, reply.idempotent_hit) == (held.job_id, "uploading", True)


async def test_uploading_is_answered_in_time_for_a_holder_of_unknown_state(durable_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=0.5)
    async with run_cloud_service(durable_url, config=config, replicate=BlockableHook()) as service:
        held = await abandon_key(service, hours=1)
        reply = await service.submit("k")
        assert (reply.job_id, reply.status, reply.idempotent_hit) == (held.job_id, "uploading", True)


async def test_a_key_that_is_settled_during_the_wait_returns_its_job(durable_url: str) -> None:
    async with run_cloud_service(durable_url, replicate=BlockableHook()) as service:
        held = await abandon_key(service, hours=1)
        waiting = start_submission(service)
        await asyncio.sleep(0.05)
        await service.ledger.commit(held)
        reply = await waiting
        assert (reply.job_id, reply.status, reply.idempotent_hit) == (held.job_id, "pending", True)


async def test_requests_waiting_for_a_holder_end_when_the_server_stops(durable_url: str) -> None:
    async with run_cloud_service(durable_url, replicate=BlockableHook()) as service:
        await abandon_key(service, hours=1)
        waiting = start_submission(service)
        await asyncio.sleep(0.05)
        await service.app.preparations.shut_down(0)
        async with asyncio.timeout(15):
            assert "shutting down" in str((await waiting).error)


async def test_a_preparation_whose_server_died_is_taken_over_without_a_retry(url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        dead = await service.ledger.check_or_reserve(
            "cloud.replicate", CONFIG, idempotency_key="k", labels={"tracker": "run 1"}, lease=timedelta(seconds=0.3)
        )
        assert isinstance(dead, onejob.HeldKey)
        await asyncio.sleep(0.4)
        await service.ledger.admin.sweep()
        assert (await service.ledger.job(dead.job_id)).state is onejob.JobState.PREPARING, "a retry may go on"
        upload.proceed.set()
        service.app.start_background_tasks()
        async with asyncio.timeout(10):
            await upload.started.wait()
            while (await service.ledger.job(dead.job_id)).state is onejob.JobState.PREPARING:
                await asyncio.sleep(0.01)
        (preparation,) = upload.preparations
        assert (preparation.job_id, preparation.token, preparation.labels) == (dead.job_id, 2, {"tracker": "run 1"})
        assert preparation.config_name == "flux-lora"
        assert (await service.ledger.job(dead.job_id)).state is onejob.JobState.PENDING
        again = await service.submit("k")
        assert (again.job_id, again.status, again.data_uploaded) == (dead.job_id, "pending", True)
        await service.app.preparations.shut_down(0)


async def test_only_abandoned_preparations_are_taken_over(url: str) -> None:
    """Not those that a server is preparing, those that failed, those of providers without a function, and other jobs."""
    upload = BlockableHook()
    async with run_cloud_service(url, replicate=upload) as service:
        ledger = service.ledger
        alive = start_submission(service, "alive")
        await upload.started.wait()
        short = timedelta(seconds=0.3)
        failed = await ledger.check_or_reserve("cloud.replicate", CONFIG, idempotency_key="failed", lease=short)
        assert isinstance(failed, onejob.HeldKey)
        await ledger.fail(failed, "no")
        for type in ("cloud.unprepared", "replicate"):
            await ledger.check_or_reserve(type, CONFIG, idempotency_key="other", lease=short)
        await asyncio.sleep(0.5)
        await service.app._cloud.resume_abandoned(ServiceLedger.of(ledger))
        assert len(upload.preparations) == 1
        upload.proceed.set()
        assert (await alive).success


async def test_a_preparation_that_kills_its_servers_is_rejected_in_the_end(url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(url, lease=0.05, replicate=upload) as service:
        died = []
        for _ in range(5):
            died.append(await service.ledger.check_or_reserve("cloud.replicate", CONFIG, idempotency_key="k"))
            await asyncio.sleep(0.1)
        await service.app._cloud.resume_abandoned(ServiceLedger.of(service.ledger))
        assert (await service.ledger.job(died[0].job_id)).state is onejob.JobState.FAILED
        assert upload.preparations == []
