"""One of several processes that serve a port: `python -m onejob.http.worker`, started by the supervisor alone.

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
from onejob.ledger import Ledger
from onejob.opening import open as open_ledger

from .app import App
from .channel import Ask, Brief, Channel, Gather, Leave, Leaving, Ready, Report, Stand, Told, ToWorker
from .config import ServiceConfig
from .logs import Log, stderr_log, trail, unforeseen
from .notices import noticing
from .serve import BACKLOG, LAST_WORDS_SECONDS, Server, leaving, observer, run_loop, uvicorn_config
from .shelf import SharedRates
from .sums import Counted

REPORT_SECONDS = 1.0
ANSWER_SECONDS_MAX = 3.0  # the supervisor's
# After the drain: for last words, for hits that are written down, for the store to be closed.
LEAVE_SECONDS = LAST_WORDS_SECONDS + 4.0

Waiting = dict[asyncio.Future[Counted], str]

log = logging.getLogger("onejob.http")


class Fellows:
    """What all workers counted, as the supervisor adds it up. Asked once at a time, for all who want to know."""

    def __init__(self, channel: Channel[ToWorker]) -> None:
        self._channel = channel
        self._asked: Waiting = {}
        self._waiting: Waiting = {}

    async def counted(self, tenant: str) -> Counted:
        answer: asyncio.Future[Counted] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = tenant
        if not self._asked:
            self._ask()
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        except TimeoutError:
            raise Unavailable("the supervisor did not answer; repeat") from None
        finally:
            self._waiting.pop(answer, None)

    def hear(self, told: Told) -> None:
        for answer in self._asked:
            if not answer.done():
                answer.set_result(told.counted)
        self._ask()

    def _ask(self) -> None:
        self._asked, self._waiting = self._waiting, {}
        if self._asked:
            self._channel.send(Ask(tuple(set(self._asked.values()))))


class WorkerServer(Server):
    """A server that stands in for others, and is told when to leave."""

    def __init__(
        self,
        config: uvicorn.Config,
        listeners: list[socket.socket],
        *,
        ready: Callable[[], None],
        release: Callable[[], None],
        leave: Callable[[], Coroutine[Any, Any, None]],
        leaving: Callable[[], None],
    ) -> None:
        super().__init__(config, ready=ready, release=release, leave=leave)
        self._listeners = listeners
        self._say_leaving = leaving
        self._standing: dict[int, asyncio.base_events.Server] = {}

    async def stand(self, wanted: Iterable[int]) -> None:
        """Accept from the listeners of these numbers besides our own."""
        wanted = set() if self.should_exit else set(wanted)
        for number in self._standing.keys() - wanted:
            self._standing.pop(number).close()
        for number in wanted - self._standing.keys():
            listener = self._listeners[number].dup()  # closing it must not close the one we keep
            self._standing[number] = await asyncio.get_running_loop().create_server(
                self._connection, sock=listener, backlog=BACKLOG
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._say_leaving()
        await self.stand(())
        await super().shutdown(self._listeners)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal may come from a terminal or an init that tells all processes, and again from the supervisor."""
        self.should_exit = True

    def _connection(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


class Worker:
    def __init__(self, brief: Brief, channel: Channel[ToWorker], ledger: Ledger, log: Log) -> None:
        config = brief.config
        self._channel = channel
        self._drain_seconds = config.drain_seconds_max
        self._fellows = Fellows(channel)
        self._app = App(
            ledger,
            config=config,
            observe=observer(config, log),
            whole=self._fellows,
            rates=_shared_rates(config, brief.rates),
            since=brief.since,
        )
        self._listeners = [socket.socket(fileno=fd) for fd in brief.listeners]
        self._own = self._listeners[(brief.number - 1) % len(self._listeners)]
        self._server = WorkerServer(
            uvicorn_config(config, self._app, log),
            self._listeners,
            ready=self._ready,
            release=ledger._host.release_waiters,
            leave=leaving(config, self._app),
            leaving=lambda: channel.send(Leaving()),
        )

    async def run(self) -> None:
        duties = [asyncio.create_task(self._listen()), asyncio.create_task(self._report())]
        try:
            await self._server.serve(sockets=[self._own])
        finally:
            for duty in duties:
                duty.cancel()
        # What was counted to the last is not lost.
        self._channel.send(Report(0, self._app.counted(())))

    def _ready(self) -> None:
        self._channel.send(Ready())
        # So that the sums have something of ours before we ask for them.
        self._channel.send(Report(0, self._app.counted(())))

    async def _listen(self) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case Gather(round, tenants):
                    self._channel.send(Report(round, self._app.counted(tenants)))
                case Told():
                    self._fellows.hear(message)
                case Stand(listeners):
                    await self._server.stand(listeners)
                case Leave(at_once):
                    self._leave(at_once)
        self._leave(at_once=False)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if self._channel.idle:
                self._channel.send(Report(0, self._app.counted(())))

    def _leave(self, at_once: bool) -> None:
        # By the kernel, for whatever holds us up may hold up all that is ours.
        signal.setitimer(signal.ITIMER_REAL, LEAVE_SECONDS + (0 if at_once else self._drain_seconds))
        if at_once:
            self._server.leave_at_once()
        self._server.should_exit = True


async def work(end: socket.socket) -> None:
    """Serve as the supervisor says, until it says otherwise."""
    channel: Channel[ToWorker] = await Channel.of(end, ToWorker)
    brief = await channel.receive()
    if not isinstance(brief, Brief):
        return  # the supervisor is gone already
    written = stderr_log(brief.config.log_format, worker=brief.number)
    asyncio.get_running_loop().set_exception_handler(unforeseen)
    try:
        async with open_ledger(brief.config.engine, sweep=False) as ledger:
            ledger._host.start_upkeep(turn=brief.number - 1, turns=brief.workers)
            async with noticing(ledger, brief.config):
                await Worker(brief, channel, ledger, written).run()
        await channel.close()
    except OnejobError as error:
        log.error("it cannot serve: %s", error)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the log is told, and the supervisor by our end
        log.error("it cannot serve: %s", trail(error))
        sys.exit(1)
    finally:
        written.flush()


def _shared_rates(config: ServiceConfig, fd: int | None) -> SharedRates | None:
    if config.rate_per_second is None or fd is None:
        return None
    monotonic = SystemClock().monotonic
    return SharedRates(fd, per_second=config.rate_per_second, burst=config.rate_burst, monotonic=monotonic)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is a server, the supervisor decides
    run_loop(work(socket.socket(fileno=int(sys.argv[1]))))
