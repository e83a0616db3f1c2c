"""What every kind of client has: a name, a world, and a way to ask."""

from typing import TYPE_CHECKING, Any, Protocol

from onejob.core.command import Command
from onejob.core.replies import AnyReply
from onejob.core.submit import Submit
from onejob.engines.gate import Gate

from .plan import Op
from .process import CallResults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .simulator import Simulation


class ClientProtocol(Protocol):
    simulation: "Simulation"
    number: int
    tenant: str
    user: str
    actor: str
    usage_id: bytes
    policy_id: bytes
    last_sequences: dict[bytes, int]  # the last number that each of its streams is known to have executed

    async def ask(self, *commands: Command[Any]) -> CallResults | None: ...

    async def ask_until_answered(self, command: Command[Any]) -> AnyReply | None: ...

    async def _send(self, work: "Callable[[Gate], Awaitable[CallResults]]") -> CallResults | None: ...

    def _build_submit(self, op: Op) -> Submit: ...

    def _record_id(self, op: Op) -> bytes: ...
