"""Every SQL statement of the PostgreSQL engine, whole, in files/statements.sql; a real server is sent no other."""

import asyncio
import contextvars
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import asyncpg
import pytest

import onejob
from onejob.clock import FakeClock
from onejob.conformance import World
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply
from onejob.engine import CountCommits, ListJobs, Query
from onejob.engines import sql as shared
from onejob.engines.postgres import (
    PART_LOCK_TIMEOUT_MS,
    SINGLE_LOCK_TIMEOUT_MS,
    PostgresEngine,
    connection,
    diagnostics,
    queries,
    schema,
    transaction,
)
from onejob.engines.postgres.callers_transaction import _SAVEPOINT
from onejob.engines.postgres.connection import Connector
from onejob.engines.postgres.schema import LedgerIdentity, known_schema_version
from onejob.engines.postgres.statements import Statements
from onejob.engines.postgres.store import _SNAPSHOT
from onejob.engines.postgres.url import SCHEMA_DEFAULT, parse_postgres_url
from onejob.errors import OnejobError
from onejob.transaction import InTransaction
from tests.golden import rules
from tests.golden.conftest import FILES, GoldenCheck
from tests.golden.paper_engine import SUITE_COMMANDS, BuiltStatement, PaperEngine, StatementLog
from tests.golden.sql_text import LIMIT, formatted, normalized
from tests.support.postgres_server import SharedDatabase, StoreClock

URL = "postgresql://h/d"
_OF_THE_DRIVER = re.compile(
    r"BEGIN( READ ONLY)?;|COMMIT;|ROLLBACK;|LISTEN |(RELEASE )?SAVEPOINT __asyncpg|SELECT (current_setting|set_config)\('jit'|"
    r"WITH RECURSIVE typeinfo_tree"
)
HEADER = f"""\
-- Every SQL statement that the PostgreSQL engine can send, whole; `make golden` writes this file.
--
-- The tables are those of the schema {SCHEMA_DEFAULT!r}. A statement that differs only in its number of rows is shown with one
-- row and `/* ... n rows */`; parameters are numbered as with one row. LIMIT {LIMIT} stands for the limit of a page and one more.
-- The changes of a batch are shown for every combination of facts that the commands of tests/golden/rules.py bring about, alone
-- and in batches; other batches send the same parts in other combinations, in the same order. A list of jobs is shown with each
-- filter alone, some pairs, and all of them; others have the same conditions in the same order. The migrations are files of
-- their own (src/onejob/engines/postgres/*.sql), and what the driver sends for itself is not shown.
"""
PURPOSES = {
    "changes_sql": "Stores the changes of a batch whose facts are locked; the result is the number of rows of each part.",
    "inserts_sql": "Inserts a batch of new facts in one statement that commits by itself.",
    "load_sql": "Loads facts of one kind, and the clock.",
    "caller_insert_sql": "Inserts a new job in a caller's transaction, unless its key or a limit of its user exists.",
    "guarded_changes_sql": "Stores the changes of one command in a caller's transaction, if its session keeps the promise.",
    "snapshot_sql": "Loads the facts of a batch without locks, all kinds on one snapshot.",
    "verified_changes_sql": "Verifies that nothing has changed since the load, stores the changes, and commits by itself.",
}


class Entry(NamedTuple):
    """A statement, the function that builds it, and what there is to say about it."""

    function: str
    variant: str
    purpose: str
    sql: str


def test_every_statement_is_on_record(golden: GoldenCheck) -> None:
    entries = all_entries()
    golden("statements.sql", "\n".join([HEADER, *map(_rendered, sorted(set(entries)))]))


async def test_a_server_is_sent_no_other_statement(
    postgres_url: str, postgres_tables: SharedDatabase, store_clock: StoreClock, recorded: set[str]
) -> None:
    async def opened() -> "RecordedEngine":
        return RecordedEngine(await PostgresEngine.open(postgres_url, clock=store_clock))

    @asynccontextmanager
    async def fresh_world() -> AsyncIterator[World]:
        postgres_tables.empty()
        async with World(opened, advance=lambda ms: store_clock.advance(ms / 1000)) as world:
            yield world

    await rules.run_rules(rules.SERVER_RULES, fresh_world)
    await diagnostics.diagnose(postgres_url)
    assert len(recorded) > 100
    assert unknown_statements(recorded) == []


