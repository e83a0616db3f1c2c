"""The supervisor: opens the port, starts the server processes and restarts those that exit.

It serves no requests. It opens the store once before the workers do, so that an error is reported once and in one line.

- `open_listeners`: one listening socket per worker, all of them kept open by the supervisor.
- `ChildProcess`: a worker process and the messages to and from it.
- `HangDetector`: which worker has hung and must be killed.
- `RestartBackoff`: when an exited worker is restarted, and when to give up.
- `StatsAggregator`: collects and adds up the statistics of all workers.
- `Supervisor`: starts and stops the workers, and lets them take over the listeners of those that do not run.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from onejob.clock import SystemClock
from onejob.engine import Durability
from onejob.errors import Unavailable
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.metrics import MetricFamily, MetricSample
from onejob.http.serve import BACKLOG, announce_ready, bind_socket, check_listener_settings, listener_url
from onejob.ledger import open as open_ledger
from onejob.logs import log_loop_exception, open_stderr_log
from onejob.runtime import TenantCounts

from .messages import (
    Channel,
    ListenersRequest,
    ListenersSent,
    Ping,
    Shutdown,
    StatsReport,
    StatsRequest,
    TakeOverListeners,
    ToSupervisor,
    TotalsReply,
    TotalsRequest,
    WorkerConfig,
    WorkerDraining,
    WorkerReady,
    send_listeners,
)
from .shared_rates import open_buckets_file
from .stats import StatsTotals
from .worker import EXIT_GRACE_SECONDS

TICK_SECONDS = 1.0
UNRESPONSIVE_SECONDS = 4.0  # without a message, although there is a report every second: others take over
PING_AFTER_SECONDS = 8.0  # without a message
PONG_SECONDS_MAX = 2.0  # then it is killed: it may hold the lock of the store, for which all others wait
PAUSE_SECONDS_MIN = 1.0  # a tick that comes so late: the supervisor itself was stopped
EXIT_SECONDS_MAX = 5.0  # between the last message of a worker and its exit
KILL_GRACE_SECONDS = 1.0  # after the time that a worker has for its shutdown
STATS_ROUND_SECONDS_MAX: Final = 1.0  # then the last report of a silent worker counts
STABLE_UPTIME_SECONDS: Final = 5.0
BACKOFF_SECONDS_MIN: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 15.0
FAILED_STARTS_MAX: Final = 3  # of each worker, in a row, while none is ready

log = logging.getLogger("onejob.http")
_monotonic = SystemClock().monotonic


class ChildProcess:
    """A worker process. Made by `start`; it has exited when `wait_for_exit` returns."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        channel: Channel[ToSupervisor],
        listeners_socket: socket.socket,
    ) -> None:
        self.number = number
        self.channel = channel
        self._listeners_socket = listeners_socket
        self.ready = False
        self._process = process
        self._draining = False
        self._taken_over: tuple[int, ...] = ()
        self._started_at = self.last_message_at = _monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], worker_config: WorkerConfig) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        listeners_ours, listeners_theirs = socket.socketpair()
        channel: Channel[ToSupervisor] = await Channel.from_socket(ours, ToSupervisor)
        try:
            with theirs, listeners_theirs:
                inherited = [theirs.fileno(), listeners_theirs.fileno()]
                process = await asyncio.create_subprocess_exec(
                    *command,
                    *map(str, inherited),
                    f"worker={worker_config.number}",  # ignored; shown by ps
                    pass_fds=[*inherited, *([] if worker_config.rates_fd is None else [worker_config.rates_fd])],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                )
        except OSError:
            listeners_ours.close()
            await channel.close()
            raise
        channel.send(worker_config)
        return cls(worker_config.number, process, channel, listeners_ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_accepting(self) -> bool:
        return self.ready and not self._draining and _monotonic() - self.last_message_at < UNRESPONSIVE_SECONDS

    @property
    def uptime_seconds(self) -> float:
        return _monotonic() - self._started_at

    @property
    def exit_description(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    async def wait_for_exit(self, on_message: Callable[["ChildProcess", ToSupervisor], None]) -> None:
        """Handle all its messages, to the last one, until it has exited."""
        reading = asyncio.create_task(self._read_messages(on_message))
        exiting = asyncio.create_task(self._process.wait())
        # Whichever comes first, the other follows soon.
        await asyncio.wait((reading, exiting), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((reading, exiting), timeout=EXIT_SECONDS_MAX, return_when=asyncio.FIRST_EXCEPTION)
        self.kill()
        await exiting
        self._listeners_socket.close()
        await self.channel.close()
        if not reading.cancel():
            reading.result()

    def hand_over_listeners(self, listeners: Sequence[socket.socket]) -> None:
        try:
            send_listeners(self._listeners_socket, listeners)
        except OSError:
            return  # it has exited, which is noticed elsewhere
        self.channel.send(ListenersSent())

    def take_over_listeners(self, listener_indexes: tuple[int, ...]) -> None:
        if listener_indexes != self._taken_over:
            self._taken_over = listener_indexes
            self.channel.send(TakeOverListeners(listener_indexes))

    def shut_down(self, *, at_once: bool) -> None:
        if self.ready:
            self.channel.send(Shutdown(at_once))
        else:  # it has no requests yet
            self.kill()

    def ping(self) -> None:
        self.channel.send(Ping())

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _read_messages(self, on_message: Callable[["ChildProcess", ToSupervisor], None]) -> None:
        while (message := await self.channel.receive()) is not None:
            self.last_message_at = _monotonic()
            self.ready |= isinstance(message, WorkerReady)
            self._draining |= isinstance(message, WorkerDraining)
            on_message(self, message)


class Watched(Protocol):
    """What the hang detector needs of a worker process."""

    @property
    def ready(self) -> bool: ...

    @property
    def last_message_at(self) -> float: ...

    def ping(self) -> None: ...


W = TypeVar("W", bound=Watched)


class HangDetector(Generic[W]):
    """Finds the worker that has hung: it was silent for 10 seconds and did not answer a ping at the end of them.

    One at a time: what one worker holds may be the reason why others are silent, so when it is killed they get their time
    again. They also do when the supervisor itself was stopped: their messages may be waiting to be read. A worker that is
    starting is never found.
    """

    def __init__(self, now: float) -> None:
        self._last_tick_at = now
        self._counted_from = now  # silence before this does not count
        self._pinged: W | None = None
        self._pinged_at = now

    def tick(self, workers: Iterable[W], now: float) -> W | None:
        """The worker to kill. To be called every TICK_SECONDS."""
        late_seconds = now - self._last_tick_at - TICK_SECONDS
        self._last_tick_at = now
        if late_seconds >= PAUSE_SECONDS_MIN:
            self._start_over(now)
        silent = [worker for worker in workers if worker.ready]
        if self._pinged is not None:
            pinged = self._pinged
            if pinged not in silent or pinged.last_message_at >= self._pinged_at:
                self._pinged = None
            elif now - self._pinged_at >= PONG_SECONDS_MAX:
                self._start_over(now)
                return pinged
        elif silent:
            quietest = min(silent, key=lambda worker: worker.last_message_at)
            if now - max(quietest.last_message_at, self._counted_from) >= PING_AFTER_SECONDS:
                self._pinged, self._pinged_at = quietest, now
                quietest.ping()
        return None

    def _start_over(self, now: float) -> None:
        self._counted_from = now
        self._pinged = None


def worker_command() -> list[str]:
    """A worker imports modules from the current directory only if this process does."""
    imports_from_cwd = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if imports_from_cwd else ["-P"]), "-m", "onejob.http.processes.worker"]


class StatsAggregator:
    """Asks all workers for their statistics, in rounds. A round answers all requests that came before it began."""

    def __init__(self, live_children: Callable[[], Iterable[ChildProcess]]) -> None:
        self._live_children = live_children
        self._totals = StatsTotals()
        self._requests: list[tuple[ChildProcess, TotalsRequest]] = []
        self._round = 0
        self._unreported: set[ChildProcess] = set()
        self._all_reported = asyncio.Event()
        self._tenants: dict[str, list[TenantCounts]] = {}
        self._rounds_task: asyncio.Task[None] | None = None
        self.restarts = 0

    def add_request(self, child: ChildProcess, request: TotalsRequest) -> None:
        self._requests.append((child, request))
        if self._rounds_task is None or self._rounds_task.done():
            self._rounds_task = asyncio.create_task(self._run_rounds())

    def add_report(self, child: ChildProcess, report: StatsReport) -> None:
        self._totals.update(child, replace(report.stats, tenants={}))
        if report.round == self._round and child in self._unreported:
            for tenant, counts in report.stats.tenants.items():
                self._tenants.setdefault(tenant, []).append(counts)
            self._mark_reported(child)

    def remove_child(self, child: ChildProcess) -> None:
        self._totals.retire(child)
        self._mark_reported(child)

    def _mark_reported(self, child: ChildProcess) -> None:
        self._unreported.discard(child)
        if not self._unreported:
            self._all_reported.set()

    async def _run_rounds(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            self._round += 1
            self._tenants = {}
            tenants = tuple({tenant for _, request in requests for tenant in request.tenants})
            # A worker that has not read the last request gets no other one.
            self._unreported = {child for child in self._live_children() if child.ready and child.channel.is_idle}
            self._all_reported.clear()
            for child in self._unreported:
                child.channel.send(StatsRequest(self._round, tenants))
            try:
                async with asyncio.timeout(STATS_ROUND_SECONDS_MAX):
                    await self._all_reported.wait()
            except TimeoutError:
                self._unreported = set()
            self._reply(requests)

    def _reply(self, requests: list[tuple[ChildProcess, TotalsRequest]]) -> None:
        total = self._totals.total()
        assert total is not None, "every worker reports before it asks"
        families = [*total.families, *self._supervisor_families()]
        for child, request in requests:
            by_tenant = {tenant: _sum_counts(self._tenants.get(tenant, [])) for tenant in request.tenants}
            child.channel.send(TotalsReply(replace(total, families=families, tenants=by_tenant)))

    def _supervisor_families(self) -> list[MetricFamily]:
        accepting = MetricSample(
            "onejob_workers", {}, float(sum(child.is_accepting for child in self._live_children()))
        )
        restarts = MetricSample("onejob_worker_restarts_total", {}, float(self.restarts))
        return [
            MetricFamily("onejob_workers", "Server processes that accept connections", "gauge", [accepting]),
            MetricFamily("onejob_worker_restarts", "Restarts of server processes", "counter", [restarts]),
        ]


def _sum_counts(counts: list[TenantCounts]) -> TenantCounts:
    outcomes: Counter[str] = Counter()
    for one in counts:
        outcomes.update(one.outcomes)
    return TenantCounts(dict(outcomes), sum(one.waiting for one in counts))


class RestartBackoff:
    """A worker is restarted at once, unless it keeps exiting soon after its start."""

    def __init__(self, workers: int) -> None:
        self._early_exits = dict.fromkeys(range(1, workers + 1), 0)  # in a row
        self._failed_starts = 0  # of all workers, since one was last ready

    def reset_failed_starts(self) -> None:
        self._failed_starts = 0

    def next_delay(self, number: int, *, uptime_seconds: float, ready: bool) -> float:
        """How many seconds to wait before the worker is restarted."""
        self._failed_starts += not ready
        if ready and uptime_seconds >= STABLE_UPTIME_SECONDS:
            self._early_exits[number] = 0
        exits = self._early_exits[number]
        self._early_exits[number] += 1
        return min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** (exits - 1)) if exits else 0.0

    @property
    def should_give_up(self) -> bool:
        return self._failed_starts >= FAILED_STARTS_MAX * len(self._early_exits)


@contextmanager
def open_listeners(host: str, port: int, count: int) -> Iterator[Sequence[socket.socket]]:
    """One listening socket per worker, on the same port.

    The kernel spreads connections evenly over sockets with SO_REUSEPORT. From one shared socket the workers would
    accept as they happen to wake up, up to all connections by one of them. The supervisor keeps every socket open, so
    connections that arrive while a worker does not run are queued for the worker that takes over, and not refused.
    """
    # A socket without SO_REUSEPORT fails if another process has the port; one with it would silently share the port.
    with bind_socket(host, port) as exclusive:
        exclusive.listen()
        port = exclusive.getsockname()[1]
    # Other systems have the option, but do not spread connections.
    spread = sys.platform == "linux"
    listeners: list[socket.socket] = []
    try:
        for _ in range(count if spread else 1):
            listeners.append(bind_socket(host, port, reuse_port=spread))  # noqa: PERF401 - all are closed on errors
        for listener in listeners:
            listener.listen(BACKLOG)
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


async def supervise(config: ServiceConfig, workers: int) -> None:
    """Serve with this many workers until a signal comes."""
    check_listener_settings(config)
    stderr_log = open_stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        with ExitStack() as stack:
            listeners = stack.enter_context(open_listeners(config.host, config.port, workers))
            async with open_ledger(config.engine, sweep=False) as ledger:
                HttpApp(ledger, config=config)  # fails if the workers would fail with these settings
                durability, warning = ledger.durability, ledger.runtime_stats().durability_warning
            buckets = None if config.rate_per_second is None else stack.enter_context(open_buckets_file())
            rates_fd = None if buckets is None else buckets.fileno()
            await Supervisor(config, workers, listeners, rates_fd, durability, warning).run()
    finally:
        stderr_log.flush()


class Supervisor:
    def __init__(
        self,
        config: ServiceConfig,
        workers: int,
        listeners: Sequence[socket.socket],
        rates_fd: int | None,
        durability: Durability,
        durability_warning: str = "",
        *,
        command: Sequence[str] | None = None,
    ) -> None:
        self._config = config
        self._workers = workers
        self._listeners = listeners
        self._rates_fd = rates_fd
        self._durability = durability
        self._durability_warning = durability_warning
        self._command = command or worker_command()
        self._address = listener_url(listeners[0], config)
        self._started_at = SystemClock().monotonic()
        self._children: dict[int, ChildProcess] = {}
        self._restart_backoff = RestartBackoff(workers)
        self._stats_aggregator = StatsAggregator(self._children.values)
        self._stopping = asyncio.Event()
        self._ready_announced = False
        self._gave_up = False

    async def run(self) -> None:
        """Returns when all workers have left; raises when none could be started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch_workers())
                tending = [
                    group.create_task(self._keep_worker_running(number)) for number in range(1, self._workers + 1)
                ]
                await asyncio.wait(tending)
                watching.cancel()
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            for child in self._children.values():
                child.kill()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._gave_up:
            raise Unavailable("no worker could be started; see the log for the reason")

    def stop(self) -> None:
        """Shut all workers down; the second call ends the drain."""
        at_once = self._stopping.is_set()
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        for child in self._children.values():
            child.shut_down(at_once=at_once)
        seconds = EXIT_GRACE_SECONDS + KILL_GRACE_SECONDS + (0 if at_once else self._config.drain_seconds_max)
        asyncio.get_running_loop().call_later(seconds, self._kill_all)

    async def _keep_worker_running(self, number: int) -> None:
        """Start the worker, and start it again when it has exited."""
        while not self._stopping.is_set():
            try:
                child = await ChildProcess.start(self._command, self._worker_config(number))
            except OSError as error:
                await self._wait_before_restart(number, f"cannot be started ({error})")
                continue
            self._children[number] = child
            if self._stopping.is_set():  # `stop` did not find this child
                child.kill()
            await child.wait_for_exit(self._on_message)
            del self._children[number]
            self._stats_aggregator.remove_child(child)
            if not self._stopping.is_set():
                reason = f"(process {child.pid}) {child.exit_description}"
                await self._wait_before_restart(number, reason, uptime_seconds=child.uptime_seconds, ready=child.ready)

    async def _wait_before_restart(
        self, number: int, reason: str, *, uptime_seconds: float = 0.0, ready: bool = False
    ) -> None:
        seconds = self._restart_backoff.next_delay(number, uptime_seconds=uptime_seconds, ready=ready)
        self._reassign_listeners()
        if self._restart_backoff.should_give_up and not any(other.ready for other in self._children.values()):
            self._gave_up = True
            log.error("worker %d %s; no worker could be started, giving up", number, reason)
            self.stop()
            return
        when = f"in {seconds:g} s" if seconds else "now"
        log.warning("worker %d %s; restarting it %s", number, reason, when)
        self._stats_aggregator.restarts += 1
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _worker_config(self, number: int) -> WorkerConfig:
        return WorkerConfig(
            self._config,
            number,
            self._workers,
            self._started_at,
            len(self._listeners),
            self._rates_fd,
        )

    def _on_message(self, child: ChildProcess, message: ToSupervisor) -> None:
        match message:
            case StatsReport():
                self._stats_aggregator.add_report(child, message)
            case TotalsRequest():
                self._stats_aggregator.add_request(child, message)
            case ListenersRequest() if not self._stopping.is_set():
                child.hand_over_listeners(self._listeners)
            case WorkerReady():
                self._restart_backoff.reset_failed_starts()
                self._announce_if_all_ready()
        if not isinstance(message, StatsReport):
            self._reassign_listeners()

    def _announce_if_all_ready(self) -> None:
        ready = [child for child in self._children.values() if child.ready]
        if len(ready) == self._workers and not self._ready_announced:
            self._ready_announced = True
            announce_ready(
                self._config,
                self._address,
                self._durability,
                workers=self._workers,
                durability_warning=self._durability_warning,
            )

    async def _watch_workers(self) -> None:
        hang_detector = HangDetector[ChildProcess](_monotonic())
        while True:
            await asyncio.sleep(TICK_SECONDS)
            hung = hang_detector.tick(self._children.values(), _monotonic())
            if hung is not None:
                seconds = _monotonic() - hung.last_message_at
                log.error(
                    "worker %d (process %d) has been silent for %.0f s; killing it", hung.number, hung.pid, seconds
                )
                hung.kill()
            self._reassign_listeners()

    def _reassign_listeners(self) -> None:
        """Let the next worker in the ring take over the listener of each that does not accept."""
        if self._stopping.is_set() or len(self._listeners) < self._workers:
            return
        accepting = [number for number, child in sorted(self._children.items()) if child.is_accepting]
        taken_over: dict[int, list[int]] = {number: [] for number in accepting}
        for number in range(1, self._workers + 1):
            if accepting and number not in taken_over:
                substitute = next((other for other in accepting if other > number), accepting[0])
                taken_over[substitute].append(number - 1)
        for number, listener_indexes in taken_over.items():
            self._children[number].take_over_listeners(tuple(listener_indexes))

    def _kill_all(self) -> None:
        for child in self._children.values():
            log.warning("worker %d (process %d) did not exit in time; killing it", child.number, child.pid)
            child.kill()
