"""Inserts a batch of new facts with one statement, which begins, verifies, inserts and commits without the GIL.

The plain path (`SqliteStore.write`) loads, decides and stores with about ten statements, each of which releases the
interpreter's lock (GIL) and must win it back. Here the event loop decides the batch as if none of its facts existed
(`decide_optimistic_insert`). The writer thread inserts all rows into a temporary view, whose trigger puts them where
they belong. In SQLite's autocommit mode that is one step: while the thread is in it, the loop prepares the next batch.

The rules of this file:

1. What the decision assumed is verified by the statement: unique indexes refuse a record, job or attachment that exists,
   the trigger refuses a usage or a policy that exists, and a policy that is not as a precondition expects it.
2. The date of a batch is read before it is written, so nothing may be committed in between that it could contradict: a
   deletion, after which a key would be new before it was gone. The writer knows its own commits (`TimestampGuard`), and
   the trigger compares the ledger and its generation, which every commit advances: with the commit of another process
   in between the batch is refused. A batch that waited longer than LAG_MS_MAX is not inserted here either.
3. Whatever is refused goes the plain way, whole: the statement was rolled back, and nothing of it was stored.
4. An error of the disk may hide a commit, so its outcome is unknown.

A row of the view carries up to one record, one job, one attachment and one of each check; they need not belong together.
"""

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import apsw

from onejob.core.batch import OptimisticInsert, decide_optimistic_insert
from onejob.core.command import Command
from onejob.core.facts import Attachment, Kind
from onejob.core.replies import AnyReply
from onejob.engines.codec import columns, new_fact_columns, new_fact_defaults, new_fact_rows, u64_to_signed
from onejob.errors import Unknown

# Older batches are decided again, so that no date lags far behind the time of its reply.
LAG_MS_MAX = 250
# Larger batches take the plain path, which needs 5 µs less for a row than the view, and not many more statements. Besides,
# apsw keeps no statement prepared whose text is longer than 16 KiB.
ROWS_MAX = 128
_ROWS_STEP = 8  # rows are filled up to a multiple of it: fewer lengths, fewer prepared statements
# Errors after which nothing was stored and the plain path can say whose fault it is.
_REFUSALS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.SQLError)


_ATTACHMENT_COLUMNS = ("job_id", "kind", "index", "data")
_LEDGER_COLUMNS = ("ledger_id", "generation")
_CHECK_COLUMNS = ("absent_usage", "absent_policy", "policy_id", "policy_tenant", "policy_body", "decided_at")
_LEDGER_CHECKS = (
    4  # the last columns: the row of the ledger carries a precondition, most often that of all, the settings
)
_ROW_COLUMNS = (
    *(f"record_{name}" for name in new_fact_columns(Kind.RECORD)),
    *(f"job_{name}" for name in new_fact_columns(Kind.JOB)),
    *(f"attachment_{name}" for name in _ATTACHMENT_COLUMNS),
    *_CHECK_COLUMNS,
)


def _insert_sql(kind: Kind) -> str:
    table = kind.name.lower()
    new = [f"NEW.{table}_{name}" for name in new_fact_columns(kind)]
    values = ", ".join((*new, *map(apsw.format_sql_value, new_fact_defaults(kind))))
    return f"INSERT INTO {table} ({', '.join(columns(kind))}) SELECT {values} WHERE NEW.{table}_id IS NOT NULL"


# TEMP: they belong to the connection and are not stored. Tables are named without a schema, as SQLite demands of a trigger.
# One trigger does everything, because each one costs 0.4 µs per row, whether or not its WHEN is true.
_SETUP = f"""
CREATE TEMP VIEW new_facts ({", ".join((*_LEDGER_COLUMNS, *_ROW_COLUMNS))}) AS
SELECT {", ".join(["NULL"] * len((*_LEDGER_COLUMNS, *_ROW_COLUMNS)))};

CREATE TEMP TRIGGER insert_new_facts INSTEAD OF INSERT ON new_facts BEGIN
    SELECT RAISE(ABORT, 'another process has written')
    WHERE NEW.ledger_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM ledger WHERE id = NEW.ledger_id AND generation = NEW.generation);
    UPDATE ledger SET generation = generation + 1 WHERE id = NEW.ledger_id;

    SELECT RAISE(ABORT, 'a limit exists')
    WHERE EXISTS (SELECT 1 FROM usage WHERE id = NEW.absent_usage)
        OR EXISTS (SELECT 1 FROM policy WHERE id = NEW.absent_policy);
    SELECT RAISE(ABORT, 'a precondition is not met')
    WHERE NEW.policy_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM policy WHERE id = NEW.policy_id AND tenant = NEW.policy_tenant AND body = NEW.policy_body
            AND changed_at <= NEW.decided_at AND (expires_at <= 0 OR expires_at >= NEW.decided_at)
    );

    {_insert_sql(Kind.RECORD)};
    {_insert_sql(Kind.JOB)};
    INSERT INTO attachment (job_id, kind, "index", data)
    SELECT NEW.attachment_job_id, NEW.attachment_kind, NEW.attachment_index, NEW.attachment_data
    WHERE NEW.attachment_job_id IS NOT NULL;
END;
"""

_Row = Sequence[Any]
_NO_RECORD: _Row = (None,) * len(new_fact_columns(Kind.RECORD))
_NO_JOB: _Row = (None,) * len(new_fact_columns(Kind.JOB))
_NO_ATTACHMENT: _Row = (None,) * len(_ATTACHMENT_COLUMNS)
_NO_POLICY: _Row = (None,) * 3
_NO_CHECKS: _Row = (None,) * len(_CHECK_COLUMNS)
_EMPTY_ROW: _Row = (None,) * len(_ROW_COLUMNS)


