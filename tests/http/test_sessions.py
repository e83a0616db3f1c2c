"""Console sessions: made from a credential, valid in all processes while it is, and useless to pages of other sites."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import jwt
import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import JwtConfig, ServiceConfig
from onejob.ledger import sessions
from onejob.ledger.api_keys import ApiKeys, NewKey
from tests.support.app_server import Client, HttpResponse, serve_app

SECRET = "s" * 32
CONFIG = ServiceConfig(
    auth=True, jwt=JwtConfig(secret=SECRET, algorithms=("HS256",)), cors_origins=("https://app.example",)
)


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue, config=CONFIG)) as client:
        yield client


@pytest.fixture
async def key(queue: onejob.Ledger) -> NewKey:
    return await ApiKeys(queue).create("console", roles=[Role.OPERATOR])


def own_page(scheme: str = "http") -> tuple[bytes, bytes]:
    return b"origin: %b://127.0.0.1" % scheme.encode(), b"x-onejob-console: 1"


async def sign_in(client: Client, credential: str, *headers: bytes) -> HttpResponse:
    return await client.post("/api/session", {"credential": credential}, *(headers or own_page()))


def cookie_of(answer: HttpResponse) -> bytes:
    return b"cookie: " + answer.headers["set-cookie"].partition(";")[0].encode()


async def test_a_credential_that_is_typed_once_becomes_a_session(client: Client, key: NewKey) -> None:
    answer = await sign_in(client, key.text)
    assert answer.status == 201
    assert (answer.body["name"], answer.body["roles"]) == ("console", ["operator"])
    flags = answer.headers["set-cookie"]
    assert "HttpOnly" in flags
    assert "SameSite=Strict" in flags
    assert key.text not in flags
    asked = await client.get("/api/session", cookie_of(answer))
    assert (asked.status, asked.body["name"]) == (200, "console")
    assert asked.body["expiresAt"]
    assert (await client.get("/api/overview", cookie_of(answer))).status == 200


async def test_under_tls_the_cookie_belongs_to_this_host_alone(client: Client, key: NewKey) -> None:
    flags = (await sign_in(client, key.text, *own_page("https"))).headers["set-cookie"]
    assert flags.startswith("__Host-onejob-session=")
    assert "Secure" in flags
    assert "Domain" not in flags


@pytest.mark.parametrize(
    "headers",
    [
        (b"origin: https://127.0.0.1",),
        (b"x-forwarded-proto: https",),
        (b"host: jobs.example", b"sec-fetch-site: same-origin"),
    ],
    ids=["origin", "proxy", "browser"],
)
async def test_under_https_only_the_cookie_of_this_host_counts(
    client: Client, key: NewKey, headers: tuple[bytes, ...]
) -> None:
    name, _, text = cookie_of(await sign_in(client, key.text, *own_page("https"))).partition(b"=")
    planted = b"cookie: onejob-session=" + text
    assert (await ask_with(client, name + b"=" + text, *headers)) == 200
    assert (await ask_with(client, planted, *headers)) == 401
    assert (await ask_with(client, planted + b"; __Host-onejob-session=", *headers)) == 401


@pytest.mark.parametrize("headers", [(), (b"origin: http://127.0.0.1",), (b"sec-fetch-site: same-origin",)])
async def test_without_https_the_plain_cookie_counts(client: Client, key: NewKey, headers: tuple[bytes, ...]) -> None:
    assert (await ask_with(client, cookie_of(await sign_in(client, key.text)), *headers)) == 200


async def ask_with(client: Client, cookie: bytes, *headers: bytes) -> int:
    return (await client.get("/api/overview", cookie, *headers)).status


@pytest.mark.parametrize("credential", ["oj_ZGVmYXVsdA.000000000000." + "x" * 43, "nonsense", "é", ""])
async def test_no_session_without_a_valid_credential(client: Client, credential: str) -> None:
    answer = await sign_in(client, credential)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("end", [1e308, 10**18, 1e15, "4000000000"])
async def test_a_token_whose_end_is_not_a_date_makes_no_session(client: Client, end: float | str) -> None:
    claims = {"sub": "ann", "tenant": "default", "roles": ["operator"], "exp": end}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    assert (await sign_in(client, token)).status == 401
    assert (await client.get("/api/overview", f"authorization: Bearer {token}".encode())).status == 401


async def test_a_session_is_valid_in_all_processes_until_its_key_is_revoked(
    queue: onejob.Ledger, client: Client, key: NewKey
) -> None:
    cookie = cookie_of(await sign_in(client, key.text))
    async with serve_app(HttpApp(queue, config=CONFIG)) as other:
        assert (await other.get("/api/jobs", cookie)).status == 200
        await ApiKeys(queue).revoke(key.key.id)
        for server in (client, other):
            assert (await server.get("/api/jobs", cookie)).status == 401


async def test_a_session_ends_with_the_secret_that_it_was_made_from(
    queue: onejob.Ledger, client: Client, key: NewKey
) -> None:
    cookie = cookie_of(await sign_in(client, key.text))
    await ApiKeys(queue).rotate(key.key.id, overlap=timedelta(0))
    assert (await client.get("/api/jobs", cookie)).status == 401


async def test_a_session_ends_after_twelve_hours(client: Client, key: NewKey, clock: FakeClock) -> None:
    cookie = cookie_of(await sign_in(client, key.text))
    clock.advance(12 * 3600 - 1)
    assert (await client.get("/api/jobs", cookie)).status == 200
    clock.advance(2)
    assert (await client.get("/api/jobs", cookie)).status == 401


async def test_a_session_of_a_token_ends_with_it(url: str) -> None:
    async with onejob.open(url) as queue, serve_app(HttpApp(queue, config=CONFIG)) as client:
        claims = {"sub": "ann", "tenant": "default", "roles": ["operator"], "exp": int(time.time()) + 3600}
        answer = await sign_in(client, jwt.encode(claims, SECRET, "HS256"))
        assert answer.status == 201
        assert answer.body["user"] == "ann"
        assert (await client.get("/api/jobs", cookie_of(answer))).status == 200
        asked = await client.get("/api/session", cookie_of(answer))
        assert asked.body["expiresAt"] == answer.body["expiresAt"]


async def test_signing_out_ends_the_session_everywhere(client: Client, key: NewKey) -> None:
    cookie = cookie_of(await sign_in(client, key.text))
    answer = await client.ask("DELETE", "/api/session", b"", cookie, *own_page())
    assert answer.status == 200
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await client.get("/api/jobs", cookie)).status == 401


async def test_a_session_changes_nothing_for_pages_of_other_sites(client: Client, key: NewKey) -> None:
    cookie = cookie_of(await sign_in(client, key.text))
    job = {"type": "t"}
    json = b"content-type: application/json"
    foreign = (
        (),
        own_page()[:1],
        own_page()[1:],
        (b"origin: https://app.example", b"x-onejob-console: 1"),  # whom CORS allows
        (b"origin: null", b"x-onejob-console: 1"),
        (*own_page(), b"sec-fetch-site: cross-site"),
    )
    for headers in foreign:
        assert (await client.post("/api/jobs", job, cookie, json, *headers)).status == 401, headers
    assert (await client.get("/api/jobs", cookie, b"origin: https://app.example")).status == 401
    assert (await client.post("/api/jobs", job, cookie, json, *own_page())).status == 202


@pytest.mark.parametrize("headers", [(), (b"origin: https://evil.example", b"x-onejob-console: 1")])
async def test_a_page_of_another_site_cannot_sign_anybody_in(
    client: Client, key: NewKey, headers: tuple[bytes, ...]
) -> None:
    answer = await client.post("/api/session", {"credential": key.text}, *(headers or (b"accept: */*",)))
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


async def test_the_text_of_a_session_is_no_api_key(client: Client, key: NewKey) -> None:
    text = cookie_of(await sign_in(client, key.text)).partition(b"=")[2]
    for header in (b"authorization: Bearer " + text, b"x-api-key: " + text):
        assert (await client.get("/api/jobs", header)).status == 401


@pytest.mark.parametrize(
    "cookie", [b"onejob-session=", b"onejob-session=ojs_.x.y", b"onejob-session=ojs_!!.x.y", b"x" * 20_000]
)
async def test_a_broken_cookie_is_no_session(client: Client, cookie: bytes) -> None:
    assert (await client.get("/api/jobs", b"cookie: " + cookie)).status in (401, 431)


async def test_without_authentication_nobody_signs_in(queue: onejob.Ledger) -> None:
    async with serve_app(HttpApp(queue)) as client:
        assert (await sign_in(client, "x")).status == 403
        asked = await client.get("/api/session")
        assert (asked.body["authentication"], asked.body["name"]) == (False, "local")


async def test_an_api_key_has_a_bounded_number_of_sessions_and_the_oldest_makes_room(
    client: Client, key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    cookies = [cookie_of(await sign_in(client, key.text)) for _ in range(5)]
    found = [(await client.get("/api/session", cookie)).status for cookie in cookies]
    assert found == [401, 401, 200, 200, 200]


async def test_a_failed_sign_in_counts_for_the_client_and_not_for_its_proxy(queue: onejob.Ledger) -> None:
    config = ServiceConfig(auth=True, trusted_proxies=("127.0.0.1",), failed_logins_per_minute=1)
    async with serve_app(HttpApp(queue, config=config)) as client:

        async def fail(address: bytes) -> int:
            return (await sign_in(client, "nonsense", *own_page(), b"x-forwarded-for: " + address)).status

        assert [await fail(b"192.0.2.1"), await fail(b"192.0.2.1"), await fail(b"192.0.2.2")] == [401, 429, 401]
