"""Executes a batch on one connection: as one INSERT statement, as a load and a statement that verifies it, or under locks."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from onejob.core.batch import Changes, OptimisticInsert, WorkingSet, decide_batch, decide_optimistic_insert
from onejob.core.command import Command, Footprint
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply
from onejob.engine import Durability
from onejob.errors import StoreRefused, Unavailable, Unknown

from .clock import ServerClock
from .connection import Connector
from .errors import (
    SQLSTATE_STAMP_TOO_OLD,
    is_optimistic_failure,
    is_outcome_unknown,
    is_write_conflict,
    sqlstate_of,
)
from .fact_cache import FactCache
from .optimistic import LoadedSnapshot, change_statement, may_change, read_snapshot, snapshot_statement
from .parts import INLINE_ROWS_MAX, inline_inserts_fast, inserts_and_updates
from .statements import Statements
from .transaction import (
    EMIT_WAL_MESSAGE,
    STAMP_LAG_MS_MAX,
    WRITE_CONFLICTS_MAX,
    LoadedBatch,
    WriteConflict,
    load_steps,
    save_steps,
)

# After a conflict other writers are busy with the same keys: load under locks for this many batches.
FAST_PATH_PAUSE_BATCHES = 8
# Facts that two batches changed at once are changed under locks for this long.
CONTENDED_SECONDS = 1.0
RECENT_IDS_MAX = 1000
_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ"


class PostgresStore:
    """Used by one batch at a time. All stores of an engine share what they remember and what they know to be contended."""

    def __init__(
        self,
        connector: Connector,
        statements: Statements,
        declared: Durability | None,
        contended: "ExpiringIds",
        facts: FactCache,
    ) -> None:
        self.connector = connector
        self._fact_cache = facts
        self._contended = contended
        self._clashed: dict[bytes, int] = {}  # fact versions of a batch that met another one
        self._statements = statements
        self._declared_durability = declared
        self._fast_path_pause = 0

    async def write(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: "CallState"
    ) -> list[AnyReply]:
        self._fact_cache.note_connection(connection)
        replies = await self._insert_fast(connection, commands, footprints, call)
        if replies is None:
            replies = await self._change_fast(connection, commands, footprints, call)
        if replies is None:
            replies = await self.write_locked(connection, commands, footprints, call)
        return replies

    async def write_locked(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: "CallState",
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
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: "CallState"
    ) -> list[AnyReply]:
        """Decide commands that change nothing on one snapshot."""
        if self._is_one_statement(footprints):
            return await self._read_fast(connection, commands, footprints)
        await connection.execute(self.connector.begin_sql(_SNAPSHOT))
        try:
            loaded = await load_batch(connection, self.connector.clock, self._statements, footprints)
            replies = decide_batch(commands, footprints, loaded.working_set, loaded.first_read_at)
            assert not loaded.working_set.changes()
            if self._must_wait_for_standby(loaded.standbys):
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
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: "CallState"
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
        try:
            await self._execute_autocommit(connection, sql, (now, STAMP_LAG_MS_MAX, *values), decided.changes, call)
        except _Overtaken as error:
            self._fast_path_pause = 0 if error.came_too_late else FAST_PATH_PAUSE_BATCHES
            self.connector.clock.forget()
            return None
        return decided.replies

    async def _change_fast(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: "CallState"
    ) -> list[AnyReply] | None:
        """Load without locks, decide, then verify and store in one statement; None if that does not apply or a fact changed.

        Its plain twin is `_execute_locked`: two round trips instead of four or more (docs/decisions/0041). Behind a pooler
        every statement needs a transaction around it, so that nothing would be saved.
        test_changes_are_stored_the_same_with_and_without_locks compares them.
        """
        if self.connector.pooled or len(commands) > INLINE_ROWS_MAX or self._is_contended(footprints):
            return None
        replies = await self._change_remembered(connection, commands, footprints, call)
        if replies is not None:
            return replies
        loaded = await self._load_and_decide(connection, commands, footprints)
        if loaded is None:
            return None
        snapshot, replies = loaded
        changes = snapshot.working_set.changes()
        if not may_change(snapshot, changes) or (self._contended and self._contended.has_any(snapshot.versions())):
            return None
        if changes:
            if not await self._store_verified(connection, footprints, snapshot, changes, call):
                self._clashed = snapshot.versions()
                return None
        elif self._must_wait_for_standby(snapshot.standbys):
            try:
                await connection.execute("BEGIN")
                await self._wait_for_standby(connection, call)
            finally:
                await self._roll_back(connection)
        return replies

    async def _load_and_decide(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint]
    ) -> tuple[LoadedSnapshot, list[AnyReply]] | None:
        """None if the timestamp decides whether anything is changed."""
        statement = snapshot_statement(self._statements, footprints)
        sent_at = self.connector.clock.monotonic()
        rows = await connection.fetch(statement.sql, *statement.values)
        snapshot = read_snapshot(footprints, rows)
        self.connector.clock.observe(snapshot.clock, sent_at)
        self._refuse_without_standby(snapshot.standbys)
        snapshot.decided_at = self._date_change(snapshot.read_at)
        replies = decide_batch(commands, footprints, snapshot.working_set, snapshot.decided_at)
        if snapshot.decided_at == snapshot.read_at or snapshot.working_set.changes():
            return snapshot, replies
        # No statement verifies that the server's clock has come so far.
        snapshot = read_snapshot(footprints, rows)
        replies = decide_batch(commands, footprints, snapshot.working_set, snapshot.read_at)
        return None if snapshot.working_set.changes() else (snapshot, replies)

    def _date_change(self, read_at: int) -> int:
        """When a change that was loaded at `read_at` is decided: then, or now if the server is far away.

        Over a long line `read_at` would be too old when the change arrives, and the load would be wasted.
        """
        latest = self.connector.clock.latest_ms() or 0
        return latest if latest - read_at > STAMP_LAG_MS_MAX // 4 else read_at

    async def _change_remembered(
        self, connection: Any, commands: Sequence[Command[Any]], footprints: Sequence[Footprint], call: "CallState"
    ) -> list[AnyReply] | None:
        """The same without the load, for facts that this process has stored last; None if that does not apply.

        What is remembered may be old, so a reply counts only when the statement has verified it. A batch that changes
        nothing is loaded.
        """
        now = self.connector.clock.latest_ms()
        snapshot = None if now is None else self._fact_cache.recall(footprints)
        if now is None or snapshot is None:
            return None
        snapshot.decided_at = now
        replies = decide_batch(commands, footprints, snapshot.working_set, now)
        changes = snapshot.working_set.changes()
        if not changes or not may_change(snapshot, changes):
            return None
        if await self._store_verified(connection, footprints, snapshot, changes, call):
            return replies
        self._fact_cache.forget(snapshot.versions())
        return None

    async def _store_verified(
        self,
        connection: Any,
        footprints: Sequence[Footprint],
        snapshot: LoadedSnapshot,
        changes: Changes,
        call: "CallState",
    ) -> bool:
        """False if nothing was stored because another transaction was faster."""
        sql, values = change_statement(self._statements, footprints, snapshot, changes)
        try:
            await self._execute_autocommit(connection, sql, values, changes, call)
        except _Overtaken:
            return False
        return True

    def _is_contended(self, footprints: Sequence[Footprint]) -> bool:
        contended = self._contended
        if not contended:
            return False
        contended.drop_old()
        return contended.has_any(
            id for f in footprints for id in (f.record, *f.jobs, f.stream, f.usage, f.policy, f.memo)
        )

    def _remember_contended(self, loaded: WorkingSet) -> None:
        """After a clash: the facts that have changed since, so that their next changes do not try without locks."""
        clashed, self._clashed = self._clashed, {}
        for table in loaded.tables:
            self._contended.remember(
                id for id, fact in table.items() if clashed.get(id, -1) not in (-1, 0 if fact is None else fact.version)
            )

    def _build_insert(self, insert: OptimisticInsert) -> tuple[str, Sequence[Any]]:
        """The statement and its values: arrays, unless the batch is small enough for rows that are written out.

        These take 1.20 times less processor time for a lone submission, 1.09 with 16 callers and 1.05 with 64, at the price of
        a statement per number of rows. test_a_fast_insert_stores_the_same_as_the_locked_path has a size for each form.
        """
        changes, absent, preconditions = insert.changes, insert.absent, insert.preconditions
        row_counts: tuple[int, ...] = ()
        if max(len(changes.attachments), *map(len, changes.inserts.values())) <= INLINE_ROWS_MAX:
            parts, row_counts, values = inline_inserts_fast(changes)
        else:
            parts, values, *_ = inserts_and_updates(changes)
        sql = self._statements.inserts_sql(parts, tuple(absent), row_counts, has_preconditions=bool(preconditions))
        return sql, (*absent.values(), *preconditions, *values)

    async def _execute_autocommit(
        self, connection: Any, sql: str, values: Sequence[Any], changes: Changes, call: "CallState"
    ) -> None:
        """Execute a statement that stores these changes and commits; raises `_Overtaken` if it stored nothing."""
        sent_at, warnings = self.connector.clock.monotonic(), self.connector.warning_count
        call.begin_commit()
        try:
            if self.connector.pooled:
                # Without a prepared statement, parse and execute are two steps, and both must reach the same server.
                await connection.execute(self.connector.begin_sql())
            (row,) = await connection.fetch(sql, *values)
            if self.connector.pooled:
                await connection.execute("COMMIT")
        except asyncpg.PostgresError as error:
            if is_outcome_unknown(error) or not is_optimistic_failure(error):
                raise
            call.committing = False
            raise _Overtaken(came_too_late=sqlstate_of(error) == SQLSTATE_STAMP_TOO_OLD) from error
        finally:
            if self.connector.pooled:
                await self._roll_back(connection)
        call.committing, call.has_committed = False, True
        clock, standbys, xmin, *_ = row
        self.connector.clock.observe(clock, sent_at)
        self._raise_if_outcome_unknown(warnings, standbys)
        self._fact_cache.remember_stored(changes, xmin)

    async def _execute_locked(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: "CallState",
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
            if self._clashed:
                self._remember_contended(loaded.working_set)
            replies = decide_batch(commands, footprints, loaded.working_set, loaded.locked_at)
            changes = loaded.working_set.changes()
            if not exclusive and (Kind.POLICY in changes.updates or Kind.POLICY in changes.deletes):
                raise WriteConflict("a policy to write is only share-locked")
            await self._save(connection, changes, loaded)
            if changes:
                self._fact_cache.forget_stored(changes)
                await self._commit(connection, call)
            elif self._must_wait_for_standby(loaded.standbys):
                await self._wait_for_standby(connection, call)
            return replies
        finally:
            await self._roll_back(connection)

    async def _save(self, connection: Any, changes: Changes, loaded: LoadedBatch) -> None:
        saving = save_steps(self._statements, changes, loaded)
        with suppress(StopIteration):
            statement = next(saving)
            while True:
                statement = saving.send(await connection.fetch(statement.sql, *statement.values))

    async def _wait_for_standby(self, connection: Any, call: "CallState") -> None:
        """Commit a WAL message after the rows that were read, which may be on no standby yet."""
        await connection.execute(EMIT_WAL_MESSAGE)
        await self._commit(connection, call)

    async def _commit(self, connection: Any, call: "CallState") -> None:
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

    def _must_wait_for_standby(self, standbys: str) -> bool:
        assert self.connector.server_settings is not None
        return bool(standbys) and self.connector.server_settings.waits_for_standby

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


class ExpiringIds:
    """Fact ids that are kept for a few seconds: facts found locked, or contended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[bytes, float] = {}

    def remember(self, ids: Iterable[bytes]) -> None:
        until = asyncio.get_running_loop().time() + self._seconds
        self._until.update((id, until) for id in ids)
        while len(self._until) > RECENT_IDS_MAX:
            del self._until[next(iter(self._until))]

    def forget(self, ids: Iterable[bytes]) -> None:
        for id in ids:
            self._until.pop(id, None)

    def __bool__(self) -> bool:
        return bool(self._until)

    def has_any(self, ids: Iterable[bytes]) -> bool:
        return not self._until.keys().isdisjoint(ids)

    def drop_old(self) -> None:
        now = asyncio.get_running_loop().time()
        self.forget([id for id, until in self._until.items() if until < now])


