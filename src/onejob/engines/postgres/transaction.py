"""What a batch does inside a transaction, as generators without I/O: load under locks, decide, store.

A generator yields a `Statement` and is sent its rows, so that the engine's connections and a connection that a caller
lends (`callers_transaction.py`) execute the same statements.

Locks are taken kind by kind, each in the order of ids. A batch inserts, in the same order, only when it has all its
locks, and deletes only when it has inserted: so two batches never wait for each other in a circle. A row that does not
exist cannot be locked. A batch that creates it meets the unique index; a batch that only saw its absence checks
again when it holds all locks. Either way the batch is then loaded again.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from onejob.core.batch import (
    Changes,
    FootprintViolation,
    LoadRequest,
    WorkingSet,
    load_facts,
)
from onejob.core.command import Footprint
from onejob.core.facts import Kind
from onejob.engines.codec import fact_from_row

from .announcements import announcement
from .parts import (
    BoundParts,
    attachment_deletions,
    deletions,
    inserts_and_updates,
    with_checks_and_notifications,
)
from .statements import Statements

# By how much the timestamp of a batch that is decided before it is sent may lag behind the server's clock. A batch that
# deletes waits as long before it commits, so that no later batch gets a timestamp before the deletion.
STAMP_LAG_MS_MAX = 40
WRITE_CONFLICTS_MAX = 20
EMIT_WAL_MESSAGE = "SELECT pg_logical_emit_message(true, 'onejob', '')"
# Policies are read by every command of a tenant and seldom written: readers do not block each other.
_SHARED_LOCK_KIND = Kind.POLICY
_LEADING_COLUMNS = 2  # clock and standbys come before the columns of a fact

T = TypeVar("T")


class Statement(NamedTuple):
    sql: str
    values: Sequence[Any] = ()


Rows = Sequence[Sequence[Any]]
Steps = Generator[Statement, Rows, T]


class WriteConflict(Exception):
    """The facts changed while they were loaded, or need exclusive locks."""


class LoadedBatch:
    """The facts of a batch, when they were loaded, and which ids were not found."""

    def __init__(self) -> None:
        self.working_set = WorkingSet()
        self.first_read_at = 0
        self.locked_at = 0
        self.standbys = ""
        self._missing: list[tuple[Kind, list[bytes]]] = []
        self._last_kind: Kind | None = None

    def add_rows(self, request: LoadRequest, rows: Sequence[Any]) -> list[Any]:
        facts = [
            fact_from_row(request.kind, row[_LEADING_COLUMNS:]) for row in rows if row[_LEADING_COLUMNS] is not None
        ]
        if len(facts) < len(request.ids):
            found = {fact.id for fact in facts}
            self._missing.append((request.kind, [id for id in request.ids if id not in found]))
        self.update_clock(rows)
        self._last_kind = request.kind
        return facts

    def update_clock(self, rows: Sequence[Any]) -> None:
        self.locked_at = int(rows[-1][0])
        self.first_read_at = self.first_read_at or int(rows[0][0])
        self.standbys = rows[0][1]

    def ids_to_recheck(self, changes: Changes) -> dict[Kind, list[bytes]]:
        """Ids that were not found and are not inserted. Those of the last kind were read when all locks were held."""
        absent: dict[Kind, list[bytes]] = {}
        for kind, ids in self._missing:
            if kind is self._last_kind:
                continue
            created = {fact.id for fact in changes.inserts.get(kind, ())}
            if not_created := [id for id in ids if id not in created]:
                absent[kind] = not_created
        return absent


def load_steps(
    statements: Statements,
    footprints: Sequence[Footprint],
    *,
    locking: bool = False,
    exclusive: bool = False,
    announces: bool = True,
) -> Steps[LoadedBatch]:
    """Load kind by kind, so that each statement sees what was committed while the one before waited for locks."""
    loaded = LoadedBatch()
    loading = load_facts(footprints)
    announced: tuple[int, ...] = announcement(footprints) if locking and announces else ()
    try:
        request = next(loading)
        while True:
            lock = ""
            if locking:
                lock = "FOR UPDATE" if exclusive or request.kind is not _SHARED_LOCK_KIND else "FOR SHARE"
            sql = statements.load_sql(request.kind, lock, announces=bool(announced))
            rows = yield Statement(sql, (request.ids, *announced))
            announced = ()
            request = loading.send(loaded.add_rows(request, rows))
    except StopIteration as done:
        loaded.working_set = done.value
    if not loaded.locked_at:  # the batch needs no facts, but it needs the time
        loaded.update_clock((yield Statement(statements.clock_sql)))
    return loaded


def save_steps(statements: Statements, changes: Changes, loaded: LoadedBatch) -> Steps[None]:
    writes = with_checks_and_notifications(
        inserts_and_updates(changes), loaded.ids_to_recheck(changes), changes.settled_records
    )
    for bound in (attachment_deletions(changes), writes, deletions(changes)):
        if bound.parts:
            (counts,) = yield Statement(statements.changes_sql(bound.parts), bound.values)
            _check_counts(bound, counts)
    if changes.deletes:
        wait = f"SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - {statements.now}) / 1000)"
        yield Statement(wait, (loaded.locked_at, STAMP_LAG_MS_MAX))


def _check_counts(bound: BoundParts, counts: Sequence[Any]) -> None:
    """Raise unless every part has changed the expected number of rows."""
    for part, count, expected in zip(bound.parts, counts, bound.expected, strict=True):
        if expected is not None and count != expected:
            if part.action == "absent":
                raise WriteConflict("a fact that was absent was created in the meantime")
            raise FootprintViolation("a fact was changed by another transaction in the middle of this one")
