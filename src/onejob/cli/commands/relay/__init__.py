"""Submit the rows of an application's outbox table, each once, and delete what was accepted."""

import logging
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from datetime import timedelta
from typing import Any

from onejob.backoff import Backoff
from onejob.cli.arguments import add_target_arguments, parse_duration
from onejob.cli.backend import open_backend
from onejob.cli.exit_codes import DONE, FAILED, REFUSED, UNAVAILABLE
from onejob.cli.render import print_error, to_json, write
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.errors import OnejobError, Unavailable
from onejob.settings import CliSettings

from .outbox import DIALECTS, TABLE_DEFAULT, OutboxTable, Relay, RelayCounts, open_database, outbox_schema

EXAMPLE = "onejob relay --from sqlite:///shop.db --url http://127.0.0.1:8001"
_PAUSE_FACTOR_MAX = 16

log = logging.getLogger("onejob.relay")


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="the application's database: sqlite:///…, postgresql://…, mysql://…, or any URL of SQLAlchemy",
    )
    command.add_argument("--table", default=TABLE_DEFAULT, metavar="NAME", help="default: %(default)s")
    command.add_argument(
        "--schema",
        nargs="?",
        const=DIALECTS[0],
        choices=DIALECTS,
        metavar="DIALECT",
        help=f"only print the statement that creates the table: {', '.join(DIALECTS)}; default: {DIALECTS[0]}",
    )
    command.add_argument("--once", action="store_true", help="exit when every row has been tried once")
    command.add_argument(
        "--poll",
        type=parse_duration,
        default=parse_duration("1s"),
        metavar="DURATION",
        help="the pause between two passes over the table; default: 1s",
    )
    add_target_arguments(command)


def run(options: Namespace) -> int:
    if options.schema is not None:
        write(outbox_schema(options.schema, options.table).rstrip())
        return DONE
    if options.source is None:
        raise Invalid("from", "name the application's database with --from, or print its table with --schema")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    outbox = _open_outbox(options)
    with open_backend(options, CliSettings.from_env(), creates_store=True) as backend:
        relay = Relay(outbox, backend.submit, SystemClock())
        try:
            return _run_once(relay, options) if options.once else _run_until_stopped(relay, options)
        finally:
            relay.outbox.close()


def _open_outbox(options: Namespace) -> OutboxTable:
    """The table, which is read once, so that a wrong name is told at once."""
    try:
        outbox = OutboxTable(open_database(options.source), options.table)
        try:
            outbox.read(0)
        except BaseException:
            outbox.close()
            raise
    except (OnejobError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise Unavailable(
            f"the table {options.table} cannot be read ({_cause(error)}); "
            "check --from and --table, or create it with what `onejob relay --schema` prints"
        ) from error
    return outbox


def _cause(error: Exception) -> str:
    """What the driver said, without the statement that SQLAlchemy adds."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {cause}"


def _run_once(relay: Relay, options: Namespace) -> int:
    try:
        counts = relay.run_once()
    except OnejobError:
        raise
    except Exception as error:  # the drivers of databases raise anything
        raise Unavailable(
            f"the table {options.table} cannot be read or changed ({_cause(error)}): the rows that are left were not "
            "lost, and none is submitted twice; repair it, then retry"
        ) from error
    _print_counts(counts, options)
    return FAILED if counts.failed else REFUSED if counts.left else DONE


def _run_until_stopped(relay: Relay, options: Namespace) -> int:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    write(to_json({"event": "ready", "from": options.table}) if options.json else f"relaying {options.table}")
    poll_seconds, code = options.poll / timedelta(seconds=1), DONE
    backoff = Backoff(poll_seconds, poll_seconds * _PAUSE_FACTOR_MAX)
    while not stopped.is_set():
        try:
            relay.run_once()
            backoff.reset()
        except OnejobError as error:
            if not error.retryable:
                print_error(str(error))
                code = UNAVAILABLE
                break
            log.warning("the ledger did not accept a row; the pass will be repeated: %s", error)
        except Exception as error:  # noqa: BLE001 - the drivers of databases raise anything
            log.warning("the outbox cannot be read; connecting again: %s", _cause(error))
            relay.outbox.close()
        stopped.wait(next(backoff))
    _print_counts(relay.total, options)
    return code


def _print_counts(counts: RelayCounts, options: Namespace) -> None:
    figures: dict[str, Any] = counts._asdict()
    write(to_json(figures) if options.json else ", ".join(f"{number} {name}" for name, number in figures.items()))
