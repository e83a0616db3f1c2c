"""Put a backup in the place of a SQLite store that nobody uses; the old store is moved aside."""

import asyncio
from argparse import ArgumentParser, Namespace

from msgspec import Struct

from onejob.cli.arguments import add_engine_arguments
from onejob.cli.backend import engine_url
from onejob.cli.command import CommandResult
from onejob.cli.render import Screen, sanitize
from onejob.core.errors import Invalid
from onejob.engines import is_bucket, redact_password
from onejob.engines.sqlite import backup
from onejob.settings import CliSettings

from .backup import StoreOut, checked_store, store_lines, store_out

EXAMPLE = "onejob restore onejob-2030-01-31.db --engine sqlite:///onejob.db"


class RestoreOut(Struct, frozen=True, rename="camel"):
    restored: StoreOut
    replaced: StoreOut | None  # None: there was no store, or it could not be read
    set_aside: str | None
    commits_lost: int | None  # None: the replaced store is not the one that was backed up


class AcceptedLossOut(Struct, frozen=True, rename="camel"):
    store: StoreOut
    commits_lost: int | None  # None: another ledger was served here last, or it cannot be said of a bucket


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("file", nargs="?", metavar="FILE", help="a file that `onejob backup` made")
    command.add_argument(
        "--accept-loss",
        action="store_true",
        help="instead of a FILE: serve a store or bucket that lacks acknowledged commits, or the file of another ledger, as "
        "it is: as a new ledger",
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="with --accept-loss: also if no commit is known to be missing, e.g. after an older folder was put back",
    )
    add_engine_arguments(command, tenant=False)


def run(options: Namespace) -> CommandResult:
    url = engine_url(options, CliSettings.from_env())
    if options.accept_loss and options.file is None and is_bucket(url):
        return CommandResult(asyncio.run(_accept_loss_of_bucket(url)), render_accepted_loss)
    store = checked_store(url)
    if options.accept_loss == (options.file is not None):
        raise Invalid("file", "name the file of a backup, or keep what is left of the store with --accept-loss")
    if options.force and not options.accept_loss:
        raise Invalid("force", "--force belongs to --accept-loss; leave it out, the old store is moved aside anyway")
    if options.accept_loss:
        accepted = backup.accept_loss(store, force=options.force)
        loss = AcceptedLossOut(store_out(store, accepted.store), accepted.commits_lost)
        return CommandResult(loss, render_accepted_loss)
    done = backup.restore(options.file, store)
    replaced = None if done.replaced is None else store_out(done.set_aside, done.replaced)
    restored = RestoreOut(store_out(store, done.restored), replaced, done.set_aside or None, done.commits_lost)
    return CommandResult(restored, render)


async def _accept_loss_of_bucket(url: str) -> AcceptedLossOut:
    from onejob.engines.bucket import BucketEngine  # late: it needs an extra

    engine = await BucketEngine.open(url, examine=True, accepts_loss=True)
    try:
        accepted = await engine.accept_loss()
    finally:
        await engine.aclose()
    return AcceptedLossOut(store_out(redact_password(url), accepted.summary), accepted.commits_lost)


def render_accepted_loss(screen: Screen, response: AcceptedLossOut) -> str:
    store, lost = response.store, response.commits_lost
    lines = [f"the loss is accepted: {screen.paint('bold', sanitize(store.file))}", *store_lines(screen, store)]
    if lost is None and is_bucket(store.file):
        lines += [screen.paint("yellow", "it cannot be said how many acknowledged commits are not in it")]
    elif lost is None:
        lines += [screen.paint("yellow", "it is not of the ledger that was served here last")]
    elif lost:
        lines += [screen.paint("yellow", f"{lost} acknowledged commits are not in it")]
    return "\n".join([*lines, *_new_ledger_lines(screen, store)])


def render(screen: Screen, response: RestoreOut) -> str:
    restored, replaced = response.restored, response.replaced
    lines = [f"restored {screen.paint('bold', sanitize(restored.file))}", *store_lines(screen, restored)]
    if replaced is not None:
        lines += ["the store that it replaces", *store_lines(screen, replaced)]
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
