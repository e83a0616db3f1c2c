"""The visibility of jobs and keys over a real server, where each user has its own."""

from collections.abc import Iterator
from typing import Any

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.ledger.service import ServiceLedger
from onejob.runtime.callers import Caller
from tests.support.ledger_settings import set_settings

from .auth_server import AuthServer, bearer, run_auth_server, token

UNKNOWN = "01a1e393-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def server_with_user_owned_keys(shared_url: str) -> Iterator[AuthServer]:
    yield from run_auth_server(shared_url, key_owner="user")


@pytest.mark.parametrize("role", [Role.SUBMITTER, Role.WORKER])
def test_a_user_is_told_nothing_of_another_users_jobs_and_keys(
    server_with_user_owned_keys: AuthServer, role: Role
) -> None:
    service = server_with_user_owned_keys.service
    anns = service.submit(token(sub="ann"), "secret").body["job"]["id"]
    bob = bearer(token(sub="bob", roles=[role]))
    bobs = service.submit(token(sub="bob"), f"bobs-{role}").body["job"]["id"]
    stranger = bearer(token(sub="ann", tenant="umbrella"))
    for method, path in (
        ("GET", f"/api/jobs/{anns}"),
        ("GET", f"/api/jobs/{anns}/events"),
        ("GET", "/api/keys/secret?scope=charge"),
        ("GET", "/api/keys/secret?scope=charge&user=ann"),
    ):
        response, unknown = service.ask(method, path, bob), service.ask(method, path, stranger)
        assert (response.status, response.code) == (404, "NOT_FOUND"), path
        assert response.body["detail"] == unknown.body["detail"] or "user=" in path, "as if it were not there"
    if role is Role.SUBMITTER:
        assert service.ask("POST", f"/api/jobs/{anns}/cancel", bob).status == 404
        assert _consume_slot(service, bob, anns) == _consume_slot(service, bob, UNKNOWN) == 404
        assert _consume_slot(service, bob, bobs) == 200
    listed = service.ask("GET", "/api/jobs?limit=1000", bob).body["jobs"]
    assert {job["user"] for job in listed} == {"bob"}
    assert bobs in {job["id"] for job in listed}
    assert not service.ask("GET", "/api/jobs?user=ann", bob).body["jobs"]
    for query in ("", "?scope=charge"):
        assert {one["user"] for one in service.ask("GET", f"/api/keys{query}", bob).body["keys"]} == {"bob"}
    assert service.ask("GET", "/api/keys?user=ann", bob).status == 404
    assert service.ask("GET", f"/api/jobs/{bobs}", bob).status == 200


def _consume_slot(service: Any, who: Any, job_id: str) -> int:
    """The status of consuming one's own reservation with a job."""
    slot = service.ask("POST", "/api/reservations", who, {}).body["id"]
    response = service.ask("POST", f"/api/reservations/{slot}/consume", who, {"jobId": job_id})
    return int(response.status)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_operators_and_admins_see_the_jobs_and_keys_of_all_users(
    server_with_user_owned_keys: AuthServer, role: Role
) -> None:
    service = server_with_user_owned_keys.service
    anns = service.submit(token(sub="ann"), f"of-{role}").body["job"]["id"]
    eve = bearer(token(sub="eve", roles=[role]))
    assert service.ask("GET", f"/api/jobs/{anns}", eve).body["job"]["user"] == "ann"
    assert anns in {job["id"] for job in service.ask("GET", "/api/jobs?limit=1000", eve).body["jobs"]}
    for query in ("", "?scope=charge", "?user=ann", "?scope=charge&user=ann"):
        keys = service.ask("GET", f"/api/keys{query}", eve).body["keys"]
        assert anns in {one["job"]["id"] for one in keys}, query
        assert "user=" not in query or {one["user"] for one in keys} == {"ann"}
    path = f"/api/keys/of-{role}?scope=charge"
    assert service.ask("GET", path, eve).status == 404, "her own key of that name"
    assert service.ask("GET", f"{path}&user=ann", eve).body["job"]["id"] == anns
    assert service.ask("POST", f"/api/jobs/{anns}/cancel", eve).body["job"]["state"] == "cancelled"
    assert service.ask("DELETE", f"{path}&user=ann", eve).status == 200
    assert service.ask("GET", f"/api/jobs/{anns}/events", eve).status == 200


async def test_an_input_is_seen_by_who_sees_its_job(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    job_id = (await queue.submit("t", {"a": 1})).job_id
    bob = ServiceLedger.of(queue).for_caller(Caller("default", "bob", "user:bob", oversees=False))
    for look in (bob.input, bob.job, bob.cancel):
        with pytest.raises(onejob.NotFound):
            await look(job_id)
    own = ServiceLedger.of(queue).for_caller(Caller("default", "local", "user:local", oversees=False))
    assert await own.input(job_id) == b'{"a":1}'
