"""The process that has the port, starts the workers and keeps their number. It serves nobody itself.

It opens the store once before the workers do, so that whatever is wrong with it is said once and in one line.
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
from typing import Final

from msgspec.structs import replace

from onejob.clock import SystemClock
from onejob.engine import Durability
from onejob.errors import Unavailable
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.logs import log_loop_exception, open_stderr_log
from onejob.http.metrics import MetricFamily, MetricSample
from onejob.http.serve import BACKLOG, announce_ready, bind_socket, check_bind_address, listener_url
from onejob.ledger.opening import open as open_ledger
from onejob.ledger.runtime import TenantCounts

from .messages import (
    Channel,
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
)
from .shared_rates import open_buckets_file
from .stats import StatsTotals
from .worker import EXIT_GRACE_SECONDS

# A worker, as the supervisor sees it: a process, and what is said between the two.


UNRESPONSIVE_SECONDS = 4.0  # without a word, although there is one every second: others stand in
EXIT_SECONDS_MAX = 5.0  # between the last word of a worker and its end

_monotonic = SystemClock().monotonic


class ChildProcess:
    """Made by `start`; lives until `ended` returns."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel[ToSupervisor]) -> None:
        self.number = number
        self.channel = channel
        self.ready = False
        self._process = process
        self._draining = False
        self._taken_over: tuple[int, ...] = ()
        self._started_at = self._last_message_at = _monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], worker_config: WorkerConfig) -> "ChildProcess":
        ours, theirs = socket.socketpair()
        channel: Channel[ToSupervisor] = await Channel.from_socket(ours, ToSupervisor)
        try:
            with theirs:
                passed = [
                    theirs.fileno(),
                    *worker_config.listener_fds,
                    *([] if worker_config.rates_fd is None else [worker_config.rates_fd]),
                ]
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    f"worker={worker_config.number}",  # for people who look at the list of processes
                    pass_fds=passed,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                )
        except OSError:
            await channel.close()
            raise
        channel.send(worker_config)
        return cls(worker_config.number, process, channel)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_accepting(self) -> bool:
        """It accepts connections, as far as one can know."""
        return self.ready and not self._draining and _monotonic() - self._last_message_at < UNRESPONSIVE_SECONDS

    @property
    def uptime_seconds(self) -> float:
        return _monotonic() - self._started_at

    @property
    def exit_description(self) -> str:
        """In words, how it ended."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    async def wait_for_exit(self, on_message: Callable[["ChildProcess", ToSupervisor], None]) -> None:
        """Hear all it says until it has ended; what it said last is heard as well."""
        listening = asyncio.create_task(self._read_messages(on_message))
        ending = asyncio.create_task(self._process.wait())
        # Whichever comes first, the other is a matter of moments.
        await asyncio.wait((listening, ending), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((listening, ending), timeout=EXIT_SECONDS_MAX, return_when=asyncio.FIRST_EXCEPTION)
        self.kill()
        await ending
        await self.channel.close()
        if not listening.cancel():
            listening.result()

    def take_over_listeners(self, listener_indexes: tuple[int, ...]) -> None:
        if listener_indexes != self._taken_over:
            self._taken_over = listener_indexes
            self.channel.send(TakeOverListeners(listener_indexes))

    def shut_down(self, *, at_once: bool) -> None:
        if self.ready:
            self.channel.send(Shutdown(at_once))
        else:  # it serves nobody yet
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _read_messages(self, on_message: Callable[["ChildProcess", ToSupervisor], None]) -> None:
        while (message := await self.channel.receive()) is not None:
            self._last_message_at = _monotonic()
            self.ready |= isinstance(message, WorkerReady)
            self._draining |= isinstance(message, WorkerDraining)
            on_message(self, message)


def worker_command() -> list[str]:
    """How a worker is started. It trusts the current folder with modules only if we ourselves were told to."""
    trusting = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if trusting else ["-P"]), "-m", "onejob.http.processes.worker"]


# What all workers counted: asked for in rounds, each of which answers everybody who asked before it began.


ROUND_SECONDS_MAX: Final = 1.0  # who is silent so long is told of by its last report


class StatsAggregator:
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
            asked, self._requests = self._requests, []
            self._round += 1
            self._tenants = {}
            tenants = tuple({tenant for _, ask in asked for tenant in ask.tenants})
            # Who has not read the last question yet is not asked another one.
            self._unreported = {child for child in self._live_children() if child.ready and child.channel.is_idle}
            self._all_reported.clear()
            for child in self._unreported:
                child.channel.send(StatsRequest(self._round, tenants))
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX):
                    await self._all_reported.wait()
            except TimeoutError:
                self._unreported = set()
            self._reply(asked)

    def _reply(self, requests: list[tuple[ChildProcess, TotalsRequest]]) -> None:
        whole = self._totals.total()
        assert whole is not None, "every worker reports before it asks"
        families = [*whole.families, *self._supervisor_families()]
        for child, ask in requests:
            own = {tenant: _sum_counts(self._tenants.get(tenant, [])) for tenant in ask.tenants}
            child.channel.send(TotalsReply(replace(whole, families=families, tenants=own)))

    def _supervisor_families(self) -> list[MetricFamily]:
        present = float(sum(child.is_accepting for child in self._live_children()))
        restarts = MetricSample("onejob_worker_restarts_total", {}, float(self.restarts))
        return [
            MetricFamily(
                "onejob_workers", "Workers that serve", "gauge", [MetricSample("onejob_workers", {}, present)]
            ),
            MetricFamily(
                "onejob_worker_restarts",
                "Workers that were started again after they ended",
                "counter",
                [restarts],
            ),
        ]


def _sum_counts(counts: list[TenantCounts]) -> TenantCounts:
    outcomes: Counter[str] = Counter()
    for one in counts:
        outcomes.update(one.outcomes)
    return TenantCounts(dict(outcomes), sum(one.waiting for one in counts))


# When a worker that died is started again: at once, unless it keeps dying young; and when that is hopeless.


STABLE_UPTIME_SECONDS: Final = 5.0  # who was ready and lived so long did not die young
BACKOFF_SECONDS_MIN: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 15.0
FAILED_STARTS_MAX: Final = 3  # of each worker, in a row, while none is ready


class RestartBackoff:
    def __init__(self, workers: int) -> None:
        self._early_exits = dict.fromkeys(range(1, workers + 1), 0)  # deaths in a row
        self._failed_starts = 0  # starts since one of them was last ready

    def reset_failed_starts(self) -> None:
        self._failed_starts = 0

    def next_delay(self, number: int, *, uptime_seconds: float, ready: bool) -> float:
        """A worker died: how many seconds to wait before it is started again."""
        self._failed_starts += not ready
        if ready and uptime_seconds >= STABLE_UPTIME_SECONDS:
            self._early_exits[number] = 0
        deaths = self._early_exits[number]
        self._early_exits[number] += 1
        return min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** (deaths - 1)) if deaths else 0.0

    @property
    def should_give_up(self) -> bool:
        """Since a worker was last ready, all of them were tried again and again."""
        return self._failed_starts >= FAILED_STARTS_MAX * len(self._early_exits)


# The sockets of the port that workers share: one for each, all of them kept by the supervisor.
#
# The kernel spreads connections evenly over sockets with SO_REUSEPORT; from one socket the workers would take
# them as they happen to wake up, up to all of them by one. Since the supervisor keeps every socket open, what
# arrives while a worker is away waits there for whoever stands in for it, and is not refused.


@contextmanager
def open_listeners(host: str, port: int, count: int) -> Iterator[Sequence[socket.socket]]:
    # Others are found by a socket that shares with nobody: one that shares would join them without a word.
    with bind_socket(host, port) as alone:
        alone.listen()
        port = alone.getsockname()[1]
    # Elsewhere the option exists, but spreads nothing.
    spread = sys.platform == "linux"
    opened: list[socket.socket] = []
    try:
        for _ in range(count if spread else 1):
            opened.append(bind_socket(host, port, reuse_port=spread))  # noqa: PERF401 - what is opened is closed
        for listener in opened:
            listener.listen(BACKLOG)
        yield opened
    finally:
        for listener in opened:
            listener.close()


TICK_SECONDS = 1.0
KILL_GRACE_SECONDS = 1.0  # after the end of all that a worker was given

log = logging.getLogger("onejob.http")


async def supervise(config: ServiceConfig, workers: int) -> None:
    """Serve with so many workers until a signal comes."""
    check_bind_address(config)
    written = open_stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(log_loop_exception)
    try:
        with ExitStack() as stack:
            listeners = stack.enter_context(open_listeners(config.host, config.port, workers))
            async with open_ledger(config.engine, sweep=False) as ledger:
                HttpApp(ledger, config=config)  # the workers' settings are tried here as well
                durability, caveat = ledger.durability, ledger.runtime_stats().durability_warning
            shelf = None if config.rate_per_second is None else stack.enter_context(open_buckets_file())
            rates = None if shelf is None else shelf.fileno()
            await Supervisor(config, workers, listeners, rates, durability, caveat).run()
    finally:
        written.flush()


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
        self._address = listener_url(listeners[0])
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
                watching = group.create_task(self._reassign_periodically())
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
            raise Unavailable("no worker can be started; the log says why")

    def stop(self) -> None:
        """Let all leave; said twice: at once."""
        at_once = self._stopping.is_set()
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        for child in self._children.values():
            child.shut_down(at_once=at_once)
        seconds = EXIT_GRACE_SECONDS + KILL_GRACE_SECONDS + (0 if at_once else self._config.drain_seconds_max)
        asyncio.get_running_loop().call_later(seconds, self._kill_all)

    async def _keep_worker_running(self, number: int) -> None:
        """Keep this worker alive."""
        while not self._stopping.is_set():
            try:
                child = await ChildProcess.start(self._command, self._worker_config(number))
            except OSError as error:
                await self._wait_before_restart(number, f"cannot be started ({error})")
                continue
            self._children[number] = child
            if self._stopping.is_set():  # which is told only to those who are there
                child.kill()
            await child.wait_for_exit(self._on_message)
            del self._children[number]
            self._stats_aggregator.remove_child(child)
            if not self._stopping.is_set():
                told = f"(process {child.pid}) {child.exit_description}"
                await self._wait_before_restart(number, told, uptime_seconds=child.uptime_seconds, ready=child.ready)

    async def _wait_before_restart(
        self, number: int, reason: str, *, uptime_seconds: float = 0.0, ready: bool = False
    ) -> None:
        seconds = self._restart_backoff.next_delay(number, uptime_seconds=uptime_seconds, ready=ready)
        self._reassign_listeners()
        if self._restart_backoff.should_give_up and not any(other.ready for other in self._children.values()):
            self._gave_up = True
            log.error("worker %d %s; none can be started", number, reason)
            self.stop()
            return
        when = f"in {seconds:g} s" if seconds else "at once"
        log.warning("worker %d %s; it is started again %s", number, reason, when)
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
            tuple(listener.fileno() for listener in self._listeners),
            self._rates_fd,
        )

    def _on_message(self, child: ChildProcess, message: ToSupervisor) -> None:
        match message:
            case StatsReport():
                self._stats_aggregator.add_report(child, message)
            case TotalsRequest():
                self._stats_aggregator.add_request(child, message)
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

    async def _reassign_periodically(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._reassign_listeners()

    def _reassign_listeners(self) -> None:
        """Let the next worker in the ring stand in for each that is away."""
        if self._stopping.is_set() or len(self._listeners) < self._workers:
            return
        present = [number for number, child in sorted(self._children.items()) if child.is_accepting]
        standing: dict[int, list[int]] = {number: [] for number in present}
        for away in range(1, self._workers + 1):
            if present and away not in standing:
                after = next((number for number in present if number > away), present[0])
                standing[after].append(away - 1)
        for number, listeners in standing.items():
            self._children[number].take_over_listeners(tuple(listeners))

    def _kill_all(self) -> None:
        for child in self._children.values():
            log.warning("worker %d (process %d) did not leave in time; it is killed", child.number, child.pid)
            child.kill()
