"""Serves a manager's ledger: gate connections on the one server, keepalives, streams of settled records.

A connection carries one request at a time. A request that takes longer than a second is answered in chunks, of which
each but the last is a keepalive: so a gate can tell a slow store from a manager that is gone.

A connection is unauthenticated until one of its requests was accepted. Such connections are few, send little, have little
time, and are closed with the first refusal: so they cannot take the place of gates.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httptools
from msgspec import Struct

from onejob.addresses import Address, is_loopback, network_of, parse_ip
from onejob.clock import Clock, SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import tenant_prefix
from onejob.engine import Engine, GateSettings
from onejob.engines import open_engine
from onejob.engines.remote.codec import WireCodec, encode_struct
from onejob.engines.remote.messages import (
    FAILURE,
    KEEPALIVE_FRAME,
    KEEPALIVE_SECONDS,
    LEDGER_HEADER,
    RESULT,
    STATUS_BAD_REQUEST,
    STATUS_FORBIDDEN,
    STATUS_OK,
    STATUS_UNAUTHORIZED,
    STATUS_UNAVAILABLE,
    VERSION_HEADER,
    Failure,
)
from onejob.engines.remote.url import is_managers_url
from onejob.errors import OnejobError
from onejob.ids import SystemIds
from onejob.logs import log_loop_exception, redacted_traceback
from onejob.runtime.settings import Said, open_settings
from onejob.server.connection import Connection, ConnectionContext, ConnectionLimits, UnreadableRequest
from onejob.server.exchange import HttpExchange, RefusedRequest, Scope
from onejob.server.listener import (
    HttpServer,
    address_of,
    bind_socket,
    on_signals,
    raise_open_files_limit,
    tls_context,
)
from onejob.settings import IdempotencyConfig

from .gate_keys import GateKeys
from .ledger import ManagerIdempotencyLedger, RequestError, WireRequest, WireResponse

CONNECTIONS_MAX = 10_000
UNAUTHENTICATED_MAX = 2000  # connections of which no request was accepted yet
UNAUTHENTICATED_PER_ADDRESS_MAX = 256
HEAD_SECONDS_MAX = 10.0  # until a connection has sent its first request
HELLO_BYTES_MAX = 4096  # of the body of a request, until one was accepted
DRAIN_SECONDS_MAX = 20.0
STREAM_BUFFER_BYTES_MAX = 1 << 20
_NEVER = float("inf")
# A gate that was accepted may be idle, or slow, as long as it likes.
LIMITS = ConnectionLimits(16_384, _NEVER, _NEVER, _NEVER, CONNECTIONS_MAX)
LAST_CHUNK = b"0\r\n\r\n"

_HEAD = b"HTTP/1.1 %d -\r\ncontent-type: application/msgpack\r\ncache-control: no-store\r\n"
CHUNKED_HEAD = _HEAD % STATUS_OK + b"transfer-encoding: chunked\r\n\r\n"
_NOT_A_GATE = "a manager takes POST requests of gates in HTTP/1.1, and nothing else"
_MALFORMED_HEADER = "a header is malformed, or sent twice"

log = logging.getLogger("onejob.manager")


class ManagerConfig(Struct, frozen=True, kw_only=True):
    engine: str
    host: str = "127.0.0.1"
    port: int = 8002
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = (
        None  # gates with a certificate that it signed need no gate key; one that is sent limits
    )
    said: Said = {}  # the settings of the ledger that this manager is given

    def __post_init__(self) -> None:
        if is_managers_url(self.engine):
            raise Invalid("engine", "a manager owns its ledger; name a store, not another manager")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Invalid("tls_cert", "--tls-cert and --tls-key belong together; give both, or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise Invalid("tls_client_ca", "--tls-client-ca needs --tls-cert and --tls-key; give them")
        if not 0 <= self.port <= 65_535:
            raise Invalid("port", "port is a number from 0 to 65535; choose one")

    def ssl_context(self) -> ssl.SSLContext | None:
        return tls_context(self.tls_cert, self.tls_key, self.tls_client_ca)


class ManagerServer:
    """The one server, with connections of gates in front of a ledger."""

    def __init__(self, ledger: ManagerIdempotencyLedger) -> None:
        self.ledger = ledger
        self.is_draining = False
        self._unauthenticated: Counter[str] = Counter()  # by address
        self._context = ConnectionContext(_answer_nothing, LIMITS, _render_refusal)
        self._server: HttpServer | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> Address:
        """The address that it listens on."""
        listener = bind_socket(host, port)
        self._server = HttpServer(
            self._context,
            lambda context: ManagerConnection(context, self),
            tls=tls,
            drain_seconds_max=DRAIN_SECONDS_MAX,
            has_date=False,
        )
        await self._server.start([listener])
        return address_of(listener)

    def admit(self, address: str) -> bool:
        """Count a new connection, which is unauthenticated yet; False: there are too many."""
        counts = self._unauthenticated
        if (
            self.is_draining
            or counts[address] >= UNAUTHENTICATED_PER_ADDRESS_MAX
            or counts.total() >= UNAUTHENTICATED_MAX
        ):
            return False
        counts[address] += 1
        return True

    def forget_unauthenticated(self, address: str) -> None:
        self._unauthenticated[address] -= 1
        if self._unauthenticated[address] <= 0:
            del self._unauthenticated[address]

    async def aclose(self, drain_seconds: float = DRAIN_SECONDS_MAX) -> None:
        """Take no more requests, answer those that are executed, close all connections."""
        self.is_draining = True
        if self._server is not None:
            self._server.drain_seconds_max = drain_seconds
            await self._server.shut_down()
            self._server.abort_connections()


class ManagerConnection(Connection):
    is_pipelined = False

    def __init__(self, context: ConnectionContext, server: ManagerServer) -> None:
        super().__init__(context)
        self.app = self._respond
        self._server = server
        self._body_bytes_max = HELLO_BYTES_MAX
        self._life_timer: asyncio.TimerHandle | None = None
        self._is_chunked = False
        self._unauthenticated_address: str | None = None  # None: not counted as unauthenticated (any more)
        self._stream: HttpExchange | None = None
        self._settled: list[bytes] = []  # of the stream: not written yet
        self._tenant_prefixes: tuple[bytes, ...] = ()  # of its records; empty: all

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of sockets
        super().connection_made(transport)
        address = _network_of(transport.get_extra_info("peername"))
        if not self._server.admit(address):
            self.transport.abort()
            return
        self._unauthenticated_address = address
        sock = transport.get_extra_info("socket")
        if sock is not None:  # so that a gate which vanished does not stay connected
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._life_timer = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """What is being executed goes on: the gate may be waiting for it on another connection."""
        super().connection_lost(exc)
        self._cancel_timer()
        self._mark_authenticated()
        self._server.ledger.unsubscribe(self._on_settled)

    def shutdown(self) -> None:
        super().shutdown()
        if self._stream is not None or not self._is_responding():
            self.transport.abort()

    def check_head(self, version: str) -> None:
        """No other program speaks on these connections, and two readings of one message must not exist."""
        if self.parser.get_method() != b"POST" or version != "1.1":
            raise UnreadableRequest(400, _NOT_A_GATE)
        names = [name.lower() for name, _ in self.headers]
        if len(set(names)) < len(names):
            raise UnreadableRequest(400, _MALFORMED_HEADER)
        if b"transfer-encoding" in self.checked_headers:
            raise UnreadableRequest(400, "a request has a Content-Length")
        length = dict(zip(names, (value for _, value in self.headers), strict=True)).get(b"content-length", b"0")
        if int(length) > self._body_bytes_max:
            raise UnreadableRequest(400, "the body of a message is too large, or has two lengths")

    def head_limit_message(self) -> str:
        return "the head of a message is too large"

    def syntax_message(self, error: httptools.HttpParserError) -> str:
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            return _NOT_A_GATE
        return "the length of a body is not given" if "Content-Length" in str(error) else _MALFORMED_HEADER

    async def _respond(self, scope: Scope, receive: Any, exchange: HttpExchange) -> None:
        body = await _read_body(exchange, receive)
        if body is None:
            return
        self._set_timer(self._send_keepalive, exchange)
        request = _to_request(scope, body)
        if request.path == "/subscribe":
            await self._stream_settled(request, exchange)
            return
        response = await self._server.ledger.respond(request)
        if response.status == STATUS_OK:
            self._mark_authenticated()
            self._body_bytes_max = response.body_bytes_max or self._body_bytes_max
        is_last = (
            self._server.is_draining
            or self._unauthenticated_address is not None
            or response.status == STATUS_UNAUTHORIZED  # its credential was revoked
        )
        self._write_answer(exchange, response, is_last=is_last)

    def _write_answer(self, exchange: HttpExchange, response: WireResponse, *, is_last: bool) -> None:
        self._cancel_timer()
        if is_last:
            exchange.keep_alive = False
        if self._is_chunked:
            self._is_chunked = False
            exchange.write_encoded(write_chunk(response.frame) + LAST_CHUNK)
        else:
            exchange.write_encoded(encode_response(response, is_last=is_last))

    async def _stream_settled(self, request: WireRequest, exchange: HttpExchange) -> None:
        """A stream of settled records; it ends with the connection."""
        ledger = self._server.ledger
        try:
            key = await ledger.authorize(request)
            ledger.check_target(request)
            if key.is_site:
                raise RequestError(STATUS_FORBIDDEN, "the credential of a site may deliver jobs, and nothing else")
            if self._server.is_draining:  # which would wait for the stream
                raise RequestError(STATUS_UNAVAILABLE, "this manager is shutting down; ask another one")
        except RequestError as error:
            self._write_answer(exchange, _failure(error.status, str(error)), is_last=True)
            return
        except OnejobError as error:
            self._write_answer(exchange, _failure(STATUS_UNAVAILABLE, str(error)), is_last=True)
            return
        except Exception as error:  # noqa: BLE001 - a stream that never begins must not look alive
            log.error("a request for a stream failed: %s", redacted_traceback(error))
            failure = _failure(STATUS_UNAVAILABLE, "the manager failed unexpectedly; see its log")
            self._write_answer(exchange, failure, is_last=True)
            return
        if exchange.disconnected:  # meanwhile: nobody would unsubscribe it
            return
        self._stream = exchange
        self._mark_authenticated()
        self._tenant_prefixes = tuple(map(tenant_prefix, key.tenants))
        self._send_keepalive(exchange)
        ledger.subscribe(self._on_settled)
        while (await exchange.receive())["type"] != "http.disconnect":
            pass

    def _on_settled(self, record_id: bytes) -> None:
        if self._tenant_prefixes and not record_id.startswith(self._tenant_prefixes):
            return
        if not self._settled:
            self.loop.call_soon(self._write_settled)
        self._settled.append(record_id)

    def _write_settled(self) -> None:
        settled, self._settled = self._settled, []
        if self._stream is None:
            return
        self._stream.write_encoded(write_chunk(RESULT + encode_struct(settled)), more=True)
        if self.transport.get_write_buffer_size() > STREAM_BUFFER_BYTES_MAX:
            self.transport.abort()  # it does not read; polling finds what it misses

    def _send_keepalive(self, exchange: HttpExchange) -> None:
        begin = b"" if self._is_chunked else CHUNKED_HEAD
        self._is_chunked = True
        exchange.write_encoded(begin + write_chunk(KEEPALIVE_FRAME), more=True)
        self._set_timer(self._send_keepalive, exchange)

    def _mark_authenticated(self) -> None:
        if self._unauthenticated_address is not None:
            self._server.forget_unauthenticated(self._unauthenticated_address)
            self._unauthenticated_address = None

    def _set_timer(self, callback: Callable[[HttpExchange], None], exchange: HttpExchange) -> None:
        self._cancel_timer()
        self._life_timer = self.loop.call_later(KEEPALIVE_SECONDS, callback, exchange)

    def _cancel_timer(self) -> None:
        if self._life_timer is not None:
            self._life_timer.cancel()


async def _read_body(exchange: HttpExchange, receive: Any) -> bytes | None:
    """None: the connection ended before."""
    body = exchange.take_body_fast()
    if body is not None:
        return body
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


def encode_response(response: WireResponse, *, is_last: bool) -> bytes:
    close = b"connection: close\r\n" if is_last else b""
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (
        _HEAD % response.status,
        close,
        len(response.frame),
        response.frame,
    )


def write_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _failure(status: int, message: str) -> WireResponse:
    return WireResponse(status, FAILURE + encode_struct(Failure(message)))


def _render_refusal(refusal: RefusedRequest) -> bytes:
    """A request that was begun gets no answer, since it may have been executed: the gate finds the connection closed."""
    if refusal.scope is not None:
        return b""
    status = STATUS_UNAVAILABLE if refusal.status == STATUS_UNAVAILABLE else STATUS_BAD_REQUEST
    return encode_response(_failure(status, refusal.message), is_last=True)


async def _answer_nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("each connection of a gate has an application of its own")


def _network_of(peer: Any) -> str:
    """The address of a peer; of IPv6 the network of 64 bits, which one host may have to itself."""
    address = parse_ip(str(peer[0])) if isinstance(peer, tuple) else None
    return "" if address is None else network_of(address)


def _to_request(scope: Scope, body: bytes) -> WireRequest:
    headers = {name.lower(): value for name, value in scope["headers"]}
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return WireRequest(
        scope["raw_path"].decode("latin-1"),
        body,
        headers.get(VERSION_HEADER, b"").decode("latin-1"),
        headers.get(LEDGER_HEADER, b"").decode("latin-1"),
        key.strip() if scheme.lower() == "bearer" else "",
    )


async def needs_gate_key(engine: Engine, config: ManagerConfig) -> bool:
    """True if gates must send a credential. Without one, and without certificates, only loopback addresses are allowed."""
    if config.tls_client_ca is not None:
        return False
    keys = await GateKeys(engine, SystemIds(), actor="system:manager").list()
    if any(key.revoked_at is None for key in keys):
        return True
    if not is_loopback(config.host):
        raise Invalid(
            "bind",
            f"{config.host} would be open to everyone, who could act for every tenant; create a gate key with "
            "`onejob gatekey create`, or give --tls-client-ca, or bind to 127.0.0.1",
        )
    return False


async def open_manager(
    engine: Engine, config: ManagerConfig, settings: GateSettings, *, clock: Clock, codec: WireCodec | None = None
) -> ManagerIdempotencyLedger:
    await open_settings(engine, config.said)
    ledger = ManagerIdempotencyLedger(
        engine,
        clock=clock,
        settings=settings,
        needs_gate_key=await needs_gate_key(engine, config),
        codec=codec,
    )
    await ledger.measure_distance()
    return ledger


async def serve_manager(config: ManagerConfig, settings: GateSettings, on_ready: Callable[[str, Engine], None]) -> None:
    """Serve until a signal comes."""
    tls = config.ssl_context()
    raise_open_files_limit()
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    engine = await open_engine(config.engine)
    try:
        ledger = await open_manager(engine, config, settings, clock=SystemClock())
    except BaseException:
        await engine.aclose()
        raise
    server = ManagerServer(ledger)
    maintenance: asyncio.Task[Any] | None = None
    try:
        address = await server.listen(config.host, config.port, tls)
        maintenance = asyncio.create_task(ledger.maintain(IdempotencyConfig.from_env().cleanup_interval_seconds))
        stopped = asyncio.Event()
        with on_signals(stopped.set):
            on_ready(address.url(is_tls=tls is not None), engine)
            await stopped.wait()
    finally:
        if maintenance is not None:
            maintenance.cancel()
            with suppress(asyncio.CancelledError):
                await maintenance
        await server.aclose()
        await ledger.aclose()
