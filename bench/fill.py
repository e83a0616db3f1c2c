"""Fills a store with many keys and jobs at once: copies of one real submission, with ids and keys of their own."""

import asyncio
from typing import NamedTuple

import asyncpg

import onejob
from onejob.engines.sqlite import schema

from .submissions import submission

FIRST_MS = 1_794_900_000_000  # the time in the first job id
CHUNK = 100_000
CACHE_KIB = 512 * 1024  # so that a random index is filled in memory
RANDOM_TEMPLATE = "0" * 32  # as `submissions.random_keys` has them
ORDERED_TEMPLATE = "client-7:" + "0" * 16 + ":a1b2c3d4e5f60718"  # as `submissions.ordered_keys` has them


class Kinds(NamedTuple):
    """SQL of the type and the state of job number `n`."""

    type: str = "'charge_customer'"
    state: str = "'pending'"


async def fill(url: str, keys: int, *, kinds: Kinds = Kinds(), ordered: bool = False) -> None:  # noqa: B008 - immutable
    """Make the store and fill it, with random keys or with keys in the order of time."""
    template = ORDERED_TEMPLATE if ordered else RANDOM_TEMPLATE
    async with onejob.open(url, sweep=False) as queue:
        one = submission(template)
        await queue.submit(one.type, one.input, idempotency_key=template)
    if url.startswith("postgresql:"):
        await _fill_postgres(url, keys, kinds, template)
    else:
        await asyncio.to_thread(_fill_sqlite, url.removeprefix("sqlite:///"), keys, kinds, template)


def _fill_sqlite(path: str, keys: int, kinds: Kinds, template: str) -> None:
    db = schema.connect(path, synchronous="OFF")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    db.execute("CREATE TEMP TABLE new (n INTEGER PRIMARY KEY, job_id BLOB, key TEXT)")
    columns = {
        table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for table in ("record", "job", "attachment")
    }
    # The id of a record is a prefix that all keys of a scope share, and the key.
    id = f"unhex(hex(substr(old.id, 1, length(old.id) - {len(template)})) || hex(new.key))"
    key, moment = "lower(hex(randomblob(16)))", f"{FIRST_MS} + n"
    if template == ORDERED_TEMPLATE:
        key = template.replace("0" * 16, "%016d").join(("printf('", "', n)"))
    values = {
        "record": {"id": id, "key": "new.key", "job_ids": "new.job_id", "holder": "new.job_id", "created_at": moment},
        "job": {"id": "new.job_id", "key": "new.key", "type": kinds.type, "state": kinds.state, "created_at": moment},
        "attachment": {"job_id": "new.job_id"},
    }  # fmt: skip
    for table in columns:
        db.execute(f"CREATE TEMP TABLE old_{table} AS SELECT * FROM {table} LIMIT 1")
    for start in range(1, keys, CHUNK):
        last = min(start + CHUNK - 1, keys - 1)  # the template is one of the keys
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM new")
        db.execute(
            f"WITH RECURSIVE s(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) "
            f"INSERT INTO new SELECT n, unhex(printf('%012x', {FIRST_MS} + n) || '7000' || hex(randomblob(8))), "
            f"{key} FROM s"
        )
        for table, names in columns.items():
            listed = ", ".join(values[table].get(name, f'old."{name}"') for name in names)
            db.execute(f"INSERT INTO {table} SELECT {listed} FROM new CROSS JOIN old_{table} AS old")
        db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()


async def _fill_postgres(url: str, keys: int, kinds: Kinds, template: str) -> None:
    job_id = f"decode(lpad(to_hex({FIRST_MS} + n), 12, '0') || '7000' || left(md5(n::text), 16), 'hex')"
    key, moment = "md5('key' || n)", f"{FIRST_MS} + n"
    if template == ORDERED_TEMPLATE:
        key = template.replace("0" * 16, "' || lpad(n::text, 16, '0') || '").join("''")
    id = f"substr(old.id, 1, length(old.id) - {len(template)}) || convert_to({key}, 'UTF8')"
    values = {
        "record": {"id": id, "key": key, "job_ids": job_id, "holder": job_id, "created_at": moment},
        "job": {"id": job_id, "key": key, "type": kinds.type, "state": kinds.state, "created_at": moment},
        "attachment": {"job_id": job_id},
    }
    db = await asyncpg.connect(url)
    try:
        for table, replaced in values.items():
            rows = await db.fetch(
                "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = 'public' "
                "ORDER BY ordinal_position",
                table,
            )
            names = [row["column_name"] for row in rows]
            listed = ", ".join(replaced.get(name, f'old."{name}"') for name in names)
            quoted = ", ".join(f'"{name}"' for name in names)
            await db.execute(
                f"INSERT INTO {table} ({quoted}) SELECT {listed} FROM generate_series(1, {keys - 1}::bigint) AS n "
                f"CROSS JOIN (SELECT * FROM {table} LIMIT 1) AS old"
            )
            await db.execute(f"VACUUM (ANALYZE) {table}")
    finally:
        await db.close()