class _Overtaken(Exception):
    """A statement that commits by itself has stored nothing: another batch was faster, or its timestamp came too late."""

    def __init__(self, *, came_too_late: bool) -> None:
        super().__init__(came_too_late)
        self.came_too_late = came_too_late


async def load_batch(
    connection: Any,
    clock: ServerClock,
    statements: Statements,
    footprints: Sequence[Footprint],
    *,
    locking: bool = False,
    exclusive: bool = False,
) -> LoadedBatch:
    loading = load_steps(statements, footprints, locking=locking, exclusive=exclusive)
    try:
        statement = next(loading)
        while True:
            sent_at = clock.monotonic()
            try:
                rows = await connection.fetch(statement.sql, *statement.values)
            except asyncpg.LockNotAvailableError as error:
                error.locked_ids = statement.values[0]
                raise
            clock.observe(rows[-1][0], sent_at)
            statement = loading.send(rows)
    except StopIteration as done:
        loaded: LoadedBatch = done.value
        return loaded


def _is_single_kind(footprints: Sequence[Footprint]) -> bool:
    """True if one statement loads all facts, so that no transaction is needed."""
    kinds: set[Kind] = set()
    for f in footprints:
        if f.record or f.follow_usage:
            return False
        policies = f.policy or f.precondition or f.settings
        named = ((Kind.JOB, f.jobs), (Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, policies))
        kinds.update(kind for kind, ids in (*named, (Kind.MEMO, f.memo)) if ids)
    return len(kinds) == 1
