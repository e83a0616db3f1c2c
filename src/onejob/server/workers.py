"""Several processes that serve one port: a supervisor starts them, restarts them, and kills one that hangs.

1. The supervisor opens the listeners, keeps all of them open and serves no requests. Each worker accepts from its own, and
   looks after those of the others: so a connection is never refused, and waits for no worker that hangs.
2. A worker gets the listeners only when it is about to accept, and shuts down when the supervisor has exited: so a killed
   supervisor leaves no process behind that keeps the port.
3. A worker that exits is restarted at once, and later each time it exits soon after its start. If none could be started, the
   supervisor gives up.
4. Workers report their statistics every second. One that is silent for SILENT_SECONDS_MAX is killed: it may hold the lock
   of a store, for which all others wait. A worker that is starting is never killed.
5. What a report contains is not known here. The supervisor keeps the last report of each worker, hands it to the worker's
   successor, which adds its counters to its own, and gives the reports of all to a worker that asks for them.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct, msgpack

from onejob.backoff import Backoff
from onejob.clock import SystemClock
from onejob.errors import Unavailable

from .listener import BACKLOG, CANCEL_GRACE_SECONDS, bind_socket, on_signals

TICK_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 1.0
UNRESPONSIVE_SECONDS: Final = 4.0  # a worker that is silent for longer is not counted as one that accepts
SILENT_SECONDS_MAX: Final = 10.0
PAUSE_SECONDS_MIN: Final = 1.0  # a tick that comes so late: the supervisor itself was stopped
EXIT_SECONDS_MAX: Final = 5.0  # between the last message of a worker and its exit
# After the drain: for cancelled requests, for the cache hits that are yet to be stored, for closing the store.
EXIT_GRACE_SECONDS: Final = CANCEL_GRACE_SECONDS + 4.0
KILL_GRACE_SECONDS: Final = 1.0  # after the time that a worker has for its shutdown
ROUND_SECONDS_MAX: Final = 4.0  # then the last report of a silent worker counts, which is not about single tenants
TOTALS_SECONDS_MAX: Final = 2 * ROUND_SECONDS_MAX + 1.0
STABLE_UPTIME_SECONDS: Final = 5.0
BACKOFF_SECONDS_MIN: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 15.0
FAILED_STARTS_MAX: Final = 3  # of each worker, in a row, while none is ready
MESSAGE_BYTES_MAX: Final = 1 << 26
FDS_AT_ONCE_MAX: Final = 100  # Linux takes 253
_LENGTH_BYTES: Final = 4

log = logging.getLogger("onejob.http")
_monotonic = SystemClock().monotonic
_encode = msgpack.Encoder().encode

R = TypeVar("R")


class Supervisor:
    """Keeps the workers running until a signal comes; `command` starts one, and `settings` is its first message."""

    def __init__(
        self,
        command: Sequence[str],
        settings: bytes,
        workers: int,
        listeners: Sequence[socket.socket],
        *,
        drain_seconds_max: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._command = command
        self._settings = settings
        self._workers = workers
        self._listeners = listeners
        self._drain_seconds_max = drain_seconds_max
        self._on_ready: Callable[[], None] | None = on_ready  # None: it was called
        self._started_at = _monotonic()
        self._children: dict[int, ChildProcess] = {}
        self._reports: dict[int, bytes] = {}  # by the worker's number; of an exited one too
        self._backoff = RestartBackoff(workers)
        self._restarts = 0
        self._round = 0
        self._unreported: set[int] = set()
        self._reported = asyncio.Condition()
        self._askers: dict[int, tuple[str, ...]] = {}
        self._asked = asyncio.Event()
        self._stopping = asyncio.Event()
        self._gave_up = False

    async def run(self) -> None:
        """Returns when all workers have left; raises when none could be started."""
        with on_signals(self.stop):
            try:
                async with asyncio.TaskGroup() as group:
                    beside = [group.create_task(self._watch()), group.create_task(self._answer_askers())]
                    numbers = range(1, self._workers + 1)
                    await asyncio.wait([group.create_task(self._keep_running(number)) for number in numbers])
                    for task in beside:
                        task.cancel()
            except BaseExceptionGroup as group_error:
                raise group_error.exceptions[0] from None
            finally:
                for child in self._children.values():
                    child.kill()
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
        seconds = EXIT_GRACE_SECONDS + KILL_GRACE_SECONDS + (0 if at_once else self._drain_seconds_max)
        asyncio.get_running_loop().call_later(seconds, self._kill_all)

    async def _keep_running(self, number: int) -> None:
        """Start the worker, and start it again when it has exited."""
        while not self._stopping.is_set():
            first = WorkerStart(
                self._settings,
                number,
                self._workers,
                len(self._listeners),
                self._started_at,
                self._reports.get(number, b""),
            )
            try:
                child = await ChildProcess.start(self._command, first)
            except OSError as error:
                await self._wait_before_restart(number, f"cannot be started ({error})", uptime=0.0, ready=False)
                continue
            self._children[number] = child
            if self._stopping.is_set():  # `stop` did not find this child
                child.kill()
            await child.wait_for_exit(self._on_message)
            del self._children[number]
            if not self._stopping.is_set():
                reason = f"(process {child.pid}) {child.exit_description}"
                await self._wait_before_restart(number, reason, uptime=child.uptime_seconds, ready=child.ready)

    async def _wait_before_restart(self, number: int, reason: str, *, uptime: float, ready: bool) -> None:
        seconds = self._backoff.next_delay(number, uptime_seconds=uptime, ready=ready)
        if self._backoff.should_give_up and not any(other.ready for other in self._children.values()):
            self._gave_up = True
            log.error("worker %d %s; no worker could be started, giving up", number, reason)
            self.stop()
            return
        log.warning("worker %d %s; restarting it %s", number, reason, f"in {seconds:g} s" if seconds else "now")
        self._restarts += 1
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _on_message(self, child: "ChildProcess", message: "ToSupervisor") -> None:
        match message:
            case ListenersRequest() if not self._stopping.is_set():
                child.hand_over(self._listeners)
            case WorkerReport():
                await self._keep_report(child.number, message)
            case TotalsRequest():
                self._askers[child.number] = message.tenants
                self._asked.set()
            case WorkerReady():
                self._backoff.reset_failed_starts()
                if self._on_ready and sum(other.ready for other in self._children.values()) == self._workers:
                    on_ready, self._on_ready = self._on_ready, None
                    on_ready()

    async def _keep_report(self, number: int, report: "WorkerReport") -> None:
        self._reports[number] = report.data
        if report.round == self._round:
            async with self._reported:
                self._unreported.discard(number)
                self._reported.notify_all()

    async def _answer_askers(self) -> None:
        """In rounds, of which each answers all workers that had asked before it began."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            askers, self._askers = self._askers, {}
            self._round += 1
            request = ReportRequest(self._round, tuple({tenant for tenants in askers.values() for tenant in tenants}))
            # A worker that has not read the last request gets no other one.
            self._unreported = {number for number, child in self._children.items() if child.ask(request)}
            try:
                async with asyncio.timeout(ROUND_SECONDS_MAX), self._reported:
                    await self._reported.wait_for(lambda: not self._unreported & self._children.keys())
            except TimeoutError:
                pass
            totals = self._totals()
            for number in askers:
                if child := self._children.get(number):
                    child.channel.send(totals)

    def _totals(self) -> "Totals":
        ready = {number for number, child in self._children.items() if child.ready}
        return Totals(
            live=[report for number, report in self._reports.items() if number in ready],
            exited=[report for number, report in self._reports.items() if number not in ready],
            accepting=sum(child.is_accepting for child in self._children.values()),
            restarts=self._restarts,
        )

    async def _watch(self) -> None:
        detector = HangDetector[ChildProcess](_monotonic())
        while True:
            await asyncio.sleep(TICK_SECONDS)
            hung = detector.tick(self._children.values(), _monotonic())
            if hung is not None:
                seconds = _monotonic() - hung.last_message_at
                log.error(
                    "worker %d (process %d) has been silent for %.0f s; killing it", hung.number, hung.pid, seconds
                )
                hung.kill()

    def _kill_all(self) -> None:
        for child in self._children.values():
            log.warning("worker %d (process %d) did not exit in time; killing it", child.number, child.pid)
            child.kill()


