"""The command `serve`: its arguments, and the service it starts."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import Any

from onejob.errors import StoreRefused
from onejob.http.problems import Problem, problem, to_problem
from onejob.http.responses import error_out
from onejob.ledger.opening import URL_DEFAULT
from onejob.ledger.opening import open as open_ledger
from onejob.settings import CliSettings, load_service_config
from onejob.worker.app import load_app
from onejob.worker.worker import CONCURRENCY_DEFAULT, DRAIN_DEFAULT, Worker

from .exit_codes import DONE, INTERRUPTED, UNAVAILABLE, USAGE_ERROR
from .render import print_error, to_json, write
from .values import parse_duration

# The command `worker`: its arguments, and the worker it runs until it is told to leave.


LEASE_DEFAULT = "60s"


def add_worker_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("app", metavar="MODULE:APP", help="where the onejob.App is, as shop.jobs:app")
    _add_concurrency_argument(command)
    command.add_argument(
        "--types",
        metavar="A,B",
        help="run only jobs of these types; default: all that the app has handlers for",
    )
    command.add_argument(
        "--lease",
        type=parse_duration,
        default=parse_duration(LEASE_DEFAULT),
        metavar="LENGTH",
        help=f"how long a job stays taken after its worker went silent; default: {LEASE_DEFAULT}",
    )
    command.add_argument(
        "--drain",
        type=parse_duration,
        default=DRAIN_DEFAULT,
        metavar="LENGTH",
        help="how long handlers may go on when the worker is told to leave; default: 20s",
    )
    command.add_argument("--engine", metavar="URL", help=f"default: ONEJOB_ENGINE, else {URL_DEFAULT}")
    command.add_argument("--tenant", metavar="NAME", help="run only jobs of this tenant; default: of all, in turn")
    command.add_argument("--json", action="store_true", help="say what is ready and what was done in JSON")


def add_embedded_worker_arguments(command: argparse.ArgumentParser) -> None:
    """For `serve`, which may run a worker in its own process."""
    command.add_argument("--app", metavar="MODULE:APP", help="run the jobs of this onejob.App here, too")
    _add_concurrency_argument(command)


def run_worker(options: argparse.Namespace) -> int:
    """Runs until it is told to leave; the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    said = {
        "concurrency": options.concurrency,
        "types": tuple(options.types.split(",")) if options.types else None,
        "tenant": options.tenant,
        "lease": options.lease,
        "drain": options.drain,
    }
    app = load_app(options.app)
    url = options.engine or CliSettings.from_env().engine or URL_DEFAULT

    async def served() -> int:
        async with open_ledger(url) as queue:
            worker = app.worker(queue, **said)
            _install_signal_handlers(worker)
            _print_status(options, {"ready": True, "app": options.app, "concurrency": options.concurrency})
            await worker.run()
            _print_status(options, {"ready": False, "attempts": worker.counts()})
            return worker.running

    if _run_event_loop(served()):
        # All is closed and said. The end of the process would wait for functions that hear nothing, for ever.
        sys.stdout.flush()
        os._exit(DONE)
    return DONE


def _add_concurrency_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--concurrency",
        type=int,
        default=CONCURRENCY_DEFAULT,
        metavar="N",
        help="how many jobs run at once; default: %(default)s",
    )


def _run_event_loop(work: Any) -> int:
    try:
        import uvloop
    except ImportError:
        return int(asyncio.run(work))
    return int(uvloop.run(work))


def _install_signal_handlers(worker: Worker) -> None:
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


def _print_status(options: argparse.Namespace, status: dict[str, Any]) -> None:
    if options.json:
        write(to_json(status))
    elif status["ready"]:
        write(f"onejob runs the jobs of {status['app']}, {status['concurrency']} at once")
    else:
        ends = ", ".join(f"{count} {word}" for word, count in sorted(status["attempts"].items()))
        write(f"onejob has left: {ends or 'no jobs'}")
    sys.stdout.flush()


def add_serve_arguments(command: argparse.ArgumentParser) -> None:
    # Without a default: what is not said here may be said by a variable or the file.
    command.add_argument("--host", help="default: 127.0.0.1; another one needs authentication")
    command.add_argument("--port", type=int, help="default: 8001; 0: any that is free")
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    command.add_argument(
        "--workers", metavar="N", type=workers, help="processes on that port; auto: one per core; default: 1"
    )
    command.add_argument("--config", metavar="FILE", help="settings in TOML; ONEJOB_* variables go before it")
    command.add_argument("--json", action="store_true", help="say what is ready, and write the log, in JSON")


def workers(text: str) -> int | str:
    return text if text == "auto" else int(text)


def serve(options: argparse.Namespace) -> int:
    """Runs until it is told to stop; the exit code."""
    from onejob.http.serve import run  # the service's own dependencies are optional
    from onejob.worker.app import load_app

    said = {name: getattr(options, name) for name in ("host", "port", "engine", "workers")}
    said["log_format"] = "json" if options.json else None
    try:
        app = None if options.app is None else load_app(options.app)
        run(load_service_config(options.config, overrides=said), app=app, concurrency=options.concurrency)
    except StoreRefused as error:
        return _report_failure(options, to_problem(error), USAGE_ERROR)
    except OSError as error:
        message = f"{error.strerror or error}; choose another address, or end what has it"
        return _report_failure(options, problem("SERVICE_UNAVAILABLE", message), UNAVAILABLE)
    return DONE


def _report_failure(options: argparse.Namespace, found: Problem, code: int) -> int:
    if options.json:
        write(to_json({"error": error_out(found)}))
    print_error(found.message)
    return code
