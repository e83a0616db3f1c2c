"""A batch on one connection: dated and inserted in one statement, or loaded under locks, decided and stored.

Whoever loads takes the locks kind by kind, each in the order of identities, and inserts in the same order only
when it has all of them, and deletes only when it has inserted: so two batches never wait for each other in a
circle. What is not there cannot be locked; who makes the same fact meets the unique index, and who only saw that
it is not there looks once more, after all locks are held. Either way the batch is loaded again.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from onejob.core.facts import Kind
from onejob.core.fold import Changes, Trespass, fold
from onejob.core.receipt import AnyReply
from onejob.core.step import Command, Footprint
from onejob.engine import Durability
from onejob.errors import StoreRefused, Unavailable, Unknown

from .anew import Anew, decided_anew
from .attempt import Attempt
from .link import Link
from .loading import Loaded, load
from .saving import Pieces, additions, cleared, removals, single, with_more, written_out
from .statements import Statements
from .trouble import LATE, THERE, ends_in_doubt, is_clash, state_of

# How far a batch that was decided before it was sent may lie behind the clock; and how long a batch that
# deletes waits before it commits, so that nobody is dated before a deletion that he follows.
LATE_MS = 40
CLASHES_MAX = 20
# After a clash others are at work on the same keys: look first for a while.
WARY_BATCHES = 8
# Up to so many rows have a statement of their own number; more are sent as arrays.
WRITTEN_OUT_MAX = 32
_SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ"
_WRITE_AND_WAIT = "SELECT pg_logical_emit_message(true, 'onejob', '')"


class Clash(Exception):
    """The facts changed while they were loaded, or must be held more firmly."""


class Store:
    """Used by one batch at a time."""

    def __init__(self, link: Link, words: Statements, declared: Durability | None) -> None:
        self.link = link
        self._words = words
        self._declared = declared
        self._wary = 0

    async def write(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        attempt: Attempt,
    ) -> list[AnyReply]:
        """Execute a batch durably."""
        replies = await self._inserted(connection, commands, footprints, attempt)
        if replies is not None:
            return replies
        firmly = False
        for left in reversed(range(CLASHES_MAX)):
            try:
                return await self._stored(connection, commands, footprints, attempt, firmly=firmly)
            except Clash:
                firmly = True
            except asyncpg.PostgresError as error:
                if not is_clash(error) or not left:
                    raise
        raise Unavailable("others keep changing the same facts: nothing was done; repeat")

    async def read(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        attempt: Attempt,
    ) -> list[AnyReply]:
        """Decide commands that change nothing, on one snapshot of what is committed."""
        assert self.link.seen is not None
        if not self.link.seen.waits and not self.link.pooled and _of_one_kind(footprints):
            loaded = await load(connection, self.link.clock, self._words, footprints)
            return fold(commands, footprints, loaded.working, loaded.begun_at)
        await connection.execute(self.link.begin(_SNAPSHOT))
        try:
            loaded = await load(connection, self.link.clock, self._words, footprints)
            replies = fold(commands, footprints, loaded.working, loaded.begun_at)
            assert not loaded.working.changes()
            if self._waits(loaded):
                await self._write_and_wait(connection, attempt)
            return replies
        finally:
            await self._rolled_back(connection)

    async def fetch(self, connection: Any, sql: str, values: list[Any]) -> list[Any]:
        """One bounded page."""
        if not self.link.pooled:
            return list(await connection.fetch(sql, *values))
        await connection.execute(self.link.begin())
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await self._rolled_back(connection)

    async def _inserted(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        attempt: Attempt,
    ) -> list[AnyReply] | None:
        """The replies, if all that the batch names is new; its date is what the server's clock can be by now."""
        now = self.link.clock.latest()
        if now is None or self._wary or not all(command.makes for command in commands):
            self._wary = max(0, self._wary - 1)
            return None
        decided = decided_anew(commands, footprints, now)
        if decided is None:
            return None
        sql, values = self._insertion(decided)
        sent, warnings = self.link.clock.monotonic(), self.link.warnings
        attempt.commit()
        try:
            clock, standbys = await self._alone(connection, sql, (now, LATE_MS, *values))
        except asyncpg.PostgresError as error:
            if ends_in_doubt(error) or not (is_clash(error) or state_of(error) in (LATE, THERE)):
                raise
            attempt.committing = False
            self._wary = 0 if state_of(error) == LATE else WARY_BATCHES
            self.link.clock.forget()
            return None
        attempt.committing, attempt.done = False, True
        self.link.clock.heard(clock, sent)
        self._refuse_in_doubt(warnings, standbys)
        return decided.replies

    def _insertion(self, decided: Anew) -> tuple[str, Sequence[Any]]:
        changes, absent, warrants = decided.changes, decided.absent, decided.warrants
        lone = single(changes, absent, warrants)
        if lone is not None:
            return self._words.single(lone[0], tuple(absent), warranted=bool(warrants)), lone[1]
        most = max(len(changes.adds), *map(len, changes.inserts.values()))
        rows: tuple[int, ...] = ()
        values: Sequence[Any]
        if most <= WRITTEN_OUT_MAX:
            parts, rows, values = written_out(changes)
        else:
            parts, values, _ = additions(changes)
        sql = self._words.inserting(parts, tuple(absent), rows, warranted=bool(warrants))
        return sql, (*absent.values(), *warrants, *values)

    async def _alone(self, connection: Any, sql: str, values: Sequence[Any]) -> tuple[float, str]:
        if not self.link.pooled:
            (row,) = await connection.fetch(sql, *values)
            return row[0], row[1]
        # A statement that is not kept takes two steps, and both must meet the same server.
        await connection.execute(self.link.begin())
        try:
            (row,) = await connection.fetch(sql, *values)
            await connection.execute("COMMIT")
            return row[0], row[1]
        finally:
            await self._rolled_back(connection)

    async def _stored(
        self,
        connection: Any,
        commands: Sequence[Command[Any]],
        footprints: Sequence[Footprint],
        attempt: Attempt,
        *,
        firmly: bool,
    ) -> list[AnyReply]:
        """Lock, load, decide, store, commit."""
        await connection.execute(self.link.begin())
        try:
            loaded = await load(
                connection, self.link.clock, self._words, footprints, locking=True, firmly=firmly
            )
            self._refuse_unkept(loaded.standbys)
            replies = fold(commands, footprints, loaded.working, loaded.held_at)
            changes = loaded.working.changes()
            if not firmly and (Kind.POLICY in changes.updates or Kind.POLICY in changes.deletes):
                raise Clash("it is held by others too")
            await self._save(connection, changes, loaded)
            if changes:
                await self._commit(connection, attempt)
            elif self._waits(loaded):
                await self._write_and_wait(connection, attempt)
            return replies
        finally:
            await self._rolled_back(connection)

    async def _save(self, connection: Any, changes: Changes, loaded: Loaded) -> None:
        made = with_more(additions(changes), loaded.absent(changes), changes.settled)
        for pieces in (cleared(changes), made, removals(changes)):
            if pieces.parts:
                await self._change(connection, pieces)
        if changes.deletes:
            wait = f"SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - {self._words.now}) / 1000)"
            await connection.execute(wait, loaded.held_at, LATE_MS)

    async def _change(self, connection: Any, pieces: Pieces) -> None:
        """Change exactly these rows: one that is missing was changed by somebody else."""
        (counts,) = await connection.fetch(self._words.storing(pieces.parts), *pieces.values)
        for part, count, expected in zip(pieces.parts, counts, pieces.expected, strict=True):
            if expected is not None and count != expected:
                if part.act == "absent":
                    raise Clash("it was made in the meantime")
                raise Trespass("a fact was changed by somebody else in the middle of a transaction")

    async def _write_and_wait(self, connection: Any, attempt: Attempt) -> None:
        """What was read may be on no standby yet: this goes after it, and is waited for."""
        await connection.execute(_WRITE_AND_WAIT)
        await self._commit(connection, attempt)

    async def _commit(self, connection: Any, attempt: Attempt) -> None:
        warnings = self.link.warnings
        attempt.commit()
        tag = await connection.execute("COMMIT")
        attempt.committing = False
        if tag != "COMMIT":
            raise Unavailable(f"{self.link.shown} rolled a batch back: nothing was done; repeat")
        attempt.done = True
        self._refuse_in_doubt(warnings, None)

    async def _rolled_back(self, connection: Any) -> None:
        if connection.is_closed() or not connection.is_in_transaction():
            return
        try:
            await connection.execute("ROLLBACK")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.link.drop()  # the first trouble is the one to tell

    def _waits(self, loaded: Loaded) -> bool:
        assert self.link.seen is not None
        return bool(loaded.standbys) and self.link.seen.waits

    def _refuse_unkept(self, standbys: str) -> None:
        if self._declared is Durability.QUORUM and not standbys:
            self.link.drop()
            raise StoreRefused(f"{self.link.shown} waits for no standby any more: nothing was done")

    def _refuse_in_doubt(self, warnings: int, standbys: str | None) -> None:
        """A commit that was told to be done, and is not all that it should be."""
        if self.link.warnings != warnings:
            raise Unknown(f"{self.link.shown} committed with a warning: it may be on no standby; repeat it")
        if standbys == "" and self._declared is Durability.QUORUM:
            self.link.drop()
            raise Unknown(f"{self.link.shown} waits for no standby any more; repeat it")


def _of_one_kind(footprints: Sequence[Footprint]) -> bool:
    """Whether one statement loads it all, so that it needs no transaction."""
    kinds: set[Kind] = set()
    for f in footprints:
        if f.record or f.follow_tally:
            return False
        policies = f.policy or f.warrant
        named = ((Kind.JOB, f.jobs), (Kind.STREAM, f.stream), (Kind.TALLY, f.tally), (Kind.POLICY, policies))
        kinds.update(kind for kind, ids in named if ids)
    return len(kinds) == 1
