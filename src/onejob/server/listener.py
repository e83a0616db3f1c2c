"""The server: listens on sockets, accepts connections, and shuts down without losing a request that has arrived.

**Shutdown.** The waiting applications are released, the connections that the kernel has queued are accepted, and the
listeners are closed. Every connection ends after its last response. What is not answered when the time is over is
cancelled, and gets the last response that `Refuse` renders for it. A second `stop` does not wait.

**Several processes.** Each has a listener of its own on the same port, over which the kernel spreads connections evenly.
Four times a second a process also accepts what waits at the others' listeners (`spares`): in their queues connections are
left only if their process hangs, or does not run.
"""

import asyncio
import gc
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from email.utils import formatdate
from typing import Any, TypeVar

from onejob.addresses import Address
from onejob.clock import SystemClock
from onejob.core.errors import Invalid

from .connection import Connection, ConnectionContext

BACKLOG = 2048
OPEN_FILES_WANTED = 65_536
CANCEL_GRACE_SECONDS = 1.0
DRAIN_POLL_SECONDS = 0.05
DATE_SECONDS = 1.0
SWEEP_SECONDS = 0.25
TLS_HANDSHAKE_SECONDS_MAX = 10.0
TLS_SHUTDOWN_SECONDS_MAX = 2.0
TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # TLS 1.3 has its own list, and older versions are off
GC_THRESHOLDS = (20_000, 50, 100)
SIGNALS = (signal.SIGTERM, signal.SIGINT)

T = TypeVar("T")

log = logging.getLogger("onejob.http")


class HttpServer:
    """Serves the connections of some listeners until it is stopped."""

    def __init__(
        self,
        context: ConnectionContext,
        build_connection: Callable[[ConnectionContext], Connection] = Connection,
        *,
        tls: ssl.SSLContext | None = None,
        drain_seconds_max: float,
        has_date: bool = True,  # a header of every response
        spares: Sequence[socket.socket] = (),
        release_waiters: Callable[[], None] | None = None,
        on_shutdown: Callable[[], Coroutine[Any, Any, None]] | None = None,  # beside the drain
    ) -> None:
        self.context = context
        self._build = build_connection
        self._tls = tls
        self.drain_seconds_max = drain_seconds_max
        self._has_date = has_date
        self._spares = spares
        self._release_waiters = release_waiters
        self._on_shutdown = on_shutdown
        self._shutdown_task: asyncio.Task[None] | None = None
        self._listeners: Sequence[socket.socket] = ()
        self._servers: list[asyncio.Server] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopping = asyncio.Event()
        self.is_forced = False

    async def serve(self, listeners: Sequence[socket.socket], on_ready: Callable[[], None]) -> None:
        """Serve until `stop` is called."""
        await self.start(listeners)
        on_ready()
        await self._stopping.wait()
        await self.shut_down()

    def stop(self) -> None:
        """Begin the shutdown; a second call ends the drain."""
        if self._stopping.is_set():
            self.is_forced = True
            if self._shutdown_task is not None:
                self._shutdown_task.cancel()
        self._stopping.set()

    def stop_once(self) -> None:
        """Begin the shutdown; it does not matter how often this is called."""
        self._stopping.set()

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        self._listeners = listeners
        if self._has_date:
            self._renew_date()
        for listener in listeners:
            server = await loop.create_server(self._connection, sock=listener, backlog=BACKLOG, **self._tls_options())
            self._servers.append(server)
        if self._spares:
            self._sweep()

    async def shut_down(self) -> None:
        if self._release_waiters is not None:
            self._release_waiters()
        if self._on_shutdown is not None:
            self._shutdown_task = asyncio.create_task(self._on_shutdown())
        await self._close_listeners()
        connections, tasks = self.context.connections, self.context.tasks
        for connection in tuple(connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.drain_seconds_max):
                await self._wait_for_connections()
        if tasks:
            if not self.is_forced:
                log.error("Cancel %s running task(s), timeout graceful shutdown exceeded", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)
        if self._shutdown_task is not None and not self.is_forced:
            await asyncio.wait((self._shutdown_task,))
        for timer in self._timers.values():
            timer.cancel()

    def abort_connections(self) -> None:
        for connection in tuple(self.context.connections):
            connection.transport.abort()

    def _connection(self) -> Connection:
        return self._build(self.context)

    def _tls_options(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": TLS_HANDSHAKE_SECONDS_MAX,
            "ssl_shutdown_timeout": TLS_SHUTDOWN_SECONDS_MAX,
        }

    def _renew_date(self) -> None:
        date = formatdate(SystemClock().wall_ms() / 1000, usegmt=True)
        self.context.default_headers = b"date: %b\r\n" % date.encode()
        self._timers["date"] = asyncio.get_running_loop().call_later(DATE_SECONDS, self._renew_date)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in (connection for spare in self._spares for connection in accept_all(spare)):
            task = loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        self._timers["sweep"] = loop.call_later(SWEEP_SECONDS, self._sweep)

    async def _connect(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client has left, or speaks no TLS
            connect = asyncio.get_running_loop().connect_accepted_socket
            await connect(self._connection, connection, **self._tls_options())

    async def _close_listeners(self) -> None:
        """The kernel would reset the connections that wait in their queues: accept them before."""
        listeners = (*self._listeners, *self._spares)
        queued = [connection for listener in listeners for connection in accept_all(listener)]
        self._spares = ()
        for server in self._servers:
            server.close()
        for listener in listeners:
            listener.close()
        connecting = {asyncio.create_task(self._connect(connection)) for connection in queued} | self._connecting
        if connecting:  # not for a client that is slow to shake hands
            await asyncio.wait(connecting, timeout=CANCEL_GRACE_SECONDS)

    async def _wait_for_connections(self) -> None:
        while (self.context.connections or self.context.tasks) and not self.is_forced:  # noqa: ASYNC110 - they end in many ways
            await asyncio.sleep(DRAIN_POLL_SECONDS)


def bind_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A bound socket that does not listen yet. With `reuse_port` several sockets share the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot bind to {host}:{port} ({error.strerror or error})") from error
    return listener


def address_of(listener: socket.socket) -> Address:
    return Address(*listener.getsockname()[:2])


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait to be accepted."""
    connections: list[socket.socket] = []
    with suppress(OSError):  # there are no more, or it is closed
        listener.setblocking(False)
        while len(connections) < BACKLOG:
            connections.append(listener.accept()[0])
    for connection in connections:
        connection.setblocking(False)
    return connections


def tls_context(cert: str | None, key: str | None, client_ca: str | None = None) -> ssl.SSLContext | None:
    """None: plain HTTP. With `client_ca` clients need a certificate that it has signed."""
    if cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(TLS_1_2_CIPHERS)
    try:
        # With a password, so that an encrypted key fails and does not ask the terminal for one.
        context.load_cert_chain(cert, key, password="")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        files = f"the certificate {cert} and the key {key}" + (f" with {client_ca}" if client_ca else "")
        raise Invalid(
            "tls_cert",
            f"{files} cannot be used ({error}); name PEM files that belong together, with a key that has no password",
        ) from error
    return context


@contextmanager
def on_signals(callback: Callable[[], None]) -> Iterator[None]:
    """Inside this context SIGTERM and SIGINT call back, and do nothing else."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, callback)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """On uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def collect_rarely() -> None:
    """For the garbage collector: everything loaded so far stays, and requests leave nearly no reference cycles."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def raise_open_files_limit() -> None:
    """Every connection is an open file, and the default soft limit is often low."""
    try:
        import resource
    except ImportError:
        return  # not a POSIX system
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
