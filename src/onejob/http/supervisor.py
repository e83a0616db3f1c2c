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

from .app import App
from .channel import Ask, Brief, Ready, Report, ToSupervisor
from .child import Child, worker_command
from .config import ServiceConfig
from .gathering import Gathering
from .listeners import listening
from .logs import stderr_log, unforeseen
from .restarts import Restarts
from .serve import address, check, say_ready
from .shelf import shelf_file
from .worker import LEAVE_SECONDS

TICK_SECONDS = 1.0
KILL_SECONDS = 1.0  # after the end of all that a worker was given

log = logging.getLogger("onejob.http")


async def supervise(config: ServiceConfig, workers: int) -> None:
    """Serve with so many workers until a signal comes."""
    check(config)
    written = stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(unforeseen)
    try:
        with ExitStack() as stack:
            listeners = stack.enter_context(listening(config.host, config.port, workers))
            async with open_ledger(config.engine, sweep=False) as ledger:
                App(ledger, config=config)  # the workers' settings are tried here as well
                durability, caveat = ledger.durability, ledger.vitals().caveat
            shelf = None if config.rate_per_second is None else stack.enter_context(shelf_file())
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
        rates: int | None,
        durability: Durability,
        caveat: str = "",
        *,
        command: Sequence[str] | None = None,
    ) -> None:
        self._config = config
        self._workers = workers
        self._listeners = listeners
        self._rates = rates
        self._durability = durability
        self._caveat = caveat
        self._command = command or worker_command()
        self._address = address(listeners[0])
        self._since = SystemClock().monotonic()
        self._children: dict[int, Child] = {}
        self._restarts = Restarts(workers)
        self._gathering = Gathering(self._children.values)
        self._stopping = asyncio.Event()
        self._said_ready = False
        self._hopeless = False

    async def run(self) -> None:
        """Returns when all workers have left; raises when none could be started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                tending = [group.create_task(self._tend(number)) for number in range(1, self._workers + 1)]
                await asyncio.wait(tending)
                watching.cancel()
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            for child in self._children.values():
                child.kill()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._hopeless:
            raise Unavailable("no worker can be started; the log says why")

    def stop(self) -> None:
        """Let all leave; said twice: at once."""
        at_once = self._stopping.is_set()
        self._stopping.set()
        for listener in self._listeners:
            listener.close()
        for child in self._children.values():
            child.leave(at_once=at_once)
        seconds = LEAVE_SECONDS + KILL_SECONDS + (0 if at_once else self._config.drain_seconds_max)
        asyncio.get_running_loop().call_later(seconds, self._kill)

    async def _tend(self, number: int) -> None:
        """Keep this worker alive."""
        while not self._stopping.is_set():
            try:
                child = await Child.start(self._command, self._brief(number))
            except OSError as error:
                await self._pause(number, f"cannot be started ({error})")
                continue
            self._children[number] = child
            if self._stopping.is_set():  # which is told only to those who are there
                child.kill()
            await child.ended(self._hear)
            del self._children[number]
            self._gathering.end(child)
            if not self._stopping.is_set():
                told = f"(process {child.pid}) {child.end}"
                await self._pause(number, told, lived=child.lived, ready=child.ready)

    async def _pause(self, number: int, told: str, *, lived: float = 0.0, ready: bool = False) -> None:
        seconds = self._restarts.pause(number, lived=lived, ready=ready)
        self._arrange()
        if self._restarts.hopeless and not any(other.ready for other in self._children.values()):
            self._hopeless = True
            log.error("worker %d %s; none can be started", number, told)
            self.stop()
            return
        when = f"in {seconds:g} s" if seconds else "at once"
        log.warning("worker %d %s; it is started again %s", number, told, when)
        self._gathering.restarts += 1
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _brief(self, number: int) -> Brief:
        return Brief(
            self._config,
            number,
            self._workers,
            self._since,
            tuple(listener.fileno() for listener in self._listeners),
            self._rates,
        )

    def _hear(self, child: Child, message: ToSupervisor) -> None:
        match message:
            case Report():
                self._gathering.hear(child, message)
            case Ask():
                self._gathering.ask(child, message)
            case Ready():
                self._restarts.ready()
                self._greet()
        if not isinstance(message, Report):
            self._arrange()

    def _greet(self) -> None:
        ready = [child for child in self._children.values() if child.ready]
        if len(ready) == self._workers and not self._said_ready:
            self._said_ready = True
            say_ready(
                self._config,
                self._address,
                self._durability,
                workers=self._workers,
                caveat=self._caveat,
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._arrange()

    def _arrange(self) -> None:
        """Let the next worker in the ring stand in for each that is away."""
        if self._stopping.is_set() or len(self._listeners) < self._workers:
            return
        present = [number for number, child in sorted(self._children.items()) if child.present]
        standing: dict[int, list[int]] = {number: [] for number in present}
        for away in range(1, self._workers + 1):
            if present and away not in standing:
                after = next((number for number in present if number > away), present[0])
                standing[after].append(away - 1)
        for number, listeners in standing.items():
            self._children[number].stand(tuple(listeners))

    def _kill(self) -> None:
        for child in self._children.values():
            log.warning("worker %d (process %d) did not leave in time; it is killed", child.number, child.pid)
            child.kill()
