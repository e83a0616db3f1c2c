"""A batch on one connection: dated and inserted in one statement, or loaded under locks, decided and stored.

Whoever loads takes the locks kind by kind, each in the order of identities, and inserts in the same order only
when it has all of them, and deletes only when it has inserted: so two batches never wait for each other in a
circle. What is not there cannot be locked; who makes the same fact meets the unique index, and who only saw that
it is not there looks once more, after all locks are held. Either way the batch is loaded again.
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
    attachment_deletions,
    deletions,
    inline_inserts,
    inserts_and_updates,
    single_row_inserts,
    with_checks_and_notifications,
)

# One call and what became of it, for whoever stops waiting for it.


class CallState:
    """After it was given up, nothing more is begun that cannot be taken back."""

    def __init__(self) -> None:
        self.committing = False  # sent, and not answered
        self.has_committed = False  # part of it is committed
        self.timed_out = False

    def raise_if_timed_out(self) -> None:
        if self.timed_out:
            raise Unavailable("nobody waits for this any more: nothing was done")

    def begin_commit(self) -> None:
        self.raise_if_timed_out()
        self.committing = True


# Loading the facts of a batch, kind by kind: each sees what was committed while the one before was waited for.


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
            fact_from_row(request.kind, row[_LEADING_COLUMNS:]) for row in rows if row[_LEADING_COLUMNS] is not None
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


# A batch decided as if nothing of it were there, and what storing it has to prove for that to be true.


class OptimisticInsert(NamedTuple):
    """What is decided where nothing is there yet."""

    replies: list[AnyReply]
    changes: Changes
    absent: dict[Kind, list[bytes]]
    preconditions: tuple[list[Any], ...]  # policies, their tenants and bodies, which must be there; empty: none


def decide_optimistic_insert(
    commands: Sequence[Command[Any]], footprints: Sequence[Footprint], now: int
) -> OptimisticInsert | None:
    """The decisions if nothing is there yet, provided that storing them proves that nothing was."""
    working = empty_working_set(footprints)
    replies = decide_batch(commands, footprints, working, now, preconditions_checked_later=True)
    changes = working.changes()
    made = {fact.id for inserts in changes.inserts.values() for fact in inserts}
    named = {id for f in footprints for id in (f.record, *f.jobs) if id}
    if not made or not named <= made or changes.updates or changes.deletes or changes.trims:
        return None
    return OptimisticInsert(replies, changes, _ids_assumed_absent(footprints, made), _expected_policies(footprints))


def _ids_assumed_absent(footprints: Sequence[Footprint], created: set[bytes]) -> dict[Kind, list[bytes]]:
    """What the decisions saw not to be there, and do not make: it must not be there when they are stored."""
    named: dict[Kind, set[bytes]] = {Kind.STREAM: set(), Kind.USAGE: set(), Kind.POLICY: set()}
    for f in footprints:
        for kind, id in ((Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, f.policy)):
            if id and id not in created:
                named[kind].add(id)
    return {kind: sorted(ids) for kind, ids in named.items() if ids}


def _expected_policies(footprints: Sequence[Footprint]) -> tuple[list[Any], ...]:
    """What the decisions presumed to be there, and how it reads."""
    named = {
        (f.precondition.policy_id, f.tenant, f.precondition.expected_body)
        for f in footprints
        if f.precondition is not None
    }
    return tuple(map(list, zip(*named, strict=True)))


# How far a batch that was decided before it was sent may lie behind the clock; and how long a batch that
# deletes waits before it commits, so that nobody is dated before a deletion that he follows.
STAMP_LAG_MS_MAX = 40
WRITE_CONFLICTS_MAX = 20
# After a clash others are at work on the same keys: look first for a while.
FAST_PATH_PAUSE_BATCHES = 8
# Up to so many rows have a statement of their own number; more are sent as arrays.
INLINE_ROWS_MAX = 32
_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ"
_EMIT_WAL_MESSAGE = "SELECT pg_logical_emit_message(true, 'onejob', '')"


class WriteConflict(Exception):
    """The facts changed while they were loaded, or must be held more firmly."""


class PostgresStore:
    """Used by one batch at a time."""

    def __init__(self, connector: Connector, statements: Statements, declared: Durability | None) -> None:
        self.connector = connector
        self._statements = statements
        self._declared_durability = declared
        self._fast_path_pause = 0

    async def write(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: CallState,
    ) -> list[AnyReply]:
        """Execute a batch durably."""
        replies = await self._insert_fast(connection, commands, footprints, call)
        if replies is not None:
            return replies
        firmly = False
        for left in reversed(range(WRITE_CONFLICTS_MAX)):
            try:
                return await self._execute_locked(connection, commands, footprints, call, exclusive=firmly)
            except WriteConflict:
                firmly = True
            except asyncpg.PostgresError as error:
                if not is_write_conflict(error) or not left:
                    raise
        raise Unavailable("others keep changing the same facts: nothing was done; repeat")

    async def read(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: CallState,
    ) -> list[AnyReply]:
        """Decide commands that change nothing, on one snapshot of what is committed."""
        assert self.connector.server_settings is not None
        if (
            not self.connector.server_settings.waits_for_standby
            and not self.connector.pooled
            and _is_single_kind(footprints)
        ):
            loaded = await load_batch(connection, self.connector.clock, self._statements, footprints)
            return decide_batch(commands, footprints, loaded.working_set, loaded.first_read_at)
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

    async def fetch(self, connection: Any, sql: str, values: list[Any]) -> list[Any]:
        """One bounded page."""
        if not self.connector.pooled:
            return list(await connection.fetch(sql, *values))
        await connection.execute(self.connector.begin_sql())
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await self._roll_back(connection)

    async def _insert_fast(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        call: CallState,
    ) -> list[AnyReply] | None:
        """The replies, if all that the batch names is new; its date is what the server's clock can be by now."""
        now = self.connector.clock.latest_ms()
        if now is None or self._fast_path_pause or not all(command.creates for command in commands):
            self._fast_path_pause = max(0, self._fast_path_pause - 1)
            return None
        decided = decide_optimistic_insert(commands, footprints, now)
        if decided is None:
            return None
        sql, values = self._build_insert(decided)
        sent, warnings = self.connector.clock.monotonic(), self.connector.warning_count
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
        self.connector.clock.observe(clock, sent)
        self._raise_if_outcome_unknown(warnings, standbys)
        return decided.replies

    def _build_insert(self, decided: OptimisticInsert) -> tuple[str, Sequence[Any]]:
        changes, absent, warrants = decided.changes, decided.absent, decided.preconditions
        lone = single_row_inserts(changes, absent, warrants)
        if lone is not None:
            return self._statements.single_row_inserts_sql(
                lone[0], tuple(absent), has_preconditions=bool(warrants)
            ), lone[1]
        most = max(len(changes.attachments), *map(len, changes.inserts.values()))
        rows: tuple[int, ...] = ()
        values: Sequence[Any]
        if most <= INLINE_ROWS_MAX:
            parts, rows, values = inline_inserts(changes)
        else:
            parts, values, _ = inserts_and_updates(changes)
        sql = self._statements.inserts_sql(parts, tuple(absent), rows, has_preconditions=bool(warrants))
        return sql, (*absent.values(), *warrants, *values)

    async def _execute_autocommit(self, connection: Any, sql: str, values: Sequence[Any]) -> tuple[float, str]:
        if not self.connector.pooled:
            (row,) = await connection.fetch(sql, *values)
            return row[0], row[1]
        # A statement that is not kept takes two steps, and both must meet the same server.
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
    ) -> list[AnyReply]:
        """Lock, load, decide, store, commit."""
        await connection.execute(self.connector.begin_sql())
        try:
            loaded = await load_batch(
                connection,
                self.connector.clock,
                self._statements,
                footprints,
                locking=True,
                exclusive=exclusive,
            )
            self._refuse_without_standby(loaded.standbys)
            replies = decide_batch(commands, footprints, loaded.working_set, loaded.locked_at)
            changes = loaded.working_set.changes()
            if not exclusive and (Kind.POLICY in changes.updates or Kind.POLICY in changes.deletes):
                raise WriteConflict("it is held by others too")
            await self._save(connection, changes, loaded)
            if changes:
                await self._commit(connection, call)
            elif self._must_wait_for_standby(loaded):
                await self._wait_for_standby(connection, call)
            return replies
        finally:
            await self._roll_back(connection)

    async def _save(self, connection: Any, changes: Changes, loaded: LoadedBatch) -> None:
        made = with_checks_and_notifications(
            inserts_and_updates(changes), loaded.ids_to_recheck(changes), changes.settled_records
        )
        for pieces in (attachment_deletions(changes), made, deletions(changes)):
            if pieces.parts:
                await self._change_exactly(connection, pieces)
        if changes.deletes:
            wait = f"SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - {self._statements.now}) / 1000)"
            await connection.execute(wait, loaded.locked_at, STAMP_LAG_MS_MAX)

    async def _change_exactly(self, connection: Any, bound: BoundParts) -> None:
        """Change exactly these rows: one that is missing was changed by somebody else."""
        (counts,) = await connection.fetch(self._statements.changes_sql(bound.parts), *bound.values)
        for part, count, expected in zip(bound.parts, counts, bound.expected, strict=True):
            if expected is not None and count != expected:
                if part.action == "absent":
                    raise WriteConflict("it was made in the meantime")
                raise FootprintViolation("a fact was changed by somebody else in the middle of a transaction")

    async def _wait_for_standby(self, connection: Any, call: CallState) -> None:
        """What was read may be on no standby yet: this goes after it, and is waited for."""
        await connection.execute(_EMIT_WAL_MESSAGE)
        await self._commit(connection, call)

    async def _commit(self, connection: Any, call: CallState) -> None:
        warnings = self.connector.warning_count
        call.begin_commit()
        tag = await connection.execute("COMMIT")
        call.committing = False
        if tag != "COMMIT":
            raise Unavailable(f"{self.connector.display_url} rolled a batch back: nothing was done; repeat")
        call.has_committed = True
        self._raise_if_outcome_unknown(warnings, None)

    async def _roll_back(self, connection: Any) -> None:
        if connection.is_closed() or not connection.is_in_transaction():
            return
        try:
            await connection.execute("ROLLBACK")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.connector.terminate()  # the first trouble is the one to tell

    def _must_wait_for_standby(self, loaded: LoadedBatch) -> bool:
        assert self.connector.server_settings is not None
        return bool(loaded.standbys) and self.connector.server_settings.waits_for_standby

    def _refuse_without_standby(self, standbys: str) -> None:
        if self._declared_durability is Durability.QUORUM and not standbys:
            self.connector.terminate()
            raise StoreRefused(f"{self.connector.display_url} waits for no standby any more: nothing was done")

    def _raise_if_outcome_unknown(self, warnings: int, standbys: str | None) -> None:
        """A commit that was told to be done, and is not all that it should be."""
        if self.connector.warning_count != warnings:
            raise Unknown(f"{self.connector.display_url} committed with a warning: it may be on no standby; repeat it")
        if standbys == "" and self._declared_durability is Durability.QUORUM:
            self.connector.terminate()
            raise Unknown(f"{self.connector.display_url} waits for no standby any more; repeat it")


def _is_single_kind(footprints: Sequence[Footprint]) -> bool:
    """Whether one statement loads it all, so that it needs no transaction."""
    kinds: set[Kind] = set()
    for f in footprints:
        if f.record or f.follow_usage:
            return False
        policies = f.policy or f.precondition
        named = ((Kind.JOB, f.jobs), (Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, policies))
        kinds.update(kind for kind, ids in named if ids)
    return len(kinds) == 1