class ChildProcess:
    """A worker process. Made by `start`; it has exited when `wait_for_exit` returns."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        channel: "Channel[ToSupervisor]",
        handover: socket.socket,
    ) -> None:
        self.number = number
        self.pid = process.pid
        self.channel = channel
        self.ready = False
        self._handover = handover
        self._process = process
        self._draining = False
        self._started_at = self.last_message_at = _monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], first: "WorkerStart") -> "ChildProcess":
        ours, theirs = socket.socketpair()
        handover, their_handover = socket.socketpair()
        channel: Channel[ToSupervisor] = await Channel.from_socket(ours, ToSupervisor)
        try:
            with theirs, their_handover:
                inherited = (theirs.fileno(), their_handover.fileno())
                process = await asyncio.create_subprocess_exec(
                    *command,
                    *map(str, inherited),
                    f"worker={first.number}",  # ignored; shown by ps
                    pass_fds=inherited,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                )
        except OSError:
            handover.close()
            await channel.close()
            raise
        channel.send(first)
        return cls(first.number, process, channel, handover)

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

    async def wait_for_exit(self, on_message: Callable[["ChildProcess", "ToSupervisor"], Any]) -> None:
        """Handle all its messages, to the last one, until it has exited."""
        reading = asyncio.create_task(self._read_messages(on_message))
        exiting = asyncio.create_task(self._process.wait())
        # Whichever comes first, the other follows soon.
        await asyncio.wait((reading, exiting), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((reading, exiting), timeout=EXIT_SECONDS_MAX, return_when=asyncio.FIRST_EXCEPTION)
        self.kill()
        await exiting
        self._handover.close()
        await self.channel.close()
        if not reading.cancel():
            reading.result()

    def ask(self, request: "ReportRequest") -> bool:
        """False: it was not asked, because it is starting, or does not read."""
        if not (self.ready and self.channel.is_idle):
            return False
        self.channel.send(request)
        return True

    def hand_over(self, listeners: Sequence[socket.socket]) -> None:
        fds = [listener.fileno() for listener in listeners]
        try:
            for start in range(0, len(fds), FDS_AT_ONCE_MAX):
                socket.send_fds(self._handover, [b"."], fds[start : start + FDS_AT_ONCE_MAX])
        except OSError:
            return  # it has exited, which is noticed elsewhere

    def shut_down(self, *, at_once: bool) -> None:
        if self.ready:
            self.channel.send(Shutdown(at_once))
        else:  # it has no requests yet
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _read_messages(self, on_message: Callable[["ChildProcess", "ToSupervisor"], Any]) -> None:
        while (message := await self.channel.receive()) is not None:
            self.last_message_at = _monotonic()
            self.ready |= isinstance(message, WorkerReady)
            self._draining |= isinstance(message, WorkerDraining)
            await on_message(self, message)


class Watched(Protocol):
    """What the hang detector needs of a worker process."""

    @property
    def ready(self) -> bool: ...

    @property
    def last_message_at(self) -> float: ...


W = TypeVar("W", bound=Watched)


class HangDetector(Generic[W]):
    """Finds the worker that has hung.

    One at a time: what one worker holds may be the reason why others are silent, so when it is killed they get their time
    again. They also do when the supervisor itself was stopped: their messages may be waiting to be read.
    """

    def __init__(self, now: float) -> None:
        self._last_tick_at = now
        self._counted_from = now  # silence before this does not count

    def tick(self, workers: Iterable[W], now: float) -> W | None:
        """The worker to kill. To be called every TICK_SECONDS."""
        if now - self._last_tick_at >= TICK_SECONDS + PAUSE_SECONDS_MIN:
            self._counted_from = now
        self._last_tick_at = now
        quietest = min((worker for worker in workers if worker.ready), key=_last_message_at, default=None)
        if quietest is None or now - max(quietest.last_message_at, self._counted_from) < SILENT_SECONDS_MAX:
            return None
        self._counted_from = now
        return quietest


def _last_message_at(worker: Watched) -> float:
    return worker.last_message_at


class RestartBackoff:
    """A worker is restarted at once, unless it keeps exiting soon after its start."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pauses: dict[int, Backoff] = {}  # of the workers that have exited soon
        self._failed_starts = 0  # of all workers, since one was last ready

    def reset_failed_starts(self) -> None:
        self._failed_starts = 0

    def next_delay(self, number: int, *, uptime_seconds: float, ready: bool) -> float:
        """How many seconds to wait before the worker is restarted."""
        self._failed_starts += not ready
        is_stable = ready and uptime_seconds >= STABLE_UPTIME_SECONDS
        if is_stable or number not in self._pauses:
            self._pauses[number] = Backoff(BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX)
            return 0.0
        return next(self._pauses[number])

    @property
    def should_give_up(self) -> bool:
        return self._failed_starts >= FAILED_STARTS_MAX * self._workers


