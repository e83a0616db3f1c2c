"""The tables of a store, as a new one has them."""

import asyncio
import sqlite3
from pathlib import Path

import asyncpg

from onejob.cli import main
from tests.golden.conftest import GoldenCheck
from tests.support.postgres_server import Server

_SQLITE_HEADER = ("application_id", "auto_vacuum", "encoding", "journal_mode", "page_size", "user_version")
_COLUMNS = """
SELECT format('%s.%s %s%s%s%s storage %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN ' NOT NULL' END,
              ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
              CASE WHEN a.attidentity <> '' THEN ' IDENTITY ' || a.attidentity::text END, a.attstorage)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0
      AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
# What there is, one line or definition each. A constraint NOT NULL stands at its column.
_POSTGRES = {
    "relations": """
        SELECT format('%s kind %s persistence %s options %s', relname, relkind, relpersistence, reloptions) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind NOT IN ('i', 'c') ORDER BY 1
    """,
    "columns": _COLUMNS,
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "constraints": """
        SELECT format('%s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY 1
    """,
    "views": """
        SELECT format(E'%s:\\n%s', viewname, definition) FROM pg_views WHERE schemaname = 'public' ORDER BY 1
    """,
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1
    """,
    "triggers": """
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'public'::regnamespace AND NOT tgisinternal ORDER BY 1
    """,
    "types": """
        SELECT format('%s kind %s', typname, typtype) FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typtype <> 'b'
              AND NOT EXISTS (SELECT FROM pg_class WHERE oid = typrelid AND relkind <> 'c') ORDER BY 1
    """,
    "extensions": "SELECT extname FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY 1",
}


def test_tables_of_sqlite(golden: GoldenCheck, tmp_path: Path) -> None:
    assert main(["migrate", "--engine", f"sqlite:///{tmp_path / 'onejob.db'}"]) == 0
    with sqlite3.connect(tmp_path / "onejob.db") as db:
        statements = db.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
        ).fetchall()
        header = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]}" for name in _SQLITE_HEADER]
    db.close()
    golden("schema/sqlite.sql", "\n\n".join([*(f"{sql};" for (sql,) in statements), "\n".join(header), ""]))


def test_tables_of_postgresql(golden: GoldenCheck, postgres: Server) -> None:
    url = postgres.database()  # a new one: those of other tests may have more in them
    assert main(["migrate", "--engine", url]) == 0
    found = asyncio.run(read_catalogue(url))
    golden("schema/postgresql.txt", "\n".join(f"## {title}\n\n{text}\n" for title, text in found.items()))


async def read_catalogue(url: str) -> dict[str, str]:
    connection = await asyncpg.connect(url)
    try:
        return {
            title: "\n".join(row[0].rstrip() for row in await connection.fetch(sql)) for title, sql in _POSTGRES.items()
        }
    finally:
        await connection.close()
