"""Authorization over a real server: roles and permissions, and the visibility of jobs and keys."""

from collections.abc import Iterator

import pytest

from onejob.core.credentials import ROLE_PERMISSIONS, Permission, Role

from .auth_server import AuthServer, bearer, token

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


def test_the_permission_to_submit_implies_reading_since_a_replay_shows_the_job() -> None:
    assert all(Permission.READ in acts for acts in ROLE_PERMISSIONS.values() if Permission.SUBMIT in acts)


def test_where_keys_are_shared_all_users_see_all(auth_server: AuthServer) -> None:
    anns = auth_server.service.submit(token(sub="ann"), "of-us").body["job"]["id"]
    bob = bearer(token(sub="bob"))
    assert auth_server.service.ask("GET", f"/api/jobs/{anns}", bob).status == 200
    for user in ("ann", "bob", "nobody"):
        response = auth_server.service.ask("GET", f"/api/keys/of-us?scope=charge&user={user}", bob)
        assert response.body["job"]["id"] == anns
    assert {one["user"] for one in auth_server.service.ask("GET", "/api/keys?user=ann", bob).body["keys"]} == {"ann"}
    assert not auth_server.service.ask("GET", "/api/keys?user=nobody", bob).body["keys"]
