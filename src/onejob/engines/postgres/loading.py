"""Loading the facts of a batch, kind by kind: each sees what was committed while the one before was waited for."""

from collections.abc import Sequence
from typing import Any

from onejob.core.facts import Kind
from onejob.core.fold import Changes, LoadRequest, WorkingSet, load_facts
from onejob.core.step import Footprint
from onejob.engines.codec import fact_from_row

from .statements import Statements
from .timing import ServerClock

# Read by every command of a tenant and written rarely: readers do not wait for each other.
_SHARED_LOCK_KIND = Kind.POLICY
_LEADING_COLUMNS = 2  # the clock and the standbys come before the columns of a fact


class LoadedBatch:
    """The facts of a batch, when they were loaded, and what was looked for and is not there."""

    def __init__(self) -> None:
        self.working_set = WorkingSet()
        self.first_read_at = 0
        self.locked_at = 0
        self.standbys = ""
        self._missing: list[tuple[Kind, list[bytes]]] = []
        self._last_kind: Kind | None = None

    def add_rows(self, request: LoadRequest, rows: Sequence[Any]) -> list[Any]:
        found = [
            fact_from_row(request.kind, row[_LEADING_COLUMNS:])
            for row in rows
            if row[_LEADING_COLUMNS] is not None
        ]
        if len(found) < len(request.ids):
            there = {fact.id for fact in found}
            self._missing.append((request.kind, [id for id in request.ids if id not in there]))
        self.update_clock(rows)
        self._last_kind = request.kind
        return found

    def update_clock(self, rows: Sequence[Any]) -> None:
        self.locked_at = int(rows[-1][0])
        self.first_read_at = self.first_read_at or int(rows[0][0])
        self.standbys = rows[0][1]

    def ids_to_recheck(self, changes: Changes) -> dict[Kind, list[bytes]]:
        """What was seen not to be there, is not made, and was not looked for last: it must be looked for again."""
        absent: dict[Kind, list[bytes]] = {}
        for kind, ids in self._missing:
            if kind is self._last_kind:
                continue
            made = {fact.id for fact in changes.inserts.get(kind, ())}
            left = [id for id in ids if id not in made]
            if left:
                absent[kind] = left
        return absent


async def load_batch(
    connection: Any,
    clock: ServerClock,
    statements: Statements,
    footprints: Sequence[Footprint],
    *,
    locking: bool = False,
    exclusive: bool = False,
) -> LoadedBatch:
    loaded = LoadedBatch()
    loading = load_facts(footprints)
    try:
        wanted = next(loading)
        while True:
            lock = ""
            if locking:
                lock = "FOR UPDATE" if exclusive or wanted.kind is not _SHARED_LOCK_KIND else "FOR SHARE"
            sent = clock.monotonic()
            rows = await connection.fetch(statements.load_sql(wanted.kind, lock), wanted.ids)
            clock.observe(rows[-1][0], sent)
            wanted = loading.send(loaded.add_rows(wanted, rows))
    except StopIteration as done:
        loaded.working_set = done.value
    if not loaded.locked_at:  # nothing is asked for, but the time is
        sent = clock.monotonic()
        rows = await connection.fetch(statements.clock_sql)
        clock.observe(rows[-1][0], sent)
        loaded.update_clock(rows)
    return loaded
