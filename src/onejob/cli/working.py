"""The command `worker`: its arguments, and the worker it runs until it is told to leave."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import Any

from onejob.opening import URL_DEFAULT
from onejob.opening import open as open_ledger
from onejob.settings import CommandLine
from onejob.worker.loading import app_of
from onejob.worker.worker import CONCURRENCY_DEFAULT, DRAIN_DEFAULT, Worker

from .screen import machine, write
from .trouble import DONE, INTERRUPTED
from .values import length

LEASE_DEFAULT = "60s"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("app", metavar="MODULE:APP", help="where the onejob.App is, as shop.jobs:app")
    _how_many(command)
    command.add_argument(
        "--types",
        metavar="A,B",
        help="run only jobs of these types; default: all that the app has handlers for",
    )
    command.add_argument(
        "--lease",
        type=length,
        default=length(LEASE_DEFAULT),
        metavar="LENGTH",
        help=f"how long a job stays taken after its worker went silent; default: {LEASE_DEFAULT}",
    )
    command.add_argument(
        "--drain",
        type=length,
        default=DRAIN_DEFAULT,
        metavar="LENGTH",
        help="how long handlers may go on when the worker is told to leave; default: 20s",
    )
    command.add_argument("--engine", metavar="URL", help=f"default: ONEJOB_ENGINE, else {URL_DEFAULT}")
    command.add_argument(
        "--tenant", metavar="NAME", help="run only jobs of this tenant; default: of all, in turn"
    )
    command.add_argument("--json", action="store_true", help="say what is ready and what was done in JSON")


def beside_service(command: argparse.ArgumentParser) -> None:
    """For `serve`, which may run a worker in its own process."""
    command.add_argument("--app", metavar="MODULE:APP", help="run the jobs of this onejob.App here, too")
    _how_many(command)


def work(options: argparse.Namespace) -> int:
    """Runs until it is told to leave; the exit code."""
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    said = {
        "concurrency": options.concurrency,
        "types": tuple(options.types.split(",")) if options.types else None,
        "tenant": options.tenant,
        "lease": options.lease,
        "drain": options.drain,
    }
    app = app_of(options.app)
    url = options.engine or CommandLine.from_env().engine or URL_DEFAULT

    async def served() -> int:
        async with open_ledger(url) as queue:
            worker = app.worker(queue, **said)
            _hear(worker)
            _say(options, {"ready": True, "app": options.app, "concurrency": options.concurrency})
            await worker.run()
            _say(options, {"ready": False, "attempts": worker.counts()})
            return worker.running

    if _run(served()):
        # All is closed and said. The end of the process would wait for functions that hear nothing, for ever.
        sys.stdout.flush()
        os._exit(DONE)
    return DONE


def _how_many(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--concurrency",
        type=int,
        default=CONCURRENCY_DEFAULT,
        metavar="N",
        help="how many jobs run at once; default: %(default)s",
    )


def _run(work: Any) -> int:
    try:
        import uvloop
    except ImportError:
        return int(asyncio.run(work))
    return int(uvloop.run(work))


def _hear(worker: Worker) -> None:
    """The first signal asks to leave in order, the second to leave at once."""
    loop = asyncio.get_running_loop()
    asked = False

    def leave() -> None:
        nonlocal asked
        if asked:
            os._exit(INTERRUPTED)
        asked = True
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)


def _say(options: argparse.Namespace, told: dict[str, Any]) -> None:
    if options.json:
        write(machine(told))
    elif told["ready"]:
        write(f"onejob runs the jobs of {told['app']}, {told['concurrency']} at once")
    else:
        ends = ", ".join(f"{count} {word}" for word, count in sorted(told["attempts"].items()))
        write(f"onejob has left: {ends or 'no jobs'}")
    sys.stdout.flush()
