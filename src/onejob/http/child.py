"""A worker, as the supervisor sees it: a process, and what is said between the two."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from onejob.clock import SystemClock

from .channel import (
    Channel,
    Shutdown,
    TakeOverListeners,
    ToSupervisor,
    WorkerConfig,
    WorkerDraining,
    WorkerReady,
)

UNRESPONSIVE_SECONDS = 4.0  # without a word, although there is one every second: others stand in
EXIT_SECONDS_MAX = 5.0  # between the last word of a worker and its end

_monotonic = SystemClock().monotonic


class ChildProcess:
    """Made by `start`; lives until `ended` returns."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel[ToSupervisor]
    ) -> None:
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
        return (
            self.ready and not self._draining and _monotonic() - self._last_message_at < UNRESPONSIVE_SECONDS
        )

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
    return [sys.executable, *([] if trusting else ["-P"]), "-m", "onejob.http.worker"]