@contextmanager
def open_listeners(host: str, port: int, count: int) -> Iterator[Sequence[socket.socket]]:
    """Listening sockets on one port: one for each worker where the kernel spreads connections over them, else one for all.

    From one shared socket the workers would accept as they happen to wake up, up to all connections by one of them.
    """
    # A socket without SO_REUSEPORT fails if another process has the port; one with it would silently share the port.
    with bind_socket(host, port) as exclusive:
        exclusive.listen()
        port = exclusive.getsockname()[1]
    spread = sys.platform == "linux"
    with ExitStack() as stack:
        sockets = (bind_socket(host, port, reuse_port=spread) for _ in range(count if spread else 1))
        listeners = [stack.enter_context(listener) for listener in sockets]
        for listener in listeners:
            listener.listen(BACKLOG)
        yield listeners


class SupervisorLink:
    """A worker's side: it gets the listener, reports, asks for the reports of all, and hears when to stop."""

    def __init__(self, channel: "Channel[ToWorker]", handover: socket.socket) -> None:
        self._channel = channel
        self._handover = handover
        self._report: Callable[[Sequence[str]], bytes] = lambda tenants: b""
        self._in_flight: dict[asyncio.Future[Totals], str] = {}
        self._queued: dict[asyncio.Future[Totals], str] = {}

    @classmethod
    async def open(cls) -> "tuple[SupervisorLink, WorkerStart] | None":
        """None: the supervisor has exited already."""
        channel_socket, handover = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
        link = cls(await Channel.from_socket(channel_socket, ToWorker), handover)
        first = await link._channel.receive()
        return (link, first) if isinstance(first, WorkerStart) else None

    async def receive_listeners(self, count: int) -> list[socket.socket]:
        """All of them; none: the supervisor has exited, or shuts down."""
        self._channel.send(ListenersRequest())
        fds: list[int] = []
        while len(fds) < count:
            _, received, _, _ = await asyncio.to_thread(socket.recv_fds, self._handover, 1, FDS_AT_ONCE_MAX)
            if not received:
                return []
            fds += received
        return [socket.socket(fileno=fd) for fd in fds]

    def start(self, report: Callable[[Sequence[str]], bytes], on_shutdown: Callable[[bool], None]) -> None:
        """The worker accepts connections; `on_shutdown` is told whether to end at once."""
        self._report = report
        self._channel.send(WorkerReady())
        self._send_report()
        self._tasks = (
            asyncio.create_task(self._read_messages(on_shutdown)),
            asyncio.create_task(self._report_periodically()),
        )

    async def aclose(self) -> None:
        self._send_report()
        for task in self._tasks:
            task.cancel()
        await self._channel.close()

    def note_draining(self) -> None:
        self._channel.send(WorkerDraining())

    async def collect(self, tenant: str) -> "Totals":
        """The reports of all workers. Requests that come meanwhile share the next round trip."""
        future: asyncio.Future[Totals] = asyncio.get_running_loop().create_future()
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

    def _request_totals(self) -> None:
        self._in_flight, self._queued = self._queued, {}
        if self._in_flight:
            self._channel.send(TotalsRequest(tuple(set(self._in_flight.values()))))

    def _send_report(self, round: int = 0, tenants: Sequence[str] = ()) -> None:
        self._channel.send(WorkerReport(round, self._report(tenants)))

    async def _read_messages(self, on_shutdown: Callable[[bool], None]) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case ReportRequest(round, tenants):
                    self._send_report(round, tenants)
                case Totals():
                    for future in self._in_flight:
                        if not future.done():
                            future.set_result(message)
                    self._request_totals()
                case Shutdown(at_once):
                    on_shutdown(at_once)
        on_shutdown(False)

    async def _report_periodically(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self._channel.is_idle:
                self._send_report()


class WorkerStart(Struct, frozen=True, tag=True):
    """The first message to a worker."""

    settings: bytes
    number: int  # from 1
    workers: int
    listeners: int
    started_at: float  # on the monotonic clock: when the service started
    earlier: bytes  # the last report of the worker that it replaces; empty: there was none


class ReportRequest(Struct, frozen=True, tag=True):
    round: int
    tenants: tuple[str, ...]  # whose counters the report has besides the sums of all


class Totals(Struct, frozen=True, tag=True):
    """The last reports of all workers, and what the supervisor itself counts."""

    live: list[bytes]
    exited: list[bytes]
    accepting: int
    restarts: int


class Shutdown(Struct, frozen=True, tag=True):
    at_once: bool


class ListenersRequest(Struct, frozen=True, tag=True):
    """The worker has opened its store and is about to accept."""


class WorkerReady(Struct, frozen=True, tag=True):
    pass


class WorkerDraining(Struct, frozen=True, tag=True):
    """The worker accepts no more connections."""


class WorkerReport(Struct, frozen=True, tag=True):
    round: int  # of the ReportRequest; 0: a periodic report
    data: bytes


class TotalsRequest(Struct, frozen=True, tag=True):
    """A worker has one such request in flight at a time."""

    tenants: tuple[str, ...]


ToWorker = WorkerStart | ReportRequest | Totals | Shutdown
ToSupervisor = ListenersRequest | WorkerReady | WorkerDraining | WorkerReport | TotalsRequest


class Channel(Generic[R]):
    """One end of a socket pair; receives messages of the given types. When one side exits, the other reads EOF."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message_types: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decode = msgpack.Decoder(message_types).decode

    @classmethod
    async def from_socket(cls, sock: socket.socket, message_types: Any) -> "Channel[R]":
        return cls(*await asyncio.open_unix_connection(sock=sock), message_types)

    @property
    def is_idle(self) -> bool:
        """True if the other side keeps up with reading; messages that are not urgent wait for it."""
        return not self._writer.transport.get_write_buffer_size()

    def send(self, message: ToWorker | ToSupervisor) -> None:
        """After the other side has closed this does nothing: the reader hears of it."""
        if self._writer.is_closing():
            return
        data = _encode(message)
        assert len(data) <= MESSAGE_BYTES_MAX
        self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    async def receive(self) -> R | None:
        """The next message; None: the other side has closed."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            assert length <= MESSAGE_BYTES_MAX
            received: R = self._decode(await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None
        return received

    async def close(self) -> None:
        """Returns when everything is written, or the other side has closed."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
