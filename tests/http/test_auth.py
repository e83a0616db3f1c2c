"""Authentication over a real server: the life cycle of API keys, tenants and users."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob import sync
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.core.identity import Actor
from onejob.http.app import HttpApp
from onejob.http.auth import TOKEN_CHARS_MAX, Authenticator, FailedLogins, client_network
from onejob.http.config import ServiceConfig, parse_networks
from onejob.http.problems import Unauthorized
from onejob.ledger.api_keys import ApiKeys, NewKey
from tests.support.app_server import serve_app

from .auth_server import (
    BODY,
    SECRET,
    AuthServer,
    HttpResponse,
    ServerThread,
    bearer,
    run_auth_server,
    token,
    unsigned_token,
)


def test_a_request_without_a_credential_is_told_how_to_send_one(auth_server: AuthServer) -> None:
    response = auth_server.service.ask("POST", "/api/jobs", body=BODY)
    assert (response.status, response.code) == (401, "UNAUTHORIZED")
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/problem+json"
    assert "retry-after" not in response.headers
    assert not response.body["error"]["retryable"]


def test_an_api_key_is_let_in_by_either_header_and_acts_under_its_name(auth_server: AuthServer) -> None:
    text = auth_server.create_key("ci")
    by_bearer = auth_server.service.submit(text, "either")
    assert (by_bearer.status, by_bearer.body["job"]["actor"]) == (202, "client:ci")
    assert by_bearer.body["job"]["user"] == "api_key:ci"
    headers = (("X-Api-Key", text), ("Idempotency-Key", "either"))
    by_header = auth_server.service.ask("POST", "/api/jobs", headers, BODY)
    assert by_header.body["job"]["id"] == by_bearer.body["job"]["id"]
    assert auth_server.service.ask("GET", "/api/jobs", (("authorization", f"bearer  {text} "),)).status == 200


def test_a_bound_key_counts_as_its_user_and_still_acts_under_its_name(auth_server: AuthServer) -> None:
    job = auth_server.service.submit(auth_server.create_key("deploy", user="bob"), "bound").body["job"]
    assert (job["actor"], job["user"]) == ("client:deploy", "bob")


def test_a_token_acts_as_its_subject(auth_server: AuthServer) -> None:
    response = auth_server.service.submit(token(), "by-token")
    assert response.status == 202
    assert (response.body["job"]["actor"], response.body["job"]["user"]) == ("user:ann", "ann")


def bad_credentials(server: AuthServer) -> dict[str, str]:
    text = server.create_key("victim")
    prefix, id, secret = text.split(".")
    gone = server.api_keys().create("gone", roles=[Role.ADMIN])
    server.api_keys().revoke(gone.key.id)
    return {
        "nothing": "",
        "noise": "x",
        "malformed": text[:-1],
        "unknown id": f"{prefix}.{'0' * 12}.{secret}",
        "wrong secret": f"{prefix}.{id}.{'A' * 43}",
        "another tenant": f"{server.create_key('victim', tenant='umbrella').split('.')[0]}.{id}.{secret}",
        "unknown tenant": f"oj_bm9ib2R5.{id}.{secret}",
        "revoked": gone.text,
        "two words": f"{text} {text}",
        "token of another secret": token(SECRET[::-1]),
        "token without signature": unsigned_token(),
        "expired token": token(exp=time.time() - 1),
        "token without tenant": token(tenant=None),
        "huge token": token(padding="x" * TOKEN_CHARS_MAX),
        "three dots": "a.b.c",
        "not ascii": "oj_ä.ö.ü",
    }  # fmt: skip


def test_whatever_is_wrong_with_a_credential_the_answer_is_the_same(auth_server: AuthServer) -> None:
    def plain(response: HttpResponse) -> Any:
        headers = {k: v for k, v in response.headers.items() if k not in ("date", "x-request-id")}
        return response.status, headers, response.body | {"requestId": ""}

    none = plain(auth_server.service.ask("POST", "/api/jobs", body=BODY))
    assert none[0] == 401
    for what, credential in bad_credentials(auth_server).items():
        assert plain(auth_server.service.submit(credential, f"bad {what}")) == none, what
    for value in ("", "Bearer", "Basic YTpi", f"Basic {auth_server.create_key('basic')}"):
        assert plain(auth_server.service.ask("GET", "/api/jobs", (("Authorization", value),))) == (none), value
    assert plain(auth_server.service.ask("GET", "/api/jobs", (("X-Api-Key", token()),))) == none
    assert plain(auth_server.service.ask("GET", "/api/jobs", (("X-Api-Key", ""),))) == none


def test_two_credentials_are_refused_even_if_equal(auth_server: AuthServer) -> None:
    one = bearer(auth_server.create_key("twice"))
    other = (("X-Api-Key", one[0][1].removeprefix("Bearer ")),)
    for headers in (one + one, one + other, other + other, (*one, ("Authorization", ""))):
        response = auth_server.service.ask("GET", "/api/jobs", headers)
        assert (response.status, response.code) == (400, "VALIDATION_ERROR")


def test_open_paths_need_no_credential(auth_server: AuthServer) -> None:
    for path in ("/healthz", "/openapi.json"):
        assert auth_server.service.ask("GET", path).status == 200
        assert auth_server.service.ask("GET", path, bearer("x")).status == 200


# The life cycle of keys


def test_a_revocation_by_another_process_holds_at_once_and_gets_no_replay(auth_server: AuthServer) -> None:
    created = auth_server.api_keys().create("short", roles=[Role.SUBMITTER])
    first = auth_server.service.submit(created.text, "remembered")
    again = auth_server.service.submit(created.text, "remembered")
    assert (first.status, again.headers["idempotent-replayed"]) == (202, "true")
    assert auth_server.api_keys().revoke(created.key.id).revoked_by == "user:root"
    assert auth_server.service.submit(created.text, "remembered").status == 401
    other = auth_server.service.submit(auth_server.create_key("short"), "remembered")
    assert other.body["job"]["id"] == first.body["job"]["id"], "a valid credential still gets the job of the key"


def test_a_rotated_key_is_still_the_same_client(auth_server: AuthServer) -> None:
    old = auth_server.api_keys().create("rotating", roles=[Role.SUBMITTER])
    first = auth_server.service.submit(old.text, "over-rotation")
    new = auth_server.api_keys().rotate(old.key.id)
    assert (new.key.id, new.key.name) == (old.key.id, "rotating")
    assert new.text != old.text
    response = [auth_server.service.submit(text, "over-rotation") for text in (old.text, new.text)]
    assert [one.body["job"]["id"] for one in response] == [first.body["job"]["id"]] * 2
    newest = auth_server.api_keys().rotate(old.key.id, overlap=timedelta(0))
    assert [auth_server.service.submit(text, "over-rotation").status for text in (old.text, new.text)] == [401, 401]
    assert auth_server.service.submit(newest.text, "again").body["job"]["actor"] == "client:rotating"


async def test_an_old_secret_ends_by_the_clock_of_the_store(queue: onejob.Ledger, clock: FakeClock) -> None:
    keys = ApiKeys(queue)
    old = await keys.create("ci", roles=["worker"])
    new = await keys.rotate(old.key.id, overlap=timedelta(minutes=1))
    clock.advance(60)
    assert await keys.verify(old.text)
    clock.advance(0.001)
    assert await keys.verify(old.text) is None
    assert await keys.verify(new.text)


async def test_a_revocation_is_not_lost_among_rotations(queue: onejob.Ledger) -> None:
    keys = ApiKeys(queue)
    created = await keys.create("contested", roles=["operator"])
    first, *later = [keys.rotate(created.key.id) for _ in range(5)]
    results = await asyncio.gather(first, keys.revoke(created.key.id), *later, return_exceptions=True)
    assert all(isinstance(result, onejob.Invalid) for result in results if isinstance(result, BaseException))
    (listed,) = await keys.list()
    assert listed.revoked_at is not None
    texts = [result.text for result in results if isinstance(result, NewKey)]
    assert [await keys.verify(text) for text in (created.text, *texts)] == [None] * (1 + len(texts))
    assert await keys.revoke(created.key.id) == listed


async def test_keys_are_listed_with_nothing_of_their_secrets(queue: onejob.Ledger) -> None:
    keys = ApiKeys(queue)
    created = [await keys.create(f"key {n}", roles=["worker", "submitter"], user="u" * n) for n in range(5)]
    listed = await keys.list()
    assert {key.id for key in listed} == {new.key.id for new in created}
    assert {key.created_by for key in listed} == {"client:local"}
    secrets = [new.text.rsplit(".", 1)[1] for new in created]
    assert not any(secret in repr(listed) for secret in secrets)
    other = queue.acting_as(tenant="umbrella", user="u", actor=Actor.user("u"))
    assert not await ApiKeys(other).list()
    for act in (ApiKeys(other).revoke, ApiKeys(other).rotate):
        with pytest.raises(onejob.NotFound):
            await act(created[0].key.id)
    with pytest.raises(onejob.Invalid):
        await keys.create("ci", roles=["root"])


def test_no_secret_is_in_the_store(tmp_path: Path) -> None:
    with sync.open(f"sqlite:///{tmp_path / 'jobs.db'}", sweep=False) as ledger:
        created = sync.SyncApiKeys(ledger).create("ci", roles=[Role.ADMIN])
        new = sync.SyncApiKeys(ledger).rotate(created.key.id)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert created.key.id.encode() in stored
    for text in (created.text, new.text):
        assert text.rsplit(".", 1)[1].encode() not in stored


async def test_a_store_that_is_gone_is_no_verdict_about_a_key(queue: onejob.Ledger) -> None:
    created = await ApiKeys(queue).create("ci", roles=["submitter"])
    authenticate = Authenticator(queue, ServiceConfig(auth=True))
    scope = {"headers": [(b"authorization", f"Bearer {created.text}".encode())]}
    assert (await authenticate(scope)).caller.actor == "client:ci"
    await queue.aclose()
    with pytest.raises(onejob.Unavailable):
        await authenticate(scope)


def test_a_purged_tenant_has_no_keys_left(auth_server: AuthServer) -> None:
    text = auth_server.create_key("last", tenant="leaving")
    assert auth_server.service.submit(text, "k").status == 202
    auth_server.operator.acting_as(tenant="leaving", user="root", actor=Actor.user("root")).admin.purge()
    assert auth_server.service.submit(text, "k").status == 401


# Tenants and users


def test_two_tenants_with_one_key_never_meet(auth_server: AuthServer) -> None:
    ours, theirs = auth_server.create_key("ci", Role.ADMIN), auth_server.create_key("ci", Role.ADMIN, tenant="umbrella")
    first, second = (
        auth_server.service.submit(ours, "shared"),
        auth_server.service.submit(theirs, "shared", {"type": "charge"}),
    )
    assert (first.status, second.status) == (202, 202)
    assert first.body["job"]["id"] != second.body["job"]["id"]
    path = f"/api/jobs/{first.body['job']['id']}"
    assert auth_server.service.ask("GET", path, bearer(ours)).status == 200
    assert auth_server.service.ask("GET", path, bearer(theirs)).status == 404
    assert auth_server.service.ask("POST", f"{path}/cancel", bearer(theirs)).status == 404
    listed = auth_server.service.ask("GET", "/api/jobs?limit=1000", bearer(theirs)).body["jobs"]
    assert first.body["job"]["id"] not in {job["id"] for job in listed}
    by_token = auth_server.service.submit(token(tenant="umbrella"), "shared", {"type": "charge"})
    assert by_token.body["job"]["id"] == second.body["job"]["id"]


def test_users_share_keys_unless_the_service_separates_them(auth_server: AuthServer, durable_url: str) -> None:
    def ids(service: ServerThread) -> set[str]:
        return {service.submit(token(sub=user), "of-all").body["job"]["id"] for user in ("ann", "bob", "ann")}

    assert len(ids(auth_server.service)) == 1
    for separate in run_auth_server(durable_url, key_owner="user"):
        assert len(ids(separate.service)) == 2
        assert separate.service.submit(separate.create_key("k", user="ann"), "of-all").body["job"]["user"] == "ann"
        assert len(ids(separate.service)) == 2


def test_the_subject_of_a_token_and_the_name_of_an_api_key_never_meet(durable_url: str) -> None:
    for server in run_auth_server(durable_url, key_owner="user"):
        service = server.service
        by_key = service.submit(server.create_key("alice"), "same").body["job"]
        by_token = service.submit(token(sub="alice"), "same").body["job"]
        assert by_key["id"] != by_token["id"]
        assert (by_key["user"], by_token["user"]) == ("api_key:alice", "alice")
        assert service.ask("GET", f"/api/jobs/{by_key['id']}", bearer(token(sub="alice"))).status == 404
        listed = service.ask("GET", "/api/jobs?limit=1000", bearer(token(sub="alice"))).body["jobs"]
        assert [job["id"] for job in listed] == [by_token["id"]]
        for claimed in ("api_key:alice", "api_key:"):
            assert service.submit(token(sub=claimed), "same").status == 401


def test_limits_of_an_api_key_are_not_those_of_a_user_of_its_name(auth_server: AuthServer) -> None:
    admin = bearer(token(sub="root", roles=["admin"]))
    text = auth_server.create_key("limited")
    for user, allowed in (("limited", 0), ("api_key:limited", 1)):
        body = {"maxConcurrent": allowed}
        assert auth_server.service.ask("PUT", f"/api/quotas/{user}", admin, body).status == 200
    assert [auth_server.service.submit(text, f"limited-{n}").status for n in range(2)] == [202, 429]
    assert auth_server.service.ask("GET", "/api/usage", bearer(text)).body["user"] == "api_key:limited"
    assert auth_server.service.submit(token(sub="limited"), "limited-by-token").status == 429


async def test_a_known_key_is_let_in_by_one_read_and_by_none_once_it_is_revoked(url: str) -> None:
    async with onejob.open(url, sweep=False) as ledger:
        keys = ApiKeys(ledger)
        created = await keys.create("ci", roles=[Role.SUBMITTER])
        door = Authenticator(ledger, ServiceConfig(auth=True))
        scope = {"headers": [(b"authorization", b"Bearer " + created.text.encode())]}
        first = await door(scope)
        before = ledger.admin.runtime_stats().queues["read"].commands
        assert await door(scope) is first
        assert ledger.admin.runtime_stats().queues["read"].commands == before + 1
        await keys.revoke(created.key.id)
        for _ in range(2):
            with pytest.raises(Unauthorized):
                await door(scope)


async def test_an_old_secret_that_is_known_opens_no_longer_than_its_overlap(url: str, clock: FakeClock) -> None:
    async with onejob.open(url, sweep=False, clock=clock) as ledger:
        keys = ApiKeys(ledger)
        created = await keys.create("ci", roles=[Role.SUBMITTER])
        renewed = await keys.rotate(created.key.id, overlap=timedelta(hours=1))
        door = Authenticator(ledger, ServiceConfig(auth=True))
        old, new = ({"headers": [(b"x-api-key", text.encode())]} for text in (created.text, renewed.text))
        for _ in range(2):
            assert (await door(old)).name == (await door(new)).name == "ci"
        clock.advance(3601)
        await asyncio.sleep(0)  # a read is valid until the end of its loop iteration
        with pytest.raises(Unauthorized):
            await door(old)
        assert (await door(new)).name == "ci"


async def test_a_credential_known_from_one_header_is_not_taken_from_another(url: str) -> None:
    async with onejob.open(url, sweep=False) as ledger:
        created = await ApiKeys(ledger).create("ci", roles=[Role.SUBMITTER])
        door = Authenticator(ledger, ServiceConfig(auth=True))
        value = b"Bearer " + created.text.encode()
        await door({"headers": [(b"authorization", value)]})
        with pytest.raises(Unauthorized):
            await door({"headers": [(b"x-api-key", value)]})


async def test_a_key_that_is_revoked_while_its_body_is_on_the_way_opens_nothing(url: str) -> None:
    async with onejob.open(url, sweep=False) as ledger:
        keys = ApiKeys(ledger)
        created = await keys.create("slow", roles=[Role.SUBMITTER])
        async with serve_app(HttpApp(ledger, config=ServiceConfig(auth=True))) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            body = b'{"type": "charge"}'
            head = f"POST /api/jobs HTTP/1.1\r\nHost: x\r\nIdempotency-Key: late\r\nX-Api-Key: {created.text}\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-3])
            reads = ledger.admin.runtime_stats().queues["read"]
            while ledger.admin.runtime_stats().queues["read"] == reads:  # the key is valid when the head is read
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            await keys.revoke(created.key.id)
            writer.write(body[-3:])
            assert b" 401 " in await reader.readline()
            writer.close()
        assert not list(await ledger.jobs())


async def test_an_address_that_sends_invalid_credentials_is_throttled_and_valid_ones_are_not(
    queue: onejob.Ledger,
) -> None:
    created = await ApiKeys(queue).create("ci", roles=["submitter"])
    valid = b"authorization: Bearer " + created.text.encode()
    app = HttpApp(queue, config=ServiceConfig(auth=True, failed_logins_per_minute=3))
    async with serve_app(app) as client:
        for _ in range(5):
            assert (await client.get("/api/jobs")).status == 401, "no credential is not a guess"
        invalid = (b"authorization: Bearer oj_guess", b"x-api-key: oj_guess", b"authorization: Basic x")
        assert [(await client.get("/api/jobs", one)).status for one in invalid] == [401, 401, 401]
        throttled = await client.get("/api/jobs", invalid[0])
        assert (throttled.status, throttled.code) == (429, "LOGIN_THROTTLED")
        assert 1 <= int(throttled.headers["retry-after"]) <= 20
        assert (await client.get("/api/jobs", valid)).status == 200
        await ApiKeys(queue).revoke(created.key.id)
        revoked = [(await client.get("/api/jobs", valid)).status for _ in range(5)]
        assert revoked == [401] * 5, "whoever sends a revoked key does not guess"


@pytest.mark.parametrize(
    ("client", "forwarded", "expected"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),  # not a trusted proxy
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.9"], "203.0.113.9"),  # what the client wrote itself does not count
        ("10.0.0.1", ["1.1.1.1", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9, unknown"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("2001:db8:1:2:3::4", [], "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
    ],
)
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(client: str, forwarded: list[str], expected: str) -> None:
    scope = {"client": (client, 1), "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded]}
    assert client_network(scope, parse_networks(("10.0.0.0/8",))) == expected


def test_failed_logins_are_forgiven_with_time() -> None:
    clock = FakeClock()
    failed = FailedLogins(ServiceConfig(auth=True, failed_logins_per_minute=2), clock.monotonic)
    one, other = ({"client": (host, 1), "headers": []} for host in ("192.0.2.1", "192.0.2.2"))
    assert [failed.count(one) is None for _ in range(3)] == [True, True, False]
    assert failed.count(other) is None
    clock.advance(31)
    assert [failed.count(one) is None for _ in range(2)] == [True, False]
