"""Counters in memory: outcomes of submissions per tenant, and hits of records that are flushed lazily.

Counting a hit durably would turn a read into a write, so hits are flushed now and then; a crash may lose some.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from onejob.core.maintenance import CountHits
from onejob.core.replies import (
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
    """Submissions by outcome since the start. Beyond TENANTS_MAX the oldest tenants are evicted and start from zero."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, int]] = {}
        self._evicted: Counter[str] = Counter()  # the sums of evicted tenants

    def count(self, tenant: str, outcome: str) -> None:
        own = self._tenants.get(tenant)
        if own is None:
            own = self._add_tenant(tenant)
        own[outcome] = own.get(outcome, 0) + 1

    def for_tenant(self, tenant: str) -> Mapping[str, int]:
        return self._tenants.get(tenant, {})

    def total(self) -> Mapping[str, int]:
        """Summed on demand, so that counting costs one dictionary lookup."""
        total = Counter(self._evicted)
        for own in self._tenants.values():
            total.update(own)
        return total

    def _add_tenant(self, tenant: str) -> dict[str, int]:
        if len(self._tenants) >= TENANTS_MAX:
            self._evicted.update(self._tenants.pop(next(iter(self._tenants))))
        self._tenants[tenant] = {}
        return self._tenants[tenant]


HIT_RECORDS_MAX = 10_000


class HitCounter:
    """Hits and conflicts per record since the last flush, of at most HIT_RECORDS_MAX records."""

    def __init__(self) -> None:
        self._by_record: dict[bytes, _RecordHits] = {}

    def count(self, tenant: str, record_id: bytes, *, conflict: bool) -> None:
        known = self._by_record.get(record_id)
        if known is None:
            if len(self._by_record) >= HIT_RECORDS_MAX:
                return
            known = self._by_record[record_id] = _RecordHits(tenant)
        if conflict:
            known.conflicts += 1
        else:
            known.hits += 1

    def take(self, *record_ids: bytes) -> list[CountHits]:
        """The counts since the last call, of these records or of all."""
        if record_ids:
            taken = {id: self._by_record.pop(id) for id in record_ids if id in self._by_record}
        else:
            taken, self._by_record = self._by_record, {}
        return [
            CountHits(tenant=one.tenant, record_id=id, hits=one.hits, conflicts=one.conflicts)
            for id, one in taken.items()
        ]


class _RecordHits:
    __slots__ = ("conflicts", "hits", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.hits = 0
        self.conflicts = 0
