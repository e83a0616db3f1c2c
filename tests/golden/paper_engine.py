"""A PostgreSQL engine without PostgreSQL: it decides over dictionaries, and lists what would be sent for every batch.

Each batch is taken down every path that `PostgresStore` has, whichever a server would have made it take, and through a
caller's transaction if it is one that `InTransaction` executes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from onejob.clock import FakeClock
from onejob.conformance import commands as suite
from onejob.core.batch import decide_batch, decide_optimistic_insert
from onejob.core.command import Command, Footprint
from onejob.core.facts import Kind
from onejob.core.memo import BeginStep, FinishStep
from onejob.core.replies import AnyReply
from onejob.core.reserve import Settle
from onejob.core.submit import Submit
from onejob.core.work import Cancel, Extend, Finish
from onejob.engines.codec import fact_to_row
from onejob.engines.memory import MemoryEngine
from onejob.engines.postgres import optimistic, transaction
from onejob.engines.postgres.parts import StatementPart, guarded_changes, inline_inserts_fast
from onejob.engines.postgres.schema import known_schema_version
from onejob.engines.postgres.statements import Statements
from onejob.engines.postgres.store import PostgresStore
from onejob.engines.postgres.url import SCHEMA_DEFAULT

SUITE_COMMANDS = tuple(
    cls for cls in vars(suite).values() if getattr(cls, "__module__", "") == suite.__name__ and isinstance(cls, type)
)
INSIDE_COMMANDS = (Submit, Settle, Finish, Extend, Cancel, BeginStep, FinishStep)
BUILDERS = (
    "changes_sql",
    "inserts_sql",
    "load_sql",
    "caller_insert_sql",
    "guarded_changes_sql",
    "snapshot_sql",
    "verified_changes_sql",
)


T = TypeVar("T")


class BuiltStatement(NamedTuple):
    builder: str
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    sql: str


class StatementLog:
    """Every statement that the builders have built, with their arguments and the commands that it was for."""

    def __init__(self, schema: str = SCHEMA_DEFAULT) -> None:
        self.built: dict[BuiltStatement, set[str]] = {}
        self.commands: tuple[str, ...] = ()
        self.statements = Statements(schema)
        for name in BUILDERS:
            setattr(self.statements, name, self._recorded(name, getattr(self.statements, name)))

    def _recorded(self, name: str, build: Callable[..., str]) -> Callable[..., str]:
        def recorded(*arguments: Any, **options: Any) -> str:
            sql = build(*arguments, **options)
            statement = BuiltStatement(name, arguments, tuple(sorted(options.items())), sql)
            self.built.setdefault(statement, set()).update(self.commands)
            self.last = statement
            return sql

        return recorded


class PaperEngine(MemoryEngine):
    def __init__(self, clock: FakeClock, log: StatementLog) -> None:
        super().__init__(clock)
        self._log = log
        self._store = PostgresStore.__new__(PostgresStore)
        self._store._statements = log.statements

    def _execute_batch(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        if not any(isinstance(command, SUITE_COMMANDS) for command in commands):
            self._log.commands = tuple(sorted({type(command).__name__ for command in commands}))
            self._list_statements(commands)
        return super()._execute_batch(commands)

    def _list_statements(self, commands: Sequence[Command[Any]]) -> None:
        footprints = [command.footprint for command in commands]
        writes = any(command.writes for command in commands)
        if all(command.creates for command in commands):
            decided = decide_optimistic_insert(commands, footprints, self._now())
            if decided is not None:
                self._store._build_insert(decided)
        if not writes:
            self._drive(transaction.load_steps(self._log.statements, footprints))
            return
        self._list_locked(commands, footprints)
        self._list_verified(commands, footprints)
        if len(commands) == 1 and isinstance(commands[0], INSIDE_COMMANDS):
            self._list_inside(commands[0], footprints[0])

    def _list_locked(self, commands: Sequence[Command[Any]], footprints: Sequence[Footprint]) -> None:
        steps = transaction.load_steps(self._log.statements, footprints, locking=True)
        loaded = self._drive(steps)
        decide_batch(commands, footprints, loaded.working_set, loaded.locked_at)
        self._drive(transaction.save_steps(self._log.statements, loaded.working_set.changes(), loaded))

    def _list_verified(self, commands: Sequence[Command[Any]], footprints: Sequence[Footprint]) -> None:
        optimistic.snapshot_statement(self._log.statements, footprints)
        snapshot = self._snapshot(footprints)
        decide_batch(commands, footprints, snapshot.working_set, self._now())
        changes = snapshot.working_set.changes()
        if changes and optimistic.may_change(snapshot, changes):
            optimistic.change_statement(self._log.statements, footprints, snapshot, changes)

    def _list_inside(self, command: Command[Any], footprint: Footprint) -> None:
        statements, version = self._log.statements, known_schema_version()
        if isinstance(command, Submit):
            decided = decide_optimistic_insert([command], [footprint], self._now())
            if decided is not None and set(inline_inserts_fast(decided.changes)[1]) == {1}:
                statements.caller_insert_sql(inline_inserts_fast(decided.changes)[0], version)
                statements.changes_sql(tuple(StatementPart("update", kind) for kind in decided.changes.inserts))
        loaded = self._drive(transaction.load_steps(statements, [footprint], locking=True, announces=False))
        decide_batch([command], [footprint], loaded.working_set, loaded.locked_at)
        changes = loaded.working_set.changes()
        if changes and not changes.deletes:
            statements.guarded_changes_sql(guarded_changes(changes).parts, version)

    def _snapshot(self, footprints: Sequence[Footprint]) -> optimistic.LoadedSnapshot:
        """What one statement without locks would read."""
        snapshot = optimistic.LoadedSnapshot()
        found = {kind: {id: (fact, 1) for id, fact in self.facts[kind].items()} for kind in Kind}
        optimistic.fill_snapshot(snapshot, footprints, found)
        snapshot.decided_at = self._now()
        return snapshot

    def _drive(self, steps: transaction.Steps[T]) -> T:
        try:
            statement = next(steps)
            while True:
                statement = steps.send(self._answer(statement))
        except StopIteration as done:
            result: T = done.value
            return result

    def _answer(self, statement: transaction.Statement) -> list[Any]:
        """The rows of a statement that loads facts of one kind; of another, that every part changed what it should."""
        built = self._log.last
        if statement.sql != built.sql:
            return [(self._now(), "")]
        if built.builder != "load_sql":
            return [[AnyCount() for _ in built.arguments[0]]]
        table = self.facts[built.arguments[0]]
        rows = [fact_to_row(table[id]) for id in statement.values[0] if id in table]
        return [(self._now(), "", *row) for row in rows or [(None,)]]


class AnyCount:
    """The number of rows that the caller expects."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0
