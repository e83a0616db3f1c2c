"""The database of an application with an outbox table in it, and relays on it that are killed."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from onejob import sync
from onejob.cli.commands.relay.outbox import TABLE_DEFAULT, OutboxTable, Relay, open_database, outbox_schema
from onejob.clock import SystemClock

from .command_line import ONEJOB


class Source:
    """The database of an application, with an outbox table in it."""

    def __init__(self, url: str, dialect: str) -> None:
        self.url = url
        self._database = open_database(url)
        self.table = OutboxTable(self._database)
        self._application = open_database(url)
        self._connection = self._application.connect()
        self.execute(f"DROP TABLE IF EXISTS {TABLE_DEFAULT}")
        self.execute(outbox_schema(dialect))

    def add(self, key: str, input: str = "1", *, type: str = "charge", scope: str | None = None) -> None:
        self.execute(
            f"INSERT INTO {TABLE_DEFAULT} (type, input, idempotency_key, scope) VALUES (:type, :input, :key, :scope)",
            type=type,
            input=input,
            key=key,
            scope=scope,
        )

    def rows(self, columns: str) -> list[Any]:
        result = self._connection.execute(text(f"SELECT {columns} FROM {TABLE_DEFAULT} ORDER BY id"))
        return [tuple(row) for row in result]

    def change(self, assignment: str) -> None:
        self.execute(f"UPDATE {TABLE_DEFAULT} SET {assignment}")

    def execute(self, sql: str, **values: Any) -> None:
        self._connection.execute(text(sql), values)

    def reopen(self) -> None:
        self._application.dispose()
        self._connection = self._application.connect()

    def close(self) -> None:
        self._connection.close()
        self._application.dispose()
        self._database.dispose()


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
