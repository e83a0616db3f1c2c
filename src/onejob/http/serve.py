"""Runs the service: checks its settings, opens its ledger, builds its server, says when it is ready."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from msgspec import DecodeError, Struct, json

from onejob.addresses import is_loopback
from onejob.engine import Durability
from onejob.engines import is_multi_process, redact_password
from onejob.errors import Invalid
from onejob.ids import SystemIds
from onejob.ledger import Ledger, LedgerOpener
from onejob.ledger import open as open_ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.leases import orphaned_task_count
from onejob.logs import (
    Log,
    log_durability_warning,
    log_loop_exception,
    log_security_warning,
    open_stderr_log,
)
from onejob.runtime.rate_limit import RateLimiter
from onejob.server.connection import ConnectionContext, ConnectionLimits
from onejob.server.exchange import RefusedRequest
from onejob.server.listener import (
    HttpServer,
    address_of,
    bind_socket,
    collect_rarely,
    on_signals,
    raise_open_files_limit,
    run_event_loop,
    tls_context,
)
from onejob.worker import App as WorkApp
from onejob.worker import Worker

from .app import HttpApp, Observe
from .config import WORKERS_MAX, ServiceConfig
from .leased_rates import adopt_prescribed_rates, leased_rate_limiter
from .origins import CorsMiddleware
from .problems import STORE_RETRY_AFTER_SECONDS, problem, unavailable_problem
from .request import is_retryable
from .responses import REPLAYED_HEADER, Response, encode_last_response, problem_response
from .routing import Route
from .services import running_services

PREPARATION_DRAIN_SHARE = 0.75


async def serve(config: ServiceConfig, *, app: WorkApp | None = None, concurrency: int = 1) -> int:
    """Serve until a signal comes; returns how many handlers of the app did not stop."""
    check_listener_settings(config)
    log = open_stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        with bind_socket(config.host, config.port) as listener:
            async with open_service_ledger(config) as ledger, running_services(ledger, config):
                info = runtime_of(ledger).engine_info
                config = adopt_prescribed_rates(config, info)
                async with leased_rate_limiter(config, info) as limiter:
                    if app is None:
                        await _serve(config, ledger, log, listener, limiter)
                        return 0
                    drain = timedelta(seconds=config.drain_seconds_max)
                    worker = app.worker(ledger, concurrency=concurrency, drain=drain)
                    return await _serve_with_worker(worker, _serve(config, ledger, log, listener, limiter, worker))
    finally:
        log.flush()


def open_service_ledger(config: ServiceConfig, *, sweep: bool = True) -> LedgerOpener:
    return open_ledger(config.engine, sweep=sweep, coalesce=True, tracing=config.tracing, **config.ledger_options())


def check_listener_settings(config: ServiceConfig) -> None:
    """Without authentication only loopback addresses are allowed; the files for TLS must be usable."""
    tls_context(config.tls_cert, config.tls_key)
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


async def _serve_with_worker(worker: Worker, serving: Coroutine[Any, Any, bool]) -> int:
    """Serve and run jobs; the same signal stops both."""
    working = asyncio.create_task(worker.run())
    is_forced = False
    try:
        is_forced = await serving
    finally:
        worker.stop()
        if is_forced:
            working.cancel()
        await asyncio.wait((working,))
    return worker.running


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
    from .worker_processes import supervise  # it imports this module

    asyncio.run(supervise(config, workers))


def run_loop(main: Coroutine[Any, Any, int | None]) -> None:
    collect_rarely()
    run_event_loop(_run_and_exit(main))


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


async def _serve(
    config: ServiceConfig,
    ledger: Ledger,
    log: Log,
    listener: socket.socket,
    rate_limiter: RateLimiter | None,  # None: as the config says
    worker: Worker | None = None,
) -> bool:
    """True: a second signal has ended the drain."""

    def release_waiters() -> None:
        runtime_of(ledger).release_waiters()
        if worker is not None:
            worker.stop()

    def on_ready() -> None:
        warning = ledger.admin.runtime_stats().durability_warning
        address = address_of(listener).url(is_tls=config.tls_cert is not None)
        announce_ready(config, address, ledger.durability, durability_warning=warning)
        app.start_background_tasks()

    app = build_app(config, ledger, log, rate_limiter)
    server = build_server(config, app, log, release_waiters)
    with on_signals(server.stop):
        await server.serve([listener], on_ready)
    return server.is_forced


def build_app(
    config: ServiceConfig, ledger: Ledger, log: Log, rate_limiter: RateLimiter | None, **options: Any
) -> HttpApp:
    return HttpApp(
        ledger,
        config=config,
        observe=observer(config, log),
        observe_failed_only=config.log_requests == "failed",
        rate_limiter=rate_limiter,
        **options,
    )


def build_server(
    config: ServiceConfig,
    app: HttpApp,
    log: Log,
    release_waiters: Callable[[], None],
    *,
    spares: Sequence[socket.socket] = (),
) -> HttpServer:
    # Preparations stop before the drain ends, so that waiting clients still get a response.
    preparation_seconds_max = config.drain_seconds_max * PREPARATION_DRAIN_SHARE
    return HttpServer(
        build_context(config, app, log),
        tls=tls_context(config.tls_cert, config.tls_key),
        drain_seconds_max=config.drain_seconds_max,
        spares=spares,
        release_waiters=release_waiters,
        on_shutdown=lambda: app.preparations.shut_down(preparation_seconds_max),
    )


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


def build_context(config: ServiceConfig, app: HttpApp, log: Log) -> ConnectionContext:
    """What connections need of the service: the application, limits, and how a refusal is rendered, counted and logged."""

    def refuse(refusal: RefusedRequest) -> bytes:
        request_id = SystemIds().request_id()
        if refusal.scope is not None:
            answer = unavailable_problem(refusal.message, retryable=is_retryable(refusal.scope))
        elif refusal.status == 503:
            answer = problem("SERVICE_UNAVAILABLE", refusal.message, STORE_RETRY_AFTER_SECONDS)
        else:
            answer = problem("BAD_REQUEST", refusal.message)._replace(status=refusal.status)
        if refusal.scope is None:
            if config.log_requests != "none":
                log.write_refusal(request_id, answer.status)
            app.count_refusal(answer.status)
        return encode_last_response(problem_response(answer, request_id), request_id)

    limits = ConnectionLimits(
        config.head_bytes_max, config.head_seconds_max, config.body_seconds_max, config.idle_seconds_max
    )
    return ConnectionContext(CorsMiddleware(app, config.cors_origins) if config.cors_origins else app, limits, refuse)
