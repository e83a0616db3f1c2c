"""What every part of the front door stands on: a caller, in front of what all callers share."""

from typing import Any

from .core.receipt import AnyReply
from .core.step import Command
from .host import Runtime
from .intake import Caller


class LedgerBase:
    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime = runtime
        self._gate = runtime.gate
        self._caller = caller

    async def _execute(self, command: Command[Any]) -> AnyReply:
        (reply,) = await self._gate.execute((command,))
        return reply
