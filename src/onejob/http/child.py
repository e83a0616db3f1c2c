"""A worker, as the supervisor sees it: a process, and what is said between the two."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from onejob.clock import SystemClock

from .channel import Brief, Channel, Leave, Leaving, Ready, Stand, ToSupervisor

SILENT_SECONDS = 4.0  # without a word, although there is one every second: others stand in
LAST_SECONDS = 5.0  # between the last word of a worker and its end

_monotonic = SystemClock().monotonic


class Child:
    """Made by `start`; lives until `ended` returns."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel[ToSupervisor]
    ) -> None:
        self.number = number
        self.channel = channel
        self.ready = False
        self._process = process
        self._leaving = False
        self._standing: tuple[int, ...] = ()
        self._started = self._heard = _monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], brief: Brief) -> "Child":
        ours, theirs = socket.socketpair()
        channel: Channel[ToSupervisor] = await Channel.of(ours, ToSupervisor)
        try:
            with theirs:
                passed = [theirs.fileno(), *brief.listeners, *([] if brief.rates is None else [brief.rates])]
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    f"worker={brief.number}",  # for people who look at the list of processes
                    pass_fds=passed,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                )
        except OSError:
            await channel.close()
            raise
        channel.send(brief)
        return cls(brief.number, process, channel)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def present(self) -> bool:
        """It accepts connections, as far as one can know."""
        return self.ready and not self._leaving and _monotonic() - self._heard < SILENT_SECONDS

    @property
    def lived(self) -> float:
        return _monotonic() - self._started

    @property
    def end(self) -> str:
        """In words, how it ended."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    async def ended(self, hear: Callable[["Child", ToSupervisor], None]) -> None:
        """Hear all it says until it has ended; what it said last is heard as well."""
        listening = asyncio.create_task(self._listen(hear))
        ending = asyncio.create_task(self._process.wait())
        # Whichever comes first, the other is a matter of moments.
        await asyncio.wait((listening, ending), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((listening, ending), timeout=LAST_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        self.kill()
        await ending
        await self.channel.close()
        if not listening.cancel():
            listening.result()

    def stand(self, listeners: tuple[int, ...]) -> None:
        if listeners != self._standing:
            self._standing = listeners
            self.channel.send(Stand(listeners))

    def leave(self, *, at_once: bool) -> None:
        if self.ready:
            self.channel.send(Leave(at_once))
        else:  # it serves nobody yet
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _listen(self, hear: Callable[["Child", ToSupervisor], None]) -> None:
        while (message := await self.channel.receive()) is not None:
            self._heard = _monotonic()
            self.ready |= isinstance(message, Ready)
            self._leaving |= isinstance(message, Leaving)
            hear(self, message)


def worker_command() -> list[str]:
    """How a worker is started. It trusts the current folder with modules only if we ourselves were told to."""
    trusting = sys.path[:1] in ([""], [os.getcwd()])
    return [sys.executable, *([] if trusting else ["-P"]), "-m", "onejob.http.worker"]
