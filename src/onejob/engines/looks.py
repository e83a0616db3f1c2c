"""Point reads on their way: equal questions that come in one turn of the loop are asked once."""

import asyncio
from typing import Any

from onejob.core.receipt import AnyReply
from onejob.core.step import Command

from .combine import Combine, Deliver


class Looks:
    """A question sets out after the last of its askers came, so that each hears what was true after it asked."""

    def __init__(self, inner: Combine) -> None:
        self._inner = inner
        self._waiting: dict[Command[Any], list[Deliver]] = {}

    def post(self, command: Command[Any], deliver: Deliver) -> None:
        assert not command.writes
        askers = self._waiting.get(command)
        if askers is not None:
            askers.append(deliver)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._set_out)
        self._waiting[command] = [deliver]

    def _set_out(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for command, askers in waiting.items():
            self._inner.post(command, askers[0] if len(askers) == 1 else self._landing(command, askers))

    def _landing(self, command: Command[Any], askers: list[Deliver]) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            first, *others = askers
            first(result)
            for deliver in others:
                # A failure is never passed on: each asks for itself.
                if isinstance(result, Exception):
                    self._inner.post(command, deliver)
                else:
                    deliver(result)

        return land
