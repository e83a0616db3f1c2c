"""Who holds the key of a job that is being prepared: how long, what follows a holder that is gone, and leaving."""

import asyncio
import threading
from datetime import timedelta

import onejob
from onejob.http.config import ServiceConfig

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
    async with run_cloud_service(durable_url, lease=1.0, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        first = start_submission(service)
        await upload.started.wait()
        (seen,) = upload.preparations
        for _ in range(10):
            await asyncio.sleep(0.25)
            assert (await service.submit("k")).status == "uploading"
            assert FULL in str((await service.submit("other")).error)
        assert not seen.cancelled
        upload.proceed.set()
        assert ((await first).job_id, seen.token, len(upload.preparations)) == (seen.job_id, 1, 1)


async def test_leaving_gives_some_time_then_frees_the_key(durable_url: str) -> None:
    upload, blocking = BlockableHook(), BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload, other=blocking) as service:
        await service.set_limits(max_concurrent=5)
        tasks = [start_submission(service, "a"), asyncio.create_task(service.submit("b", provider="other"))]
        await upload.started.wait()
        await wait_until(blocking.started.is_set)
        leaving = asyncio.create_task(service.app.preparations.shut_down(0.3))
        await asyncio.sleep(0)
        assert "being stopped" in str((await service.submit("c")).error)
        for told in await asyncio.gather(*tasks):
            assert "being stopped" in str(told.error)
        await leaving
        assert blocking.preparations[0].cancelled
        assert (await service.usage_counts()).used == 0
        blocking.proceed.set()


async def test_a_preparation_that_ends_while_the_server_leaves_is_kept(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await upload.started.wait()
        leaving = asyncio.create_task(service.app.preparations.shut_down(20))
        await asyncio.sleep(0)
        upload.proceed.set()
        assert (await first).data_uploaded
        await leaving


async def test_threads_of_hooks_do_not_keep_a_process_alive(durable_url: str) -> None:
    upload = BlockableThreadHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        first = start_submission(service)
        await wait_until(upload.started.is_set)
        assert [one.daemon for one in threading.enumerate() if one.name == "onejob-hook"] == [True]
        upload.proceed.set()
        assert (await first).success


async def abandon_key(service: CloudService, **lease: float) -> onejob.HeldKey:
    """A key whose holder is gone."""
    held = await service.ledger.check_or_reserve(
        "cloud.replicate", CONFIG, idempotency_key="k", lease=timedelta(**lease)
    )
    assert isinstance(held, onejob.HeldKey)
    return held


async def test_a_holder_that_is_gone_is_waited_for_and_taken_over(url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    async with run_cloud_service(url, replicate=upload) as service:
        held = await abandon_key(service, seconds=0.5)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.data_uploaded) == (held.job_id, "pending", True)
        assert told.idempotent_hit
        assert upload.preparations[0].token == 2


async def test_a_server_without_the_hook_that_finishes_a_job_says_that_the_key_was_there(url: str) -> None:
    async with run_cloud_service(url) as service:
        held = await abandon_key(service, seconds=0.5)
        told = await service.submit("k", config_name_to_load="other")
        assert (told.success, told.idempotent_hit) == (False, False)
        told = await service.submit("k")
        for _ in range(100):
            if told.status != "uploading":
                break
            await asyncio.sleep(0.05)
            told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "pending", True)


async def test_a_long_preparation_that_was_taken_over_says_so_at_once(durable_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=1)
    upload = BlockableHook()
    async with run_cloud_service(durable_url, config=config, replicate=upload) as service:
        held = await abandon_key(service, seconds=0.1)
        await asyncio.sleep(0.15)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "uploading", True)


async def test_uploading_is_answered_in_time_for_a_holder_of_unknown_state(durable_url: str) -> None:
    config = ServiceConfig(preparation_wait_seconds=0.5)
    async with run_cloud_service(durable_url, config=config, replicate=BlockableHook()) as service:
        held = await abandon_key(service, hours=1)
        told = await service.submit("k")
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "uploading", True)


async def test_a_holder_that_settles_is_answered_with_its_job(durable_url: str) -> None:
    async with run_cloud_service(durable_url, replicate=BlockableHook()) as service:
        held = await abandon_key(service, hours=1)
        waiting = start_submission(service)
        await asyncio.sleep(0.05)
        await service.ledger.commit(held)
        told = await waiting
        assert (told.job_id, told.status, told.idempotent_hit) == (held.job_id, "pending", True)


async def test_requests_waiting_for_a_holder_end_when_the_server_stops(durable_url: str) -> None:
    async with run_cloud_service(durable_url, replicate=BlockableHook()) as service:
        await abandon_key(service, hours=1)
        waiting = start_submission(service)
        await asyncio.sleep(0.05)
        await service.app.preparations.shut_down(0)
        async with asyncio.timeout(5):
            assert "being stopped" in str((await waiting).error)
