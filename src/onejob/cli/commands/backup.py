"""Copy a SQLite store to a file while it is in use; verified before the file gets its name."""

from argparse import ArgumentParser, Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from onejob.cli.arguments import add_engine_arguments
from onejob.cli.backend import engine_url, sqlite_file
from onejob.cli.command import CommandResult
from onejob.cli.render import Screen, StatusLine, field_lines, sanitize
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.timestamps import to_utc
from onejob.engines import is_bucket, is_postgres
from onejob.engines.sqlite import backup
from onejob.engines.sqlite.backup import StoreSummary
from onejob.settings import CliSettings

if TYPE_CHECKING:
    from onejob.engines.bucket.replica import Summary

EXAMPLE = "onejob backup onejob-2030-01-31.db --engine sqlite:///onejob.db"
_REPAINT_SECONDS = 0.2


class StoreOut(Struct, frozen=True, rename="camel"):
    """What is in a store or a copy."""

    file: str
    ledger_id: str
    commits: int
    schema: int
    keys: int
    jobs: int
    last_change_at: datetime | None  # None: nothing was ever stored in it


class BackupOut(Struct, frozen=True, rename="camel"):
    backup: StoreOut


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="the new file")
    command.add_argument("--force", action="store_true", help="replace the file if it exists")
    add_engine_arguments(command, tenant=False)


def run(options: Namespace) -> CommandResult:
    store = checked_store(engine_url(options, CliSettings.from_env()))
    line, clock = StatusLine(), SystemClock()
    shown_at = clock.monotonic()

    def show(pages: int, total: int) -> None:
        nonlocal shown_at
        if (now := clock.monotonic()) - shown_at >= _REPAINT_SECONDS:
            shown_at = now
            line.show(f"{100 * pages // max(total, 1)} % of {total} pages")

    try:
        made = backup.back_up(store, options.file, force=options.force, on_progress=show)
    finally:
        line.clear()
    return CommandResult(BackupOut(store_out(options.file, made)), render)


def render(screen: Screen, response: BackupOut) -> str:
    copy = response.backup
    return "\n".join([f"backed up to {screen.paint('bold', sanitize(copy.file))}", *store_lines(screen, copy)])


def checked_store(url: str) -> str:
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    if is_postgres(url):
        advice = "back up PostgreSQL with its own tools, pg_basebackup or pg_dump"
    elif is_bucket(url):
        advice = "copy a bucket with the tools of its provider, or serve what is left of it with restore --accept-loss"
    else:
        advice = "name the file of a store, e.g. sqlite:///onejob.db"
    raise Invalid("engine", f"this command works on a SQLite file; {advice}, see docs/backup.md")


def store_out(file: str, summary: "StoreSummary | Summary") -> StoreOut:
    changed = summary.last_change_at
    return StoreOut(
        file=file,
        ledger_id=summary.ledger_id,
        commits=summary.commits,
        schema=summary.schema_version,
        keys=summary.keys,
        jobs=summary.jobs,
        last_change_at=to_utc(changed) if changed else None,
    )


def store_lines(screen: Screen, store: StoreOut) -> list[str]:
    changed = "never" if store.last_change_at is None else screen.time(store.last_change_at)
    rows = [
        ("keys", str(store.keys)),
        ("jobs", str(store.jobs)),
        ("changed", changed),
        ("ledger", f"{store.ledger_id}, {store.commits} commits, schema {store.schema}"),
    ]
    return field_lines(screen, rows)
