"""Two versions on one store: the older one refuses facts of a newer format, and does not change them."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

import onejob
from onejob.core import credentials
from onejob.core.credentials import SetPolicy
from onejob.core.identity import policy_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.slots import SetLimits
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from onejob.runtime.policies import load_policy
from tests.support.app_server import serve_app
from tests.support.sqlite_files import RawConnection


async def test_a_state_of_a_newer_program_is_503_and_says_to_upgrade(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    async with onejob.open(f"sqlite:///{path}", sweep=False) as queue, serve_app(HttpApp(queue)) as client:
        job_id = (await queue.submit("t", idempotency_key="k")).job_id
        with RawConnection(path) as db:
            db.execute("UPDATE job SET state = 'hovering'")
        for asked in (
            client.get(f"/api/jobs/{job_id}"),
            client.get("/api/jobs"),
            client.get("/api/keys/k?scope=t"),
            client.post("/api/jobs", {"type": "t"}, b"idempotency-key: k"),
            client.ask("POST", f"/api/jobs/{job_id}/cancel"),
        ):
            answer = await asked
            assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")
            assert "upgrade this program" in answer.body["detail"]
            assert path not in answer.body["detail"]
            assert answer.headers["retry-after"]
        assert (await client.post("/api/jobs", {"type": "t"}, b"idempotency-key: other")).status == 202


async def test_a_role_of_a_newer_program_is_no_verdict_about_a_key(queue: onejob.Ledger) -> None:
    keys = ApiKeys(queue)
    created = await keys.create("ci", roles=["submitter"])
    name = credentials.api_key_policy_name(created.key.id)
    policy, _ = await load_policy(runtime_of(queue).gate, "default", name)
    assert policy is not None
    stored = msgspec.json.decode(policy.body)
    body = msgspec.json.encode(stored | {"roles": ["submitter", "auditor"]})
    set_policy = SetPolicy(tenant="default", policy_id=policy_id("default", name), name=name, body=body)
    await queue._execute(set_policy)
    with pytest.raises(onejob.Outdated, match="upgrade"):
        await keys.verify(created.text)
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        answer = await client.get("/api/jobs", b"authorization: Bearer " + created.text.encode())
        assert (answer.status, answer.code) == (503, "SERVICE_UNAVAILABLE")


async def test_limits_of_a_newer_program_admit_nobody_until_they_are_set_again(queue: onejob.Ledger) -> None:
    body = b'{"jobs_per_week":5}'
    tally, policy = usage_id("default", "local"), policy_id("default", QUOTA_POLICY_NAME)
    await queue._execute(SetLimits(tenant="default", usage_id=tally, policy_id=policy, user="local", limits=body))
    await queue._execute(SetPolicy(tenant="default", policy_id=policy, name=QUOTA_POLICY_NAME, body=body))
    for whose, calls in (
        ("the tenant", (queue.admin.tenant_quota, partial(queue.quota, "ann"))),
        ("a user", (queue.usage, partial(queue.submit, "t"))),
    ):
        for call in calls:
            with pytest.raises(onejob.Outdated, match=f"limits of {whose} .* upgrade"):
                await call()
    await queue.admin.set_tenant_quota(onejob.TenantLimits())
    await queue.set_quota("local", onejob.Limits(max_concurrent=1))
    assert (await queue.submit("t")).created
