"""`onejob relay`: every row of an outbox table becomes one job, whatever happens to the relay."""

import os
import signal
import sqlite3
import subprocess
import time
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onejob import sync
from onejob.cli.commands.relay import _open_outbox
from onejob.cli.commands.relay.outbox import DIALECTS, TABLE_DEFAULT, WINDOW, Relay, RelayCounts
from onejob.clock import FakeClock
from onejob.core.limits import Limits
from onejob.errors import Unavailable
from onejob.ledger.parse import Submission
from tests.support.command_line import ONEJOB, CommandRunner
from tests.support.outbox import Source, kill_relays

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["sqlite", "postgresql", "sqlalchemy"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgresql":
        source = Source(request.getfixturevalue("postgres_url"), "postgresql")
    else:
        file = tmp_path / "shop.db"
        file.touch()
        source = Source(f"{'sqlite' if request.param == 'sqlite' else 'sqlite+pysqlite'}:///{file}", "sqlite")
    yield source
    source.close()


@pytest.fixture
def sqlite_source(tmp_path: Path) -> Any:
    (tmp_path / "shop.db").touch()
    source = Source(f"sqlite:///{tmp_path / 'shop.db'}", "sqlite")
    yield source
    source.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with sync.open(f"sqlite:///{tmp_path / 'onejob.db'}") as ledger:
        yield ledger


def test_every_row_becomes_one_job_and_is_deleted(source: Source, ledger: sync.SyncLedger) -> None:
    for n in range(5):
        source.add(f"k{n}", f'{{"n": {n}}}', scope="orders" if n == 4 else None)
    source.add("k0", '{"n": 0}')
    relay = Relay(source.table, ledger.submit_prepared, FakeClock())
    assert relay.run_once() == RelayCounts(submitted=6)
    assert relay.run_once() == RelayCounts()
    assert source.rows("*") == []
    assert sorted(ledger.input(job.id) for job in ledger.jobs()) == [b'{"n": %d}' % n for n in range(5)]
    history = ledger.explain("k4", scope="orders")
    assert history.expires_at - history.first_seen == WINDOW


def test_a_row_is_marked_before_it_is_sent(source: Source) -> None:
    clock = FakeClock()
    seen: list[Any] = []

    def submit(_: Submission) -> None:
        seen.extend(source.rows("first_tried_at"))
        raise Unavailable("the ledger is away")

    source.add("k")
    for _ in range(2):
        with pytest.raises(Unavailable):
            Relay(source.table, submit, clock).run_once()
        clock.advance(100)
    first = clock.wall_ms() - 200_000
    assert seen == [(first,), (first,)]


@pytest.mark.parametrize(("days", "is_sent"), [(29, True), (30, False), (400, False), (-1, False), (-1 / 25, True)])
def test_a_row_that_was_tried_a_window_ago_is_reported_and_not_sent(
    sqlite_source: Source, ledger: sync.SyncLedger, days: float, is_sent: bool
) -> None:
    """Up to an hour in the future is the clock of another relay."""
    clock = FakeClock()
    sqlite_source.add("k")
    sqlite_source.change(f"first_tried_at = {clock.wall_ms() - int(days * DAY_MS)}")
    counts = Relay(sqlite_source.table, ledger.submit_prepared, clock).run_once()
    assert counts == (RelayCounts(submitted=1) if is_sent else RelayCounts(failed=1))
    assert len(list(ledger.jobs())) == is_sent
    if not is_sent:
        ((reason,),) = sqlite_source.rows("failed")
        assert "see whether its job exists" in reason
        assert Relay(sqlite_source.table, ledger.submit_prepared, clock).run_once() == RelayCounts()


def test_a_row_that_was_tried_at_no_possible_time_keeps_no_other_waiting(
    sqlite_source: Source, ledger: sync.SyncLedger
) -> None:
    sqlite_source.add("bad")
    sqlite_source.change(f"first_tried_at = {10**18}")
    sqlite_source.add("good")
    counts = Relay(sqlite_source.table, ledger.submit_prepared, FakeClock()).run_once()
    assert counts == RelayCounts(submitted=1, failed=1)


def test_a_row_that_was_never_tried_is_sent_however_old_it_is(sqlite_source: Source, ledger: sync.SyncLedger) -> None:
    sqlite_source.add("k")
    clock = FakeClock()
    clock.advance(400 * 24 * 3600)
    assert Relay(sqlite_source.table, ledger.submit_prepared, clock).run_once().submitted == 1


def test_a_row_that_cannot_succeed_keeps_no_other_waiting(source: Source, ledger: sync.SyncLedger) -> None:
    ledger.submit("charge", "another body", idempotency_key="used")
    source.add("used")
    source.add("bad", "{no json")
    source.add("good")
    relay = Relay(source.table, ledger.submit_prepared, FakeClock())
    assert relay.run_once() == RelayCounts(submitted=1, failed=2)
    assert [key for (key,) in source.rows("idempotency_key")] == ["used", "bad"]
    (conflict,), (invalid,) = source.rows("failed")
    assert "another body" in conflict
    assert "JSON" in invalid
    source.change("input = '\"another body\"', failed = NULL")
    assert relay.run_once() == RelayCounts(submitted=2)


def test_a_row_that_is_refused_for_now_is_tried_again(sqlite_source: Source, ledger: sync.SyncLedger) -> None:
    ledger.set_quota("local", Limits(max_concurrent=1))
    for n in range(3):
        sqlite_source.add(f"k{n}")
    relay = Relay(sqlite_source.table, ledger.submit_prepared, FakeClock())
    assert relay.run_once() == RelayCounts(submitted=1, left=2)
    ledger.set_quota("local", Limits())
    assert relay.run_once() == RelayCounts(submitted=2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_schema_is_printed(run: CommandRunner, dialect: str) -> None:
    result = run("relay", "--schema", dialect, "--table", "shop.outbox")
    assert result.code == 0
    assert result.out.startswith("CREATE TABLE shop.outbox (")


def test_the_command_relays_to_an_engine_and_to_a_server(
    run: CommandRunner, sqlite_source: Source, server_and_engine: tuple[str, str], empty_store: None
) -> None:
    url, engine = server_and_engine
    for n, target in enumerate((("--url", url), ("--engine", engine))):
        sqlite_source.add("k", type="a")
        sqlite_source.add(f"k{n}", type="a")
        result = run("relay", "--from", sqlite_source.url, "--once", *target)
        assert (result.code, result.out) == (0, "2 submitted, 0 failed, 0 left\n")
    listed = run("jobs", "--url", url, "--json")
    assert listed.out.count('"type":"a"') + listed.out.count('"type": "a"') == 3
    sqlite_source.add("k", "2", type="a")
    result = run("relay", "--from", sqlite_source.url, "--once", "--json", "--url", url)
    assert result.code == 1
    assert '"failed":1' in result.out.replace(" ", "")


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ((), "--from"),
        (("--from", "sqlite:////nowhere/shop.db"), "cannot be read"),
        (("--from", "sqlite:///{db}", "--table", "missing"), "no such table"),
        (("--from", "sqlite:///{db}", "--table", "a b"), "plain name"),
    ],
)
def test_a_wrong_source_is_told_with_the_next_act(
    run: CommandRunner, sqlite_source: Source, tmp_path: Path, arguments: tuple[str, ...], cause: str
) -> None:
    words = [word.format(db=tmp_path / "shop.db") for word in arguments]
    result = run("relay", "--once", "--engine", f"sqlite:///{tmp_path / 'o.db'}", *words)
    assert result.code != 0
    assert cause in result.err


