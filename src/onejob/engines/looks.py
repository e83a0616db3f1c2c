"""Point reads on their way: equal questions that wait for the same batch are asked once."""

import asyncio
from typing import Any

from onejob.core.receipt import AnyReply
from onejob.core.step import Command

from .combine import Batcher
from .queues import Deliver


class CoalescedReads:
    """A question sets out after the last of its askers came, so that each hears what was true after it asked."""

    def __init__(self, inner: Batcher) -> None:
        self._inner = inner
        self._pending: dict[Command[Any], list[Deliver]] = {}
        inner.on_read_batch = self._pending.clear  # what has set out is joined by nobody
        self._replies_this_iteration: dict[Command[Any], AnyReply] = {}

    def read_now(self, command: Command[Any]) -> AnyReply | None:
        """The reply at once, where the engine has it at hand; read once in a turn of the loop.

        Whoever asks in a turn was heard of before it began: what is read in it is not older than the question. The
        next turn forgets it before anybody who was heard of since can ask.
        """
        reply = self._replies_this_iteration.get(command)
        if reply is None:
            reply = self._inner.read_now(command)
            if reply is not None:
                if not self._replies_this_iteration:
                    asyncio.get_running_loop().call_soon(self._replies_this_iteration.clear)
                self._replies_this_iteration[command] = reply
        return reply

    def enqueue(self, command: Command[Any], deliver: Deliver) -> None:
        assert not command.writes
        askers = self._pending.get(command)
        if askers is not None:
            askers.append(deliver)
            return
        self._pending[command] = askers = [deliver]
        self._inner.enqueue(command, self._completion_for(command, askers))

    def _completion_for(self, command: Command[Any], callers: list[Deliver]) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            if self._pending.get(command) is callers:
                del self._pending[command]  # it was turned away, and never set out
            first, *others = callers
            first(result)
            for deliver in others:
                # A failure is never passed on: each asks for itself.
                if isinstance(result, Exception):
                    self._inner.enqueue(command, deliver)
                else:
                    deliver(result)

        return land
