"""The attributes and methods that the parts of a client share."""

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
    last_sequences: dict[bytes, int]  # last committed number of each stream, as far as the client knows

    async def ask(self, *commands: Command[Any]) -> CallResults | None: ...

    async def ask_until_answered(self, command: Command[Any]) -> AnyReply | None: ...

    async def _send(self, work: "Callable[[Gate], Awaitable[CallResults]]") -> CallResults | None: ...

    def _build_submit(self, op: Op) -> Submit: ...

    def _record_id(self, op: Op) -> bytes: ...
