"""Serves with several processes on one port: what the supervisor starts, and what each of them serves."""

import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial

from msgspec import msgpack
from msgspec.structs import replace

from onejob.errors import OnejobError
from onejob.ledger import Ledger
from onejob.ledger import open as open_ledger
from onejob.ledger.base import runtime_of
from onejob.logs import Log, log_loop_exception, open_stderr_log, redacted_traceback
from onejob.runtime.rate_limit import RateLimiter
from onejob.server.listener import address_of
from onejob.server.workers import EXIT_GRACE_SECONDS, Supervisor, SupervisorLink, WorkerStart, open_listeners

from .app import HttpApp
from .config import ServiceConfig
from .leased_rates import adopt_prescribed_rates, leased_rate_limiter
from .serve import announce_ready, build_app, build_server, check_listener_settings, open_service_ledger, run_loop
from .services import running_services
from .stats import ServiceStats

# What a worker process runs; shown by ps.
WORKER_CODE = "from onejob.http.worker_processes import run_worker; run_worker()"

logger = logging.getLogger("onejob.http")


async def supervise(config: ServiceConfig, workers: int) -> None:
    """Serve with this many processes until a signal comes."""
    check_listener_settings(config)
    log = open_stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        with open_listeners(config.host, config.port, workers) as listeners:
            async with open_ledger(config.engine, sweep=False) as ledger:
                HttpApp(ledger, config=config)  # fails if the workers would fail with these settings
                durability, warning = ledger.durability, ledger.admin.runtime_stats().durability_warning
            address = address_of(listeners[0]).url(is_tls=config.tls_cert is not None)
            await Supervisor(
                worker_command(),
                msgpack.encode(config),
                workers,
                listeners,
                drain_seconds_max=config.drain_seconds_max,
                on_ready=partial(
                    announce_ready, config, address, durability, workers=workers, durability_warning=warning
                ),
            ).run()
    finally:
        log.flush()


def worker_command() -> list[str]:
    """A worker imports modules from the current directory only if this process does."""
    imports_from_cwd = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if imports_from_cwd else ["-P"]), "-c", WORKER_CODE]


def run_worker() -> None:
    """One of the processes of a service; it was started by its supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals all processes; the supervisor says what to do
    run_loop(_serve_as_worker())


async def _serve_as_worker() -> None:
    opened = await SupervisorLink.open()
    if opened is None:
        return
    link, start = opened
    config = msgpack.decode(start.settings, type=ServiceConfig)
    log = open_stderr_log(config.log_format, worker=start.number)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        async with open_service_ledger(config, sweep=False) as ledger:
            runtime_of(ledger).start_maintenance(process_index=start.number - 1, process_count=start.workers)
            info = runtime_of(ledger).engine_info
            leased = leased_rate_limiter(config, info)
            config = adopt_prescribed_rates(share_of_rates(config, start), info)
            async with running_services(ledger, config), leased as limiter:
                if listeners := await link.receive_listeners(start.listeners):
                    await _serve_beside_others(config, ledger, log, limiter, link, start, listeners)
    except OnejobError as error:
        logger.error("server process failed: %s", error)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - it is logged, and the supervisor sees the exit code
        logger.error("server process failed: %s", redacted_traceback(error))
        sys.exit(1)
    finally:
        log.flush()


async def _serve_beside_others(
    config: ServiceConfig,
    ledger: Ledger,
    log: Log,
    limiter: RateLimiter | None,
    link: SupervisorLink,
    start: WorkerStart,
    listeners: list[socket.socket],
) -> None:
    def shut_down(at_once: bool) -> None:
        # SIGALRM ends the process even if the event loop is blocked.
        signal.setitimer(signal.ITIMER_REAL, EXIT_GRACE_SECONDS + (0 if at_once else config.drain_seconds_max))
        if at_once:
            server.stop()
        server.stop()

    def on_ready() -> None:
        app.start_background_tasks()
        link.start(lambda tenants: stats.report(app.collect_stats(tenants)), shut_down)

    stats = ServiceStats(link, start.earlier)
    app = build_app(config, ledger, log, limiter, stats_source=stats, started_at=start.started_at)

    def release_waiters() -> None:
        link.note_draining()
        runtime_of(ledger).release_waiters()

    own = listeners.pop((start.number - 1) % len(listeners))
    server = build_server(config, app, log, release_waiters, spares=listeners)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop_once)
    await server.serve([own], on_ready)
    await link.aclose()


def share_of_rates(config: ServiceConfig, start: WorkerStart) -> ServiceConfig:
    """The part of a credential's rate that one of several processes grants; all parts together are the whole."""
    if config.rate_per_second is None:
        return config
    burst = max(1, (config.rate_burst + start.number - 1) // start.workers)
    return replace(config, rate_per_second=config.rate_per_second / start.workers, rate_burst=burst)
