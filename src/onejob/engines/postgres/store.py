"""Executes a batch on one connection: as one INSERT statement, or by loading under locks, deciding and storing.

Locks are taken kind by kind, each in the order of ids. A batch inserts, in the same order, only when it has all its
locks, and deletes only when it has inserted: so two batches never wait for each other in a circle. A row that does not
exist cannot be locked. A batch that creates it meets the unique index; a batch that only saw its absence checks
again when it holds all locks. Either way the batch is then loaded again.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from onejob.core.batch import (
    Changes,
    FootprintViolation,
    LoadRequest,
    WorkingSet,
    decide_batch,
    empty_working_set,
    load_facts,
)
from onejob.core.command import Command, Footprint
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply
from onejob.engine import Durability
from onejob.engines.codec import fact_from_row
from onejob.errors import StoreRefused, Unavailable, Unknown

from .clock import ServerClock
from .connection import Connector
from .errors import (
    SQLSTATE_ASSUMPTION_FAILED,
    SQLSTATE_STAMP_TOO_OLD,
    is_outcome_unknown,
    is_write_conflict,
    sqlstate_of,
)
from .statements import (
    BoundParts,
    Statements,
    announcement,
    attachment_deletions,
    deletions,
    inline_inserts_fast,
    inserts_and_updates,
    single_row_inserts_fast,
    with_checks_and_notifications,
)

# By how much the timestamp of a batch that is decided before it is sent may lag behind the server's clock. A batch that
# deletes waits as long before it commits, so that no later batch gets a timestamp before the deletion.
STAMP_LAG_MS_MAX = 40
WRITE_CONFLICTS_MAX = 20
# After a conflict other writers are busy with the same keys: load under locks for this many batches.
FAST_PATH_PAUSE_BATCHES = 8
# Statements with up to this many rows per table have their rows written out; more rows are sent as arrays.
INLINE_ROWS_MAX = 32
# Policies are read by every command of a tenant and seldom written: readers do not block each other.
_SHARED_LOCK_KIND = Kind.POLICY
_LEADING_COLUMNS = 2  # clock and standbys come before the columns of a fact
_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ"
_EMIT_WAL_MESSAGE = "SELECT pg_logical_emit_message(true, 'onejob', '')"


class CallState:
    """How far one call has come. After a timeout it starts no commit."""

    def __init__(self) -> None:
        self.committing = False  # the commit is sent and not yet confirmed
        self.has_committed = False  # at least a part is committed
        self.timed_out = False

    def raise_if_timed_out(self) -> None:
        if self.timed_out:
            raise Unavailable("the caller has timed out: nothing was done; retry")

    def begin_commit(self) -> None:
        self.raise_if_timed_out()
        self.committing = True


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


async def load_batch(
    connection: Any,
    clock: ServerClock,
    statements: Statements,
    footprints: Sequence[Footprint],
    *,
    locking: bool = False,
    exclusive: bool = False,
) -> LoadedBatch:
    """Load kind by kind, so that each statement sees what was committed while the one before waited for locks."""
    loaded = LoadedBatch()
    loading = load_facts(footprints)
    announced = announcement(footprints) if locking else ()
    try:
        request = next(loading)
        while True:
            lock = ""
            if locking:
                lock = "FOR UPDATE" if exclusive or request.kind is not _SHARED_LOCK_KIND else "FOR SHARE"
            sent_at = clock.monotonic()
            try:
                sql = statements.load_sql(request.kind, lock, announces=bool(announced))
                rows = await connection.fetch(sql, request.ids, *announced)
            except asyncpg.LockNotAvailableError as error:
                error.locked_ids = request.ids
                raise
            clock.observe(rows[-1][0], sent_at)
            announced = ()
            request = loading.send(loaded.add_rows(request, rows))
    except StopIteration as done:
        loaded.working_set = done.value
    if not loaded.locked_at:  # the batch needs no facts, but it needs the time
        sent_at = clock.monotonic()
        rows = await connection.fetch(statements.clock_sql)
        clock.observe(rows[-1][0], sent_at)
        loaded.update_clock(rows)
    return loaded


class OptimisticInsert(NamedTuple):
    """A batch decided as if none of its facts existed, and what the INSERT must verify for that to be true."""

    replies: list[AnyReply]
    changes: Changes
    absent: dict[Kind, list[bytes]]
    preconditions: tuple[list[Any], ...]  # ids, tenants and bodies of policies that must exist; empty: none


def decide_optimistic_insert(
    commands: Sequence[Command[Any]], footprints: Sequence[Footprint], now: int
) -> OptimisticInsert | None:
    """Decide as if no fact existed; None unless an INSERT of the changes proves it."""
    working = empty_working_set(footprints)
    replies = decide_batch(commands, footprints, working, now, preconditions_checked_later=True)
    changes = working.changes()
    created = {fact.id for inserts in changes.inserts.values() for fact in inserts}
    named = {id for f in footprints for id in (f.record, *f.jobs) if id}
    if not created or not named <= created or changes.updates or changes.deletes or changes.trims:
        return None
    return OptimisticInsert(replies, changes, _ids_assumed_absent(footprints, created), _expected_policies(footprints))


def _ids_assumed_absent(footprints: Sequence[Footprint], created: set[bytes]) -> dict[Kind, list[bytes]]:
    """Ids that the decisions assumed absent and that are not inserted, so that no unique index proves it."""
    assumed: dict[Kind, set[bytes]] = {kind: set() for kind in Kind}
    for f in footprints:
        for kind, id in ((Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, f.policy), (Kind.MEMO, f.memo)):
            if id and id not in created:
                assumed[kind].add(id)
    return {kind: sorted(ids) for kind, ids in assumed.items() if ids}


def _expected_policies(footprints: Sequence[Footprint]) -> tuple[list[Any], ...]:
    """The policies that the preconditions name, as columns: ids, tenants, bodies."""
    expected = {
        (f.precondition.policy_id, f.tenant, f.precondition.expected_body)
        for f in footprints
        if f.precondition is not None
    }
    return tuple(map(list, zip(*expected, strict=True)))


class WriteConflict(Exception):
    """The facts changed while they were loaded, or need exclusive locks."""


class PostgresStore:
    """Used by one batch at a time."""

    def __init__(self, connector: Connector, statements: Statements, declared: Durability | None) -> None:
        self.connector = connector
        self._statements = statements
        self._declared_durability = declared
        self._fast_path_pause = 0

    async def write(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: CallState
    ) -> list[AnyReply]:
        replies = await self._insert_fast(connection, commands, footprints, call)
        return await self.write_locked(connection, commands, footprints, call) if replies is None else replies

    async def write_locked(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: CallState,
        *,
        lock_timeout_ms: int = 0,
    ) -> list[AnyReply]:
        """Load under locks, and again after a conflict; 0: the lock timeout of the session."""
        exclusive = False
        for retries_left in reversed(range(WRITE_CONFLICTS_MAX)):
            try:
                return await self._execute_locked(
                    connection, commands, footprints, call, exclusive=exclusive, lock_timeout_ms=lock_timeout_ms
                )
            except WriteConflict:
                exclusive = True
            except asyncpg.PostgresError as error:
                if not is_write_conflict(error) or not retries_left:
                    raise
        raise Unavailable("other transactions keep changing the same facts: nothing was done; retry")

    async def read(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: CallState
    ) -> list[AnyReply]:
        """Decide commands that change nothing on one snapshot."""
        if self._is_one_statement(footprints):
            return await self._read_fast(connection, commands, footprints)
        await connection.execute(self.connector.begin_sql(_SNAPSHOT))
        try:
            loaded = await load_batch(connection, self.connector.clock, self._statements, footprints)
            replies = decide_batch(commands, footprints, loaded.working_set, loaded.first_read_at)
            assert not loaded.working_set.changes()
            if self._must_wait_for_standby(loaded):
                await self._wait_for_standby(connection, call)
            return replies
        finally:
            await self._roll_back(connection)

    async def _read_fast(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint]
    ) -> list[AnyReply]:
        """One statement is a snapshot by itself: one round trip instead of three.

        Its plain twin is `read`; test_a_fast_read_replies_the_same_as_a_snapshot compares them.
        """
        loaded = await load_batch(connection, self.connector.clock, self._statements, footprints)
        return decide_batch(commands, footprints, loaded.working_set, loaded.first_read_at)

    def _is_one_statement(self, footprints: Sequence[Footprint]) -> bool:
        settings = self.connector.server_settings
        assert settings is not None
        return not settings.waits_for_standby and not self.connector.pooled and _is_single_kind(footprints)

    async def fetch(self, connection: Any, sql: str, values: list[Any]) -> list[Any]:
        if not self.connector.pooled:
            return list(await connection.fetch(sql, *values))
        await connection.execute(self.connector.begin_sql())
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await self._roll_back(connection)

    async def _insert_fast(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: CallState
    ) -> list[AnyReply] | None:
        """Insert a batch in one statement that commits by itself; None if that does not apply or a fact exists.

        Its plain twin is `_execute_locked`: at least five round trips instead of one. A credential is verified in the same
        statement, which saves another 60 of 270 µs (docs/decisions/0011, 0023). The timestamp is the latest that the
        server's clock can show now. test_a_fast_insert_stores_the_same_as_the_locked_path compares them.
        """
        now = self.connector.clock.latest_ms()
        if now is None or self._fast_path_pause or not all(command.creates for command in commands):
            self._fast_path_pause = max(0, self._fast_path_pause - 1)
            return None
        decided = decide_optimistic_insert(commands, footprints, now)
        if decided is None:
            return None
        sql, values = self._build_insert(decided)
        sent_at, warnings = self.connector.clock.monotonic(), self.connector.warning_count
        call.begin_commit()
        try:
            clock, standbys = await self._execute_autocommit(connection, sql, (now, STAMP_LAG_MS_MAX, *values))
        except asyncpg.PostgresError as error:
            if is_outcome_unknown(error) or not (
                is_write_conflict(error) or sqlstate_of(error) in (SQLSTATE_STAMP_TOO_OLD, SQLSTATE_ASSUMPTION_FAILED)
            ):
                raise
            call.committing = False
            self._fast_path_pause = 0 if sqlstate_of(error) == SQLSTATE_STAMP_TOO_OLD else FAST_PATH_PAUSE_BATCHES
            self.connector.clock.forget()
            return None
        call.committing, call.has_committed = False, True
        self.connector.clock.observe(clock, sent_at)
        self._raise_if_outcome_unknown(warnings, standbys)
        return decided.replies

    def _build_insert(self, insert: OptimisticInsert) -> tuple[str, Sequence[Any]]:
        """The statement and its values: arrays, unless the batch is small enough for one of the two fast forms.

        Compared with arrays, rows that are written out take 0.54 instead of 0.70 ms for a lone submission, at the price of a
        statement per number of rows. One row per table takes 140 instead of 168 µs of the server on top.
        test_a_fast_insert_stores_the_same_as_the_locked_path has a size for each form.
        """
        changes, absent, preconditions = insert.changes, insert.absent, insert.preconditions
        single = single_row_inserts_fast(changes, absent, preconditions)
        if single is not None:
            parts, values = single
            sql = self._statements.single_row_inserts_sql(parts, tuple(absent), has_preconditions=bool(preconditions))
            return sql, values
        row_counts: tuple[int, ...] = ()
        if max(len(changes.attachments), *map(len, changes.inserts.values())) <= INLINE_ROWS_MAX:
            parts, row_counts, values = inline_inserts_fast(changes)
        else:
            parts, values, _ = inserts_and_updates(changes)
        sql = self._statements.inserts_sql(parts, tuple(absent), row_counts, has_preconditions=bool(preconditions))
        return sql, (*absent.values(), *preconditions, *values)

    async def _execute_autocommit(self, connection: Any, sql: str, values: Sequence[Any]) -> tuple[float, str]:
        if not self.connector.pooled:
            (row,) = await connection.fetch(sql, *values)
            return row[0], row[1]
        # Without a prepared statement, parse and execute are two steps, and both must reach the same server.
        await connection.execute(self.connector.begin_sql())
        try:
            (row,) = await connection.fetch(sql, *values)
            await connection.execute("COMMIT")
            return row[0], row[1]
        finally:
            await self._roll_back(connection)

    async def _execute_locked(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: CallState,
        *,
        exclusive: bool,
        lock_timeout_ms: int,
    ) -> list[AnyReply]:
        await connection.execute(self.connector.begin_sql(lock_timeout_ms=lock_timeout_ms))
        try:
            loaded = await load_batch(
                connection, self.connector.clock, self._statements, footprints, locking=True, exclusive=exclusive
            )
            self._refuse_without_standby(loaded.standbys)
            replies = decide_batch(commands, footprints, loaded.working_set, loaded.locked_at)
            changes = loaded.working_set.changes()
            if not exclusive and (Kind.POLICY in changes.updates or Kind.POLICY in changes.deletes):
                raise WriteConflict("a policy to write is only share-locked")
            await self._save(connection, changes, loaded)
            if changes:
                await self._commit(connection, call)
            elif self._must_wait_for_standby(loaded):
                await self._wait_for_standby(connection, call)
            return replies
        finally:
            await self._roll_back(connection)

    async def _save(self, connection: Any, changes: Changes, loaded: LoadedBatch) -> None:
        writes = with_checks_and_notifications(
            inserts_and_updates(changes), loaded.ids_to_recheck(changes), changes.settled_records
        )
        for bound in (attachment_deletions(changes), writes, deletions(changes)):
            if bound.parts:
                await self._change_exactly(connection, bound)
        if changes.deletes:
            wait = f"SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - {self._statements.now}) / 1000)"
            await connection.execute(wait, loaded.locked_at, STAMP_LAG_MS_MAX)

    async def _change_exactly(self, connection: Any, bound: BoundParts) -> None:
        """Raise unless every part changes the expected number of rows."""
        (counts,) = await connection.fetch(self._statements.changes_sql(bound.parts), *bound.values)
        for part, count, expected in zip(bound.parts, counts, bound.expected, strict=True):
            if expected is not None and count != expected:
                if part.action == "absent":
                    raise WriteConflict("a fact that was absent was created in the meantime")
                raise FootprintViolation("a fact was changed by another transaction in the middle of this one")

    async def _wait_for_standby(self, connection: Any, call: CallState) -> None:
        """Commit a WAL message after the rows that were read, which may be on no standby yet."""
        await connection.execute(_EMIT_WAL_MESSAGE)
        await self._commit(connection, call)

    async def _commit(self, connection: Any, call: CallState) -> None:
        warnings = self.connector.warning_count
        call.begin_commit()
        tag = await connection.execute("COMMIT")
        call.committing = False
        if tag != "COMMIT":
            raise Unavailable(f"{self.connector.display_url} rolled a batch back: nothing was done; retry")
        call.has_committed = True
        self._raise_if_outcome_unknown(warnings, None)

    async def _roll_back(self, connection: Any) -> None:
        if connection.is_closed() or not connection.is_in_transaction():
            return
        try:
            await connection.execute("ROLLBACK")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.connector.terminate()  # report the first error

    def _must_wait_for_standby(self, loaded: LoadedBatch) -> bool:
        assert self.connector.server_settings is not None
        return bool(loaded.standbys) and self.connector.server_settings.waits_for_standby

    def _refuse_without_standby(self, standbys: str) -> None:
        if self._declared_durability is Durability.QUORUM and not standbys:
            self.connector.terminate()
            raise StoreRefused(f"{self.connector.display_url} no longer waits for a standby: nothing was done; retry")

    def _raise_if_outcome_unknown(self, warnings: int, standbys: str | None) -> None:
        """Raise if a commit that the server confirmed may be on no standby."""
        if self.connector.warning_count != warnings:
            raise Unknown(f"{self.connector.display_url} committed with a warning: it may be on no standby; retry it")
        if standbys == "" and self._declared_durability is Durability.QUORUM:
            self.connector.terminate()
            raise Unknown(f"{self.connector.display_url} no longer waits for a standby; retry it")


def _is_single_kind(footprints: Sequence[Footprint]) -> bool:
    """True if one statement loads all facts, so that no transaction is needed."""
    kinds: set[Kind] = set()
    for f in footprints:
        if f.record or f.follow_usage:
            return False
        policies = f.policy or f.precondition
        named = ((Kind.JOB, f.jobs), (Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, policies))
        kinds.update(kind for kind, ids in (*named, (Kind.MEMO, f.memo)) if ids)
    return len(kinds) == 1
