"""Rate limits: new submissions are limited per credential; repetitions are always answered."""

from typing import Any

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.core.identity import Actor
from onejob.http.rate_limit import RateLimitedLedger
from onejob.ledger.base import runtime_of
from onejob.runtime.rate_limit import RateLimiter
from onejob.runtime.settings import change_settings

from .auth_server import BODY, AuthServer, bearer, token


def test_new_keys_beyond_the_rate_are_told_to_wait_and_known_ones_are_answered(rate_limited_server: AuthServer) -> None:
    text = rate_limited_server.create_key("eager")
    accepted = [rate_limited_server.service.submit(text, f"k{n}") for n in range(2)]
    assert [one.status for one in accepted] == [202, 202]
    for _ in range(3):  # a repetition takes no token
        again = rate_limited_server.service.submit(text, "k0")
        assert (again.status, again.body["job"]["id"]) == (202, accepted[0].body["job"]["id"])
        assert again.headers["idempotent-replayed"] == "true"
    refused = rate_limited_server.service.submit(text, "k2")
    assert (refused.status, refused.code) == (429, "RATE_LIMITED")
    assert 900 <= int(refused.headers["retry-after"]) <= 1000
    assert refused.body["error"]["retryable"]
    assert rate_limited_server.service.submit(text, "k0", {"type": "charge"}).code == "CONFLICT"
    assert rate_limited_server.service.ask("GET", "/api/jobs", bearer(text)).status == 200, (
        "only new submissions are counted"
    )


def test_a_refused_request_burns_no_key(rate_limited_server: AuthServer) -> None:
    text = rate_limited_server.create_key("eager")
    for n in range(2):
        rate_limited_server.service.submit(text, f"k{n}")
    assert rate_limited_server.service.submit(text, "late").status == 429
    tenant = rate_limited_server.operator.acting_as(tenant="acme", user="eager", actor=Actor.client("eager"))
    assert tenant.submit("charge", {"amount": 42}, idempotency_key="late").created


def test_repetitions_conflicts_and_bad_input_take_no_token(rate_limited_server: AuthServer) -> None:
    text = rate_limited_server.create_key("clumsy")
    first = rate_limited_server.service.submit(text, "k0")
    for _ in range(5):
        assert rate_limited_server.service.submit(text, "k0").body["job"]["id"] == first.body["job"]["id"]
        assert rate_limited_server.service.submit(text, "k0", {"type": "charge"}).status == 409
        assert rate_limited_server.service.submit(text, "x" * 256).status == 400
        assert rate_limited_server.service.submit(text, "k9", {"type": ""}).status == 400
        assert rate_limited_server.service.ask("POST", "/api/jobs?dryRun=true", bearer(text), BODY).status == 200
    assert rate_limited_server.service.submit(text, "k1").status == 202
    assert rate_limited_server.service.submit(text, "k2").status == 429
    assert rate_limited_server.service.submit(text, "x" * 256).status == 400, (
        "an invalid submission is refused as such first"
    )


def test_each_credential_has_its_own_bucket_and_a_rotation_brings_no_new_one(rate_limited_server: AuthServer) -> None:
    one = rate_limited_server.api_keys().create("one", roles=[Role.SUBMITTER])
    assert [rate_limited_server.service.submit(one.text, f"a{n}").status for n in range(3)] == [202, 202, 429]
    assert (
        rate_limited_server.service.submit(rate_limited_server.api_keys().rotate(one.key.id).text, "a3").status == 429
    )
    assert rate_limited_server.service.submit(rate_limited_server.create_key("other"), "b0").status == 202
    assert (
        rate_limited_server.service.submit(rate_limited_server.create_key("one", tenant="umbrella"), "b1").status == 202
    )
    assert rate_limited_server.service.submit(token(sub="one"), "b2").status == 202


def test_a_batch_is_counted_by_its_items(rate_limited_server: AuthServer) -> None:
    text = rate_limited_server.create_key("bulk")
    known = rate_limited_server.service.submit(text, "k0").body["job"]["id"]

    def batch(*keys: str) -> list[Any]:
        jobs = [{**BODY, "idempotencyKey": key} for key in keys]
        response = rate_limited_server.service.ask("POST", "/api/jobs/batch", bearer(text), {"jobs": jobs})
        assert response.status == 200
        return list(response.body["verdicts"])

    verdicts = batch("k1", "k2", "k0", "x" * 256, "k3")
    assert [verdict["status"] for verdict in verdicts] == [202, 429, 202, 400, 429]
    assert verdicts[2]["job"]["id"] == known
    assert verdicts[1]["error"]["code"] == "RATE_LIMITED"
    assert [verdict["status"] for verdict in batch("k0", "k1", "k2")] == [202, 202, 429]


def test_a_bucket_fills_with_time_and_never_above_its_burst() -> None:
    clock, ann = FakeClock(), ("acme", "user:ann")
    rates = RateLimiter(per_second=2, burst=4, monotonic=clock.monotonic)
    assert [rates.take(ann, 3), rates.take(ann, 3), rates.take(ann, 3)] == [3, 1, 0]
    assert rates.retry_after(ann) == 1
    clock.advance(0.5)
    assert [rates.take(ann, 1), rates.take(ann, 1)] == [1, 0]
    rates.give_back(ann, 1)
    assert rates.take(ann, 9) == 1
    clock.advance(3600)
    rates.give_back(ann, 9)
    assert rates.take(ann, 9) == 4
    clock.jump_wall(-(10**9))
    assert rates.take(ann, 1) == 0


def test_the_wait_that_is_told_is_long_enough() -> None:
    for per_second in (0.001, 0.3, 0.7, 3):
        clock, ann = FakeClock(), ("acme", "user:ann")
        rates = RateLimiter(per_second=per_second, burst=1, monotonic=clock.monotonic)
        rates.take(ann, 1)
        clock.advance(0.123)
        clock.advance(rates.retry_after(ann))
        assert rates.take(ann, 1) == 1


def test_buckets_are_bounded_and_the_least_used_leaves() -> None:
    rates = RateLimiter(per_second=0.001, burst=1, monotonic=FakeClock().monotonic, buckets_max=10)
    for n in range(100):
        rates.take(("acme", f"user:{n}"), 1)
        assert rates.take(("acme", "user:0"), 1) == 0
    assert len(rates) == 10


async def test_a_submission_that_is_repeated_under_changed_settings_takes_one_token() -> None:
    """Its own token must not be missing when it is repeated."""
    limiter = RateLimiter(per_second=0.001, burst=1, monotonic=FakeClock().monotonic)
    async with onejob.open("memory://", sweep=False) as queue:
        runtime = runtime_of(queue)
        limited = RateLimitedLedger(runtime, queue.caller, limiter)
        await change_settings(runtime.gate, {"window_ms": 7_200_000}, actor="client:admin")
        submission = onejob.Submission(type="t", idempotency_key="k")
        assert (await limited.submit_prepared(submission)).created
        assert limiter.take((queue.caller.tenant, queue.caller.actor), 1) == 0
