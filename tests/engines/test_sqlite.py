"""The SQLite engine: its file, schema, locks and clock."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock, SystemClock
from onejob.conformance.commands import FactsRead, IncrementCounter, read_facts, write_facts
from onejob.conformance.samples import TENANT, a_policy, a_stream, submit
from onejob.conformance.world import dump_store, expect, list_facts
from onejob.core.batch import Changes, FootprintViolation
from onejob.core.facts import U64, Kind
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Created, Defect, Found, Missing, Replayed
from onejob.engine import ListJobs
from onejob.engines import sqlite as module
from onejob.engines.codec import to_row_changes
from onejob.engines.sql import load_migrations
from onejob.engines.sqlite import SqliteEngine, schema
from onejob.errors import Outdated, StoreRefused, Unavailable
from onejob.ids import new_job_id
from tests.support.sqlite_files import RawConnection, pragma, read_content, tables, write_content

DAY_MS = 86_400_000
# Another program: it takes the write lock, prints so, and writes and commits after a line of input.
LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("UPDATE job SET priority = 7")
db.execute("COMMIT")
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


@pytest.fixture
async def engine(path: str) -> AsyncIterator[SqliteEngine]:
    engine = await SqliteEngine.open(path, clock=FakeClock())
    yield engine
    await engine.aclose()


async def test_a_new_file_has_the_newest_schema_and_the_application_id(engine: SqliteEngine, path: str) -> None:
    assert pragma(path, "user_version") == len(load_migrations(schema.__package__))
    assert pragma(path, "application_id") == schema.APPLICATION_ID


async def test_an_update_rewrites_no_index_of_ids_or_tenants(engine: SqliteEngine, path: str) -> None:
    """Otherwise a settled key would cost a random page of the index more, and a finished job one of another."""
    await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        for kind, index in ((Kind.RECORD, "record_id"), (Kind.JOB, "job_tenant")):
            root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).get
            sql = module._UPDATE[kind]
            steps: list[Any] = db.execute(f"EXPLAIN {sql}", [None] * sql.count("?")).fetchall()
            pages = {cursor: page for _, name, cursor, page, *_ in steps if name.startswith("Open")}
            rewritten = {pages[cursor] for _, name, cursor, *_ in steps if name in ("IdxInsert", "IdxDelete")}
            assert rewritten
            assert root not in rewritten


async def test_opening_again_changes_nothing(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    stored = await dump_store(engine)
    before = tables(path)
    again = await SqliteEngine.open(path, clock=FakeClock())
    assert await dump_store(again) == stored
    await again.aclose()
    assert tables(path) == before


async def test_a_newer_schema_is_refused_and_not_changed(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    await engine.aclose()
    with RawConnection(path) as db:
        db.pragma("user_version", 99)
    before = read_content(path)
    with pytest.raises(StoreRefused, match=r"schema 99.*upgrade the program"):
        await SqliteEngine.open(path)
    assert read_content(path) == before


async def test_a_file_from_before_the_first_release_is_refused_and_not_changed(engine: SqliteEngine, path: str) -> None:
    await engine.aclose()
    with RawConnection(path) as db:
        db.execute("ALTER TABLE usage RENAME TO tally")
        db.pragma("user_version", 5)
    before = read_content(path)
    with pytest.raises(StoreRefused, match=r"before the first release \(`tally`\).*choose another file"):
        await SqliteEngine.open(path)
    assert read_content(path) == before


@pytest.mark.parametrize("column", ["state", "delivery"])
async def test_an_unknown_value_of_a_newer_program_fails_only_commands_that_need_it(
    engine: SqliteEngine, path: str, column: str
) -> None:
    created = await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute(f"UPDATE job SET {column} = 'hovering'")
    look = LookUpJob(tenant=TENANT, job_id=created.job.id)
    for commands in ([look, LookUpJob(tenant=TENANT, job_id=new_job_id())], [submit(), submit("other")]):
        newer, fine = await engine.execute(commands)
        assert isinstance(newer, Defect)
        assert newer.retryable
        assert "upgrade this program" in newer.message
        assert isinstance(fine, (Created, Missing))
    with pytest.raises(Outdated, match="upgrade this program"):
        await engine.scan(ListJobs(tenant=TENANT))


async def test_an_error_caused_by_a_newer_schema_is_not_a_defect_of_the_command(
    engine: SqliteEngine, path: str
) -> None:
    await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute("CREATE TRIGGER must_have_a_colour BEFORE INSERT ON job BEGIN SELECT RAISE(ABORT, 'colour'); END")
    (reply,) = await engine.execute([submit("before")])
    assert isinstance(reply, Defect), "with the same schema it is a defect"
    with RawConnection(path) as db:
        db.pragma("user_version", 99)
    with pytest.raises(StoreRefused, match=r"schema 99.*upgrade the program"):
        await engine.execute([submit("after")])


async def test_another_programs_database_is_refused_and_not_changed(path: str) -> None:
    with RawConnection(path) as db:
        db.execute("CREATE TABLE diary (day TEXT)")
    before = read_content(path)
    with pytest.raises(StoreRefused, match="another program's database; choose another file"):
        await SqliteEngine.open(path)
    assert read_content(path) == before


async def test_a_file_that_is_not_a_database_is_refused_and_not_changed(path: str) -> None:
    write_content(path, b"dear diary, " * 1000)
    with pytest.raises(StoreRefused, match="restore it"):
        await SqliteEngine.open(path)
    assert read_content(path) == b"dear diary, " * 1000


@pytest.mark.parametrize("where", ["no/such/folder/onejob.db", "."])
async def test_a_folder_that_does_not_exist_is_refused_with_a_clear_message(tmp_path: Path, where: str) -> None:
    with pytest.raises(Unavailable, match=r"nothing was done; fix"):
        await SqliteEngine.open(str(tmp_path / where))


async def test_a_migration_that_fails_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = load_migrations(schema.__package__)
    broken = "CREATE TABLE half (x); INSERT INTO half VALUES (1); CREATE TABLE half (x);"
    monkeypatch.setattr(schema, "load_migrations", lambda _: [*steps, broken])
    with pytest.raises(Unavailable):
        await SqliteEngine.open(path)
    assert tables(path) == []
    assert pragma(path, "user_version") == 0

    monkeypatch.setattr(schema, "load_migrations", lambda _: steps)
    engine = await SqliteEngine.open(path)
    await expect(engine, submit(), Created)
    await engine.aclose()
    before = tables(path)
    monkeypatch.setattr(schema, "load_migrations", lambda _: [*steps, broken])
    with pytest.raises(Unavailable):
        await SqliteEngine.open(path)
    assert tables(path) == before
    assert pragma(path, "user_version") == len(steps)

    fixed = "CREATE TABLE added (x); INSERT INTO added VALUES (1);"
    monkeypatch.setattr(schema, "load_migrations", lambda _: [*steps, fixed])
    engine = await SqliteEngine.open(path)
    await expect(engine, submit(), Replayed)
    await engine.aclose()
    assert pragma(path, "user_version") == len(steps) + 1


async def test_every_commit_is_synced(engine: SqliteEngine) -> None:
    await expect(engine, submit(), Created)
    await list_facts(engine, Kind.JOB)
    assert engine._write_store is not None
    assert engine._read_store is not None
    for thread, store in ((engine._writer, engine._write_store), (engine._reader, engine._read_store)):
        assert await thread.call(store.db.pragma, "journal_mode") == "wal"
        assert await thread.call(store.db.pragma, "synchronous") == 2, "FULL"
        assert await thread.call(store.db.pragma, "trusted_schema") == 0


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        engine = await SqliteEngine.open(str(tmp_path / "onejob.db"))
        await expect(engine, submit(), Created)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in os.scandir(tmp_path)}
        await engine.aclose()
    finally:
        os.umask(umask)
    assert set(modes.values()) == {0o600}, modes
    assert {"onejob.db", "onejob.db-wal"} <= set(modes)


async def test_another_programs_lock_delays_writes_and_no_reads(engine: SqliteEngine, path: str) -> None:
    created = await expect(engine, submit(), Created)
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as locker:
        assert locker.stdout is not None
        assert locker.stdin is not None
        assert locker.stdout.readline() == b"locked\n"
        write = engine._writer.call(engine._translate_errors, engine._write, [submit("new")])
        found = await expect(engine, LookUpJob(tenant=TENANT, job_id=created.job.id), Found)
        assert found.job == created.job
        assert not write.done()
        locker.stdin.write(b"go\n")
        locker.stdin.flush()
        (reply,) = await write
        assert isinstance(reply, Created)
    found = await expect(engine, LookUpJob(tenant=TENANT, job_id=created.job.id), Found)
    assert found.job == replace(created.job, priority=7)


async def test_a_store_that_another_program_keeps_locked_is_unavailable_within_seconds(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many processes wait for it: the lock of the one that waits is part of the others' time."""
    assert schema.LOCK_TIMEOUT_SECONDS <= 5
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_SECONDS", 0.5)
    engines = [await SqliteEngine.open(path) for _ in range(4)]
    await expect(engines[0], submit(ttl_ms=60_000), Created)
    clock = SystemClock()
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == b"locked\n"
        for _ in range(2):  # the second time, the file must be opened again
            begin = clock.monotonic()
            results = await asyncio.gather(
                *(engine.execute([submit("new")]) for engine in engines), return_exceptions=True
            )
            assert clock.monotonic() - begin < 15  # with a stall of the machine
            assert {type(result) for result in results} == {Unavailable}
            assert any("locked by another program" in str(result) for result in results)
        locker.kill()
    for engine in engines:
        await expect(engine, submit(), Replayed)
        await engine.aclose()


