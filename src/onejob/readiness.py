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

PROBE_INTERVAL_SECONDS = 3.0

_NO_TENANT = ""  # no tenant has this name
_PROBE_POLICY_NAME = "ready"
_PROBE_READ = LookUpJob(tenant=_NO_TENANT, job_id=bytes(16))


class Readiness:
    def __init__(self, gate: Gate, monotonic: Callable[[], float]) -> None:
        self._gate = gate
        self._monotonic = monotonic
        self._last_probe_at = float("-inf")

    async def check(self) -> None:
        """Returns when the store answers and takes writes; raises what keeps it from that."""
        await self._gate.execute((_PROBE_READ,))
        trouble = self._gate.last_error
        if trouble is None:
            return
        now = self._monotonic()
        if now - self._last_probe_at < PROBE_INTERVAL_SECONDS:
            raise _copied_error(trouble)
        self._last_probe_at = now
        await self._probe_write()

    async def _probe_write(self) -> None:
        """Each in a batch of its own, for together they would come to nothing and not be written."""
        place = policy_id(_NO_TENANT, _PROBE_POLICY_NAME)
        for command in (
            SetPolicy(tenant=_NO_TENANT, policy_id=place, name=_PROBE_POLICY_NAME, body=b""),
            DropPolicy(tenant=_NO_TENANT, policy_id=place),
        ):
            await self._gate.execute((command,))


def _copied_error(error: Exception) -> OnejobError:
    """A copy, since raising writes on an exception, and this one is told again and again."""
    if isinstance(error, OnejobError):
        return type(error)(*error.args)
    return Unavailable(f"the engine failed in an unforeseen way ({type(error).__name__})")
