"""Runs the service in one process on uvicorn: listener, event loop, signals, graceful shutdown."""

import asyncio
import gc
import os
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any

import uvicorn
from msgspec import DecodeError, Struct, json

from onejob.addresses import Address, is_loopback
from onejob.engine import Durability
from onejob.engines import is_multi_process, redact_password
from onejob.errors import Invalid
from onejob.ledger import Ledger, LedgerOpener
from onejob.ledger import open as open_ledger
from onejob.ledger.leases import orphaned_task_count
from onejob.logs import Log, log_durability_warning, log_loop_exception, log_security_warning, open_stderr_log
from onejob.runtime.rate_limit import RateLimiter
from onejob.server.connection import connection_class
from onejob.worker import App as WorkApp
from onejob.worker import Worker

from .app import HttpApp, Observe
from .config import WORKERS_MAX, ServiceConfig
from .leased_rates import adopt_prescribed_rates, leased_rate_limiter
from .origins import CorsMiddleware
from .responses import REPLAYED_HEADER, Response
from .routing import Route
from .services import running_services

BACKLOG = 2048
OPEN_FILES_WANTED = 65_536
CANCEL_GRACE_SECONDS = 1.0
PREPARATION_DRAIN_SHARE = 0.75
GC_THRESHOLDS = (20_000, 50, 100)
TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # TLS 1.3 has its own list, and older versions are off


class HttpServer(uvicorn.Server):
    """uvicorn with callbacks: when it is ready, and at the begin of the shutdown, to release waiting requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_ready: Callable[[], None],
        release_waiters: Callable[[], None],
        on_shutdown: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._release_waiters = release_waiters
        self._on_shutdown = on_shutdown
        self._shutdown_task: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._release_waiters()
        self._shutdown_task = asyncio.create_task(self._on_shutdown())
        await self._accept_queued_connections(sockets or [])
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled by uvicorn; each of them sends a 503
            await asyncio.wait(self.server_state.tasks, timeout=CANCEL_GRACE_SECONDS)
        if not self.force_exit:
            await asyncio.wait((self._shutdown_task,))

    async def _accept_queued_connections(self, listeners: list[socket.socket]) -> None:
        """Close the listeners. The kernel would reset the connections that wait in their queues: accept them before."""
        queued = [connection for listener in listeners for connection in accept_all(listener)]
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        connect = asyncio.get_running_loop().connect_accepted_socket
        connecting = (connect(self.build_connection, connection, ssl=self.config.ssl) for connection in queued)
        # A client may be gone already.
        await asyncio.gather(*connecting, return_exceptions=True)

    def build_connection(self) -> asyncio.Protocol:
        connection: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return connection

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Unlike that of uvicorn it does not raise the signal again: the exit code is 0. A second one ends the drain."""
        if self.should_exit:
            self.force_shutdown()
        self.should_exit = True

    def force_shutdown(self) -> None:
        self.force_exit = True
        if self._shutdown_task is not None:
            self._shutdown_task.get_loop().call_soon_threadsafe(self._shutdown_task.cancel)


async def serve(config: ServiceConfig, *, app: WorkApp | None = None, concurrency: int = 1) -> int:
    """Serve until a signal comes; returns how many handlers of the app did not stop."""
    check_listener_settings(config)
    log = open_stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        with bind_socket(config.host, config.port) as listener:
            async with open_service_ledger(config) as ledger, running_services(ledger, config):
                info = ledger.runtime.engine_info
                config = adopt_prescribed_rates(config, info)
                async with leased_rate_limiter(config, info) as limiter:
                    if app is None:
                        await _build_server(config, ledger, log, listener, limiter).serve(sockets=[listener])
                        return 0
                    drain = timedelta(seconds=config.drain_seconds_max)
                    worker = app.worker(ledger, concurrency=concurrency, drain=drain)
                    server = _build_server(config, ledger, log, listener, limiter, worker)
                    return await _serve_with_worker(worker, server, listener)
    finally:
        log.flush()


def open_service_ledger(config: ServiceConfig, *, sweep: bool = True) -> LedgerOpener:
    return open_ledger(config.engine, sweep=sweep, coalesce=True, tracing=config.tracing, **config.ledger_options())


def check_listener_settings(config: ServiceConfig) -> None:
    """Without authentication only loopback addresses are allowed; the files for TLS must be usable."""
    if config.tls_cert is not None:
        try:
            # With a password, so that an encrypted key fails and does not ask the terminal for one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_cert, config.tls_key, password="")
        except (OSError, ValueError) as error:
            raise Invalid(
                "tls_cert",
                f"the certificate {config.tls_cert} and the key {config.tls_key} cannot be used ({error}); "
                "name PEM files that belong together, with a key that has no password",
            ) from error
    if not config.auth and not is_loopback(config.host):
        raise Invalid(
            "host",
            f"authentication is off, so {config.host} would be open to everyone; bind to 127.0.0.1, or set auth = true",
        )


def security_warnings(config: ServiceConfig) -> list[str]:
    """What these settings leave open, each with what to do about it; logged at the start."""
    warnings = []
    if config.tls_cert is None and not is_loopback(config.host) and not config.trusted_proxies:
        warnings.append(
            f"plain HTTP on {config.host}: credentials and payloads can be read on the network; set tls_cert and tls_key, "
            "or put a proxy with TLS in front and name it in trusted_proxies"
        )
    missing = [f"jwt.{name}" for name in ("issuer", "audience") if config.jwt and getattr(config.jwt, name) is None]
    if missing:
        names = " and ".join(missing)
        warnings.append(
            f"{names} not set: tokens that the same issuer made for other services are accepted; set {names}"
        )
    return warnings


