"""Slots, limits, results and waiting over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.cli.commands.prove.faulty_proxy import LOSE, PASS
from onejob.client.flow import RetryPolicy
from onejob.core.limits import CostAction, Period
from onejob.resources.quotas import CostLimitView, LimitsView
from tests.support.faulty_proxy import run_faulty_proxy
from tests.support.serve_process import ServeProcess


def finish_job(server: ServeProcess, job_id: str, type: str, result: Any) -> None:
    """Claim, start and finish a job by the HTTP API."""
    (claimed,) = server.ask("POST", "/api/work/claim", {"types": [type], "limit": 1}).json["jobs"]
    assert claimed["job"]["id"] == job_id
    named = {"token": claimed["token"], "holder": claimed["holder"]}
    started = server.ask("POST", f"/api/jobs/{job_id}/start", named)
    assert started.status == 200, started.body
    done = server.ask("POST", f"/api/jobs/{job_id}/finish", named | {"result": result})
    assert done.status == 200, done.body


def test_a_slot_is_reserved_used_and_released(client: onejob.Client) -> None:
    client.set_quota("cleo", onejob.Limits(max_concurrent=1))
    slot = client.reserve_job_slot("cleo", ttl_seconds=60, idempotency_key='a "key"')
    assert slot is not None
    assert client.reserve_job_slot("cleo", ttl_seconds=60, idempotency_key='a "key"') == slot
    assert client.reserve_job_slot("cleo") is None
    with pytest.raises(onejob.SubmissionRefused, match="1 concurrent"):
        client.reserve_job_slot_or_raise("cleo")
    (reserved,) = client.reservations("cleo")
    assert (reserved.id, reserved.state) == (slot, "active")
    assert client.renew_reservation(slot, 120) > reserved.expires_at
    assert [client.release_reservation(slot) for _ in range(2)] == [True, True]
    assert client.consume_reservation(slot) is False
    assert client.usage("cleo").used == 0
    again = client.reserve_job_slot("cleo", 5)
    assert again not in (None, slot)
    assert client.consume_reservation(again or "") is True
    assert client.release_reservation(again or "") is False


def test_a_submission_uses_the_slot_that_was_reserved_for_it(client: onejob.Client) -> None:
    before = client.usage().live  # other tests use the same server
    slot = client.reserve_job_slot()
    receipt = client.submit("slotted", 1, reservation=slot, estimated_cost=1.5)
    assert client.submit("slotted", 1, idempotency_key=receipt.key).job_id == receipt.job_id
    used = client.usage()
    assert (used.live, used.money.held) == (before + 1, 1.5)
    client.cancel(receipt.job_id)
    assert client.usage().live == before


def test_limits_are_set_in_micro_units_and_returned_in_units(client: onejob.Client) -> None:
    cost = onejob.CostLimit.of("12.5", "month", "warn")
    quota = client.set_quota(7, onejob.Limits(max_concurrent=3, cost_limit=cost))
    assert quota.limits == LimitsView(3, cost_limit=CostLimitView(12.5, Period.MONTH, CostAction.WARN))
    assert client.set_quota(7, quota.limits) == client.quota(7) == quota
    both = client.set_tenant_quota(onejob.TenantLimits(ceiling=onejob.Limits(max_concurrent=2)))
    assert client.tenant_quota() == both
    assert client.quota(7).effective.max_concurrent == 2
    client.set_tenant_quota(onejob.TenantLimits())
    client.set_quota(7, onejob.Limits())


async def test_the_async_client_has_the_same_slots(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    async with onejob.AsyncClient(server.base_url, retry=quick_retry) as client:
        await client.set_quota("dora", onejob.Limits(max_concurrent=1))
        slot = await client.reserve_job_slot("dora")
        assert slot is not None
        assert await client.reserve_job_slot("dora") is None
        await client.release_reservation(slot)
        assert (await client.reserve_job_slot_or_raise("dora")).user == "dora"
        assert (await client.quota("dora")).limits.max_concurrent == 1
        assert (await client.usage("dora")).reserved == 1


def test_a_lost_response_leaves_no_unknown_slot(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    with run_faulty_proxy(server.port, lambda key, attempt: LOSE if attempt < 2 else PASS) as proxy:
        with onejob.Client(proxy.url, retry=quick_retry) as client:
            assert client.reserve_job_slot("eve") is not None
        with onejob.Client(server.base_url, retry=quick_retry) as client:
            assert client.usage("eve").reserved == 1


def test_wait_returns_when_the_job_ends_and_its_result_is_there(server: ServeProcess) -> None:
    with onejob.Client(server.base_url) as client, ThreadPoolExecutor(1) as threads:
        job_id = client.submit("awaited", {"n": 1}).job_id
        with pytest.raises(onejob.NotFound):
            client.result(job_id)
        waiting = threads.submit(client.wait, job_id, timedelta(seconds=30))
        finish_job(server, job_id, "awaited", {"sum": 3})
        assert waiting.result(10).state == "success"
        assert client.result(job_id) == {"sum": 3}
        assert client.result_json(job_id) == b'{"sum": 3}'
        assert client.log_lines(job_id).lines == []


def test_wait_raises_after_its_timeout(client: onejob.Client) -> None:
    job_id = client.submit("endless", 1).job_id
    with pytest.raises(TimeoutError, match="pending"):
        client.wait(job_id, 0.2)
