"""Executes commands in a transaction that a caller began and will commit, as generators without I/O.

The rules of this file:

1. Nothing raises but the server. A key that exists, a limit, a refusal: all of them leave the transaction as it was,
   usable. Only what the caller's own retry loop knows (a serialization failure, a deadlock, a lock timeout) is
   raised, by the driver and as the driver raises it.
2. A session that cannot keep the promise of a receipt stores nothing. That is a condition of the statement that stores,
   not a check after it: a caller may catch the refusal and commit all the same.
3. A hit takes no lock. The transaction may last, and every other duplicate of the key would wait for it.
4. Nothing is remembered that only the commit makes true.

A new key takes one statement, a known one two, a user with limits at most four. The row of a new key is dated before it is
sent. If the statement had to wait, because another transaction held the key and rolled back, the row is dated again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.core.batch import Changes, WorkingSet, decide_batch, decide_optimistic_insert, empty_working_set
from onejob.core.command import Command, Footprint, is_settings_refusal, settings_changed
from onejob.core.facts import Kind, split_job_ids
from onejob.core.ledger_settings import FIRST_SETTINGS, SETTINGS_POLICY_ID, LedgerSettings, decode_settings, is_closed
from onejob.core.lookup import LookUpAnswer
from onejob.core.replies import AnyReply, Missing
from onejob.core.submit import Submit
from onejob.engines.codec import columns, fact_from_row, fact_to_row
from onejob.errors import StoreRefused, Unavailable

from .announcements import TENANTS_LOCK_CLASS, USERS_LOCK_CLASS, announcement
from .parts import (
    BoundParts,
    StatementPart,
    encode_column,
    guarded_changes,
    inline_inserts_fast,
    inserts_two_contended_rows,
    parameter_types,
)
from .schema import known_schema_version
from .statements import Statements
from .transaction import (
    EMIT_WAL_MESSAGE,
    STAMP_LAG_MS_MAX,
    WRITE_CONFLICTS_MAX,
    Statement,
    Steps,
    WriteConflict,
    load_steps,
)

COUNTED_SECONDS = 60.0
COUNTED_MAX = 10_000
_SAVEPOINT = "onejob_inside"
_LIMIT_KINDS = (Kind.USAGE, Kind.POLICY)
_FAULTS = {
    "schema": "the tables have another version than this program; run `onejob migrate`, or upgrade the program",
    "fsync": "fsync is off, so that a commit may be lost; set fsync = on",
    "off": "synchronous_commit is off in this session, so that a commit may be lost; set it to on",
    "level": "durability=quorum is declared, and synchronous_commit of this session waits for no standby's disk; "
    "set it to on or remote_apply",
    "standby": "durability=quorum is declared, but synchronous_standby_names is empty; set it on every node",
}


class CallersTransaction:
    """Shared by all transactions of a process: the statements of a schema, and an estimate of the server's clock."""

    def __init__(self, schema: str, monotonic: Callable[[], float]) -> None:
        self._statements = Statements(schema)
        self._monotonic = monotonic
        self._version = known_schema_version()
        self._offset_ms: float | None = None  # the server's clock minus ours, at least; None: not asked yet
        self._counted_until: dict[bytes, float] = {}  # by usage id
        self._settings: ProvenSettings | None = None  # None: to be read

    def load_settings(self) -> "Steps[ProvenSettings]":
        """The settings of the ledger, which are read once per process and after every change."""
        if self._offset_ms is None:
            yield from self._greet()
        settings = self._settings
        if settings is None:
            settings = self._settings = yield from self._read_settings()
        return settings

    def _read_settings(self) -> "Steps[ProvenSettings]":
        select = Statement(self._statements.settings_sql, (SETTINGS_POLICY_ID,))
        rows = yield select
        if not rows:  # the tables are new
            yield Statement(self._statements.insert_settings_sql, (SETTINGS_POLICY_ID, FIRST_SETTINGS))
            rows = yield select
        if not rows:
            raise Unavailable(
                "the ledger has no settings yet, and nothing was done: `onejob settings` makes those of a ledger that is in "
                "use; another transaction may just be making them, too; retry"
            )
        body = bytes(rows[0][0])
        if is_closed(body):
            raise Unavailable(
                "the settings of the ledger are being changed, and nothing was done; retry. If it lasts, the process that "
                "began the change has died: run `onejob settings`"
            )
        return ProvenSettings(decode_settings(body), body)

    def execute(self, command: Command[Any]) -> Steps[AnyReply]:
        if self._offset_ms is None:
            yield from self._greet()
        reply = yield from self._execute(command)
        if is_settings_refusal(reply):
            self._settings = None
        return reply

    def _execute(self, command: Command[Any]) -> Steps[AnyReply]:
        if not isinstance(command, Submit):
            return (yield from self._retry_conflicts(self._change, command))
        if not self._is_counted(command.usage_id):
            reply = yield from self._insert(command)
            if reply is not None:
                return reply
        return (yield from self._retry_conflicts(self._submit, command))

    def load_input(self, tenant: str, job_id: bytes) -> Steps[tuple[str, bytes] | None]:
        """The type and the input of a job; None if it is gone."""
        rows = yield Statement(self._statements.input_sql, (job_id, tenant))
        return (str(rows[0][0]), bytes(rows[0][1])) if rows else None

    def _greet(self) -> Steps[None]:
        """Once per process: the server's clock, and whether the tables are those that this program knows."""
        ((clock, version),) = yield Statement(self._statements.greeting_sql)
        if version != self._version:
            SessionState("schema", False).refuse_fault()
        self._observe(clock, ahead=False)

    def _insert(self, command: Submit) -> Steps[AnyReply | None]:
        """Insert a new key without limits in one statement; None if that does not apply or nothing was inserted.

        Its plain twin is `_submit`: one round trip instead of three or more.
        test_a_new_key_is_stored_the_same_with_and_without_the_single_statement compares them.
        """
        assert self._offset_ms is not None
        now = int(self._monotonic() * 1000 + self._offset_ms)
        footprint = command.footprint
        decided = decide_optimistic_insert([command], [footprint], now)
        if decided is None:
            return None
        parts, row_counts, values = inline_inserts_fast(decided.changes)
        if set(row_counts) != {1}:
            return None
        tenants, users = announcement([footprint])
        limits_and_settings = (footprint.usage, footprint.policy, SETTINGS_POLICY_ID, footprint.settings)
        announced = (TENANTS_LOCK_CLASS, tenants, USERS_LOCK_CLASS, users, *limits_and_settings)
        sql = self._statements.caller_insert_sql(parts, self._version)
        ((inserted, clock, *session_columns),) = yield Statement(sql, (*announced, *values))
        session = SessionState(*session_columns)
        self._observe(clock, ahead=clock < now)
        session.refuse_fault()
        if not inserted:
            return None
        if not 0 <= clock - now <= STAMP_LAG_MS_MAX:
            return (yield from self._date_again(command, footprint, int(clock)))
        return decided.replies[0]

    def _date_again(self, command: Submit, footprint: Footprint, now: int) -> Steps[AnyReply]:
        """Decide once more with the time after the wait, and replace the rows that this transaction has just inserted."""
        decided = decide_optimistic_insert([command], [footprint], now)
        assert decided is not None
        parts: list[StatementPart] = []
        values: list[Sequence[Any]] = []
        for kind, (fact,) in decided.changes.inserts.items():
            parts.append(StatementPart("update", kind))
            values += _encode_row(parameter_types(parts[-1]), (*fact_to_row(fact), fact.version))
        (counts,) = yield Statement(self._statements.changes_sql(tuple(parts)), values)
        assert all(count == 1 for count in counts)
        return decided.replies[0]

    def _submit(self, command: Submit) -> Steps[AnyReply]:
        """Answer a known key; else lock the limits and create the job."""
        footprint = command.footprint
        if command.record_id:
            answer = yield from self._find_answer(command)
            if answer is not None:
                return (yield from self._change(command)) if isinstance(answer, Missing) else answer
        settings = (SETTINGS_POLICY_ID, footprint.settings)
        values = (footprint.usage, *announcement([footprint]), footprint.policy, *settings)
        ((clock, has_settings, *row),) = yield Statement(self._statements.limits_sql, values)
        self._observe(clock, ahead=False)
        working_set = empty_working_set([footprint])
        usage, policy = _split_row(row, *_LIMIT_KINDS)
        working_set.tables[Kind.USAGE].update({usage.id: usage} if usage else {})
        working_set.tables[Kind.POLICY].update({policy.id: policy} if policy else {})
        if usage or policy:
            self._remember_counted(command.usage_id)
        if not has_settings:
            return settings_changed(int(clock))
        unproven = replace(footprint, settings=b"")
        return (yield from self._decide_and_store(command, unproven, working_set, int(clock)))

    def _find_answer(self, command: Submit) -> Steps[AnyReply | None]:
        """The reply of a settled key, without a lock; Missing if its record must change; None without a record."""
        sql = self._statements.answer_sql(self._version)
        ((clock, *row),) = yield Statement(sql, (command.record_id,))
        session = SessionState(*row[: len(SessionState._fields)])
        session.refuse_fault()
        self._observe(clock, ahead=False)
        record, job = _split_row(row[len(SessionState._fields) :], Kind.RECORD, Kind.JOB)
        if record is None:
            return None
        lookup = LookUpAnswer(tenant=command.tenant, command=command)
        working_set = empty_working_set([lookup.footprint])
        working_set.tables[Kind.RECORD][record.id] = record
        working_set.tables[Kind.JOB].update(dict.fromkeys(split_job_ids(record.job_ids)))
        working_set.tables[Kind.JOB].update({} if job is None else {job.id: job})
        (reply,) = decide_batch([lookup], [lookup.footprint], working_set, int(clock))
        if session.waits_for_standby and not isinstance(reply, Missing):
            yield Statement(EMIT_WAL_MESSAGE)  # the commit then waits until the record is on the standby too
        return reply

    def _change(self, command: Command[Any]) -> Steps[AnyReply]:
        """Load, under locks if it writes, kind by kind, then decide and store."""
        footprint = command.footprint
        # A command without jobs counts for nobody. Its transaction may last, and no limit has to wait for it.
        has_jobs = bool(footprint.jobs or footprint.follow_jobs)
        loaded = yield from load_steps(self._statements, [footprint], locking=command.writes, announces=has_jobs)
        if loaded.standbys:
            yield Statement(EMIT_WAL_MESSAGE)  # a repetition stores nothing, and is as durable as the first
        return (yield from self._decide_and_store(command, footprint, loaded.working_set, loaded.locked_at))

    def _decide_and_store(
        self, command: Command[Any], footprint: Footprint, working_set: WorkingSet, now: int
    ) -> Steps[AnyReply]:
        (reply,) = decide_batch([command], [footprint], working_set, now)
        changes = working_set.changes()
        if not changes:
            return reply
        bound = guarded_changes(changes)
        with_savepoint = inserts_two_contended_rows(changes)
        if with_savepoint:
            yield Statement(f"SAVEPOINT {_SAVEPOINT}")
        sql = self._statements.guarded_changes_sql(bound.parts, self._version)
        (row,) = yield Statement(sql, (*_absent_limits(working_set, changes), *bound.values))
        session, counts = SessionState(*row[: len(SessionState._fields)]), row[len(SessionState._fields) :]
        is_stored = _is_stored(bound, counts)
        if with_savepoint:
            if not is_stored:
                yield Statement(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            yield Statement(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        session.refuse_fault()
        if not is_stored:
            raise WriteConflict("a fact that was absent was created in the meantime")
        return reply

    def _retry_conflicts(self, execute: Callable[[Any], Steps[AnyReply]], command: Command[Any]) -> Steps[AnyReply]:
        for _ in range(WRITE_CONFLICTS_MAX):
            try:
                return (yield from execute(command))
            except WriteConflict:
                continue
        raise Unavailable("other transactions keep changing the same facts: nothing was done; retry")

    def _observe(self, server_ms: float, *, ahead: bool) -> None:
        """The server's clock shows at least what it has shown, and what has passed here since."""
        offset = server_ms - self._monotonic() * 1000
        old = self._offset_ms
        self._offset_ms = offset if old is None or ahead else max(old, offset)

    def _is_counted(self, usage_id: bytes) -> bool:
        return self._counted_until.get(usage_id, 0.0) > self._monotonic()

    def _remember_counted(self, usage_id: bytes) -> None:
        """A hint: without it, one more statement finds that the user has limits."""
        if len(self._counted_until) >= COUNTED_MAX:
            self._counted_until.clear()
        self._counted_until[usage_id] = self._monotonic() + COUNTED_SECONDS


class SessionState(NamedTuple):
    """What the caller's session says of itself with every reply."""

    fault: str
    waits_for_standby: bool

    def refuse_fault(self) -> None:
        if self.fault:
            raise StoreRefused(f"nothing was done: {_FAULTS[self.fault]}, then retry")


class ProvenSettings(NamedTuple):
    """The settings, and the bytes that prove them: one value, because threads share it."""

    settings: LedgerSettings
    body: bytes


def _split_row(row: Sequence[Any], *kinds: Kind) -> list[Any]:
    """The facts that stand side by side in a row; None where there is none."""
    facts: list[Any] = []
    start = 0
    for kind in kinds:
        end = start + len(columns(kind))
        facts.append(None if row[start] is None else fact_from_row(kind, row[start:end]))
        start = end
    return facts


def _absent_limits(working_set: WorkingSet, changes: Changes) -> list[bytes | None]:
    """The usage and the policy that were not found and are not inserted: they must still be absent. None: none."""
    absent: list[bytes | None] = []
    for kind in _LIMIT_KINDS:
        created = {fact.id for fact in changes.inserts.get(kind, ())}
        ids = [id for id, fact in working_set.tables[kind].items() if fact is None and id not in created]
        assert len(ids) <= 1, "a command names one of each"
        absent.append(ids[0] if ids else None)
    return absent


def _is_stored(bound: BoundParts, counts: Sequence[int]) -> bool:
    return all(expected is None or count == expected for count, expected in zip(counts, bound.expected, strict=True))


def _encode_row(types: dict[str, str], row: Sequence[Any]) -> list[Any]:
    return [encode_column(name, kind, [value]) for (name, kind), value in zip(types.items(), row, strict=True)]