async def _serve_with_worker(worker: Worker, server: HttpServer, listener: socket.socket) -> int:
    """Serve and run jobs; the same signal stops both."""
    working = asyncio.create_task(worker.run())
    try:
        await server.serve(sockets=[listener])
    finally:
        worker.stop()
        if server.force_exit:
            working.cancel()
        await asyncio.wait((working,))
    return worker.running


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


def listener_url(listener: socket.socket, config: ServiceConfig) -> str:
    return Address(*listener.getsockname()[:2]).url(is_tls=config.tls_cert is not None)


def announce_ready(
    config: ServiceConfig, address: str, durability: Durability, *, workers: int = 1, durability_warning: str = ""
) -> None:
    """Print the one line on stdout; log what the settings leave open and what the durability does not cover."""
    print(ready_line(config, address, durability, workers), flush=True)
    for warning in security_warnings(config):
        log_security_warning(warning)
    if durability_warning:
        log_durability_warning(durability_warning)


def ready_line(config: ServiceConfig, address: str, durability: Durability, workers: int = 1) -> str:
    engine = redact_password(config.engine)
    if config.log_format == "json":
        fields = {"address": address, "engine": engine, "durability": durability}
        return json.encode(fields | ({"workers": workers} if workers > 1 else {})).decode()
    suffix = f", workers: {workers}" if workers > 1 else ""
    return f"onejob serves {engine} at {address} (durability: {durability}{suffix})"


def run(config: ServiceConfig, *, app: WorkApp | None = None, concurrency: int = 1) -> None:
    """Serve until a signal comes; with an app, run its jobs too."""
    raise_open_files_limit()
    if (workers := worker_count(config)) == 1:
        run_loop(serve(config, app=app, concurrency=concurrency))
        return
    if app is not None:
        raise Invalid("workers", "an app needs workers = 1; set that, or run its jobs with `onejob worker`")
    from .processes.supervisor import supervise  # it imports this module

    asyncio.run(supervise(config, workers))


def run_loop(main: Coroutine[Any, Any, int | None]) -> None:
    # Everything loaded so far stays, and requests leave nearly no reference cycles: collect rarely.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_run_and_exit(main))
    else:
        uvloop.run(_run_and_exit(main))


async def _run_and_exit(main: Coroutine[Any, Any, int | None]) -> None:
    if await main or orphaned_task_count():
        # Everything is closed and logged. Ending the loop would wait for tasks that ignore their cancellation.
        sys.stdout.flush()
        os._exit(0)


def worker_count(config: ServiceConfig) -> int:
    if config.workers != "auto":
        return config.workers
    if not is_multi_process(config.engine):
        return 1
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(cores, WORKERS_MAX)


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


def _build_server(
    config: ServiceConfig,
    ledger: Ledger,
    log: Log,
    listener: socket.socket,
    rate_limiter: RateLimiter | None = None,  # None: as the config says
    worker: Worker | None = None,
) -> HttpServer:
    def release_waiters() -> None:
        ledger.runtime.release_waiters()
        if worker is not None:
            worker.stop()

    def on_ready() -> None:
        announce_ready(
            config,
            listener_url(listener, config),
            ledger.durability,
            durability_warning=ledger.runtime_stats().durability_warning,
        )
        app.start_background_tasks()

    app = HttpApp(
        ledger,
        config=config,
        observe=observer(config, log),
        observe_failed_only=config.log_requests == "failed",
        rate_limiter=rate_limiter,
    )
    return HttpServer(
        uvicorn_config(config, app, log),
        on_ready=on_ready,
        release_waiters=release_waiters,
        on_shutdown=build_shutdown_callback(config, app),
    )


def build_shutdown_callback(config: ServiceConfig, app: HttpApp) -> Callable[[], Coroutine[Any, Any, None]]:
    """Stops preparations before the drain ends, so that waiting clients still get a response."""
    return lambda: app.preparations.shut_down(config.drain_seconds_max * PREPARATION_DRAIN_SHARE)


def observer(config: ServiceConfig, log: Log) -> Observe | None:
    def write_request(request_id: str, method: str, route: Route | None, response: Response, seconds: float) -> None:
        path = "-" if route is None else route.path
        log.write_request(request_id, method, path, response.status, seconds, outcome_label(response))

    return None if config.log_requests == "none" else write_request


class _ErrorMember(Struct):
    code: str


class _ProblemBody(Struct):
    error: _ErrorMember


def outcome_label(response: Response) -> str:
    """The outcome of a request: an outcome of receipts, or an error code in lower case."""
    if response.status >= 400:
        try:
            return json.decode(response.body, type=_ProblemBody).error.code.lower()
        except DecodeError:
            return "failed"
    if response.status == 202:
        return "replayed" if REPLAYED_HEADER in response.headers else "created"
    return "ok"


def uvicorn_config(config: ServiceConfig, app: HttpApp, log: Log) -> uvicorn.Config:
    def on_refused(request_id: str, status: int) -> None:
        if config.log_requests != "none":
            log.write_refusal(request_id, status)
        app.count_refusal(status)

    return uvicorn.Config(
        CorsMiddleware(app, config.cors_origins) if config.cors_origins else app,
        http=connection_class(config, on_refused),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        ssl_certfile=config.tls_cert,
        ssl_keyfile=config.tls_key,
        ssl_ciphers=TLS_1_2_CIPHERS,
        timeout_graceful_shutdown=config.drain_seconds_max,  # type: ignore[arg-type]  # fractions are fine
    )