class TimestampGuard:
    """Whether a batch that was decided at some time may still be inserted with that date (rule 2)."""

    def __init__(self, now: int) -> None:
        self._not_before = now  # whatever was decided before may contradict what has been committed since

    def allows(self, decided_at: int, now: int) -> bool:
        return max(self._not_before, now - LAG_MS_MAX) <= decided_at <= now

    def record_commit(self, now: int, *, generations: int, has_deletes: bool) -> None:
        """Record a commit of this writer after which the ledger is `generations` ahead of its last one, usually 1.

        More of them are commits of other processes, of which nothing is known but that they are over.
        """
        if has_deletes or generations != 1:
            self._not_before = now


class PreparedInsert(NamedTuple):
    """A batch that was decided as if none of its facts existed, as values for `new_facts`."""

    replies: list[AnyReply]
    decided_at: int
    values: list[Any]


def prepare_insert(commands: Sequence[Command[Any]], now: int) -> PreparedInsert | None:
    """Decide a batch that usually creates all its facts; None unless `insert` can store what was decided.

    A command that fails must not fail the others: the plain path finds it.
    """
    try:
        footprints = [command.footprint for command in commands]
        if any(footprint.not_after for footprint in footprints):
            return None  # to be judged when it is written
        decided = decide_optimistic_insert(commands, footprints, now)
        rows = None if decided is None else _to_rows(decided, now)
        if decided is None or rows is None or len(rows[1]) > ROWS_MAX:
            return None
        return PreparedInsert(decided.replies, now, _to_values(*rows))
    except Exception:  # noqa: BLE001 - the plain path meets and reports it
        return None


def _to_rows(decided: OptimisticInsert, now: int) -> tuple[_Row, list[tuple[_Row, ...]]] | None:
    """What the row of the ledger checks, and the other rows, in pieces; None if a fact or a check has no place in them."""
    inserts, absent = decided.changes.inserts, decided.absent
    if not inserts.keys() <= {Kind.RECORD, Kind.JOB} or not absent.keys() <= {Kind.USAGE, Kind.POLICY}:
        return None
    records = new_fact_rows(Kind.RECORD, inserts.get(Kind.RECORD, ()))
    jobs = new_fact_rows(Kind.JOB, inserts.get(Kind.JOB, ()))
    if records is None or jobs is None:
        return None
    attachments = map(_attachment_values, decided.changes.attachments)
    first, *others = zip(*decided.preconditions, strict=True) if decided.preconditions else [_NO_POLICY]
    checks = zip_longest(absent.get(Kind.USAGE, ()), absent.get(Kind.POLICY, ()), others)
    checked = [(usage, policy, *(expected or _NO_POLICY), now) for usage, policy, expected in checks]
    rows: list[tuple[_Row, ...]] = [
        (record or _NO_RECORD, job or _NO_JOB, attachment or _NO_ATTACHMENT, check or _NO_CHECKS)
        for record, job, attachment, check in zip_longest(records, jobs, attachments, checked)
    ]
    return (*first, now), rows


def _attachment_values(attachment: Attachment) -> _Row:
    return attachment.job_id, int(attachment.kind), u64_to_signed(attachment.index), attachment.data


def _to_values(ledger_checks: _Row, rows: list[tuple[_Row, ...]]) -> list[Any]:
    """The values of one statement; the first two are for the ledger and its generation."""
    values: list[Any] = [None, None, *ledger_checks]
    for pieces in rows:
        for piece in pieces:
            values += piece
    for _ in range(_padded(len(rows)) - len(rows)):
        values += _EMPTY_ROW
    return values


def _padded(rows: int) -> int:
    return rows if rows < _ROWS_STEP else -(-rows // _ROWS_STEP) * _ROWS_STEP


@cache
def _insert_statement(values: int) -> str:
    """The ledger first, so that a batch that comes too late costs no insert."""
    rows = values // len(_ROW_COLUMNS)  # the ledger's row has fewer values than another row
    unused = len(_ROW_COLUMNS) - _LEDGER_CHECKS
    ledger = f"(?,?,{','.join(['NULL'] * unused + ['?'] * _LEDGER_CHECKS)})"
    row = f"(NULL,NULL,{','.join('?' * len(_ROW_COLUMNS))})"
    return f"INSERT INTO new_facts VALUES {','.join([ledger] + [row] * rows)}"


def set_up(db: apsw.Connection) -> None:
    """Create the view and its trigger on the connection that writes."""
    db.execute(_SETUP)


def insert(db: apsw.Connection, prepared: PreparedInsert, ledger_id: str, generation: int) -> bool:
    """Store a prepared batch and advance the generation; False if something exists that was taken for absent.

    `SqliteStore.write` is the plain twin. tests/engines/test_sqlite_insert_fast_internals.py compares the two.
    """
    values = prepared.values
    values[:2] = ledger_id, generation
    try:
        db.execute(_insert_statement(len(values)), values)
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
            raise  # a damaged page was read, before anything was written
        # The last frame may have reached the disk although its sync failed.
        raise Unknown(f"the disk failed during a commit ({error}); retry with the same key") from error
    except apsw.Error as error:
        if isinstance(error, _REFUSALS):
            return False
        raise
    except (OverflowError, TypeError, UnicodeError):  # a value that cannot be bound
        return False
    return True