async def test_a_callers_transaction_is_sent_no_other_statement(postgres_url: str, recorded: set[str]) -> None:
    async with onejob.open(postgres_url, sweep=False) as ledger:
        await ledger.set_quota("counted", onejob.Limits(max_concurrent=5))
        held = await ledger.check_or_reserve("pay", {}, idempotency_key="held")
        db = await asyncpg.connect(postgres_url)
        for user in ("local", "counted"):
            commands, job_id = InTransaction(user=user).asyncpg(db), ""
            for key, input in (("a", 1), ("a", 1), ("a", 2), (None, 1)):
                async with db.transaction():
                    with suppress(OnejobError):
                        job_id = (await commands.submit("mail", input, idempotency_key=key)).job_id
            async with db.transaction():
                await commands.cancel(job_id)
        async with db.transaction():
            await InTransaction().asyncpg(db).settle(held, b"r")  # type: ignore[arg-type]  # nobody holds it yet
        await db.close()
    assert any("onejob_is_uncounted" in sql for sql in recorded)
    assert unknown_statements(recorded) == []


def all_entries() -> list[Entry]:
    return [*built_entries(), *fixed_entries(), *query_entries(), *connection_entries()]


def built_entries() -> Iterable[Entry]:
    """What the builders build for the commands of the suite."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for statement, commands in paper_log().built.items():
        key = statement.builder, _variant(statement), normalized(statement.sql)
        found.setdefault(key, set()).update(commands)
    for (builder, variant, sql), commands in found.items():
        used = f"Used by: {', '.join(sorted(commands))}." if builder != "load_sql" else ""
        yield Entry(f"statements.py: Statements.{builder}", variant, f"{PURPOSES[builder]} {used}".strip(), sql)


def paper_log() -> StatementLog:
    """The statements of all rules, decided on paper."""
    log = StatementLog()

    def make_world() -> World:
        clock = FakeClock()
        store = PaperEngine(clock, log)

        async def opened() -> PaperEngine:
            engine = PaperEngine(clock, log)
            engine.facts, engine.attachments, engine.info = store.facts, store.attachments, store.info
            return engine

        return World(opened, advance=lambda ms: clock.advance(ms / 1000))

    asyncio.run(rules.run_rules(rules.RULES, make_world))
    for kind in Kind:
        for lock in ("", "FOR UPDATE", *(("FOR SHARE",) if kind is Kind.POLICY else ())):
            for announces in (False, True) if lock else (False,):
                log.commands = ()
                log.statements.load_sql(kind, lock, announces=announces)
    return log


def _variant(built: BuiltStatement) -> str:
    options = dict(built.options)
    match built.builder:
        case "load_sql":
            kind, lock = built.arguments
            return f"{kind.name.lower()}, {lock or 'no lock'}{', announces' if options.get('announces') else ''}"
        case "snapshot_sql":
            (kinds,) = built.arguments
            follows = [name.replace("_", " ") for name, value in options.items() if value]
            return ", ".join([*_names(kinds), *follows])
        case "verified_changes_sql":
            holds, absent, parts, _ = built.arguments
            held = [f"{kind.name.lower()}{' shared' if shared else ''}" for kind, shared in holds]
            notifies = "; notifies" if options["notifies"] else ""
            return f"{_held(held, _names(absent))}{_parts(parts)}{notifies}"
        case "changes_sql":
            return _parts(built.arguments[0])
        case "caller_insert_sql" | "guarded_changes_sql":
            return _parts(built.arguments[0])
    parts, absent, *rows = built.arguments
    how = "rows written out; " if rows and rows[0] else "arrays; " if rows else ""
    checked = "; has preconditions" if options["has_preconditions"] else ""
    return f"{how}{_held([], _names(absent))}{_parts(parts)}{checked}"


def _held(held: Sequence[str], absent: Sequence[str]) -> str:
    holds = f"holds {', '.join(held)}; " if held else ""
    return holds + (f"absent {', '.join(absent)}; " if absent else "")


def _parts(parts: Iterable[Any]) -> str:
    return ", ".join(
        f"{part.action} {part.kind.name.lower()}" if part.kind is not None else part.action for part in parts
    )


def _names(kinds: Iterable[Kind]) -> list[str]:
    return [kind.name.lower() for kind in kinds]


def fixed_entries() -> Iterable[Entry]:
    """The statements that have no variants."""
    statements, version = Statements(SCHEMA_DEFAULT), known_schema_version()
    named = {
        "clock_sql": "Reads the clock, for a batch that needs no facts.",
        "writers_sql": "Lists the transactions that a barrier waits for.",
        "greeting_sql": "Reads the clock and the version of the tables, once per process, in a caller's transaction.",
        "settings_sql": "Reads the settings of the ledger in a caller's transaction.",
        "insert_settings_sql": "Creates the settings of a new ledger in a caller's transaction.",
        "limits_sql": "Locks the limits of a user in a caller's transaction.",
        "input_sql": "Reads the input of the first job of a key, to name the difference.",
    }
    for name, purpose in named.items():
        yield Entry(f"statements.py: Statements.{name}", "", purpose, normalized(getattr(statements, name)))
    answer = normalized(statements.answer_sql(version))
    yield Entry(
        "statements.py: Statements.answer_sql", "", "Finds the answer of a key in a caller's transaction.", answer
    )
    wait = f"SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - {statements.now}) / 1000)"
    yield Entry("transaction.py: save_steps", "", "Waits before the commit of a deletion.", wait)
    message = "Writes a message that a commit carries to the standby, after a reply that stores nothing."
    yield Entry("transaction.py: EMIT_WAL_MESSAGE", "", message, transaction.EMIT_WAL_MESSAGE)
    for sql in (f"SAVEPOINT {_SAVEPOINT}", f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", f"RELEASE SAVEPOINT {_SAVEPOINT}"):
        yield Entry("callers_transaction.py: _decide_and_store", "", "Undoes a change that met another one.", sql)
    for sql in ("COMMIT", "ROLLBACK"):
        yield Entry("store.py: PostgresStore", "", "Ends a transaction.", sql)
    yield Entry("store.py: PostgresStore._change_fast", "", "Begins the wait for a standby.", "BEGIN")


def query_entries() -> Iterable[Entry]:
    statements = Statements(SCHEMA_DEFAULT)
    for query in rules.queries():
        if isinstance(query, CountCommits):
            continue  # answered without a statement
        plans = [shared.ScanPlan()]
        if isinstance(query, ListJobs) and not query.usage_id:
            plans += [shared.ScanPlan(oldest_id=b"o"), *([shared.ScanPlan(types=("a", "b"))] if query.state else [])]
        for plan in plans:
            sql, _ = queries.build_statement(statements, query, plan)
            planned = ", ".join(name for name, value in zip(plan._fields, plan, strict=True) if value)
            variant = f"{_query_variant(query)}{f'; planned: {planned}' if planned else ''}"
            yield Entry("queries.py: build_statement", variant, _first_line(query), normalized(sql))
        for sql in _planning_statements(statements, query):
            yield Entry("sql.py: plan_scan", type(query).__name__, "Plans a page of jobs.", normalized(sql))


def _planning_statements(statements: Statements, query: Query[Any]) -> list[str]:
    """With more types than are merged, so that it looks for the oldest job as well."""
    steps = queries.plan_scan(statements, query)
    found: list[str] = []
    with suppress(StopIteration):
        statement = next(steps)
        while True:
            found.append(statement[0])
            statement = steps.send([(str(n),) for n in range(shared.TYPES_MERGED_MAX + 1)])
    return found


def _query_variant(query: Query[Any]) -> str:
    given = [name for name in query.__struct_fields__ if name != "limit" and getattr(query, name)]
    kind = f" of {query.kind.name.lower()}" if hasattr(query, "kind") else ""
    return f"{type(query).__name__}{kind}: {', '.join(name for name in given if name != 'kind') or 'all'}"


def _first_line(query: Query[Any]) -> str:
    return (type(query).__doc__ or "").strip().splitlines()[0]


def connection_entries() -> Iterable[Entry]:
    """What is sent before and around the statements: sessions, transactions, the tables, an examination."""
    for url, pooled in ((URL, ""), (f"{URL}?pooled=true", "pooled; ")):
        connector = Connector(parse_postgres_url(url), lambda: 0.0, LedgerIdentity())
        for mode in ("", _SNAPSHOT):
            sql = normalized(connector.begin_sql(mode))
            yield Entry("connection.py: Connector.begin_sql", f"{pooled}{mode}", "Begins a transaction.", sql)
        for ms in (PART_LOCK_TIMEOUT_MS, SINGLE_LOCK_TIMEOUT_MS):
            sql = normalized(connector.begin_sql(lock_timeout_ms=ms))
            yield Entry(
                "connection.py: Connector.begin_sql", f"{pooled}{ms} ms", "Begins a part of a split batch.", sql
            )
    constants = {
        "connection.py: read_server_settings": (connection._SERVER_SETTINGS_QUERY, "Reads whether the server is safe."),
        "diagnostics.py: diagnose": (diagnostics._SERVER_QUERY, "Examines a server for `onejob doctor`."),
        "diagnostics.py: _check_tables": (diagnostics._MISSING_PRIVILEGES_QUERY, "Lists missing privileges."),
    }
    for function, (sql, purpose) in constants.items():
        yield Entry(function, "", purpose, normalized(sql))
    yield from schema_entries()


def schema_entries() -> Iterable[Entry]:
    notes = NotingConnection()
    url = parse_postgres_url(f"{URL}?durability=quorum")

    async def connect() -> None:
        await schema.apply_migrations(notes, url, migrate=True)
        await LedgerIdentity().verify(notes, url)
        await LedgerIdentity().declare_durability(notes, url)
        notes.has_tables = True
        await schema.read_schema_version(notes, url)

    asyncio.run(connect())
    migrations = {normalized(step) for step in shared.load_migrations(schema.__package__)}
    for sql in sorted({normalized(sql) for sql in notes.statements} - migrations):
        yield Entry("schema.py", "", "Creates, checks and names the tables when a connection is opened.", sql)


class NotingConnection:
    """A connection to a database without tables, which says what it is sent."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.has_tables = False

    async def fetchval(self, sql: str, *values: Any) -> Any:
        self.statements.append(sql)
        return "found" if ".ledger" in sql else int(self.has_tables)

    async def fetchrow(self, sql: str, *values: Any) -> Any:
        self.statements.append(sql)
        return "disk", True

    async def execute(self, sql: str, *values: Any) -> None:
        self.statements.append(re.sub(r"VALUES \(\d+\)", "VALUES (1)", sql))


