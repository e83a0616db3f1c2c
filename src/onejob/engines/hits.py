"""Hits of records, counted in memory and written down when it suits: to count one durably would make a read a write."""

from onejob.core.upkeep import CountHits

HITS_MAX = 10_000


class Hits:
    """What was counted of each record since it was last written down; of no more records than so many."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Counted] = {}

    def count(self, tenant: str, record_id: bytes, *, conflict: bool) -> None:
        known = self._known.get(record_id)
        if known is None:
            if len(self._known) >= HITS_MAX:
                return
            known = self._known[record_id] = _Counted(tenant)
        if conflict:
            known.conflicts += 1
        else:
            known.hits += 1

    def take(self, *record_ids: bytes) -> list[CountHits]:
        """What was counted since the last call, of these records or of all."""
        if record_ids:
            taken = {id: self._known.pop(id) for id in record_ids if id in self._known}
        else:
            taken, self._known = self._known, {}
        return [
            CountHits(tenant=one.tenant, record_id=id, hits=one.hits, conflicts=one.conflicts)
            for id, one in taken.items()
        ]


class _Counted:
    __slots__ = ("conflicts", "hits", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.hits = 0
        self.conflicts = 0
