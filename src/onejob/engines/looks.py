"""Point reads on their way: equal questions that wait for the same batch are asked once."""

import asyncio
from typing import Any

from onejob.core.receipt import AnyReply
from onejob.core.step import Command

from .combine import Combine
from .queues import Deliver


class Looks:
    """A question sets out after the last of its askers came, so that each hears what was true after it asked."""

    def __init__(self, inner: Combine) -> None:
        self._inner = inner
        self._waiting: dict[Command[Any], list[Deliver]] = {}
        inner.before_reads = self._waiting.clear  # what has set out is joined by nobody
        self._told: dict[Command[Any], AnyReply] = {}

    def now(self, command: Command[Any]) -> AnyReply | None:
        """The reply at once, where the engine has it at hand; read once in a turn of the loop.

        Whoever asks in a turn was heard of before it began: what is read in it is not older than the question. The
        next turn forgets it before anybody who was heard of since can ask.
        """
        reply = self._told.get(command)
        if reply is None:
            reply = self._inner.read_now(command)
            if reply is not None:
                if not self._told:
                    asyncio.get_running_loop().call_soon(self._told.clear)
                self._told[command] = reply
        return reply

    def post(self, command: Command[Any], deliver: Deliver) -> None:
        assert not command.writes
        askers = self._waiting.get(command)
        if askers is not None:
            askers.append(deliver)
            return
        self._waiting[command] = askers = [deliver]
        self._inner.post(command, self._landing(command, askers))

    def _landing(self, command: Command[Any], askers: list[Deliver]) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            if self._waiting.get(command) is askers:
                del self._waiting[command]  # it was turned away, and never set out
            first, *others = askers
            first(result)
            for deliver in others:
                # A failure is never passed on: each asks for itself.
                if isinstance(result, Exception):
                    self._inner.post(command, deliver)
                else:
                    deliver(result)

        return land