@pytest.mark.parametrize("change", ["UPDATE", "DELETE"])
def test_a_table_that_cannot_be_changed_is_told_with_the_next_act(
    run: CommandRunner, sqlite_source: Source, tmp_path: Path, change: str
) -> None:
    sqlite_source.add("k")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute(
            f"CREATE TRIGGER refuse BEFORE {change} ON {TABLE_DEFAULT} BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    result = run("relay", "--from", sqlite_source.url, "--once", "--json", "--engine", f"sqlite:///{tmp_path / 'o.db'}")
    assert result.code == 4
    assert "then retry" in result.err
    assert "Traceback" not in result.err
    assert "SERVICE_UNAVAILABLE" in result.out


def test_a_table_that_cannot_be_read_leaves_no_connection_open(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    file.touch()
    options = Namespace(source=f"sqlite:///{file}", table="missing")
    with pytest.raises(Unavailable, match="no such table") as refused:
        _open_outbox(options)
    assert str(file) not in {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    assert "SELECT" not in str(refused.value)


def test_a_relay_connects_again_to_the_database_of_the_application(postgres_url: str, tmp_path: Path) -> None:
    source = Source(postgres_url, "postgresql")
    words = [
        *ONEJOB,
        "relay",
        "--from",
        postgres_url,
        "--engine",
        f"sqlite:///{tmp_path / 'onejob.db'}",
        "--poll",
        "1s",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        source.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%outbox WHERE%' AND pid <> pg_backend_pid()"
        )
        source.add("k")
        until = time.monotonic() + 60
        while source.rows("id") and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == b"1 submitted, 0 failed, 0 left\n"
    source.close()


def test_a_relay_that_is_killed_loses_and_doubles_nothing(sqlite_source: Source, tmp_path: Path) -> None:
    """Rows in are jobs out, with kills at random moments while the application goes on writing."""
    kill_relays(sqlite_source, tmp_path, kills=4, rows=120, seed=7)


def test_a_row_that_cannot_be_read_is_reported_without_its_payload_and_stops_no_other(
    tmp_path: Path, ledger: sync.SyncLedger, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "strange.db").touch()
    for url in (f"sqlite:///{tmp_path / 'strange.db'}", f"sqlite+pysqlite:///{tmp_path / 'strange.db'}"):
        source = Source(url, "sqlite")
        insert = f"INSERT INTO {TABLE_DEFAULT} (type, input, idempotency_key, first_tried_at) VALUES"
        not_utf8 = "CAST(x'22733363726574ff22' AS TEXT)"  # "s3cret and a byte that is no UTF-8
        source.execute(f"{insert} ('charge', {not_utf8}, 'a', NULL)")
        source.execute(f"{insert} (x'736563726574', '1', 'b', NULL)")
        source.execute(f"{insert} ('charge', '1', x'736563726574', NULL)")
        source.execute(f"{insert} ('charge', 's3cret', 'd', NULL)")
        source.execute(f"{insert} ('charge', '1', 'e', 'yesterday')")
        source.execute(f"{insert} ('charge', x'7b7d', 'bytes', NULL)")
        source.add("last", "{}")
        relay = Relay(source.table, ledger.submit_prepared, FakeClock())
        assert relay.run_once() == RelayCounts(submitted=2, failed=5)
        reasons = [reason for (reason,) in source.rows("failed")]
        assert len(reasons) == 5
        assert "s3cret" not in caplog.text + "".join(reasons)
        source.close()
    assert {ledger.input(job.id) for job in ledger.jobs()} == {b"{}"}
