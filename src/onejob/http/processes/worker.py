"""One of several server processes that share a port, started by the supervisor.

It is run as `python -m onejob.http.processes.worker`. It shuts down when the supervisor says so, on a signal, and when
the supervisor has exited: then nothing would restart it, and the port must become free. Therefore it gets the listeners
only when it is about to accept, and from then on it notices at once that the supervisor has exited.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable
from types import FrameType
from typing import Any

import uvicorn

from onejob.clock import SystemClock
from onejob.errors import OnejobError, Unavailable
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.leased_rates import adopt_prescribed_rates, leased_rate_limiter
from onejob.http.serve import (
    BACKLOG,
    CANCEL_GRACE_SECONDS,
    HttpServer,
    build_shutdown_callback,
    observer,
    open_service_ledger,
    run_loop,
    uvicorn_config,
)
from onejob.http.services import running_services
from onejob.http.stats import StatsSnapshot
from onejob.ledger import Ledger
from onejob.logs import Log, log_loop_exception, open_stderr_log, redacted_traceback
from onejob.runtime.rate_limit import RateLimiter

from .messages import (
    Channel,
    ListenersRequest,
    ListenersSent,
    Ping,
    Pong,
    Shutdown,
    StatsReport,
    StatsRequest,
    TakeOverListeners,
    TotalsReply,
    TotalsRequest,
    ToWorker,
    WorkerConfig,
    WorkerDraining,
    WorkerReady,
    receive_listeners,
)
from .shared_rates import SharedRateLimiter

REPORT_INTERVAL_SECONDS = 1.0
TOTALS_SECONDS_MAX = 3.0
# After the drain: for cancelled requests, for the cache hits that are yet to be stored, for closing the store.
EXIT_GRACE_SECONDS = CANCEL_GRACE_SECONDS + 4.0

PendingTotals = dict[asyncio.Future[StatsSnapshot], str]

log = logging.getLogger("onejob.http")


class PeerStats:
    """The sums of all workers, from the supervisor. Requests that come meanwhile share the next round trip."""

    def __init__(self, channel: Channel[ToWorker]) -> None:
        self._channel = channel
        self._in_flight: PendingTotals = {}
        self._queued: PendingTotals = {}

    async def collect_stats(self, tenant: str) -> StatsSnapshot:
        future: asyncio.Future[StatsSnapshot] = asyncio.get_running_loop().create_future()
        self._queued[future] = tenant
        if not self._in_flight:
            self._request_totals()
        try:
            async with asyncio.timeout(TOTALS_SECONDS_MAX):
                return await future
        except TimeoutError:
            raise Unavailable("the supervisor did not answer; retry") from None
        finally:
            self._queued.pop(future, None)

    def on_totals(self, reply: TotalsReply) -> None:
        for future in self._in_flight:
            if not future.done():
                future.set_result(reply.stats)
        self._request_totals()

    def _request_totals(self) -> None:
        self._in_flight, self._queued = self._queued, {}
        if self._in_flight:
            self._channel.send(TotalsRequest(tuple(set(self._in_flight.values()))))


class WorkerServer(HttpServer):
    """A server that can also accept from the listeners of workers that do not run."""

    def __init__(
        self,
        config: uvicorn.Config,
        listeners: list[socket.socket],
        *,
        on_ready: Callable[[], None],
        release_waiters: Callable[[], None],
        on_shutdown: Callable[[], Coroutine[Any, Any, None]],
        on_draining: Callable[[], None],
    ) -> None:
        super().__init__(config, on_ready=on_ready, release_waiters=release_waiters, on_shutdown=on_shutdown)
        self._listeners = listeners
        self._on_draining = on_draining
        self._taken_over: dict[int, asyncio.base_events.Server] = {}

    async def take_over_listeners(self, listener_indexes: Iterable[int]) -> None:
        """Accept from these listeners besides our own, and no longer from others."""
        listener_indexes = set() if self.should_exit else set(listener_indexes)
        for index in self._taken_over.keys() - listener_indexes:
            self._taken_over.pop(index).close()
        for index in listener_indexes - self._taken_over.keys():
            listener = self._listeners[index].dup()  # closing the server closes only the duplicate
            self._taken_over[index] = await asyncio.get_running_loop().create_server(
                self.build_connection, sock=listener, backlog=BACKLOG, ssl=self.config.ssl
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_draining()
        await self.take_over_listeners(())
        await super().shutdown(self._listeners)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A terminal or an init signals all processes of a group; the supervisor ends the drain, not a second signal."""
        self.should_exit = True


