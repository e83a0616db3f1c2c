"""Hits of records, counted in memory and written down when it suits: to count one durably would make a read a write."""

from onejob.core.upkeep import CountHits

HIT_RECORDS_MAX = 10_000


class HitCounter:
    """What was counted of each record since it was last written down; of no more records than so many."""

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
        """What was counted since the last call, of these records or of all."""
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
