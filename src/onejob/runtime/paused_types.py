"""Job types that operators have paused: their jobs are accepted and wait, and nobody claims them.

Claims look at the list at most every two seconds, so a pause takes effect within that time. Jobs that run go on.
"""

import asyncio
from datetime import datetime

from msgspec import Struct, json

from onejob.core.facts import Policy
from onejob.core.identity import checked_name
from onejob.core.timestamps import to_utc
from onejob.engine import Engine
from onejob.errors import Invalid

from .policies import change_policy, decode_body, load_policy

PAUSED_POLICY_NAME = "paused-types"
CACHE_SECONDS = 2.0
CACHED_TENANTS_MAX = 10_000
PAUSED_MAX = 100


class _Pause(Struct, frozen=True):
    at: int
    by: str


class PausedType(Struct, frozen=True, rename="camel"):
    type: str
    since: datetime
    by: str


class PausedTypes:
    """The paused types of all tenants, as this process knows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cached: dict[str, tuple[float, frozenset[str]]] = {}

    async def without_paused(self, tenant: str, types: tuple[str, ...]) -> tuple[str, ...]:
        """The types of these that may be claimed."""
        now = asyncio.get_running_loop().time()
        known = self._cached.get(tenant)
        if known is None or now >= known[0]:
            if len(self._cached) >= CACHED_TENANTS_MAX:
                self._cached.clear()
            paused = frozenset(await self._load(tenant))
            known = self._cached[tenant] = now + CACHE_SECONDS, paused
        return types if not known[1] else tuple(type for type in types if type not in known[1])

    async def list(self, tenant: str) -> list[PausedType]:
        paused = await self._load(tenant)
        return [PausedType(type, to_utc(pause.at), pause.by) for type, pause in sorted(paused.items())]

    async def pause(self, tenant: str, type: str, *, by: str) -> None:
        await self._change(tenant, checked_name("type", type), by)

    async def resume(self, tenant: str, type: str) -> None:
        await self._change(tenant, type, None)

    async def _load(self, tenant: str) -> dict[str, _Pause]:
        policy, _ = await load_policy(self._engine, tenant, PAUSED_POLICY_NAME)
        return {} if policy is None else decode_body(policy, dict[str, _Pause])

    async def _change(self, tenant: str, type: str, by: str | None) -> None:
        """Pause a type, or with `by=None` resume it. Doing it twice changes nothing."""

        def changed(policy: Policy | None, now: int) -> bytes | None:
            paused = {} if policy is None else decode_body(policy, dict[str, _Pause])
            if (type in paused) == (by is not None):
                return None
            if by is None:
                del paused[type]
            elif len(paused) >= PAUSED_MAX:
                raise Invalid("type", f"a tenant has at most {PAUSED_MAX} paused types; resume another first")
            else:
                paused[type] = _Pause(now, by)
            return json.encode(paused)

        await change_policy(self._engine, tenant, PAUSED_POLICY_NAME, changed)
        self._cached.pop(tenant, None)
