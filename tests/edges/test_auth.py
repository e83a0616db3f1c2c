"""Who is let in and what they may do, over a real server: API keys, bearer tokens, roles, rates."""

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onejob
from onejob import sync
from onejob.clock import FakeClock
from onejob.core.actor import Actor
from onejob.core.roles import Act, Role
from onejob.credentials import ApiKeys, NewKey
from onejob.http.answers import Answer, answer
from onejob.http.app import App
from onejob.http.auth import TOKEN_CHARS_MAX, Authenticator, Tokens
from onejob.http.config import JwtConfig, ServiceConfig
from onejob.http.problems import Unauthorized
from onejob.http.rates import Rates
from onejob.http.request import Request
from onejob.http.routes import Route

SECRET = "a-secret-that-two-parties-share-and-nobody-else"
JWT = JwtConfig(algorithms=("HS256",), secret=SECRET, issuer="https://issuer", audience="onejob")
BODY = {"type": "charge", "input": {"amount": 42}}
NO_ALGORITHM = b'{"alg":"none","typ":"JWT"}'
Headers = tuple[tuple[str, str], ...]


async def done(request: Request) -> Answer:
    return answer(200, {"user": request.credential.caller.user})


# A path for every act, beside those that the service has.
ACTS = tuple(Route("POST", f"/test/{act}", done, act, f"Do: {act}") for act in Act)


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Service:
    """A server in a thread of its own, on a port of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._config = ServiceConfig(auth=True, jwt=JWT, **options)
        self._ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self) -> None:
        async with onejob.open(self._url, sweep=False) as ledger:
            self.app = App(ledger, config=self._config, more=ACTS)
            config = uvicorn.Config(self.app, port=0, log_level="error", lifespan="off", ws="none")
            listener = config.bind_socket()
            listener.listen()
            self.port = listener.getsockname()[1]
            self._server = uvicorn.Server(config)
            self._ready.set()
            await self._server.serve(sockets=[listener])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def submit(self, credential: str, key: str, body: object = BODY) -> Told:
        return self.ask("POST", "/api/jobs", (*bearer(credential), ("Idempotency-Key", key)), body)

    def ask(self, method: str, path: str, headers: Headers = (), body: object = None) -> Told:
        data = b"" if body is None else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path)
            for name, value in (*headers, ("Content-Length", str(len(data)))):
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            content = response.read()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Told(response.status, told, json.loads(content) if "json" in told["content-type"] else {})
        finally:
            connection.close()


class House(NamedTuple):
    """A store, the server on it, and an operator who has opened the same store beside it."""

    url: str
    service: Service
    operator: sync.Ledger

    def keys(self, tenant: str = "acme") -> sync.ApiKeys:
        return sync.ApiKeys(self.operator.acting(tenant=tenant, user="root", actor=Actor.user("root")))

    def key(self, name: str, *roles: Role, tenant: str = "acme", user: str = "") -> str:
        return self.keys(tenant).create(name, roles=roles or (Role.SUBMITTER,), user=user).text


def bearer(credential: str) -> Headers:
    return (("Authorization", f"Bearer {credential}"),)


def token(key: Any = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    """A good token, but for the changes; a claim of None is left out."""
    claims = {
        "sub": "ann",
        "tenant": "acme",
        "roles": ["submitter"],
        "iss": "https://issuer",
        "aud": "onejob",
        "exp": time.time() + 600,
    }
    told = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode(told, key, algorithm=algorithm)


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned() -> str:
    return f"{base64url(NO_ALGORITHM)}.{token().split('.')[1]}."


def housed(folder: Path, **options: Any) -> Iterator[House]:
    url = f"sqlite:///{folder / 'jobs.db'}"
    service = Service(url, **options)
    try:
        with sync.open(url, sweep=False) as operator:
            yield House(url, service, operator)
    finally:
        service.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield from housed(tmp_path_factory.mktemp("auth"))


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[House]:
    """Two new submissions of a credential, and then one every thousand seconds."""
    yield from housed(tmp_path, rate_per_second=0.001, rate_burst=2)


# Who


def test_a_request_without_a_credential_is_told_how_to_send_one(house: House) -> None:
    told = house.service.ask("POST", "/api/jobs", body=BODY)
    assert (told.status, told.code) == (401, "UNAUTHORIZED")
    assert told.headers["www-authenticate"] == "Bearer"
    assert told.headers["content-type"] == "application/problem+json"
    assert "retry-after" not in told.headers
    assert not told.body["error"]["retryable"]


def test_an_api_key_is_let_in_by_either_header_and_acts_under_its_name(house: House) -> None:
    text = house.key("ci")
    by_bearer = house.service.submit(text, "either")
    assert (by_bearer.status, by_bearer.body["job"]["actor"]) == (202, "client:ci")
    assert by_bearer.body["job"]["user"] == "ci"
    headers = (("X-Api-Key", text), ("Idempotency-Key", "either"))
    by_header = house.service.ask("POST", "/api/jobs", headers, BODY)
    assert by_header.body["job"]["id"] == by_bearer.body["job"]["id"]
    assert house.service.ask("GET", "/api/jobs", (("authorization", f"bearer  {text} "),)).status == 200


def test_a_bound_key_counts_as_its_user_and_still_acts_under_its_name(house: House) -> None:
    job = house.service.submit(house.key("deploy", user="bob"), "bound").body["job"]
    assert (job["actor"], job["user"]) == ("client:deploy", "bob")


def test_a_token_acts_as_its_subject(house: House) -> None:
    told = house.service.submit(token(), "by-token")
    assert told.status == 202
    assert (told.body["job"]["actor"], told.body["job"]["user"]) == ("user:ann", "ann")


def bad_credentials(house: House) -> dict[str, str]:
    text = house.key("victim")
    prefix, id, secret = text.split(".")
    gone = house.keys().create("gone", roles=[Role.ADMIN])
    house.keys().revoke(gone.key.id)
    return {
        "nothing": "",
        "noise": "x",
        "malformed": text[:-1],
        "unknown id": f"{prefix}.{'0' * 12}.{secret}",
        "wrong secret": f"{prefix}.{id}.{'A' * 43}",
        "another tenant": f"{house.key('victim', tenant='umbrella').split('.')[0]}.{id}.{secret}",
        "unknown tenant": f"oj_bm9ib2R5.{id}.{secret}",
        "revoked": gone.text,
        "two words": f"{text} {text}",
        "token of another secret": token(SECRET[::-1]),
        "token without signature": unsigned(),
        "expired token": token(exp=time.time() - 1),
        "token without tenant": token(tenant=None),
        "huge token": token(padding="x" * TOKEN_CHARS_MAX),
        "three dots": "a.b.c",
        "not ascii": "oj_ä.ö.ü",
    }  # fmt: skip


def test_whatever_is_wrong_with_a_credential_the_answer_is_the_same(house: House) -> None:
    def plain(told: Told) -> Any:
        headers = {k: v for k, v in told.headers.items() if k not in ("date", "x-request-id")}
        return told.status, headers, told.body | {"requestId": ""}

    none = plain(house.service.ask("POST", "/api/jobs", body=BODY))
    assert none[0] == 401
    for what, credential in bad_credentials(house).items():
        assert plain(house.service.submit(credential, f"bad {what}")) == none, what
    for value in ("", "Bearer", "Basic YTpi", f"Basic {house.key('basic')}"):
        assert plain(house.service.ask("GET", "/api/jobs", (("Authorization", value),))) == (none), value
    assert plain(house.service.ask("GET", "/api/jobs", (("X-Api-Key", token()),))) == none
    assert plain(house.service.ask("GET", "/api/jobs", (("X-Api-Key", ""),))) == none


def test_two_credentials_are_refused_even_if_equal(house: House) -> None:
    one = bearer(house.key("twice"))
    other = (("X-Api-Key", one[0][1].removeprefix("Bearer ")),)
    for headers in (one + one, one + other, other + other, (*one, ("Authorization", ""))):
        told = house.service.ask("GET", "/api/jobs", headers)
        assert (told.status, told.code) == (400, "VALIDATION_ERROR")


def test_open_paths_ask_nobody(house: House) -> None:
    for path in ("/healthz", "/openapi.json"):
        assert house.service.ask("GET", path).status == 200
        assert house.service.ask("GET", path, bearer("x")).status == 200


# Keys over their life


def test_a_revocation_by_another_process_holds_at_once_and_gets_no_replay(house: House) -> None:
    made = house.keys().create("short", roles=[Role.SUBMITTER])
    first = house.service.submit(made.text, "remembered")
    again = house.service.submit(made.text, "remembered")
    assert (first.status, again.headers["idempotent-replayed"]) == (202, "true")
    assert house.keys().revoke(made.key.id).revoked_by == "user:root"
    assert house.service.submit(made.text, "remembered").status == 401
    kept = house.service.submit(house.key("short"), "remembered")
    assert kept.body["job"]["id"] == first.body["job"]["id"], "the key's job is there for who may see it"


def test_a_rotated_key_is_still_the_same_client(house: House) -> None:
    old = house.keys().create("rotating", roles=[Role.SUBMITTER])
    first = house.service.submit(old.text, "over-rotation")
    new = house.keys().rotate(old.key.id)
    assert (new.key.id, new.key.name) == (old.key.id, "rotating")
    assert new.text != old.text
    told = [house.service.submit(text, "over-rotation") for text in (old.text, new.text)]
    assert [one.body["job"]["id"] for one in told] == [first.body["job"]["id"]] * 2
    newest = house.keys().rotate(old.key.id, overlap=timedelta(0))
    assert [house.service.submit(text, "over-rotation").status for text in (old.text, new.text)] == [401, 401]
    assert house.service.submit(newest.text, "again").body["job"]["actor"] == "client:rotating"


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
    made = await keys.create("contested", roles=["operator"])
    first, *later = [keys.rotate(made.key.id) for _ in range(5)]
    results = await asyncio.gather(first, keys.revoke(made.key.id), *later, return_exceptions=True)
    assert all(isinstance(result, onejob.Invalid) for result in results if isinstance(result, BaseException))
    (listed,) = await keys.list()
    assert listed.revoked_at is not None
    texts = [result.text for result in results if isinstance(result, NewKey)]
    assert [await keys.verify(text) for text in (made.text, *texts)] == [None] * (1 + len(texts))
    assert await keys.revoke(made.key.id) == listed


async def test_keys_are_listed_with_nothing_of_their_secrets(queue: onejob.Ledger) -> None:
    keys = ApiKeys(queue)
    made = [await keys.create(f"key {n}", roles=["worker", "submitter"], user="u" * n) for n in range(5)]
    listed = await keys.list()
    assert {key.id for key in listed} == {new.key.id for new in made}
    assert {key.created_by for key in listed} == {"client:local"}
    secrets = [new.text.rsplit(".", 1)[1] for new in made]
    assert not any(secret in repr(listed) for secret in secrets)
    other = queue.acting(tenant="umbrella", user="u", actor=Actor.user("u"))
    assert not await ApiKeys(other).list()
    for act in (ApiKeys(other).revoke, ApiKeys(other).rotate):
        with pytest.raises(onejob.NotFound):
            await act(made[0].key.id)
    with pytest.raises(onejob.Invalid):
        await keys.create("ci", roles=["root"])


def test_no_secret_is_in_the_store(tmp_path: Path) -> None:
    with sync.open(f"sqlite:///{tmp_path / 'jobs.db'}", sweep=False) as ledger:
        made = sync.ApiKeys(ledger).create("ci", roles=[Role.ADMIN])
        new = sync.ApiKeys(ledger).rotate(made.key.id)
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert made.key.id.encode() in stored
    for text in (made.text, new.text):
        assert text.rsplit(".", 1)[1].encode() not in stored


async def test_a_store_that_is_gone_is_no_verdict_about_a_key(queue: onejob.Ledger) -> None:
    made = await ApiKeys(queue).create("ci", roles=["submitter"])
    authenticate = Authenticator(queue, ServiceConfig(auth=True))
    scope = {"headers": [(b"authorization", f"Bearer {made.text}".encode())]}
    assert (await authenticate(scope)).caller.actor == "client:ci"
    await queue.aclose()
    with pytest.raises(onejob.Unavailable):
        await authenticate(scope)


def test_a_purged_tenant_has_no_keys_left(house: House) -> None:
    text = house.key("last", tenant="leaving")
    assert house.service.submit(text, "k").status == 202
    house.operator.acting(tenant="leaving", user="root", actor=Actor.user("root")).purge()
    assert house.service.submit(text, "k").status == 401


# Tenants and users


def test_two_tenants_with_one_key_never_meet(house: House) -> None:
    ours, theirs = house.key("ci", Role.ADMIN), house.key("ci", Role.ADMIN, tenant="umbrella")
    first, second = (
        house.service.submit(ours, "shared"),
        house.service.submit(theirs, "shared", {"type": "charge"}),
    )
    assert (first.status, second.status) == (202, 202)
    assert first.body["job"]["id"] != second.body["job"]["id"]
    path = f"/api/jobs/{first.body['job']['id']}"
    assert house.service.ask("GET", path, bearer(ours)).status == 200
    assert house.service.ask("GET", path, bearer(theirs)).status == 404
    assert house.service.ask("POST", f"{path}/cancel", bearer(theirs)).status == 404
    listed = house.service.ask("GET", "/api/jobs?limit=1000", bearer(theirs)).body["jobs"]
    assert first.body["job"]["id"] not in {job["id"] for job in listed}
    by_token = house.service.submit(token(tenant="umbrella"), "shared", {"type": "charge"})
    assert by_token.body["job"]["id"] == second.body["job"]["id"]


def test_users_share_keys_unless_the_service_separates_them(house: House, tmp_path: Path) -> None:
    def ids(service: Service) -> set[str]:
        return {service.submit(token(sub=user), "of-all").body["job"]["id"] for user in ("ann", "bob", "ann")}

    assert len(ids(house.service)) == 1
    for separate in housed(tmp_path, key_owner="user"):
        assert len(ids(separate.service)) == 2
        assert separate.service.submit(separate.key("k", user="ann"), "of-all").body["job"]["user"] == "ann"
        assert len(ids(separate.service)) == 2


# What they may do

MAY = """
           submit  read  oversee  cancel  work  forget  resolve  administer
