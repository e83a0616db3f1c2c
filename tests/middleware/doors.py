"""The ways into the middleware, in this process: ASGI, WSGI and Django, with the same application behind each."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from flask import Flask, Response

import onejob
from onejob.clock import SystemClock
from onejob.engines.memory import MemoryEngine
from onejob.ledger import Ledger
from onejob.middleware import IdempotencyMiddleware, WsgiIdempotencyMiddleware
from onejob.middleware.blocking import BlockingLayer
from onejob.middleware.flask import FlaskIdempotency
from onejob.middleware.rules import IdempotencyRules
from onejob.sync import LoopThread, SyncLedger
from onejob.testing import FaultyEngine, open_ledger

GO_SECONDS = 30.0
Sent = list[Any]


class ScriptedApp:
    """Sends this response; the last message of ASGI has no body. `breaks` ends it before its end.

    With `waits` it responds when `go` is set, or after GO_SECONDS.
    """

    def __init__(
        self,
        status: int = 200,
        headers: list[tuple[bytes, bytes]] | None = None,
        *parts: bytes,
        breaks: bool = False,
        waits: bool = False,
    ) -> None:
        self.status, self.headers, self.parts = status, headers or [], parts
        self.breaks = breaks
        self.runs = 0
        self.begun, self.go = threading.Event(), threading.Event()
        if not waits:
            self.go.set()

    def begin(self) -> None:
        self.runs += 1
        self.begun.set()

    def wait(self) -> None:
        self.go.wait(GO_SECONDS)

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        if self.breaks:
            raise ConnectionError("the response broke")


class Door(ABC):
    """One way into the middleware, on a ledger in memory."""

    ledger: Ledger
    engine: FaultyEngine

    @abstractmethod
    def wrap(self, app: ScriptedApp, **options: Any) -> Any:
        """The middleware around an application."""

    @abstractmethod
    async def ask(self, app: Any, *, key: bytes = b"k") -> Sent:
        """One request, and what was sent: a start with status and headers, then the body."""


class AsgiDoor(Door):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def wrap(self, app: ScriptedApp, **options: Any) -> Any:
        async def run(scope: Any, receive: Any, send: Any) -> None:
            app.begin()
            while not app.go.is_set():
                await asyncio.sleep(0.01)
            await send({"type": "http.response.start", "status": app.status, "headers": app.headers})
            for part in app.parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if not app.breaks:
                await send({"type": "http.response.body"})

        return IdempotencyMiddleware(run, self.ledger, scope=lambda _: "ann", **options)

    async def ask(self, app: Any, *, key: bytes = b"k") -> Sent:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
        scope |= {"headers": [(b"idempotency-key", key)], "extensions": {}}
        sent: Sent = []

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent


class WsgiDoor(Door):
    def __init__(self, ledger: SyncLedger) -> None:
        self._sync_ledger = ledger
        self.ledger = ledger.async_ledger

    def wrap(self, app: ScriptedApp, **options: Any) -> Any:
        def run(environ: Any, start_response: Any) -> Any:
            app.begin()
            app.wait()
            start_response(f"{app.status} X", [(name.decode(), value.decode()) for name, value in app.headers])
            return iter(app)

        return WsgiIdempotencyMiddleware(run, self._sync_ledger, scope=lambda _: "ann", **options)

    async def ask(self, app: Any, *, key: bytes = b"k") -> Sent:
        return await asyncio.to_thread(call_wsgi, app, HTTP_IDEMPOTENCY_KEY=key.decode())


class DjangoDoor(WsgiDoor):
    def wrap(self, app: ScriptedApp, **options: Any) -> Any:
        from django.core.handlers.wsgi import WSGIHandler
        from django.http import HttpResponse, StreamingHttpResponse

        from onejob.django import ledger
        from tests.support.django_project import views

        def view(request: Any) -> Any:
            app.begin()
            app.wait()
            names = {name.lower() for name, _ in app.headers}
            is_whole = len(app.parts) < 2 and not app.breaks
            kind = HttpResponse if is_whole else StreamingHttpResponse
            response = kind(app, status=app.status)
            if b"content-type" not in names:
                del response["content-type"]
            for name, value in app.headers:
                response[name.decode()] = value.decode()
            return response

        views["current"] = view
        rules = IdempotencyRules(scope=lambda _: "ann", **options)
        ledger.close_layer()
        ledger._layers.append(BlockingLayer(self._sync_ledger, rules))
        return WSGIHandler()


class FlaskDoor(WsgiDoor):
    def wrap(self, app: ScriptedApp, **options: Any) -> Any:
        flask = Flask(__name__)
        FlaskIdempotency(flask, self._sync_ledger, scope=lambda _: "ann", **options)

        @flask.post("/")
        def view() -> Any:
            app.begin()
            app.wait()
            is_whole = len(app.parts) < 2 and not app.breaks
            response = Response(b"".join(app.parts) if is_whole else iter(app), app.status)
            del response.headers["content-type"]
            response.headers.extend([(name.decode(), value.decode()) for name, value in app.headers])
            return response

        return flask.wsgi_app


DOORS = {"asgi": AsgiDoor, "wsgi": WsgiDoor, "flask": FlaskDoor, "django": DjangoDoor}
THREADED_DOORS = {"wsgi": WsgiDoor, "flask": FlaskDoor, "django": DjangoDoor}


@asynccontextmanager
async def open_door(name: str, *, wait_seconds: float = 0) -> AsyncIterator[Door]:
    """A door on a ledger in memory whose engine can be made to fail."""
    config = onejob.IdempotencyConfig(pending_wait_timeout=wait_seconds)
    engine = FaultyEngine(MemoryEngine())
    door: Door
    if name == "asgi":
        door = AsgiDoor(open_ledger(engine, clock=SystemClock(), config=config))
        door.engine = engine
        yield door
        await door.ledger.aclose()
        return
    loop = LoopThread()

    async def open_on_loop() -> Ledger:
        return open_ledger(engine, clock=SystemClock(), config=config)

    ledger = SyncLedger(loop.result(loop.start(open_on_loop())), loop, owns_loop=True)
    door = THREADED_DOORS[name](ledger)
    door.engine = engine
    yield door
    await asyncio.to_thread(ledger.close)


def call_wsgi(app: Any, body: bytes = b"", **environ: Any) -> Sent:
    """One request to a WSGI application, as a server makes it."""
    started: list[Any] = []
    written: list[bytes] = []

    def start_response(status: str, headers: Any, *error: Any) -> Any:
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        started[:] = [{"status": int(status[:3]), "headers": pairs}]
        return written.append

    variables: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "x",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
    }
    parts = app(variables | environ, start_response)
    try:
        written.extend(parts)
    finally:
        if hasattr(parts, "close"):
            parts.close()
    return [*started, {"body": b"".join(written)}]