async def test_the_store_itself_overwrites_nothing(engine: SqliteEngine) -> None:
    """Insert-if-absent and update-if-version hold even without the lock."""
    policy = a_policy()
    await expect(engine, write_facts(policy), FactsRead)
    assert engine._write_store is not None
    other = replace(policy, version=2, body=b"other")
    for changes, error in (
        (Changes({Kind.POLICY: [other]}, {}, {}, [], []), apsw.ConstraintError),
        (Changes({}, {Kind.POLICY: [(other, 7)]}, {}, [], []), FootprintViolation),
        (Changes({}, {}, {Kind.POLICY: [(policy, 7)]}, [], []), FootprintViolation),
    ):
        with pytest.raises(error):
            await engine._writer.call(engine._write_store.save, to_row_changes(changes))
    assert await dump_store(engine) == [policy]


@pytest.mark.parametrize(("number", "stored"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)])
async def test_unsigned_integers_are_stored_as_the_signed_ones_of_the_same_bits(
    engine: SqliteEngine, path: str, number: int, stored: int
) -> None:
    stream = a_stream(last=U64(number))
    await expect(engine, write_facts(stream), FactsRead)
    with RawConnection(path) as db:
        assert db.execute("SELECT last, typeof(last) FROM stream").fetchall() == [(stored, "integer")]
    assert (await expect(engine, read_facts(stream), FactsRead)).stream == stream


