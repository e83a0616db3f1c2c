"""Remembers the facts that this process will soon change again, so that it can decide about them without a load.

The process that wrote a held key or a running job last usually changes it next, so it can skip the load. What is
remembered is only a guess: the statement that stores a change verifies the facts it was decided on, whether they were
loaded or remembered (`optimistic.py`). If they are old, nothing is stored, they are forgotten, and the batch is loaded.

Everything is forgotten when a connection is opened: after a failover another row may have the version and the xmin of one
that was lost.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any
from weakref import WeakSet

from onejob.core.batch import Changes
from onejob.core.command import Footprint
from onejob.core.facts import Fact, Job, Kind
from onejob.core.states import JobState

from .optimistic import LoadedSnapshot, fill_snapshot

# Facts of each kind that are remembered at most, and for how long: an xmin is reused after four billion transactions.
REMEMBERED_MAX = 2000
REMEMBERED_SECONDS = 600.0
READY_PAUSE_SCANS = 16


class FactCache:
    """Held keys, and jobs that are prepared or run, as this process has last stored them; ready jobs as it has found them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._facts: dict[Kind, dict[bytes, tuple[Fact, int]]] = {kind: {} for kind in Kind}
        self._connections: WeakSet[Any] = WeakSet()
        self._forget_at = 0.0
        self._ready_pause = 0

    def recall(self, footprints: Sequence[Footprint]) -> LoadedSnapshot | None:
        """What `read_snapshot` would return if nothing has changed; None unless the main facts are remembered.

        Others that are not remembered are taken for absent, except usages, which are never remembered: whoever submits for
        the same user changes them.
        """
        facts = self._facts
        records, jobs = facts[Kind.RECORD], facts[Kind.JOB]
        for f in footprints:
            if (f.record not in records) if f.record else not f.jobs or f.jobs[0] not in jobs:
                return None
        snapshot = LoadedSnapshot()
        fill_snapshot(snapshot, footprints, facts)
        return None if Kind.USAGE in snapshot.absent else snapshot

    def remember_stored(self, changes: Changes, xmin: int) -> None:
        """Remember held keys and jobs that are prepared or run; forget what was remembered of the others."""
        self.forget_stored(changes)
        for record in _stored_facts(changes, Kind.RECORD):
            if record.lease_until:
                self._add(Kind.RECORD, record, xmin)
        for job in _stored_facts(changes, Kind.JOB):
            if job.lease_until or job.state is JobState.PREPARING:
                self._add(Kind.JOB, job, xmin)

    def remember_ready(self, found: Iterable[tuple[Job, int]]) -> None:
        """Jobs that are probably about to be claimed. Where other processes claim them first, that is not tried for a while."""
        if self._ready_pause:
            self._ready_pause -= 1
            return
        for job, xmin in found:
            if job.id not in self._facts[Kind.JOB]:  # what is stored since the scan began is newer
                self._add(Kind.JOB, job, xmin)

    def forget_stored(self, changes: Changes) -> None:
        """Forget what a commit has changed."""
        for kind, updates in changes.updates.items():
            for fact, _ in updates:
                self._facts[kind].pop(fact.id, None)

    def forget(self, ids: Iterable[bytes]) -> None:
        """After a change that was decided on facts of these ids, and found others."""
        self._ready_pause = READY_PAUSE_SCANS
        for id in ids:
            for facts in self._facts.values():
                facts.pop(id, None)

    def note_connection(self, connection: Any) -> None:
        """Called before the connection is used."""
        now = self._monotonic()
        if now < self._forget_at and connection in self._connections:
            return
        self._connections.add(connection)
        self._forget_at = now + REMEMBERED_SECONDS
        for facts in self._facts.values():
            facts.clear()

    def _add(self, kind: Kind, fact: Fact, xmin: int) -> None:
        facts = self._facts[kind]
        facts.pop(fact.id, None)  # so that it becomes the newest
        facts[fact.id] = fact, xmin
        if len(facts) > REMEMBERED_MAX:
            del facts[next(iter(facts))]


def _stored_facts(changes: Changes, kind: Kind) -> Iterable[Any]:
    return chain(changes.inserts.get(kind, ()), (fact for fact, _ in changes.updates.get(kind, ())))