submitter  yes     yes   no       yes     no    no      no       no
worker     no      yes   no       no      yes   no      no       no
operator   yes     yes   yes      yes     no    yes     yes      no
admin      yes     yes   yes      yes     yes   yes     yes      yes
unheard    no      no    no       no      no    no      no       no
"""


def cells() -> Iterator[tuple[str, str, bool]]:
    heads, *rows = (line.split() for line in MAY.strip().splitlines())
    for role, *words in rows:
        for act, word in zip(heads, words, strict=True):
            yield role, act, word == "yes"


@pytest.fixture(scope="module")
def credentials(house: House) -> dict[str, list[str]]:
    """An API key and a token of each role."""
    found = {role.value: [house.key(f"a {role}", role), token(roles=[role, "unheard"])] for role in Role}
    return found | {"unheard": [token(roles=["unheard"]), token(roles=None), token(roles={"admin": 1})]}


def test_the_table_has_every_role_and_every_act() -> None:
    assert {role for role, _, _ in cells()} == {*Role, "unheard"}
    assert {act for _, act, _ in cells()} == set(Act)


@pytest.mark.parametrize(("role", "act", "allowed"), list(cells()))
def test_a_role_may_do_what_the_table_says(
    house: House, credentials: dict[str, list[str]], role: str, act: str, allowed: bool
) -> None:
    for credential in credentials[role]:
        told = house.service.ask("POST", f"/test/{act}", bearer(credential))
        assert told.status == (200 if allowed else 403)
        assert allowed or told.code == "FORBIDDEN"
        assert "www-authenticate" not in told.headers
    assert house.service.ask("POST", f"/test/{act}").status == 401


def test_every_path_of_the_service_keeps_the_table(house: House, credentials: dict[str, list[str]]) -> None:
    allowed = {(role, act): ok for role, act, ok in cells()}
    guarded = [route for route in house.service.app.routes.all if route.act is not None]
    assert guarded
    for route in guarded:
        path = route.path.replace("{", "").replace("}", "")  # names nothing: whoever may, is told so
        assert house.service.ask(route.method, path).status == 401, route.path
        for role, (credential, *_) in credentials.items():
            if not allowed[role, str(route.act)]:
                told = house.service.ask(route.method, path, bearer(credential))
                assert (told.status, told.code) == (403, "FORBIDDEN"), f"{role} {route.method} {route.path}"
            elif route.method != "DELETE":
                assert house.service.ask(route.method, path, bearer(credential), {}).status not in (401, 403)


def test_what_is_forbidden_burns_no_key(house: House) -> None:
    assert house.service.submit(house.key("w", Role.WORKER), "not-yet").status == 403
    assert house.service.submit(house.key("s"), "not-yet").body["idempotency"]["outcome"] == "created"


# Tokens


def told_by(tokens: Tokens, text: str) -> bool:
    try:
        tokens.credential(text, owns_keys=False)
    except Unauthorized:
        return False
    return True


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"exp": None}, False),
        ({"exp": "soon"}, False),
        ({"exp": float("inf")}, False),
        ({"exp": -1}, False),
        ({"nbf": time.time() + 600}, False),
        ({"iat": time.time() + 600}, True),
        ({"iss": None}, False),
        ({"iss": "https://other"}, False),
        ({"aud": None}, False),
        ({"aud": "other"}, False),
        ({"aud": ["other", "onejob"]}, True),
        ({"sub": None}, False),
        ({"sub": ""}, False),
        ({"sub": "x" * 101}, False),
        ({"sub": "a\nb"}, False),
        ({"tenant": ""}, False),
        ({"tenant": 7}, False),
        ({"tenant": ["acme"]}, False),
        ({"tenant": "a\x00"}, False),
        ({"roles": None}, True),
        ({"roles": [{}, None, [], "admin"]}, True),
    ],
)
def test_a_token_is_taken_only_with_all_its_claims(changes: dict[str, Any], good: bool) -> None:
    assert told_by(Tokens(JWT), token(**changes)) is good


def test_issuer_and_audience_are_checked_only_when_configured() -> None:
    tokens = Tokens(JwtConfig(algorithms=("HS256",), secret=SECRET))
    assert told_by(tokens, token(iss=None, aud=None))
    assert told_by(tokens, token(iss="https://other", aud="other"))


def test_claims_have_the_names_that_are_configured() -> None:
    config = JwtConfig(algorithms=("HS256",), secret=SECRET, tenant_claim="org", roles_claim="scope")
    found = Tokens(config).credential(token(org="acme", scope="worker email", tenant="x"), owns_keys=True)
    assert (found.caller.tenant, found.caller.user, found.caller.owns_keys) == ("acme", "ann", True)
    assert found.roles == {Role.WORKER}
    assert not told_by(Tokens(config), token())


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


Draw = Callable[[], Any]
PAIRS: dict[str, Draw] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


def with_file(tmp_path: Path, data: bytes, *algorithms: str) -> JwtConfig:
    file = tmp_path / "public.pem"
    file.write_bytes(data)
    return JwtConfig(algorithms=algorithms, public_key_file=str(file))


@pytest.mark.parametrize("algorithm", PAIRS)
def test_a_public_key_verifies_its_own_algorithm_only(tmp_path: Path, algorithm: str) -> None:
    private, other = PAIRS[algorithm](), PAIRS[algorithm]()
    tokens = Tokens(with_file(tmp_path, pem(private), algorithm))
    assert told_by(tokens, token(private, algorithm))
    assert not told_by(tokens, token(other, algorithm))
    assert not told_by(tokens, token(algorithm="HS256"))
    assert not told_by(tokens, unsigned())
    # The classic: the public key, which everybody has, as the secret of an HMAC.
    head, body, _ = token(algorithm="HS256").split(".")
    mac = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), pem(private))
    assert not told_by(tokens, f"{head}.{body}.{base64url(mac)}")


def test_settings_that_cannot_be_meant_stop_the_start(tmp_path: Path) -> None:
    ours, small = PAIRS["ES256"](), rsa.generate_private_key(65537, 1024)
    private = ours.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for config in (
        JwtConfig(algorithms=("ES256",), secret=SECRET, public_key_file="x"),
        JwtConfig(algorithms=("none",), secret=SECRET),
        JwtConfig(algorithms=("HS256", "none"), secret=SECRET),
        JwtConfig(algorithms=(), secret=SECRET),
        JwtConfig(algorithms=("HS256",)),
        JwtConfig(algorithms=("HS256",), secret="short"),
        JwtConfig(algorithms=("HS256", "HS512"), secret=SECRET),
        JwtConfig(algorithms=("RS256",), secret=SECRET),
        JwtConfig(algorithms=("RS256",), public_key_file=str(tmp_path / "none.pem")),
        JwtConfig(algorithms=("HS256", "ES256"), secret=SECRET),
    ):
        with pytest.raises(onejob.Invalid):
            Tokens(config)
    for data, algorithm in (
        (pem(ours), "HS256"),
        (pem(ours), "RS256"),
        (pem(ours), "ES384"),
        (private, "ES256"),
        (pem(small), "RS256"),
        (b"", "EdDSA"),
    ):
        with pytest.raises(onejob.Invalid):
            Tokens(with_file(tmp_path, data, algorithm))


TOKENS = Tokens(JWT)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(st.characters(max_codepoint=255), max_size=300)
    | st.lists(st.binary(max_size=200).map(base64url)).map(".".join)
    | st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)
    ).map(lambda head: base64url(json.dumps(head).encode()) + ".e30.x")
)
def test_no_text_of_a_stranger_is_more_than_unknown(text: str) -> None:
    assert not told_by(TOKENS, text)


def test_a_deep_header_is_no_token() -> None:
    for deep in (
        b"[" * 6000,
        b'{"alg":' * 800 + b"1" + b"}" * 800,
        b'{"alg":["HS256"]}',
        b'{"alg":{}}',
        b"1e999",
    ):
        assert not told_by(TOKENS, base64url(deep) + ".e30.e30")


# Rates


def test_new_keys_beyond_the_rate_are_told_to_wait_and_known_ones_are_answered(slow: House) -> None:
    text = slow.key("eager")
    made = [slow.service.submit(text, f"k{n}") for n in range(2)]
    assert [one.status for one in made] == [202, 202]
    for _ in range(3):  # a repetition takes nothing, so it is answered with an empty bucket
        again = slow.service.submit(text, "k0")
        assert (again.status, again.body["job"]["id"]) == (202, made[0].body["job"]["id"])
        assert again.headers["idempotent-replayed"] == "true"
    refused = slow.service.submit(text, "k2")
    assert (refused.status, refused.code) == (429, "RATE_LIMITED")
    assert 900 <= int(refused.headers["retry-after"]) <= 1000
    assert refused.body["error"]["retryable"]
    assert slow.service.submit(text, "k0", {"type": "charge"}).code == "CONFLICT"
    assert slow.service.ask("GET", "/api/jobs", bearer(text)).status == 200, "only what is new is counted"


def test_a_refused_request_burns_no_key(slow: House) -> None:
    text = slow.key("eager")
    for n in range(2):
        slow.service.submit(text, f"k{n}")
    assert slow.service.submit(text, "late").status == 429
    tenant = slow.operator.acting(tenant="acme", user="eager", actor=Actor.client("eager"))
    assert tenant.submit("charge", {"amount": 42}, idempotency_key="late").created


def test_repetitions_conflicts_and_bad_input_take_no_token(slow: House) -> None:
    text = slow.key("clumsy")
    first = slow.service.submit(text, "k0")
    for _ in range(5):
        assert slow.service.submit(text, "k0").body["job"]["id"] == first.body["job"]["id"]
        assert slow.service.submit(text, "k0", {"type": "charge"}).status == 409
        assert slow.service.submit(text, "x" * 256).status == 400
        assert slow.service.submit(text, "k9", {"type": ""}).status == 400
        assert slow.service.ask("POST", "/api/jobs?dryRun=true", bearer(text), BODY).status == 200
    assert slow.service.submit(text, "k1").status == 202
    assert slow.service.submit(text, "k2").status == 429
    assert slow.service.submit(text, "x" * 256).status == 400, "what is wrong in itself is told first"


def test_each_credential_has_its_own_bucket_and_a_rotation_brings_no_new_one(slow: House) -> None:
    one = slow.keys().create("one", roles=[Role.SUBMITTER])
    assert [slow.service.submit(one.text, f"a{n}").status for n in range(3)] == [202, 202, 429]
    assert slow.service.submit(slow.keys().rotate(one.key.id).text, "a3").status == 429
    assert slow.service.submit(slow.key("other"), "b0").status == 202
    assert slow.service.submit(slow.key("one", tenant="umbrella"), "b1").status == 202
    assert slow.service.submit(token(sub="one"), "b2").status == 202


def test_a_batch_is_counted_by_its_items(slow: House) -> None:
    text = slow.key("bulk")
    known = slow.service.submit(text, "k0").body["job"]["id"]

    def batch(*keys: str) -> list[Any]:
        jobs = [{**BODY, "idempotencyKey": key} for key in keys]
        told = slow.service.ask("POST", "/api/jobs/batch", bearer(text), {"jobs": jobs})
        assert told.status == 200
        return list(told.body["verdicts"])

    verdicts = batch("k1", "k2", "k0", "x" * 256, "k3")
    assert [verdict["status"] for verdict in verdicts] == [202, 429, 202, 400, 429]
    assert verdicts[2]["job"]["id"] == known
    assert verdicts[1]["error"]["code"] == "RATE_LIMITED"
    assert [verdict["status"] for verdict in batch("k0", "k1", "k2")] == [202, 202, 429]


def test_a_bucket_fills_with_time_and_never_above_its_burst() -> None:
    clock, ann = FakeClock(), ("acme", "user:ann")
    rates = Rates(per_second=2, burst=4, monotonic=clock.monotonic)
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
        rates = Rates(per_second=per_second, burst=1, monotonic=clock.monotonic)
        rates.take(ann, 1)
        clock.advance(0.123)
        clock.advance(rates.retry_after(ann))
        assert rates.take(ann, 1) == 1


def test_buckets_are_bounded_and_the_least_used_leaves() -> None:
    rates = Rates(per_second=0.001, burst=1, monotonic=FakeClock().monotonic, buckets_max=10)
    for n in range(100):
        rates.take(("acme", f"user:{n}"), 1)
        assert rates.take(("acme", "user:0"), 1) == 0
    assert len(rates) == 10
