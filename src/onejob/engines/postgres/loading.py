"""Loading the facts of a batch, kind by kind: each sees what was committed while the one before was waited for."""

from collections.abc import Sequence
from typing import Any

from onejob.core.facts import Kind
from onejob.core.fold import Changes, Wanted, Working, gather
from onejob.core.step import Footprint
from onejob.engines.codec import fact_of

from .statements import Statements
from .timing import ServerClock

# Read by every command of a tenant and written rarely: readers do not wait for each other.
_SHARED = Kind.POLICY
_HEAD = 2  # the clock and the standbys come before the columns of a fact


class Loaded:
    """The facts of a batch, when they were loaded, and what was looked for and is not there."""

    def __init__(self) -> None:
        self.working = Working()
        self.begun_at = 0
        self.held_at = 0
        self.standbys = ""
        self._missing: list[tuple[Kind, list[bytes]]] = []
        self._last: Kind | None = None

    def take(self, wanted: Wanted, rows: Sequence[Any]) -> list[Any]:
        found = [fact_of(wanted.kind, row[_HEAD:]) for row in rows if row[_HEAD] is not None]
        if len(found) < len(wanted.ids):
            there = {fact.id for fact in found}
            self._missing.append((wanted.kind, [id for id in wanted.ids if id not in there]))
        self.note(rows)
        self._last = wanted.kind
        return found

    def note(self, rows: Sequence[Any]) -> None:
        self.held_at = int(rows[-1][0])
        self.begun_at = self.begun_at or int(rows[0][0])
        self.standbys = rows[0][1]

    def absent(self, changes: Changes) -> dict[Kind, list[bytes]]:
        """What was seen not to be there, is not made, and was not looked for last: it must be looked for again."""
        absent: dict[Kind, list[bytes]] = {}
        for kind, ids in self._missing:
            if kind is self._last:
                continue
            made = {fact.id for fact in changes.inserts.get(kind, ())}
            left = [id for id in ids if id not in made]
            if left:
                absent[kind] = left
        return absent


async def load(
    connection: Any,
    clock: ServerClock,
    words: Statements,
    footprints: Sequence[Footprint],
    *,
    locking: bool = False,
    firmly: bool = False,
) -> Loaded:
    loaded = Loaded()
    loading = gather(footprints)
    try:
        wanted = next(loading)
        while True:
            lock = ""
            if locking:
                lock = "FOR UPDATE" if firmly or wanted.kind is not _SHARED else "FOR SHARE"
            sent = clock.monotonic()
            rows = await connection.fetch(words.loading(wanted.kind, lock), wanted.ids)
            clock.heard(rows[-1][0], sent)
            wanted = loading.send(loaded.take(wanted, rows))
    except StopIteration as done:
        loaded.working = done.value
    if not loaded.held_at:  # nothing is asked for, but the time is
        sent = clock.monotonic()
        rows = await connection.fetch(words.time)
        clock.heard(rows[-1][0], sent)
        loaded.note(rows)
    return loaded
