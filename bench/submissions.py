"""The submissions of the benchmarks, and a direct way to insert the same rows."""

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import apsw

from onejob.core.facts import AttachmentKind, Kind
from onejob.core.submit import Submit
from onejob.engines.codec import columns, complete_row
from onejob.engines.sqlite import schema
from onejob.ids import new_job_id
from onejob.ledger.parse import Submission, build_submit
from onejob.runtime.callers import Caller

CALLER = Caller()
REQUEST_BODY = (
    '{"type": "charge_customer", "input": {"customer": "cus_9s6XKzkNRiz8i3", "amount": 4200, '
    '"currency": "eur", "lines": [{"sku": "A-100", "quantity": 2}], "note": "charged once"}}'
)
_numbers = count()


def submission(key: str) -> Submission:
    body = {
        "customer": "cus_9s6XKzkNRiz8i3",
        "amount": 4200,
        "currency": "eur",
        "order": key,
        "lines": [{"sku": "A-100", "quantity": 2}, {"sku": "B-7", "quantity": 1}],
        "note": "charged once, however often it is asked for",
    }
    return Submission(type="charge_customer", input=body, idempotency_key=key)


def random_keys(rng: random.Random) -> Iterator[str]:
    return (f"{rng.getrandbits(128):032x}" for _ in count())


def ordered_keys(prefix: str) -> Iterator[str]:
    return (f"{prefix}:{next(_numbers):016d}:a1b2c3d4e5f60718" for _ in count())


def commands(keys: Iterator[str], total: int) -> list[Submit]:
    return [build_submit(submission(next(keys)), CALLER, new_job_id()) for _ in range(total)]


def open_raw_connection(path: Path) -> apsw.Connection:
    """A connection with the same schema and settings, without an engine."""
    schema.prepare_file(str(path), create=True)
    db = schema.connect(str(path))
    schema.migrate(db, str(path))
    return db


_INSERT = {
    kind: f"INSERT INTO {kind.name.lower()} VALUES ({', '.join('?' * len(columns(kind)))})"
    for kind in (Kind.RECORD, Kind.JOB)
}
_INPUT = "INSERT INTO attachment VALUES (?, ?, ?, ?)"


def insert_raw(db: apsw.Connection, batch: list[Submit], now: int) -> None:
    """Insert the rows that the engine writes for these submissions, in one transaction."""
    expires_at = now + 86_400_000
    records = [
        (c.record_id, c.tenant, c.scope, c.key, "committed", c.fingerprint, c.job_id, c.job_id, 1, 0, now, now,
         expires_at, c.ttl_ms, c.actor, c.user, 1, 1, b"", "", "", 0, 0, 0, 0)
        for c in batch
    ]  # fmt: skip
    jobs = [
        (c.job_id, c.tenant, c.type, "pending", c.scope, c.key, c.actor, c.user, now, now, expires_at, 0, 0,
         "at_least_once", c.attempts_max, 0, b"", 0, 1, 1, 0, b"", 0, 0, b"", 0, 1, 0, "")
        for c in batch
    ]  # fmt: skip
    # Columns that were added later have their defaults.
    record_rest = complete_row(Kind.RECORD, records[0])[len(records[0]) :]
    job_rest = complete_row(Kind.JOB, jobs[0])[len(jobs[0]) :]
    inputs = [(c.job_id, int(AttachmentKind.INPUT), 0, c.input) for c in batch]
    db.execute("BEGIN IMMEDIATE")
    db.executemany(_INSERT[Kind.RECORD], [(*row, *record_rest) for row in records])
    db.executemany(_INSERT[Kind.JOB], [(*row, *job_rest) for row in jobs])
    db.executemany(_INPUT, inputs)
    db.execute("COMMIT")