async def test_engines_of_one_boot_share_one_time_whatever_the_wall_says(path: str) -> None:
    clock = FakeClock()
    first = await SqliteEngine.open(path, clock=clock)
    now = (await expect(first, IncrementCounter(tenant=TENANT), FactsRead)).at
    for jump in (DAY_MS, -2 * DAY_MS):
        clock.jump_wall(jump)
        later = await SqliteEngine.open(path, clock=clock)
        assert (await expect(later, IncrementCounter(tenant=TENANT), FactsRead)).at == now
        assert (await expect(later, read_facts(a_policy("none")), FactsRead)).at == now
        await later.aclose()
    assert (await expect(first, read_facts(a_policy("none")), FactsRead)).at == now
    await first.aclose()


@pytest.mark.parametrize("boot", ["another boot", None])
async def test_after_a_restart_time_follows_the_wall_clock_but_never_falls_below_what_is_stored(
    path: str, monkeypatch: pytest.MonkeyPatch, boot: str | None
) -> None:
    before = FakeClock()
    engine = await SqliteEngine.open(path, clock=before)
    created = await expect(engine, submit(), Created)
    await engine.aclose()

    monkeypatch.setattr(schema, "boot_id", lambda: boot)
    set_back = FakeClock(monotonic=5.0, wall_ms=before.wall_ms() - DAY_MS)
    engine = await SqliteEngine.open(path, clock=set_back)
    assert (await expect(engine, read_facts(a_policy("none")), FactsRead)).at == created.at
    await engine.aclose()

    monkeypatch.setattr(schema, "boot_id", lambda: boot and "a third boot")
    right = FakeClock(monotonic=5.0, wall_ms=before.wall_ms() + DAY_MS)
    engine = await SqliteEngine.open(path, clock=right)
    assert (await expect(engine, read_facts(a_policy("none")), FactsRead)).at == right.wall_ms()
    await engine.aclose()
