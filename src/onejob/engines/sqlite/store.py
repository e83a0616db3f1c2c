"""One connection: a batch is BEGIN IMMEDIATE, load, fold, store, COMMIT. Used from one thread only."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

import apsw

from onejob.core.facts import Kind
from onejob.core.fold import Changes, Trespass, Wanted, defect_of, fold, gathered
from onejob.core.receipt import AnyReply
from onejob.core.step import Command
from onejob.engines.codec import columns, fact_of, fold_u64, row_of
from onejob.errors import Unavailable, Unknown

from . import schema

_TABLES = {kind: kind.name.lower() for kind in Kind}
_SELECT = {kind: f"SELECT {', '.join(columns(kind))} FROM {_TABLES[kind]} WHERE id IN " for kind in Kind}
_INSERT = {kind: f"INSERT INTO {_TABLES[kind]} ({', '.join(columns(kind))}) VALUES " for kind in Kind}
_UPDATE = {
    kind: f"UPDATE {_TABLES[kind]} SET {', '.join(f'{name} = ?' for name in columns(kind))} "
    "WHERE id = ? AND version = ?"
    for kind in Kind
}
_DELETE = {kind: f"DELETE FROM {_TABLES[kind]} WHERE id = ? AND version = ?" for kind in Kind}
_ADD = 'INSERT INTO attachment (job_id, beside, "index", data) VALUES '
_CUT = 'DELETE FROM attachment WHERE job_id = ? AND beside = ? AND "index" = ?'
_CUT_ALL = "DELETE FROM attachment WHERE job_id = ?"
_IDS_MAX = 4096
_ROWS_MAX = 64
_ROWS_STEP = 8
_COMMANDS_FAULT = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)

Work = Callable[[Sequence[Command[Any]]], list[AnyReply]]


class Store:
    def __init__(self, db: apsw.Connection, now: Callable[[], int]) -> None:
        self.db = db
        self.now = now

    def write(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        """Execute a batch durably."""
        return self._answered(self._attempt, commands)

    def read(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        """Decide commands that change nothing, on what is committed; visible here means synced."""
        return self._answered(self._glance, commands)

    def _answered(self, work: Work, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        """If a command breaks its batch, each is executed alone and only that one fails."""
        try:
            return work(commands)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if isinstance(error, apsw.Error):
                with suppress(apsw.Error):  # the first trouble is the one to tell
                    schema.refuse_newer(self.db)  # else a column that it added would be this command's fault
                if not isinstance(error, _COMMANDS_FAULT):
                    raise
            if len(commands) > 1:
                return self._one_by_one(work, commands)
            return [defect_of(commands[0], error)]

    def _one_by_one(self, work: Work, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        replies: list[AnyReply] = []
        for command in commands:
            try:
                replies += self._answered(work, [command])
            except (apsw.Error, Unavailable) as error:
                if not replies:
                    raise
                raise Unknown(f"the store failed in the middle of a batch ({error}); repeat it") from error
        return replies

    def _glance(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        footprints = [command.footprint for command in commands]
        self.db.execute("BEGIN")
        try:
            working = gathered(footprints, self._fetch)
            replies = fold(commands, footprints, working, self.now())
            assert not working.changes()
            return replies
        finally:
            self._rollback()

    def _attempt(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        footprints = [command.footprint for command in commands]
        self.db.execute("BEGIN IMMEDIATE")
        try:
            working = gathered(footprints, self._fetch)
            replies = fold(commands, footprints, working, self.now())
            changes = working.changes()
            if not changes:
                return replies
            self._save(changes)
            self._commit()
            return replies
        finally:
            self._rollback()

    def _commit(self) -> None:
        try:
            self.db.execute("COMMIT")
        except apsw.IOError as error:
            # The last frame may have reached the disk although its sync failed.
            raise Unknown(f"the disk failed during a commit ({error}); repeat with the same key") from error

    def _rollback(self) -> None:
        if self.db.in_transaction:
            # The first trouble is the one to tell; the connection is given up after it.
            with suppress(apsw.Error):
                self.db.execute("ROLLBACK")

    def _fetch(self, wanted: Wanted) -> list[Any]:
        return [
            fact_of(wanted.kind, row)
            for start in range(0, len(wanted.ids), _IDS_MAX)
            for row in self._select(wanted.kind, wanted.ids[start : start + _IDS_MAX])
        ]

    def _select(self, kind: Kind, ids: list[bytes]) -> list[Any]:
        # Few lengths, so that few statements are prepared: the last id is repeated up to a power of two.
        padded = ids + ids[-1:] * ((1 << (len(ids) - 1).bit_length()) - len(ids))
        marks = f"({','.join('?' * len(padded))})"
        return self.db.execute(_SELECT[kind] + marks, padded).fetchall()

    def _save(self, changes: Changes) -> None:
        db = self.db
        for kind, deletes in changes.deletes.items():
            self._change(_DELETE[kind], [(fact.id, version) for fact, version in deletes])
            if kind is Kind.JOB:
                db.executemany(_CUT_ALL, [(fact.id,) for fact, _ in deletes])
        for kind, inserts in changes.inserts.items():
            self._insert(_INSERT[kind], [row_of(fact) for fact in inserts])
        for kind, updates in changes.updates.items():
            self._change(_UPDATE[kind], [(*row_of(fact), fact.id, version) for fact, version in updates])
        if changes.adds:
            self._insert(
                _ADD, [(add.job_id, int(add.beside), fold_u64(add.index), add.data) for add in changes.adds]
            )
        if changes.cuts:
            db.executemany(_CUT, [(cut.job_id, int(cut.beside), fold_u64(cut.index)) for cut in changes.cuts])

    def _insert(self, head: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows with a few statements: each gives up the interpreter's lock once and must win it back."""
        start = 0
        while start < len(rows):
            # Two statements at most up to the largest, and few lengths, so that few are prepared.
            left = min(_ROWS_MAX, len(rows) - start)
            size = left - left % _ROWS_STEP or left
            part = rows[start : start + size]
            self.db.execute(_with_marks(head, len(part[0]), size), list(chain.from_iterable(part)))
            start += size

    def _change(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        """Change exactly these rows: one that is missing was changed by somebody else."""
        before = self.db.total_changes()
        self.db.executemany(sql, rows)
        if self.db.total_changes() - before != len(rows):
            raise Trespass("a fact was changed by somebody else in the middle of a transaction")


@cache
def _with_marks(head: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return head + ",".join([row] * rows)
