"""The commands `backup` and `restore`: what they did, and what a restored store has forgotten.

For SQLite; a bucket is copied by the tools of its provider, and here only its loss is accepted.
"""

import asyncio
import sys
from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from onejob.cli.backend import sqlite_file
from onejob.cli.render import Screen, field_lines, sanitize
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.timestamps import to_utc
from onejob.engines import is_bucket, is_postgres, redact_password
from onejob.engines.sqlite import backup
from onejob.engines.sqlite.backup import StoreSummary

if TYPE_CHECKING:
    from onejob.engines.bucket.replica import Summary

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


class RestoreOut(Struct, frozen=True, rename="camel"):
    restored: StoreOut
    replaced: StoreOut | None  # None: there was no store, or it could not be read
    set_aside: str | None
    commits_lost: int | None  # None: the replaced store is not the one that was backed up


class AcceptedLossOut(Struct, frozen=True, rename="camel"):
    store: StoreOut
    commits_lost: int | None  # None: another ledger was served here last, or it cannot be said of a bucket


def run(options: Namespace, url: str) -> BackupOut | RestoreOut | AcceptedLossOut:
    if options.command == "restore" and options.accept_loss and options.file is None and is_bucket(url):
        return asyncio.run(_accept_loss_of_bucket(url))
    store = _checked_store(url)
    if options.command == "backup":
        progress = _CopyProgress()
        try:
            made = backup.back_up(store, options.file, force=options.force, on_progress=progress.show)
        finally:
            progress.clear()
        return BackupOut(_store_out(options.file, made))
    if options.accept_loss == (options.file is not None):
        raise Invalid("file", "name the file of a backup, or keep what is left of the store with --accept-loss")
    if options.force and not options.accept_loss:
        raise Invalid("force", "--force belongs to --accept-loss; leave it out, the old store is moved aside anyway")
    if options.accept_loss:
        accepted = backup.accept_loss(store, force=options.force)
        return AcceptedLossOut(_store_out(store, accepted.store), accepted.commits_lost)
    done = backup.restore(options.file, store)
    replaced = None if done.replaced is None else _store_out(done.set_aside, done.replaced)
    return RestoreOut(_store_out(store, done.restored), replaced, done.set_aside or None, done.commits_lost)


async def _accept_loss_of_bucket(url: str) -> AcceptedLossOut:
    from onejob.engines.bucket import BucketEngine  # late: it needs an extra

    engine = await BucketEngine.open(url, examine=True, accepts_loss=True)
    try:
        accepted = await engine.accept_loss()
    finally:
        await engine.aclose()
    return AcceptedLossOut(_store_out(redact_password(url), accepted.summary), accepted.commits_lost)


def render(screen: Screen, response: BackupOut | RestoreOut | AcceptedLossOut) -> str:
    if isinstance(response, BackupOut):
        copy = response.backup
        return "\n".join([f"backed up to {screen.paint('bold', sanitize(copy.file))}", *_store_lines(screen, copy)])
    if isinstance(response, AcceptedLossOut):
        store, lost = response.store, response.commits_lost
        lines = [f"the loss is accepted: {screen.paint('bold', sanitize(store.file))}", *_store_lines(screen, store)]
        if lost is None and is_bucket(store.file):
            lines += [screen.paint("yellow", "it cannot be said how many acknowledged commits are not in it")]
        elif lost is None:
            lines += [screen.paint("yellow", "it is not of the ledger that was served here last")]
        elif lost:
            lines += [screen.paint("yellow", f"{lost} acknowledged commits are not in it")]
        return "\n".join([*lines, *_new_ledger_lines(screen, store)])
    restored, replaced = response.restored, response.replaced
    lines = [f"restored {screen.paint('bold', sanitize(restored.file))}", *_store_lines(screen, restored)]
    if replaced is not None:
        lines += ["the store that it replaces", *_store_lines(screen, replaced)]
    if response.set_aside is not None:
        lines += [f"which is now at {sanitize(response.set_aside)}"]
    if response.commits_lost:
        lines += [screen.paint("yellow", f"{response.commits_lost} later commits are not in it")]
    return "\n".join([*lines, *_new_ledger_lines(screen, restored)])


def _new_ledger_lines(screen: Screen, store: StoreOut) -> list[str]:
    since = "ever" if store.last_change_at is None else f"after {screen.time(store.last_change_at)}"
    return [
        "",
        f"Keys that were first used {since} are not known here: sent again, they make new jobs.",
        "It is a new ledger: restart the managers, gates and services that have served the old one. See docs/backup.md.",
    ]


def _checked_store(url: str) -> str:
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    if is_postgres(url):
        advice = "back up PostgreSQL with its own tools, pg_basebackup or pg_dump"
    elif is_bucket(url):
        advice = "copy a bucket with the tools of its provider, or serve what is left of it with restore --accept-loss"
    else:
        advice = "name the file of a store, as sqlite:///onejob.db"
    raise Invalid("engine", f"this command works on a SQLite file; {advice}, see docs/backup.md")


def _store_out(file: str, summary: "StoreSummary | Summary") -> StoreOut:
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


def _store_lines(screen: Screen, store: StoreOut) -> list[str]:
    changed = "never" if store.last_change_at is None else screen.time(store.last_change_at)
    rows = [
        ("keys", str(store.keys)),
        ("jobs", str(store.jobs)),
        ("changed", changed),
        ("ledger", f"{store.ledger_id}, {store.commits} commits, schema {store.schema}"),
    ]
    return field_lines(screen, rows)


class _CopyProgress:
    """How far a copy is, on a terminal."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._shown_at = self._clock.monotonic()
        self._is_visible = False

    def show(self, pages: int, total: int) -> None:
        now = self._clock.monotonic()
        if sys.stderr is None or not sys.stderr.isatty() or now - self._shown_at < _REPAINT_SECONDS:
            return
        self._shown_at, self._is_visible = now, True
        sys.stderr.write(f"\r\x1b[K{100 * pages // max(total, 1)} % of {total} pages")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
