"""A server with authentication in a thread, an operator on the same store, and credentials of every kind."""

import asyncio
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Event, Thread
from typing import Any, NamedTuple

import jwt
import uvicorn

import onejob
from onejob import sync
from onejob.core import identity
from onejob.core.credentials import Permission, Role
from onejob.core.identity import Actor
from onejob.http.app import HttpApp
from onejob.http.config import JwtConfig, ServiceConfig
from onejob.http.request import Request
from onejob.http.responses import Response, json_response
from onejob.http.routing import Route

SECRET = "a-secret-that-two-parties-share-and-nobody-else"
JWT = JwtConfig(algorithms=("HS256",), secret=SECRET, issuer="https://issuer", audience="onejob")
BODY = {"type": "charge", "input": {"amount": 42}}
NO_ALGORITHM = b'{"alg":"none","typ":"JWT"}'
Headers = tuple[tuple[str, str], ...]


async def respond_ok(request: Request) -> Response:
    return json_response(200, {"user": request.credential.caller.user})


# One path for every permission, in addition to those of the service.
TEST_ROUTES = tuple(Route("POST", f"/test/{act}", respond_ok, act, f"Do: {act}") for act in Permission)


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class ServerThread:
    """A server in a thread, on a free port."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._config = ServiceConfig(auth=True, jwt=JWT, **options)
        self._ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        async with onejob.open(self._url, key_owner=self._config.key_owner, sweep=False) as ledger:
            self.app = HttpApp(ledger, config=self._config, extra_routes=TEST_ROUTES)
            config = uvicorn.Config(self.app, port=0, log_level="error", lifespan="off", ws="none")
            listener = config.bind_socket()
            listener.listen()
            self.port = listener.getsockname()[1]
            self._server = uvicorn.Server(config)
            self._ready.set()
            await self._server.serve(sockets=[listener])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def submit(self, credential: str, key: str, body: object = BODY) -> HttpResponse:
        return self.ask("POST", "/api/jobs", (*bearer(credential), ("Idempotency-Key", key)), body)

    def ask(self, method: str, path: str, headers: Headers = (), body: object = None) -> HttpResponse:
        data = b"" if body is None else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path)
            for name, value in (*headers, ("Content-Length", str(len(data)))):
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            content = response.read()
            response_headers = {name.lower(): value for name, value in response.getheaders()}
            return HttpResponse(
                response.status,
                response_headers,
                json.loads(content) if "json" in response_headers["content-type"] else {},
            )
        finally:
            connection.close()


class AuthServer(NamedTuple):
    """A server, and a ledger of an operator on the same store."""

    url: str
    service: ServerThread
    operator: sync.SyncLedger

    def api_keys(self, tenant: str = "acme") -> sync.SyncApiKeys:
        return sync.SyncApiKeys(self.operator.acting_as(tenant=tenant, user="root", actor=Actor.user("root")))

    def create_key(self, name: str, *roles: Role, tenant: str = "acme", user: str = "") -> str:
        return self.api_keys(tenant).create(name, roles=roles or (Role.SUBMITTER,), user=user).text


def bearer(credential: str) -> Headers:
    return (("Authorization", f"Bearer {credential}"),)


def token(key: Any = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    """A valid token with these changes; a claim of None is left out."""
    claims = {
        "sub": "ann",
        "tenant": "acme",
        "roles": ["submitter"],
        "iss": "https://issuer",
        "aud": "onejob",
        "exp": time.time() + 600,
    }
    payload = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode(payload, key, algorithm=algorithm)


def unsigned_token() -> str:
    return f"{identity.encode_base64url(NO_ALGORITHM)}.{token().split('.')[1]}."


def run_auth_server(url: str, **options: Any) -> Iterator[AuthServer]:
    service = ServerThread(url, **options)
    try:
        with sync.open(url, sweep=False) as operator:
            yield AuthServer(url, service, operator)
    finally:
        service.close()
