"""Authorization over a real server: roles and permissions, and the visibility of jobs and keys."""

from collections.abc import Iterator
from typing import Any

import pytest

import onejob
from onejob.core.credentials import ROLE_PERMISSIONS, Permission, Role
from onejob.ledger.parse import Caller

from .auth_server import AuthServer, bearer, run_auth_server, token

PERMISSIONS = """
           submit  read  oversee  inspect  cancel  work  forget  resolve  administer  scrape  scrape-all
submitter  yes     yes   no       no       yes     no    no      no       no          no      no
worker     no      yes   no       no       no      yes   no      no       no          no      no
operator   yes     yes   yes      yes      yes     no    yes     yes      no          no      no
admin      yes     yes   yes      yes      yes     yes   yes     yes      yes         yes     no
metrics    no      no    no       no       no      no    no      no       no          yes     yes
unheard    no      no    no       no       no      no    no      no       no          no      no
"""


def permission_table() -> Iterator[tuple[str, str, bool]]:
    heads, *rows = (line.split() for line in PERMISSIONS.strip().splitlines())
    for role, *words in rows:
        for act, word in zip(heads, words, strict=True):
            yield role, act, word == "yes"


@pytest.fixture(scope="module")
def credentials(auth_server: AuthServer) -> dict[str, list[str]]:
    """An API key and a token of each role."""
    found = {role.value: [auth_server.create_key(f"a {role}", role), token(roles=[role, "unheard"])] for role in Role}
    return found | {"unheard": [token(roles=["unheard"]), token(roles=None), token(roles={"admin": 1})]}


def test_the_table_has_every_role_and_every_act() -> None:
    assert {role for role, _, _ in permission_table()} == {*Role, "unheard"}
    assert {act for _, act, _ in permission_table()} == set(Permission)


@pytest.mark.parametrize(("role", "act", "allowed"), list(permission_table()))
def test_a_role_may_do_what_the_table_says(
    auth_server: AuthServer, credentials: dict[str, list[str]], role: str, act: str, allowed: bool
) -> None:
    for credential in credentials[role]:
        response = auth_server.service.ask("POST", f"/test/{act}", bearer(credential))
        assert response.status == (200 if allowed else 403)
        assert allowed or response.code == "FORBIDDEN"
        assert allowed or "this needs the role " in response.body["error"]["message"]
        assert "www-authenticate" not in response.headers
    assert auth_server.service.ask("POST", f"/test/{act}").status == 401


def test_every_path_of_the_service_keeps_the_table(auth_server: AuthServer, credentials: dict[str, list[str]]) -> None:
    allowed = {(role, act): ok for role, act, ok in permission_table()}
    guarded = [route for route in auth_server.service.app.routes.all if route.permission is not None]
    assert guarded
    for route in guarded:
        path = route.path.replace("{", "").replace("}", "")  # no such object: 404 for those who may ask
        assert auth_server.service.ask(route.method, path).status == 401, route.path
        for role, (credential, *_) in credentials.items():
            if not allowed[role, str(route.permission)]:
                response = auth_server.service.ask(route.method, path, bearer(credential))
                assert (response.status, response.code) == (403, "FORBIDDEN"), f"{role} {route.method} {route.path}"
            elif route.method != "DELETE":
                assert auth_server.service.ask(route.method, path, bearer(credential), {}).status not in (401, 403)


def test_what_is_forbidden_burns_no_key(auth_server: AuthServer) -> None:
    assert auth_server.service.submit(auth_server.create_key("w", Role.WORKER), "not-yet").status == 403
    assert (
        auth_server.service.submit(auth_server.create_key("s"), "not-yet").body["idempotency"]["outcome"] == "created"
    )


# The visibility of jobs and keys, where each user has its own


UNKNOWN = "01a1e393-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def server_with_user_owned_keys(shared_url: str) -> Iterator[AuthServer]:
    yield from run_auth_server(shared_url, key_owner="user")


def test_the_permission_to_submit_implies_reading_since_a_replay_shows_the_job() -> None:
    assert all(Permission.READ in acts for acts in ROLE_PERMISSIONS.values() if Permission.SUBMIT in acts)


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


def test_where_keys_are_shared_all_users_see_all(auth_server: AuthServer) -> None:
    anns = auth_server.service.submit(token(sub="ann"), "of-us").body["job"]["id"]
    bob = bearer(token(sub="bob"))
    assert auth_server.service.ask("GET", f"/api/jobs/{anns}", bob).status == 200
    for user in ("ann", "bob", "nobody"):
        response = auth_server.service.ask("GET", f"/api/keys/of-us?scope=charge&user={user}", bob)
        assert response.body["job"]["id"] == anns
    assert {one["user"] for one in auth_server.service.ask("GET", "/api/keys?user=ann", bob).body["keys"]} == {"ann"}
    assert not auth_server.service.ask("GET", "/api/keys?user=nobody", bob).body["keys"]


async def test_an_input_is_seen_by_who_sees_its_job(queue: onejob.Ledger) -> None:
    job_id = (await queue.submit("t", {"a": 1})).job_id
    bob = queue.for_caller(Caller("default", "bob", "user:bob", owns_keys=True, oversees=False))
    for look in (bob.input, bob.job, bob.cancel):
        with pytest.raises(onejob.NotFound):
            await look(job_id)
    own = queue.for_caller(Caller("default", "local", "user:local", owns_keys=True, oversees=False))
    assert await own.input(job_id) == b'{"a":1}'
