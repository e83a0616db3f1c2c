"""The process that has the port, starts the workers and keeps their number. It serves nobody itself.

It opens the store once before the workers do, so that whatever is wrong with it is said once and in one line.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from onejob.clock import SystemClock
from onejob.engine import Durability
from onejob.errors import Unavailable
from onejob.opening import open as open_ledger

from .app import HttpApp
from .channel import StatsReport, ToSupervisor, TotalsRequest, WorkerConfig, WorkerReady
from .child import ChildProcess, worker_command
from .config import ServiceConfig
from .gathering import StatsAggregator
from .listeners import open_listeners
from .logs import log_loop_exception, open_stderr_log
from .restarts import RestartBackoff
from .serve import announce_ready, check_bind_address, listener_url
from .shelf import open_buckets_file
from .worker import EXIT_GRACE_SECONDS

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
                    group.create_task(self._keep_worker_running(number))
                    for number in range(1, self._workers + 1)
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
                await self._wait_before_restart(
                    number, told, uptime_seconds=child.uptime_seconds, ready=child.ready
                )

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