_is_recording: contextvars.ContextVar[bool] = contextvars.ContextVar("is_recording", default=True)


class RecordedEngine:
    """Hides the statements of commands that exist only in the suite."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def execute(self, commands: Sequence[Command[Any]], **options: Any) -> Sequence[AnyReply]:
        token = _is_recording.set(not any(isinstance(command, SUITE_COMMANDS) for command in commands))
        try:
            return await self._engine.execute(commands, **options)
        finally:
            _is_recording.reset(token)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The statements that are sent through asyncpg, until the test ends."""
    found: set[str] = set()
    connect: Callable[..., Any] = asyncpg.connect

    def note(query: Any) -> None:
        if _is_recording.get():
            found.add(normalized(query.query))

    async def recorded_connect(*arguments: Any, **options: Any) -> Any:
        connected = await connect(*arguments, **options)
        connected.add_query_logger(note)
        return connected

    monkeypatch.setattr(asyncpg, "connect", recorded_connect)
    return found


def unknown_statements(sent: Iterable[str]) -> list[str]:
    """Statements that are not on record. What the driver sends for `connection.transaction()` and LISTEN is its own."""
    on_record = {_squashed(sql) for sql in _statements_on_record()}
    return sorted(sql for sql in sent if _squashed(sql) not in on_record and not _OF_THE_DRIVER.match(sql))


def _statements_on_record() -> list[str]:
    text = (FILES / "statements.sql").read_text(encoding="utf-8")
    return re.split(r";\n", re.sub(r"(?m)^-- .*\n|^--\n", "", text))


def _rendered(entry: Entry) -> str:
    lines = [f"-- {entry.function}{f' ({entry.variant})' if entry.variant else ''}", f"-- {entry.purpose}"]
    return "\n".join([*lines, f"{formatted(entry.sql)};\n"])


def _squashed(text: str) -> str:
    return "".join(text.split())
