"""What every part of the front door stands on: a caller, in front of what all callers share."""

from typing import Any

from .core.receipt import AnyReply
from .core.step import Command
from .host import Host
from .intake import Caller


class Front:
    def __init__(self, host: Host, caller: Caller) -> None:
        self._host = host
        self._gate = host.gate
        self._caller = caller

    async def _ask(self, command: Command[Any]) -> AnyReply:
        (reply,) = await self._gate.execute((command,))
        return reply
