"""A loop that runs jobs of the service's own types: it claims them, some of each tenant, and hands them to a handler."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from onejob.backoff import Backoff
from onejob.core.work import RETENTION_MS
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids

from .claims import ClaimedJob, ClaimRequest, Claims

log = logging.getLogger("onejob")


class ServiceLoop:
    """Serves tenants in turn. `room` says how many jobs of a tenant may be claimed now; `handle` gets those of one tenant, and
    reports how they ended. What it raises by mistake concerns this tenant alone.
    """

    def __init__(
        self,
        name: str,  # in log lines
        gate: Gate,
        ids: Ids,
        *,
        type: str,
        lease_ms: int,
        start: bool,  # False: a claim that a crash interrupted can be taken by another process once its lease has ended
        room: Callable[[str], int],
        handle: Callable[[Sequence[ClaimedJob]], Awaitable[None]],
        backoff: Backoff,  # while there is nothing to do
        retention_ms: int = RETENTION_MS,
    ) -> None:
        self._name = name
        self._ids = ids
        self._type = type
        self._lease_ms = lease_ms
        self._start = start
        self._room = room
        self._handle = handle
        self._backoff = backoff
        self._claims = Claims(gate, ids, retention_ms=retention_ms)  # its own, because it takes turns between tenants
        self.has_room = asyncio.Event()  # set it to end a pause

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.has_room.clear()
            try:
                if await self.run_once():
                    self._backoff.reset()
            except OnejobError as error:
                log.warning("%s failed, will retry: %s", self._name, error)
                self._backoff.lengthen()
            except Exception:
                log.exception("%s failed, will retry", self._name)
                self._backoff.lengthen()
            with suppress(TimeoutError):
                async with asyncio.timeout(next(self._backoff)):
                    await self.has_room.wait()

    async def run_once(self) -> int:
        """Handle what is ready now, some of each tenant; returns how many jobs there were."""
        count = 0
        for tenant in await self._claims.turns.next_tenants((self._type,)):
            try:
                count += await self._serve(tenant)
            except OnejobError:
                raise
            except Exception:
                log.exception("%s failed for a tenant, will retry", self._name)
        return count

    async def _serve(self, tenant: str) -> int:
        room = self._room(tenant)
        if room <= 0:
            return 0
        claimed = await self._claims.claim(
            ClaimRequest(
                types=(self._type,),
                holder=self._ids.holder(),
                limit=room,
                lease_ms=self._lease_ms,
                start=self._start,
                tenant=tenant,
            )
        )
        if claimed:
            self._claims.turns.last_tenant = tenant
            await self._handle(claimed)
        return len(claimed)

    def close(self) -> None:
        self._claims.close()
