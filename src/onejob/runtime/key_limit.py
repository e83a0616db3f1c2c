"""The limit on live keys per tenant: which of the tenants that submit in this process have reached it.

Maintenance looks at the shared counts of those tenants, so that no submission needs another read. Whether a key is refused is
decided in the core, which knows if it is new.
"""

import asyncio
from typing import TypeVar

from msgspec.structs import replace

from onejob.core.errors import Invalid
from onejob.core.quota import KeyLimit
from onejob.core.reserve import Reserve
from onejob.core.sequence import SubmitSequence
from onejob.core.submit import StoreKey, Submit

from .counts import JobCounts

LIVE_KEYS_MAX = 10**12
TENANTS_MAX = 1000  # that one run of maintenance looks at; others have their turn in a later one

C = TypeVar("C", Submit, Reserve, SubmitSequence, StoreKey)


class LiveKeyLimit:
    """The limit of one ledger; None: there is none."""

    def __init__(self, counts: JobCounts, allowed: int | None) -> None:
        self._counts = counts
        self._allowed = allowed
        self._seen: set[str] = set()
        self._reached: dict[str, KeyLimit] = {}

    def apply(self, command: C) -> C:
        """The command, with the limit if its tenant has reached it as far as this process knows."""
        if self._allowed is None:
            return command
        if len(self._seen) < TENANTS_MAX:
            self._seen.add(command.tenant)
        limit = self._reached.get(command.tenant)
        return command if limit is None else replace(command, key_limit=limit)

    async def refresh(self) -> None:
        """Look at the tenants that submitted since the last call, and at those that had reached the limit."""
        if self._allowed is None:
            return
        tenants = list(self._seen | self._reached.keys())
        self._seen = set()
        snapshots = await asyncio.gather(*(self._counts.load(tenant, wait=True) for tenant in tenants))
        counted = {tenant: snapshot.keys for tenant, (snapshot, _) in zip(tenants, snapshots, strict=True)}
        self._reached = {
            tenant: KeyLimit(self._allowed, keys) for tenant, keys in counted.items() if keys >= self._allowed
        }


def checked_live_keys_max(value: int | None) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value <= LIVE_KEYS_MAX):
        raise Invalid(
            "live_keys_max", f"live_keys_max is a whole number from 1 to {LIVE_KEYS_MAX}; choose one, or none"
        )
    return value
