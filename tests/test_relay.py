"""`onejob relay`: every row of an outbox table becomes one job, whatever happens to the relay."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from onejob import sync
from onejob.clock import FakeClock, SystemClock
from onejob.core.limits import Limits
from onejob.errors import Unavailable
from onejob.ledger.parse import Submission
from onejob.relay import DIALECTS, TABLE_DEFAULT, WINDOW, OutboxTable, Relay, RelayCounts, open_database, outbox_schema
from tests.support.command_line import ONEJOB, CommandRunner

DAY_MS = 24 * 3600 * 1000


class Source:
    """The database of an application, with an outbox table in it."""

    def __init__(self, url: str, dialect: str) -> None:
        self.url = url
        self._database = open_database(url)
        self._database.execute(f"DROP TABLE IF EXISTS {TABLE_DEFAULT}", ())
        self._database.execute(outbox_schema(dialect), ())
        self.table = OutboxTable(self._database)

    def add(self, key: str, input: str = "1", *, type: str = "charge", scope: str | None = None) -> None:
        marks = ", ".join(self._database.placeholder(n) for n in range(1, 5))
        columns = "type, input, idempotency_key, scope"
        self._database.execute(f"INSERT INTO {TABLE_DEFAULT} ({columns}) VALUES ({marks})", (type, input, key, scope))

    def rows(self, columns: str) -> list[Any]:
        return [tuple(row) for row in self._database.execute(f"SELECT {columns} FROM {TABLE_DEFAULT} ORDER BY id", ())]

    def change(self, assignment: str) -> None:
        self._database.execute(f"UPDATE {TABLE_DEFAULT} SET {assignment}", ())

    def execute(self, sql: str) -> None:
        self._database.execute(sql, ())

    def close(self) -> None:
        self._database.close()


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


@pytest.mark.parametrize(("days", "is_sent"), [(29, True), (30, False), (400, False), (-1, False)])
def test_a_row_that_was_tried_a_window_ago_is_reported_and_not_sent(
    sqlite_source: Source, ledger: sync.SyncLedger, days: int, is_sent: bool
) -> None:
    clock = FakeClock()
    sqlite_source.add("k")
    sqlite_source.change(f"first_tried_at = {clock.wall_ms() - days * DAY_MS}")
    counts = Relay(sqlite_source.table, ledger.submit_prepared, clock).run_once()
    assert counts == (RelayCounts(submitted=1) if is_sent else RelayCounts(failed=1))
    assert len(list(ledger.jobs())) == is_sent
    if not is_sent:
        ((reason,),) = sqlite_source.rows("failed")
        assert "see whether its job exists" in reason
        assert Relay(sqlite_source.table, ledger.submit_prepared, clock).run_once() == RelayCounts()


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
        assert process.wait(30) == 0
        assert process.stdout.read() == b"1 submitted, 0 failed, 0 left\n"
    source.close()


def test_a_relay_that_is_killed_loses_and_doubles_nothing(sqlite_source: Source, tmp_path: Path) -> None:
    """Rows in are jobs out, with kills at random moments while the application goes on writing."""
    kill_relays(sqlite_source, tmp_path, kills=4, rows=120, seed=7)


def kill_relays(source: Source, folder: Path, *, kills: int, rows: int, seed: int) -> None:
    engine = f"sqlite:///{folder / 'onejob.db'}"
    words = [*ONEJOB, "relay", "--from", source.url, "--engine", engine, "--poll", "1s"]
    rng = random.Random(seed)
    written = 0
    for _ in range(kills):
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
            until = time.monotonic() + rng.uniform(0, 0.3)
            while time.monotonic() < until and written < rows:
                source.add(f"k{written}", str(written))
                written += 1
            process.send_signal(signal.SIGKILL)
    for n in range(written, rows):
        source.add(f"k{n}", str(n))
    with sync.open(engine) as ledger:
        Relay(source.table, ledger.submit_prepared, SystemClock()).run_once()
        inputs = sorted(int(ledger.input(job.id)) for job in _all_jobs(ledger))
    assert inputs == list(range(rows))
    assert source.rows("*") == []


def _all_jobs(ledger: sync.SyncLedger) -> list[Any]:
    jobs: list[Any] = []
    before = None
    while True:
        page = ledger.jobs(limit=100, before=before)
        jobs += page
        if not page.next:
            return jobs
        before = page.next
