"""Serves a manager's ledger: listener, connections, signs of life, streams of settled records, shutdown.

A connection carries one request at a time. A request that takes longer than a second is answered in chunks, of which
each but the last is a sign of life: so a gate can tell a slow store from a manager that is gone.

A connection is a stranger's until a request of it was accepted. Strangers are few, send little, have little time, and are
disconnected with the first refusal: so they cannot take the connections of gates.
"""

import asyncio
import logging
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from msgspec import Struct

from onejob.addresses import Address, is_loopback, network_of, parse_ip
from onejob.clock import Clock, SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import tenant_prefix
from onejob.engine import Engine, GateSettings
from onejob.engines import open_engine
from onejob.engines.remote.codec import WireCodec, encode_struct
from onejob.engines.remote.http1 import (
    LAST_CHUNK,
    Message,
    MessageParser,
    ProtocolError,
    begin_chunked_response,
    parse_request_path,
    write_chunk,
    write_response,
)
from onejob.engines.remote.messages import (
    FAILURE,
    KEEPALIVE_FRAME,
    LEDGER_HEADER,
    RESULT,
    SIGN_OF_LIFE_SECONDS,
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
from onejob.server.listener import raise_open_files_limit
from onejob.settings import IdempotencyConfig

from .gate_keys import GateKeys
from .ledger import ManagerIdempotencyLedger, RequestError, WireRequest, WireResponse

CONNECTIONS_MAX = 10_000
STRANGERS_MAX = 2000  # connections of which no request was accepted yet
STRANGERS_PER_ADDRESS_MAX = 256
HEAD_SECONDS_MAX = 10.0  # until a connection has sent its first request, and of a TLS handshake
TLS_SHUTDOWN_SECONDS_MAX = 2.0
HELLO_BYTES_MAX = 4096  # of the body of a request, until one was accepted: strangers send no more
BACKLOG = 1024
DRAIN_SECONDS_MAX = 20.0
STREAM_BUFFER_BYTES_MAX = 1 << 20
_CLOSE = ((b"connection", b"close"),)
_MANAGERS_TLS_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

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
        if self.tls_cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password="")
            context.set_ciphers(_MANAGERS_TLS_CIPHERS)
            if self.tls_client_ca is not None:
                context.load_verify_locations(self.tls_client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            raise Invalid(
                "tls_cert",
                f"the files for TLS cannot be used ({error}); name PEM files that belong together, with a key that has no "
                "password",
            ) from error
        return context


class ManagerServer:
    """A listener in front of a ledger, and its connections."""

    def __init__(self, ledger: ManagerIdempotencyLedger) -> None:
        self.ledger = ledger
        self.connections: set[ManagerConnection] = set()
        self.is_draining = False
        self._strangers: Counter[str] = Counter()  # by address
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """The address that it listens on."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ManagerConnection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HEAD_SECONDS_MAX,
            ssl_shutdown_timeout=None if tls is None else TLS_SHUTDOWN_SECONDS_MAX,
            backlog=BACKLOG,
            reuse_address=True,
        )
        name: tuple[str, int] = self._listener.sockets[0].getsockname()[:2]
        return name

    def admit(self, connection: "ManagerConnection", address: str) -> bool:
        """Take a new connection, unless there are too many."""
        strangers = self._strangers
        if (
            self.is_draining
            or len(self.connections) >= CONNECTIONS_MAX
            or strangers[address] >= STRANGERS_PER_ADDRESS_MAX
            or strangers.total() >= STRANGERS_MAX
        ):
            return False
        self.connections.add(connection)
        strangers[address] += 1
        return True

    def forget_stranger(self, address: str) -> None:
        self._strangers[address] -= 1
        if self._strangers[address] <= 0:
            del self._strangers[address]

    async def aclose(self, drain_seconds: float = DRAIN_SECONDS_MAX) -> None:
        """Take no more requests, answer those that are executed, close all connections."""
        self.is_draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self.connections):
            connection.close_if_idle()
        running = [connection.task for connection in self.connections if connection.task is not None]
        if running:
            await asyncio.wait(running, timeout=drain_seconds)
        for connection in tuple(self.connections):
            connection.abort()
        if self._listener is not None:
            await self._listener.wait_closed()


class ManagerConnection(asyncio.Protocol):
    def __init__(self, server: ManagerServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = MessageParser(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_chunked = False
        self._is_stream = False
        self._stranger_address: str | None = None  # None: not counted as a stranger (any more)
        self._settled: list[bytes] = []  # of a stream: not written yet
        self._tenant_prefixes: tuple[bytes, ...] = ()  # of its records; empty: all
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop have no common base class
        address = _network_of(transport.get_extra_info("peername"))
        if not self._server.admit(self, address):
            self._transport.abort()
            return
        self._stranger_address = address
        sock = transport.get_extra_info("socket")
        if sock is not None:  # so that a gate which vanished does not stay connected
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._timer = self._loop.call_later(HEAD_SECONDS_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._parser.feed(data)
            if not messages:
                return
            if len(messages) > 1 or self.task is not None or self._is_stream:
                raise ProtocolError("send one request at a time")
            request = _to_request(messages[0])
        except ProtocolError as error:
            self._refuse(str(error))
            return
        self._set_timer(SIGN_OF_LIFE_SECONDS, self._send_sign_of_life)
        work = self._stream(request) if request.path == "/subscribe" else self._respond(request)
        self.task = self._loop.create_task(work)

    def connection_lost(self, error: Exception | None) -> None:
        """What is being executed goes on: the gate may be waiting for it on another connection."""
        self._cancel_timer()
        self._server.connections.discard(self)
        self._note_no_stranger()
        self._server.ledger.unsubscribe(self._on_settled)

    def close_if_idle(self) -> None:
        if self.task is None:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _respond(self, request: WireRequest) -> None:
        response = await self._server.ledger.respond(request)
        self.task = None
        if response.status == STATUS_OK:
            self._note_no_stranger()
            self._parser.body_bytes_max = response.body_bytes_max
        self._cancel_timer()
        if self._transport is None or self._transport.is_closing():
            return
        is_last = (
            self._server.is_draining
            or self._stranger_address is not None
            or response.status == STATUS_UNAUTHORIZED  # its credential was revoked
        )
        self._write_answer(response, is_last=is_last)

    def _write_answer(self, response: WireResponse, *, is_last: bool) -> None:
        assert self._transport is not None
        if self._is_chunked:
            self._transport.write(write_chunk(response.frame) + LAST_CHUNK)
        else:
            headers = _CLOSE if is_last else ()
            self._transport.write(write_response(response.status, response.frame, headers))
        self._is_chunked = False
        if is_last:
            self._transport.close()
            self._set_timer(HEAD_SECONDS_MAX, self.abort)  # if it does not read its answer

    async def _stream(self, request: WireRequest) -> None:
        """Begin a stream of settled records; it ends with the connection."""
        ledger = self._server.ledger
        try:
            key = await ledger.authorize(request)
            ledger.check_target(request)
            if key.is_site:
                raise RequestError(STATUS_FORBIDDEN, "the credential of a site may deliver jobs, and nothing else")
        except RequestError as error:
            self._refuse(str(error), error.status)
            return
        except OnejobError as error:
            self._refuse(str(error), STATUS_UNAVAILABLE)
            return
        except Exception as error:  # noqa: BLE001 - a stream that never begins must not look alive
            log.error("a request for a stream failed: %s", redacted_traceback(error))
            self._refuse("the manager failed unexpectedly; see its log", STATUS_UNAVAILABLE)
            return
        finally:
            self.task = None
        if self._transport is not None and not self._transport.is_closing():
            self._is_stream = True
            self._note_no_stranger()
            self._tenant_prefixes = tuple(map(tenant_prefix, key.tenants))
            self._send_sign_of_life()
            ledger.subscribe(self._on_settled)

    def _on_settled(self, record_id: bytes) -> None:
        if self._tenant_prefixes and not record_id.startswith(self._tenant_prefixes):
            return
        if not self._settled:
            self._loop.call_soon(self._write_settled)
        self._settled.append(record_id)

    def _write_settled(self) -> None:
        settled, self._settled = self._settled, []
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(write_chunk(RESULT + encode_struct(settled)))
        if self._transport.get_write_buffer_size() > STREAM_BUFFER_BYTES_MAX:
            self.abort()  # it does not read; polling finds what it misses

    def _send_sign_of_life(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        begin = b"" if self._is_chunked else begin_chunked_response(STATUS_OK)
        self._is_chunked = True
        self._transport.write(begin + write_chunk(KEEPALIVE_FRAME))
        self._set_timer(SIGN_OF_LIFE_SECONDS, self._send_sign_of_life)

    def _refuse(self, message: str, status: int = STATUS_BAD_REQUEST) -> None:
        self._cancel_timer()
        if self._transport is not None and not self._transport.is_closing():
            self._write_answer(WireResponse(status, FAILURE + encode_struct(Failure(message))), is_last=True)

    def _note_no_stranger(self) -> None:
        if self._stranger_address is not None:
            self._server.forget_stranger(self._stranger_address)
            self._stranger_address = None

    def _set_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, callback)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _network_of(peer: Any) -> str:
    """The address of a peer; of IPv6 the network of 64 bits, which one host may have to itself."""
    address = parse_ip(str(peer[0])) if isinstance(peer, tuple) else None
    return "" if address is None else network_of(address)


def _to_request(message: Message) -> WireRequest:
    headers = message.headers
    if b"transfer-encoding" in headers:
        raise ProtocolError("a request has a Content-Length")
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return WireRequest(
        parse_request_path(message.start),
        message.body,
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
        host, port = await server.listen(config.host, config.port, tls)
        maintenance = asyncio.create_task(ledger.maintain(IdempotencyConfig.from_env().cleanup_interval_seconds))
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        on_ready(Address(host, port).url(is_tls=tls is not None), engine)
        await stopped.wait()
    finally:
        if maintenance is not None:
            maintenance.cancel()
            with suppress(asyncio.CancelledError):
                await maintenance
        await server.aclose()
        await ledger.aclose()
