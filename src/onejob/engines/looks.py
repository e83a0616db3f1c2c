"""Point reads on their way: equal questions that wait for the same batch are asked once."""

from typing import Any

from onejob.core.receipt import AnyReply
from onejob.core.step import Command

from .combine import Combine, Deliver


class Looks:
    """A question sets out after the last of its askers came, so that each hears what was true after it asked."""

    def __init__(self, inner: Combine) -> None:
        self._inner = inner
        self._waiting: dict[Command[Any], list[Deliver]] = {}
        inner.before_reads = self._waiting.clear  # what has set out is joined by nobody

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