class ServerProcess:
    def __init__(
        self,
        worker_config: WorkerConfig,
        channel: Channel[ToWorker],
        listeners: list[socket.socket],
        ledger: Ledger,
        log: Log,
        rate_limiter: RateLimiter | None,
    ) -> None:
        config = adopt_prescribed_rates(worker_config.config, ledger.runtime.engine_info)
        self._channel = channel
        self._drain_seconds = config.drain_seconds_max
        self._peer_stats = PeerStats(channel)
        self._app = HttpApp(
            ledger,
            config=config,
            observe=observer(config, log),
            observe_failed_only=config.log_requests == "failed",
            stats_source=self._peer_stats,
            rate_limiter=rate_limiter or _build_shared_rate_limiter(config, worker_config.rates_fd),
            started_at=worker_config.started_at,
        )
        self._own_listener = listeners[(worker_config.number - 1) % len(listeners)]
        self._server = WorkerServer(
            uvicorn_config(config, self._app, log),
            listeners,
            on_ready=self._on_ready,
            release_waiters=ledger.runtime.release_waiters,
            on_shutdown=build_shutdown_callback(config, self._app),
            on_draining=lambda: channel.send(WorkerDraining()),
        )

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._read_messages()), asyncio.create_task(self._report_periodically())]
        try:
            await self._server.serve(sockets=[self._own_listener])
        finally:
            for task in tasks:
                task.cancel()
        self._report()

    def _report(self) -> None:
        self._channel.send(StatsReport(0, self._app.collect_stats(())))

    def _on_ready(self) -> None:
        self._app.start_background_tasks()
        self._channel.send(WorkerReady())
        self._report()  # the supervisor needs a report before it can answer a TotalsRequest

    async def _read_messages(self) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case StatsRequest(round, tenants):
                    self._channel.send(StatsReport(round, self._app.collect_stats(tenants)))
                case TotalsReply():
                    self._peer_stats.on_totals(message)
                case TakeOverListeners(listeners):
                    await self._server.take_over_listeners(listeners)
                case Ping():
                    self._channel.send(Pong())
                case Shutdown(at_once):
                    self._shut_down(at_once)
        self._shut_down(at_once=False)

    async def _report_periodically(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)
            if self._channel.is_idle:
                self._report()

    def _shut_down(self, at_once: bool) -> None:
        # SIGALRM ends the process even if the event loop is blocked.
        signal.setitimer(signal.ITIMER_REAL, EXIT_GRACE_SECONDS + (0 if at_once else self._drain_seconds))
        if at_once:
            self._server.force_shutdown()
        self._server.should_exit = True


async def request_listeners(
    channel: Channel[ToWorker], listeners_socket: socket.socket, count: int
) -> list[socket.socket]:
    """The sockets to accept from; none if the supervisor has exited."""
    channel.send(ListenersRequest())
    if not isinstance(await channel.receive(), ListenersSent):
        return []
    listeners = receive_listeners(listeners_socket, count)  # they are there: this does not block
    return listeners if len(listeners) == count else []


async def run_server_process(channel_socket: socket.socket, listeners_socket: socket.socket) -> None:
    """Serve until the supervisor says otherwise."""
    channel: Channel[ToWorker] = await Channel.from_socket(channel_socket, ToWorker)
    worker_config = await channel.receive()
    if not isinstance(worker_config, WorkerConfig):
        return  # the supervisor has exited already
    config, number = worker_config.config, worker_config.number
    stderr_log = open_stderr_log(config.log_format, worker=number)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        async with open_service_ledger(config, sweep=False) as ledger:
            ledger.runtime.start_maintenance(process_index=number - 1, process_count=worker_config.workers)
            leased = leased_rate_limiter(config, ledger.runtime.engine_info)
            async with running_services(ledger, config), leased as limiter:
                if listeners := await request_listeners(channel, listeners_socket, worker_config.listener_count):
                    await ServerProcess(worker_config, channel, listeners, ledger, stderr_log, limiter).run()
        await channel.close()
    except OnejobError as error:
        log.error("server process failed: %s", error)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - it is logged, and the supervisor sees the exit code
        log.error("server process failed: %s", redacted_traceback(error))
        sys.exit(1)
    finally:
        stderr_log.flush()


def _build_shared_rate_limiter(config: ServiceConfig, fd: int | None) -> SharedRateLimiter | None:
    if config.rate_per_second is None or fd is None:
        return None
    monotonic = SystemClock().monotonic
    return SharedRateLimiter(fd, per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the server handles it
    run_loop(run_server_process(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])))
