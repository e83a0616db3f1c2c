"""One of several processes that serve a port: `python -m onejob.http.processes.worker`, started by the supervisor alone.

It leaves when the supervisor says so, when a signal does, and when the supervisor is gone: then nobody would
start it again, and the port must become free for whoever comes next.
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
from onejob.http.callbacks import callback_delivery
from onejob.http.config import ServiceConfig
from onejob.http.logs import Log, log_loop_exception, open_stderr_log, redacted_traceback
from onejob.http.serve import (
    BACKLOG,
    CANCEL_GRACE_SECONDS,
    HttpServer,
    build_shutdown_callback,
    observer,
    run_loop,
    uvicorn_config,
)
from onejob.http.stats import StatsSnapshot
from onejob.ledger import Ledger
from onejob.ledger.opening import open as open_ledger

from .messages import (
    Channel,
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
)
from .shared_rates import SharedRateLimiter

REPORT_INTERVAL_SECONDS = 1.0
TOTALS_SECONDS_MAX = 3.0  # the supervisor's
# After the drain: for last words, for hits that are written down, for the store to be closed.
EXIT_GRACE_SECONDS = CANCEL_GRACE_SECONDS + 4.0

PendingTotals = dict[asyncio.Future[StatsSnapshot], str]

log = logging.getLogger("onejob.http")


class PeerStats:
    """What all workers counted, as the supervisor adds it up. Asked once at a time, for all who want to know."""

    def __init__(self, channel: Channel[ToWorker]) -> None:
        self._channel = channel
        self._in_flight: PendingTotals = {}
        self._queued: PendingTotals = {}

    async def collect_stats(self, tenant: str) -> StatsSnapshot:
        answer: asyncio.Future[StatsSnapshot] = asyncio.get_running_loop().create_future()
        self._queued[answer] = tenant
        if not self._in_flight:
            self._request_totals()
        try:
            async with asyncio.timeout(TOTALS_SECONDS_MAX):
                return await answer
        except TimeoutError:
            raise Unavailable("the supervisor did not answer; repeat") from None
        finally:
            self._queued.pop(answer, None)

    def on_totals(self, reply: TotalsReply) -> None:
        for answer in self._in_flight:
            if not answer.done():
                answer.set_result(reply.stats)
        self._request_totals()

    def _request_totals(self) -> None:
        self._in_flight, self._queued = self._queued, {}
        if self._in_flight:
            self._channel.send(TotalsRequest(tuple(set(self._in_flight.values()))))


class WorkerServer(HttpServer):
    """A server that stands in for others, and is told when to leave."""

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
        """Accept from the listeners of these numbers besides our own."""
        listener_indexes = set() if self.should_exit else set(listener_indexes)
        for number in self._taken_over.keys() - listener_indexes:
            self._taken_over.pop(number).close()
        for number in listener_indexes - self._taken_over.keys():
            listener = self._listeners[number].dup()  # closing it must not close the one we keep
            self._taken_over[number] = await asyncio.get_running_loop().create_server(
                self._build_connection, sock=listener, backlog=BACKLOG
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_draining()
        await self.take_over_listeners(())
        await super().shutdown(self._listeners)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal may come from a terminal or an init that tells all processes, and again from the supervisor."""
        self.should_exit = True

    def _build_connection(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


class ServerProcess:
    def __init__(self, worker_config: WorkerConfig, channel: Channel[ToWorker], ledger: Ledger, log: Log) -> None:
        config = worker_config.config
        self._channel = channel
        self._drain_seconds = config.drain_seconds_max
        self._peer_stats = PeerStats(channel)
        self._app = HttpApp(
            ledger,
            config=config,
            observe=observer(config, log),
            stats_source=self._peer_stats,
            rate_limiter=_build_shared_rate_limiter(config, worker_config.rates_fd),
            started_at=worker_config.started_at,
        )
        self._listeners = [socket.socket(fileno=fd) for fd in worker_config.listener_fds]
        self._own_listener = self._listeners[(worker_config.number - 1) % len(self._listeners)]
        self._server = WorkerServer(
            uvicorn_config(config, self._app, log),
            self._listeners,
            on_ready=self._on_ready,
            release_waiters=ledger.runtime.release_waiters,
            on_shutdown=build_shutdown_callback(config, self._app),
            on_draining=lambda: channel.send(WorkerDraining()),
        )

    async def run(self) -> None:
        duties = [
            asyncio.create_task(self._read_messages()),
            asyncio.create_task(self._report_periodically()),
        ]
        try:
            await self._server.serve(sockets=[self._own_listener])
        finally:
            for duty in duties:
                duty.cancel()
        # What was counted to the last is not lost.
        self._channel.send(StatsReport(0, self._app.collect_stats(())))

    def _on_ready(self) -> None:
        self._channel.send(WorkerReady())
        # So that the sums have something of ours before we ask for them.
        self._channel.send(StatsReport(0, self._app.collect_stats(())))

    async def _read_messages(self) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case StatsRequest(round, tenants):
                    self._channel.send(StatsReport(round, self._app.collect_stats(tenants)))
                case TotalsReply():
                    self._peer_stats.on_totals(message)
                case TakeOverListeners(listeners):
                    await self._server.take_over_listeners(listeners)
                case Shutdown(at_once):
                    self._shut_down(at_once)
        self._shut_down(at_once=False)

    async def _report_periodically(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)
            if self._channel.is_idle:
                self._channel.send(StatsReport(0, self._app.collect_stats(())))

    def _shut_down(self, at_once: bool) -> None:
        # By the kernel, for whatever holds us up may hold up all that is ours.
        signal.setitimer(signal.ITIMER_REAL, EXIT_GRACE_SECONDS + (0 if at_once else self._drain_seconds))
        if at_once:
            self._server.force_shutdown()
        self._server.should_exit = True


async def run_server_process(channel_socket: socket.socket) -> None:
    """Serve as the supervisor says, until it says otherwise."""
    channel: Channel[ToWorker] = await Channel.from_socket(channel_socket, ToWorker)
    brief = await channel.receive()
    if not isinstance(brief, WorkerConfig):
        return  # the supervisor is gone already
    written = open_stderr_log(brief.config.log_format, worker=brief.number)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        async with open_ledger(brief.config.engine, sweep=False, coalesce=True) as ledger:
            ledger.runtime.start_maintenance(process_index=brief.number - 1, process_count=brief.workers)
            async with callback_delivery(ledger, brief.config):
                await ServerProcess(brief, channel, ledger, written).run()
        await channel.close()
    except OnejobError as error:
        log.error("it cannot serve: %s", error)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the log is told, and the supervisor by our end
        log.error("it cannot serve: %s", redacted_traceback(error))
        sys.exit(1)
    finally:
        written.flush()


def _build_shared_rate_limiter(config: ServiceConfig, fd: int | None) -> SharedRateLimiter | None:
    if config.rate_per_second is None or fd is None:
        return None
    monotonic = SystemClock().monotonic
    return SharedRateLimiter(fd, per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is a server, the supervisor decides
    run_loop(run_server_process(socket.socket(fileno=int(sys.argv[1]))))
