"""The cloud contract: always status 200, the members of the seed, one job for each key."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

import onejob
from onejob.core.limits import MICROS_PER_UNIT, CostAction, CostLimit, Period
from onejob.core.states import JobState
from onejob.core.submit import StoreKey
from onejob.errors import Invalid, Unavailable, Unknown
from onejob.http.app import HttpApp
from onejob.http.config import ProviderConfig, ServiceConfig
from onejob.http.problems import Unauthorized
from onejob.http.request import Scope
from onejob.http.schemas.cloud import CLOUD_STATUS_BY_STATE, CloudStatus
from onejob.ledger.parse import lookup_record_id
from onejob.runtime.callers import Caller
from onejob.settings import load_service_config
from tests.support.app_server import serve_app

from . import cloud_service
from .cloud_service import CONFIG, PATH, CloudReply, CloudService, run_cloud_service

LIMIT = "Quota exceeded: Maximum 5 concurrent jobs allowed"


async def test_a_new_job_and_its_duplicate(url: str) -> None:
    async with run_cloud_service(url) as service:
        first = await service.submit("ci-build-abc123")
        assert (first.success, first.status, first.idempotent_hit) == (True, "pending", False)
        again = await service.submit("ci-build-abc123")
        assert again == first._replace(idempotent_hit=True)
        job = await service.job(first)
        assert (job.type, job.scope, job.key) == ("cloud.replicate", "cloud.replicate", "ci-build-abc123")
        assert json.loads(await service.ledger.input(job.id)) == CONFIG


async def test_without_a_key_every_submission_is_new(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first, second = await service.submit(), await service.submit()
        assert first.job_id != second.job_id
        assert [first.idempotent_hit, second.idempotent_hit] == [False, False]


async def test_a_rerun_with_another_run_name_hits_and_the_first_labels_stay(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k", tracker_run_name="gh-1", estimated_cost=3)
        again = await service.submit("k", tracker_run_name="gh-2", idempotency_ttl_hours=2, more="x")
        assert (again.job_id, again.idempotent_hit) == (first.job_id, True)
        assert (await service.job(first)).labels == {"tracker_run_name": "gh-1"}


@pytest.mark.parametrize("other", [{"config_name_to_load": "other"}, {"config": {"steps": 1}}, {"config": [1]}])
async def test_another_configuration_with_the_same_key_is_no_success(durable_url: str, other: dict[str, Any]) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k")
        reply = await service.submit("k", **other)
        assert (reply.success, reply.job_id, reply.status) == (False, None, None)
        assert reply.error is not None
        assert str(first.job_id) in reply.error
        assert "Quota exceeded" not in reply.error


async def test_a_key_that_was_stored_for_an_external_job_is_a_hit(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.ledger.store_idempotency_key(
            key="ci-build-abc123",
            job_id="job-xyz789",
            user_id=42,
            ttl_hours=24,  # Default
        )
        for _ in range(2):
            reply = await service.submit("ci-build-abc123")
            assert (reply.success, reply.job_id, reply.idempotent_hit) == (True, "job-xyz789", True)
        assert not await service.ledger.jobs()


async def test_a_key_keeps_its_job_when_it_is_stored_for_another_one_later(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k")
        await service.ledger.store_idempotency_key("k", "job-xyz789")
        assert (await service.submit("k")).job_id == first.job_id


async def test_a_dataloader_configuration_of_any_size_is_part_of_the_configuration(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        data = [{"id": f"set-{n}", "path": "x" * 50} for n in range(100)]
        first = await service.submit("k", dataloader_config=data)
        assert first.success, first.error
        job = await service.job(first)
        assert json.loads(await service.ledger.input(job.id)) == {**CONFIG, "dataloader_config": data}
        assert (await service.submit("k", dataloader_config=data)).idempotent_hit
        assert not (await service.submit("k", dataloader_config=data[:1])).success
        alone = json.dumps({"dataloader_config": data}).encode()
        assert "no configuration" in str((await service.submit_raw(alone)).error)


async def test_a_rate_limit_stops_the_clients_of_the_seed(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.set_limits(jobs_per_hour=1)
        assert (await service.submit()).success
        reply = await service.submit()
        assert "Quota exceeded" in str(reply.error)
        assert "Rate limit" in str(reply.error)


async def test_two_providers_are_two_namespaces(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k", provider="replicate")
        second = await service.submit("k", provider="modal")
        assert first.job_id != second.job_id
        assert (await service.job(second)).type == "cloud.modal"


async def test_the_same_key_through_both_apis_is_one_job(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k")
        body = {"type": "cloud.replicate", "input": CONFIG}
        reply = await service.client.post("/api/jobs", body, b"idempotency-key: k")
        assert (reply.status, reply.body["job"]["id"]) == (202, first.job_id)


async def test_unknown_members_are_stored_as_labels_and_an_actor_is_ignored(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        reply = await service.submit(
            "k",
            tracker_run_name="r",
            text="plain",
            number=1.50,
            list=[1, "a"],
            nothing=None,
            actor="user:root",
        )
        job = await service.job(reply)
        assert job.labels == {
            "tracker_run_name": "r",
            "text": "plain",
            "number": "1.5",
            "list": '[1, "a"]',
        }
        assert job.actor == "client:local"


async def test_a_configuration_keeps_every_digit(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        reply = await service.submit_raw(b'{"config": {"seed": 123456789012345678901, "rate": 1e-7}}')
        assert reply.job_id
        assert b"123456789012345678901" in await service.ledger.input(reply.job_id)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b'{"config": 1', "body"),
        (b'{"config": 1, "config": 2}', "once"),
        (b"{}", "config or config_name_to_load"),
        (b'{"config": null, "config_name_to_load": null}', "config or config_name_to_load"),
        (b'{"config_name_to_load": 7}', "config_name_to_load"),
        (b'{"config": {}, "tracker_run_name": 7}', "tracker_run_name"),
        (b'{"config": {}, "idempotency_key": 7}', "idempotency_key"),
        (b'{"config": {}, "idempotency_key": ""}', "key"),
        (b'{"config": {}, "idempotency_key": "a\\nb"}', "key"),
        (b'{"config": {}, "idempotency_key": "%b"}' % (b"k" * 256), "key"),
        (b'{"config": {}, "idempotency_ttl_hours": 0}', "idempotency_ttl_hours"),
        (b'{"config": {}, "idempotency_ttl_hours": -1}', "idempotency_ttl_hours"),
        (b'{"config": {}, "idempotency_ttl_hours": 1e300}', "idempotency_ttl_hours"),
        (b'{"config": {}, "idempotency_ttl_hours": "1"}', "idempotency_ttl_hours"),
        (b'{"config": {}, "idempotency_ttl_hours": 0.00001}', "window"),
        (b'{"config": {}, "estimated_cost": -1}', "estimated_cost"),
        (b'{"config": {}, "estimated_cost": true}', "estimated_cost"),
        (b'{"config": {}, "estimated_cost": -1e-9}', "estimated_cost"),
        (b'{"config": {}, "estimated_cost": "1e999999"}', "estimated_cost"),
        (b'{"config": {}, "estimated_cost": "1e-9999999"}', "estimated_cost"),
        (b'{"config": {}, "estimated_cost": "much"}', "estimated_cost"),
        (b'{"config": {}, "notes": "%b"}' % (b"n" * 600), "512 bytes"),
        (b'{"config": "%b"}' % (b"c" * (1 << 20)), "bytes"),
    ],
)
async def test_an_invalid_body_is_reported_and_creates_no_job(durable_url: str, body: bytes, expected: str) -> None:
    async with run_cloud_service(durable_url) as service:
        reply = await service.submit_raw(body)
        assert reply == CloudReply(False, None, None, False, False, reply.error, [], None)
        assert reply.error is not None
        assert expected in reply.error
        assert not await service.ledger.jobs()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?provider=",
        "?provider=" + "p" * 81,
        "?provider=a%0Ab",
        "?provider=../x",
        "?provider=a%5Cb",
        "?provider=.x",
        "?p=a",
        "?provider=a&b=c",
    ],
)
async def test_a_provider_is_named_in_the_query(durable_url: str, query: str) -> None:
    async with run_cloud_service(durable_url) as service:
        reply = await service.client.post("/api/cloud/jobs/submit" + query, CONFIG)
        assert (reply.status, reply.body["success"]) == (200, False)
        assert not await service.ledger.jobs()


async def test_any_provider_is_accepted_unless_the_list_is_closed(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        assert (await service.submit(provider="Gr%C3%B6%C3%9Fe%20XL")).success
    closed = ServiceConfig(providers={"replicate": ProviderConfig()}, providers_closed=True)
    async with run_cloud_service(durable_url, config=closed) as service:
        assert (await service.submit(provider="replicate")).success
        reply = await service.submit(provider="modal")
        assert not reply.success
        assert "no such provider" in str(reply.error)


async def test_the_key_may_be_in_the_header_and_must_not_contradict_the_body(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit(None, b'idempotency-key: "k"')
        assert (await service.submit("k")).job_id == first.job_id
        assert (await service.submit("k", b"idempotency-key: k")).job_id == first.job_id
        for reply in (
            await service.submit("k", b"idempotency-key: other"),
            await service.submit(None, b"idempotency-key: a", b"idempotency-key: b"),
            await service.submit(None, b"idempotency-key: "),
        ):
            assert not reply.success
        assert len(await service.ledger.jobs()) == 1


async def test_the_caller_chooses_the_window(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.submit("k", idempotency_ttl_hours=0.5)
        history = await service.ledger.explain("k", scope="cloud.replicate")
        assert (history.expires_at - history.first_seen).total_seconds() == 1800


def test_every_state_of_a_job_has_a_status() -> None:
    assert set(CLOUD_STATUS_BY_STATE) == set(JobState)
    assert set(CLOUD_STATUS_BY_STATE.values()) == set(CloudStatus)


async def test_a_hit_reports_the_current_status(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        first = await service.submit("k")
        assert first.job_id
        await service.ledger.cancel(first.job_id)
        again = await service.submit("k")
        assert (again.success, again.status, again.idempotent_hit) == (True, "cancelled", True)


async def test_a_hit_on_an_external_job_returns_its_id(url: str) -> None:
    async with run_cloud_service(url) as service:
        await service.ledger._execute(
            StoreKey(
                tenant="default",
                record_id=lookup_record_id(Caller(), "k", "cloud.replicate"),
                scope="cloud.replicate",
                key="k",
                external_id="job-xyz789",
                actor="client:local",
                user="local",
                ttl_ms=60_000,
            )
        )
        reply = await service.submit("k")
        assert (reply.success, reply.job_id, reply.status, reply.idempotent_hit) == (
            True,
            "job-xyz789",
            "pending",
            True,
        )


async def test_a_full_quota_has_the_seeds_message_and_a_duplicate_still_hits(url: str) -> None:
    async with run_cloud_service(url) as service:
        await service.set_limits(max_concurrent=5)
        reply = [await service.submit(f"k{n}") for n in range(7)]
        assert [one.success for one in reply] == [True] * 5 + [False] * 2
        assert [one.quota_warnings for one in reply[:3]] == [[]] * 3
        assert reply[3].quota_warnings == ["4 of 5 concurrent jobs are in use"]
        assert all(LIMIT in str(one.error) for one in reply[5:])
        assert (await service.submit("k0")) == reply[0]._replace(idempotent_hit=True)
        # A refusal is not remembered: once a slot is free the same key succeeds.
        await service.ledger.cancel(str(reply[0].job_id))
        assert (await service.submit("k5")).success


async def test_a_limit_of_zero_admits_nothing(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.set_limits(max_concurrent=0)
        assert "Quota exceeded: Maximum 0 concurrent jobs" in str((await service.submit("k")).error)


@pytest.mark.parametrize("action", list(CostAction))
async def test_a_cost_limit_warns_or_blocks(durable_url: str, action: CostAction) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.set_limits(cost_limit=CostLimit(10 * MICROS_PER_UNIT, Period.DAY, action))
        assert (await service.submit("a", estimated_cost=7)).cost_limit_warning is None
        near = await service.submit("b", estimated_cost="1.5")
        assert near.cost_limit_warning is not None
        assert near.cost_limit_warning.startswith("Cost limit")
        assert near.quota_warnings == []
        over = await service.submit("c", estimated_cost=2.25)
        assert over.success == (action is CostAction.WARN)
        assert "Cost limit" in str(over.cost_limit_warning if over.success else over.error)
        assert (await service.submit("b", estimated_cost=99)).cost_limit_warning is None


async def test_an_estimate_from_float_arithmetic_is_rounded(durable_url: str) -> None:
    async with run_cloud_service(durable_url) as service:
        await service.set_limits(cost_limit=CostLimit(10 * MICROS_PER_UNIT, Period.DAY))
        assert (await service.submit("a", estimated_cost=1.1 * 3)).success
        assert (await service.submit("b", estimated_cost=2 / 3)).success
        assert (await service.usage_counts()).money_held == 3_300_000 + 666_667


async def test_a_rate_of_requests_does_not_forbid_a_retry(durable_url: str) -> None:
    async with run_cloud_service(durable_url, config=ServiceConfig(rate_per_second=0.001, rate_burst=1)) as service:
        await service.set_limits()
        first = await service.submit("c")
        reply = await service.submit("d")
        assert "retry with the same key" in str(reply.error)
        assert (await service.submit("c")).job_id == first.job_id


async def test_fifty_racers_for_five_slots_get_five_jobs(url: str) -> None:
    async with run_cloud_service(url) as service:
        await service.set_limits(max_concurrent=5)
        reply = await asyncio.gather(*(service.submit(f"k{n}") for n in range(50)))
        assert sum(one.success for one in reply) == 5
        assert sum(LIMIT in str(one.error) for one in reply) == 45
        assert (await service.usage_counts()).live == 5


async def test_an_unauthenticated_request_gets_401() -> None:
    async def refuse(scope: Scope) -> Any:
        raise Unauthorized("no credential")

    async with (
        onejob.open("memory://", sweep=False) as ledger,
        serve_app(HttpApp(ledger, authenticate=refuse)) as client,
    ):
        reply = await client.post(PATH + "replicate", CONFIG)
        assert (reply.status, reply.code) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("error", [Unavailable("no disk at /srv/secret"), Unknown("lost /srv/secret")])
async def test_a_store_error_is_no_success_and_reveals_no_location(
    durable_url: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_cloud_service(durable_url) as service:

        async def fails(command: Any, **_: Any) -> Any:
            return error

        monkeypatch.setattr(service.ledger._gate, "execute_one", fails)
        reply = await service.submit("k")
        assert not reply.success
        assert "retry with the same key" in str(reply.error)
        assert "secret" not in str(reply.error)


async def test_a_key_held_through_python_is_uploading(url: str) -> None:
    keys = onejob.IdempotencyConfig(pending_wait_timeout=0)
    async with onejob.open(url, config=keys, sweep=False) as ledger:
        held = await ledger.check_or_reserve("cloud.replicate", CONFIG, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        async with serve_app(HttpApp(ledger)) as client:
            reply = await CloudService(client, ledger, HttpApp(ledger)).submit("k")
            assert (reply.success, reply.job_id, reply.status) == (True, held.job_id, "uploading")
            assert (reply.idempotent_hit, reply.data_uploaded) == (True, False)


def test_invalid_settings_stop_the_start(tmp_path: Any) -> None:
    file = tmp_path / "onejob.toml"
    for text in (
        'providers = "replicate"',
        "[providers.replicate]\nprepare = 7",
        '[providers.replicate]\nprepared = "a:b"',
        "preparation_wait_seconds = 0",
        "preparations_max = 0",
        "preparation_seconds_max = -1",
    ):
        file.write_text(text)
        with pytest.raises(Invalid):
            load_service_config(str(file), {})
    with pytest.raises(Invalid):
        load_service_config(None, {"ONEJOB_PROVIDERS": "replicate"})


@pytest.mark.parametrize("import_path", ["nowhere", "json:", "no_such_module:f", "json:no_such", "json:__doc__"])
async def test_a_missing_hook_stops_the_start(import_path: str) -> None:
    async with onejob.open("memory://", sweep=False) as ledger:
        config = ServiceConfig(providers={"replicate": ProviderConfig(prepare=import_path)})
        with pytest.raises(Invalid, match=r"providers\.replicate\.prepare"):
            HttpApp(ledger, config=config)


def _generator_hook(preparation: Any) -> Any:
    yield preparation


async def _async_generator_hook(preparation: Any) -> Any:
    yield preparation


class _GeneratorHook:
    def __call__(self, preparation: Any) -> Any:
        yield preparation


@pytest.mark.parametrize(
    "hook",
    [_generator_hook, _async_generator_hook, _GeneratorHook(), partial(_generator_hook)],
    ids=["generator", "async generator", "object", "partial"],
)
async def test_a_hook_that_would_never_run_stops_the_start(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_service, "hook", hook, raising=False)
    config = ServiceConfig(providers={"p": ProviderConfig(prepare=f"{cloud_service.__name__}:hook")})
    async with onejob.open("memory://", sweep=False) as ledger:
        for make_app in (partial(HttpApp, ledger, config=config), partial(HttpApp, ledger, prepare={"p": hook})):
            with pytest.raises(Invalid, match="has a yield"):
                make_app()


@pytest.mark.parametrize("hook", [_generator_hook, _async_generator_hook])
async def test_a_hook_that_turns_out_to_be_a_generator_has_uploaded_nothing(durable_url: str, hook: Any) -> None:
    def decorated(preparation: Any) -> Any:
        return hook(preparation)

    async with run_cloud_service(durable_url, replicate=decorated) as service:
        reply = await service.submit("k")
        assert (reply.success, reply.data_uploaded) == (False, False)
        assert "returned a generator" in str(reply.error)
