"""Runs the jobs of an app until a signal: `onejob worker`, and Django's `manage.py onejob_worker`."""

import asyncio
import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from onejob.engines import redact_password
from onejob.ledger import RETENTION_DEFAULT, Ledger
from onejob.ledger import open as open_ledger
from onejob.settings import CliSettings
from onejob.worker.app import App
from onejob.worker.worker import DRAIN_DEFAULT, Worker

from .arguments import LEASE_DEFAULT, add_concurrency_argument, parse_duration
from .exit_codes import DONE, INTERRUPTED
from .render import to_json, write

T = TypeVar("T")


def add_worker_arguments(command: ArgumentParser) -> None:
    """The options of every command that runs a worker."""
    add_concurrency_argument(command)
    command.add_argument(
        "--types", metavar="A,B", help="run only jobs of these types; default: all that the app has handlers for"
    )
    command.add_argument(
        "--lease",
        type=parse_duration,
        default=parse_duration(LEASE_DEFAULT),
        metavar="DURATION",
        help=f"how long a job stays claimed without a heartbeat of its worker; default: {LEASE_DEFAULT}",
    )
    command.add_argument(
        "--drain",
        type=parse_duration,
        default=DRAIN_DEFAULT,
        metavar="DURATION",
        help="how long handlers may continue after a shutdown signal; default: 20s",
    )
    command.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve the metrics of this worker for Prometheus, without authentication; only a port: on 127.0.0.1",
    )
    command.add_argument("--tenant", metavar="NAME", help="run only jobs of this tenant; default: all, in turn")
    command.add_argument("--json", action="store_true", help="print the readiness and summary lines in JSON")


def run_app(app: App, url: str, options: Namespace) -> int:
    """Run the jobs of an app until a signal; the options are those of `onejob worker`."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    limits = {
        "concurrency": options.concurrency,
        "types": tuple(options.types.split(",")) if options.types else None,
        "tenant": options.tenant,
        "lease": options.lease,
        "drain": options.drain,
    }
    settings = CliSettings.from_env()
    retention = RETENTION_DEFAULT if settings.job_retention is None else settings.job_retention

    async def run() -> int:
        async with AsyncExitStack() as stack:
            opening = open_ledger(url, window=settings.window, retention=retention, tracing=settings.tracing)
            queue = await stack.enter_async_context(opening)
            worker = app.worker(queue, **limits)
            _install_signal_handlers(worker)
            store = redact_password(url)
            status = {"ready": True, "app": options.app, "store": store, "concurrency": options.concurrency}
            if options.metrics is not None:
                status["metrics"] = await stack.enter_async_context(_serve_metrics(options.metrics, queue, worker))
            _print_status(options, status)
            await worker.run()
            _print_status(options, {"ready": False, "attempts": worker.counts()})
            return worker.running

    if run_event_loop(run()):
        # Everything is closed. A normal exit would wait for handler threads that never return.
        sys.stdout.flush()
        os._exit(DONE)
    return DONE


def _serve_metrics(address: str, queue: Ledger, worker: Worker) -> AbstractAsyncContextManager[str]:
    from onejob.http import metrics_server  # imported here, because the dependencies of the service are optional

    return metrics_server.serve_metrics(metrics_server.parse_metrics_address(address), queue, worker)


def run_event_loop(work: Coroutine[Any, Any, T]) -> T:
    """On uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def _install_signal_handlers(worker: Worker) -> None:
    """The first signal drains the worker, the second ends the process at once."""
    loop = asyncio.get_running_loop()
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(INTERRUPTED)
        is_stopping = True
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _print_status(options: Namespace, status: dict[str, Any]) -> None:
    if options.json:
        write(to_json(status))
    elif status["ready"]:
        metrics = f", metrics at {status['metrics']}" if "metrics" in status else ""
        write(f"onejob runs the jobs of {status['app']} in {status['store']}, {status['concurrency']} at once{metrics}")
    else:
        ends = ", ".join(f"{count} {word}" for word, count in sorted(status["attempts"].items()))
        write(f"onejob has stopped: {ends or 'no jobs'}")
    sys.stdout.flush()
