"""What submissions were answered with, counted since the start: for each tenant, and in all."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from onejob.core.receipt import (
    Conflict,
    Created,
    InProgress,
    KeyHeld,
    Refused,
    Rejected,
    Replayed,
    SequenceAlreadyCommitted,
    SequenceCommitted,
)

TENANTS_MAX = 10_000

OUTCOME_NAMES: Mapping[type[Any], str] = {
    Created: "created",
    SequenceCommitted: "created",
    SequenceAlreadyCommitted: "replayed",
    KeyHeld: "reserved",
    Replayed: "replayed",
    InProgress: "in_progress",
    Conflict: "conflict",
    Rejected: "rejected",
    Refused: "refused",
}


class OutcomeCounter:
    """By word. Of tenants, those that came first leave when there are too many; then they count from zero."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, int]] = {}
        self._evicted: Counter[str] = Counter()  # of tenants that have left

    def count(self, tenant: str, outcome: str) -> None:
        own = self._tenants.get(tenant)
        if own is None:
            own = self._add_tenant(tenant)
        own[outcome] = own.get(outcome, 0) + 1

    def for_tenant(self, tenant: str) -> Mapping[str, int]:
        return self._tenants.get(tenant, {})

    def total(self) -> Mapping[str, int]:
        """Added up when asked for, so that counting costs one look."""
        total = Counter(self._evicted)
        for own in self._tenants.values():
            total.update(own)
        return total

    def _add_tenant(self, tenant: str) -> dict[str, int]:
        if len(self._tenants) >= TENANTS_MAX:
            self._evicted.update(self._tenants.pop(next(iter(self._tenants))))
        self._tenants[tenant] = {}
        return self._tenants[tenant]
