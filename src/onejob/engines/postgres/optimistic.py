"""Changes facts in two round trips, without I/O: load on one snapshot, decide, then one statement that verifies and stores.

Nothing is locked or announced between the two. The statement itself does what the locked path does, in the same order:

1. It announces whom it concerns (`barrier`).
2. It locks every row that was read, unless another transaction holds it, and only if it is the very row that was read:
   of the same version, and stored by the same transaction (`xmin`). A record that was deleted and created again may
   have the same version, but never the same `xmin`.
3. When it holds them, it verifies with a new snapshot that what was absent still is. Facts that it inserts are proved
   absent by the unique index.
4. It stores all changes, checks its timestamp, and commits by itself.

If any of this fails, it raises, nothing is stored, and the batch takes the locked path. The statement waits for no row, so
it takes no part in a deadlock.

Facts that this process has stored last are not loaded (`fact_cache.py`); the statement verifies them like a load.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from onejob.core.batch import Changes, LoadRequest, WorkingSet, load_facts
from onejob.core.command import Footprint
from onejob.core.facts import Fact, Kind
from onejob.core.ledger_settings import SETTINGS_POLICY_ID
from onejob.engines.codec import columns, fact_from_row

from .announcements import announcement
from .parts import (
    INLINE_ATTACHMENTS_MAX,
    INLINE_ROWS_MAX,
    InlineCounts,
    attachment_deletions,
    inserts_and_updates,
    rows_to_values,
)
from .statements import NO_KIND, Statements
from .transaction import STAMP_LAG_MS_MAX, Statement

FoundFacts = Mapping[bytes, tuple[Fact, int]]  # each with its xmin


class _StoredRow(NamedTuple):
    id: bytes
    version: int
    xmin: int


class LoadedSnapshot:
    """The facts of a batch as one statement has read them, and which of its ids were absent."""

    def __init__(self) -> None:
        self.working_set = WorkingSet()
        self.clock = 0.0
        self.decided_at = 0
        self.standbys = ""
        self.present: dict[Kind, list[_StoredRow]] = {}
        self.absent: dict[Kind, list[bytes]] = {}

    @property
    def read_at(self) -> int:
        return int(self.clock)

    def versions(self) -> dict[bytes, int]:
        """The version of every fact that was asked for; 0: absent."""
        versions = {row.id: row.version for rows in self.present.values() for row in rows}
        return versions | dict.fromkeys((id for ids in self.absent.values() for id in ids), 0)


def snapshot_statement(statements: Statements, footprints: Sequence[Footprint]) -> Statement:
    """Loads all kinds at once. It follows as `load_facts` does, for the whole batch: it may load more, never less."""
    named: dict[Kind, set[bytes]] = {kind: set() for kind in Kind}
    follows_jobs = follows_usage = False
    for f in footprints:
        named[Kind.RECORD].add(f.record)
        named[Kind.JOB].update(f.jobs)
        named[Kind.STREAM].add(f.stream)
        named[Kind.USAGE].add(f.usage)
        named[Kind.POLICY].add(f.policy)
        if f.precondition is not None:
            named[Kind.POLICY].add(f.precondition.policy_id)
        if f.settings:
            named[Kind.POLICY].add(SETTINGS_POLICY_ID)
        named[Kind.MEMO].add(f.memo)
        follows_jobs |= bool(f.record) and f.follow_jobs
        follows_usage |= f.follow_usage
    ids = {kind: sorted(ids - {b""}) for kind, ids in named.items()}
    follows_usage &= follows_jobs or bool(ids[Kind.JOB])
    followed = {Kind.JOB} if follows_jobs else set()
    followed |= {Kind.USAGE} if follows_usage else set()
    kinds = tuple(kind for kind in Kind if ids[kind] or kind in followed)
    sql = statements.snapshot_sql(kinds, follows_jobs=follows_jobs, follows_usage=follows_usage)
    return Statement(sql, [ids[kind] for kind in kinds])


def read_snapshot(footprints: Sequence[Footprint], rows: Sequence[Any]) -> LoadedSnapshot:
    snapshot = LoadedSnapshot()
    (clock_row,) = (row for row in rows if row[0] == NO_KIND)
    _, snapshot.clock, snapshot.standbys, *_ = clock_row
    snapshot.decided_at = snapshot.read_at
    found = _facts_by_kind(row for row in rows if row is not clock_row)
    fill_snapshot(snapshot, footprints, found)
    return snapshot


def fill_snapshot(snapshot: LoadedSnapshot, footprints: Sequence[Footprint], found: Mapping[Kind, FoundFacts]) -> None:
    """Take what a batch needs; what is not found is absent."""
    loading = load_facts(footprints)
    try:
        request = next(loading)
        while True:
            request = loading.send(_take_requested(snapshot, found[request.kind], request))
    except StopIteration as done:
        snapshot.working_set = done.value


def _facts_by_kind(rows: Iterable[Any]) -> dict[Kind, dict[bytes, tuple[Fact, int]]]:
    found: dict[Kind, dict[bytes, tuple[Fact, int]]] = {kind: {} for kind in Kind}
    for row in rows:
        kind, start = Kind(row[0]), row[3]
        fact = fact_from_row(kind, row[start : start + len(columns(kind))])
        found[kind][fact.id] = fact, row[4]
    return found


def _take_requested(snapshot: LoadedSnapshot, found: FoundFacts, request: LoadRequest) -> list[Fact]:
    facts: list[Fact] = []
    for id in request.ids:
        if id in found:
            fact, xmin = found[id]
            facts.append(fact)
            snapshot.present.setdefault(request.kind, []).append(_StoredRow(id, fact.version, xmin))
        else:
            snapshot.absent.setdefault(request.kind, []).append(id)
    return facts


def may_change(snapshot: LoadedSnapshot, changes: Changes) -> bool:
    """False if it takes the locked path: it deletes, or it has many rows, whose price is higher than that of a round trip."""
    if changes.deletes or _attachments_max(changes) > INLINE_ATTACHMENTS_MAX:
        return False
    return _facts_max(snapshot, changes) <= INLINE_ROWS_MAX


def _facts_max(snapshot: LoadedSnapshot, changes: Changes) -> int:
    """The largest number of facts of one kind that are held, inserted or updated."""
    facts = (*snapshot.present.values(), *changes.inserts.values(), *changes.updates.values())
    return max(map(len, facts), default=0)


def _attachments_max(changes: Changes) -> int:
    return max(len(changes.attachments), len(changes.trims))


def change_statement(
    statements: Statements, footprints: Sequence[Footprint], snapshot: LoadedSnapshot, changes: Changes
) -> Statement:
    """Verifies what the snapshot has shown, stores the changes, and commits by itself."""
    inline = InlineCounts.for_at_least(_facts_max(snapshot, changes), _attachments_max(changes))
    held_values: list[Any] = []
    for rows in snapshot.present.values():
        held_values += rows_to_values(rows, inline.facts)
    absent = _absent_and_not_inserted(snapshot, changes)
    stored, trims = inserts_and_updates(changes, inline), attachment_deletions(changes, inline)
    values = [
        snapshot.decided_at,
        STAMP_LAG_MS_MAX,
        *announcement(footprints),
        *held_values,
        *absent.values(),
        sum(map(len, snapshot.present.values())),
        sum(count for count in stored.expected if count is not None),
        *stored.values,
        *trims.values,
    ]
    if changes.settled_records:
        values.append([id.hex() for id in changes.settled_records])
    sql = statements.verified_changes_sql(
        tuple((kind, kind is Kind.POLICY and kind not in changes.updates) for kind in snapshot.present),
        tuple(absent),
        stored.parts + trims.parts,
        (*(inline.facts for _ in snapshot.present), *stored.row_counts, *trims.row_counts),
        notifies=bool(changes.settled_records),
    )
    return Statement(sql, values)


def _absent_and_not_inserted(snapshot: LoadedSnapshot, changes: Changes) -> dict[Kind, list[bytes]]:
    absent: dict[Kind, list[bytes]] = {}
    for kind, ids in snapshot.absent.items():
        inserted = {fact.id for fact in changes.inserts.get(kind, ())}
        if left := [id for id in ids if id not in inserted]:
            absent[kind] = left
    return absent
