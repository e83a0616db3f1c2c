"""Limits on preparations: preparations of a server, slots, money, rates."""

import asyncio
import math

import pytest

import onejob
from onejob.core.limits import MICROS_PER_UNIT, CostAction, CostLimit, Period
from onejob.core.states import JobState
from onejob.http.config import ServiceConfig
from onejob.ledger import held_keys
from onejob.ledger.base import runtime_of

from .cloud_service import BlockableHook, CloudService, run_cloud_service, set_limits, start_submission, wait_until

FULL = "Quota exceeded: Maximum 1 concurrent jobs allowed"


async def test_a_hit_is_answered_by_a_server_at_its_preparation_limit(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, config=ServiceConfig(preparations_max=1), replicate=upload) as service:
        upload.proceed.set()
        done = await service.submit("done")
        upload.proceed.clear()
        upload.started.clear()
        first = start_submission(service, "k")
        await upload.started.wait()
        assert (await service.submit("done")).job_id == done.job_id
        assert (await service.submit("k")).status == "uploading"
        reply = await service.submit("new")
        assert "too many preparations" in str(reply.error)
        upload.proceed.set()
        assert (await first).success
        assert (await service.submit("new")).success


async def test_a_flood_of_new_keys_starts_no_more_preparations_than_the_limit(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, config=ServiceConfig(preparations_max=3), replicate=upload) as service:
        tasks = [start_submission(service, f"k{n}") for n in range(20)]
        await wait_until(lambda: sum(task.done() for task in tasks) == 17 and len(upload.preparations) >= 3)
        assert len(upload.preparations) == 3
        assert preparations(service) == 3
        upload.proceed.set()
        assert sum(one.success for one in await asyncio.gather(*tasks)) == 3
        assert preparations(service) == 0


def preparations(service: CloudService) -> float:
    """The gauge of the metrics, which has no labels."""
    (reply,) = [family for family in service.app._metrics.families() if family.name == "onejob_preparations"]
    (sample,) = reply.samples
    assert sample.labels == {}
    return sample.value


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_full_quota_refuses_before_anything_is_prepared(durable_url: str, limit: int) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        await service.set_limits(max_concurrent=limit)
        tasks = [start_submission(service, f"k{n}") for n in range(5)]
        await wait_until(lambda: sum(task.done() for task in tasks) == 5 - limit)
        upload.proceed.set()
        reply = await asyncio.gather(*tasks)
        assert sum(f"Maximum {limit} concurrent jobs" in str(one.error) for one in reply) == 5 - limit
        assert len(upload.preparations) == limit
        assert len(await service.ledger.jobs()) == limit


async def test_money_is_held_during_the_preparation_and_a_warning_is_returned(durable_url: str) -> None:
    upload = BlockableHook()
    async with run_cloud_service(durable_url, replicate=upload) as service:
        await service.set_limits(cost_limit=CostLimit(10 * MICROS_PER_UNIT, Period.DAY, CostAction.BLOCK))
        first = start_submission(service, "a", estimated_cost=9)
        await upload.started.wait()
        assert (await service.usage_counts()).money_held == 9 * MICROS_PER_UNIT
        assert "Cost limit exceeded" in str((await service.submit("b", estimated_cost=2)).error)
        upload.proceed.set()
        assert str((await first).cost_limit_warning).startswith("Cost limit")


async def test_a_lost_slot_is_reported_before_the_job_can_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease expired unnoticed (the process was suspended), another submission took the slot, then the upload ended."""
    monkeypatch.setattr(held_keys, "end_of_lease", lambda *_: math.inf)
    upload = BlockableHook()
    async with run_cloud_service(url, lease=0.3, replicate=upload) as service:
        await service.set_limits(max_concurrent=1)
        renewed = asyncio.Event()

        async def stalled(held: onejob.HeldKey) -> onejob.HeldKey:
            await renewed.wait()
            return await onejob.Ledger.renew(service.ledger, held)

        monkeypatch.setattr(service.ledger, "renew", stalled)
        first = start_submission(service)
        await upload.started.wait()
        await asyncio.sleep(0.4)
        other = await service.submit("other", provider="unprepared")
        assert other.success
        (preparation,) = upload.preparations
        upload.proceed.set()
        reply = await first
        assert (reply.success, reply.job_id) == (False, None)
        assert "slot lost" in str(reply.error)
        assert (await service.ledger.job(preparation.job_id)).state is JobState.PREPARING
        assert ((await service.usage_counts()).live, (await service.usage_counts()).reserved) == (1, 0)
        # The key can be retried, with the same job, as soon as a slot is free.
        monkeypatch.undo()
        runtime_of(service.ledger).lease_ms = 30_000
        await service.ledger.cancel(str(other.job_id))
        assert (await service.submit("k")).job_id == preparation.job_id


async def test_an_upload_stops_when_its_lease_is_over_although_the_store_does_not_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller is not told `uploading`, for nobody uploads: it repeats, and takes the key over."""
    upload = BlockableHook()
    async with run_cloud_service(url, lease=0.3, replicate=upload) as service:

        async def hang(held: onejob.HeldKey) -> onejob.HeldKey:
            await asyncio.Event().wait()
            return held

        monkeypatch.setattr(service.ledger, "renew", hang)
        reply = await start_submission(service)
        assert (reply.success, reply.job_id) == (False, None)
        assert "before the lease was over; retry with the same key" in str(reply.error)
        (preparation,) = upload.preparations
        assert preparation.cancelled
        monkeypatch.undo()
        runtime_of(service.ledger).lease_ms = 30_000
        upload.proceed.set()
        again = await service.submit("k")
        assert (again.success, again.job_id) == (True, preparation.job_id)


async def test_a_renewal_without_a_slot_stops_the_upload(durable_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_keys, "end_of_lease", lambda *_: math.inf)  # as in a process that was suspended
    upload = BlockableHook()
    async with run_cloud_service(durable_url, lease=0.3, replicate=upload) as service:
        await service.set_limits(max_concurrent=2)
        first = start_submission(service)
        await upload.started.wait()
        (preparation,) = upload.preparations

        async def renew_late(held: onejob.HeldKey) -> onejob.HeldKey:
            await asyncio.sleep(0.5)
            await set_limits(service.ledger, max_concurrent=0)
            return await onejob.Ledger.renew(service.ledger, held)

        monkeypatch.setattr(service.ledger, "renew", renew_late)
        reply = await first
        assert "slot lost" in str(reply.error)
        assert preparation.cancelled
        monkeypatch.undo()


async def test_rate_limits_apply_to_prepared_jobs_and_not_to_their_retries(durable_url: str) -> None:
    upload = BlockableHook()
    upload.proceed.set()
    config = ServiceConfig(rate_per_second=0.001, rate_burst=1)
    async with run_cloud_service(durable_url, config=config, replicate=upload) as service:
        first = await service.submit("a")
        assert "too many new submissions" in str((await service.submit("b")).error)
        assert (await service.submit("a")).job_id == first.job_id
        assert len(upload.preparations) == 1
