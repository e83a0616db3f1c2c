"""Ready is who can be asked and can write. What the last write met is remembered; an idle store is tried again.

To try means to write something tiny and to remove it, in the name of no tenant, every few seconds at most and only
after a write has failed.
"""

from collections.abc import Callable

from .core.identity import policy_id
from .core.lookup import LookUpJob
from .core.policy import DropPolicy, SetPolicy
from .engines.gate import Gate
from .errors import OnejobError, Unavailable

TRY_SECONDS = 3.0

_NOBODY = ""  # no tenant has this name
_NAME = "ready"
_LOOK = LookUpJob(tenant=_NOBODY, job_id=bytes(16))


class Readiness:
    def __init__(self, gate: Gate, monotonic: Callable[[], float]) -> None:
        self._gate = gate
        self._monotonic = monotonic
        self._tried = float("-inf")

    async def check(self) -> None:
        """Returns when the store answers and takes writes; raises what keeps it from that."""
        await self._gate.execute((_LOOK,))
        trouble = self._gate.trouble
        if trouble is None:
            return
        now = self._monotonic()
        if now - self._tried < TRY_SECONDS:
            raise _told(trouble)
        self._tried = now
        await self._try()

    async def _try(self) -> None:
        """Each in a batch of its own, for together they would come to nothing and not be written."""
        place = policy_id(_NOBODY, _NAME)
        for command in (
            SetPolicy(tenant=_NOBODY, policy_id=place, name=_NAME, body=b""),
            DropPolicy(tenant=_NOBODY, policy_id=place),
        ):
            await self._gate.execute((command,))


def _told(trouble: Exception) -> OnejobError:
    """A copy, since raising writes on an exception, and this one is told again and again."""
    if isinstance(trouble, OnejobError):
        return type(trouble)(*trouble.args)
    return Unavailable(f"the engine failed in an unforeseen way ({type(trouble).__name__})")
