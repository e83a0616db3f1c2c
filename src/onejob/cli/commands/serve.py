"""The commands `serve` and `worker`, which run until they are stopped by a signal."""

import asyncio
import logging
import os
import signal
import sys
from argparse import Namespace
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from onejob.cli.backend import engine_url
from onejob.cli.exit_codes import DONE, INTERRUPTED, UNAVAILABLE, USAGE_ERROR
from onejob.cli.render import print_error, to_json, write
from onejob.engines import redact_password
from onejob.errors import StoreRefused
from onejob.http.problems import Problem, problem, to_problem
from onejob.http.responses import error_out
from onejob.ledger import RETENTION_DEFAULT, Ledger
from onejob.ledger import open as open_ledger
from onejob.logs import LogFormat, open_stderr_log
from onejob.settings import CliSettings, exposed_secrets, load_service_config
from onejob.worker.app import App, load_app
from onejob.worker.worker import Worker


def serve(options: Namespace) -> int:
    from onejob.http.serve import run  # imported here, because the dependencies of the service are optional

    overrides = {name: getattr(options, name) for name in ("host", "port", "engine", "workers", "tls_cert", "tls_key")}
    overrides["log_format"] = "json" if options.json else None
    try:
        app = None if options.app is None else load_app(options.app)
        config = load_service_config(options.config, overrides=overrides)
        if options.config is not None:
            _warn_of_exposed_secrets(options.config, config.log_format)
        run(config, app=app, concurrency=options.concurrency)
    except StoreRefused as error:
        return report_failure(options, to_problem(error), USAGE_ERROR)
    except OSError as error:
        message = f"{error.strerror or error}; choose another address, or stop the process that uses it"
        return report_failure(options, problem("SERVICE_UNAVAILABLE", message), UNAVAILABLE)
    return DONE


def _warn_of_exposed_secrets(path: str, log_format: LogFormat) -> None:
    if names := exposed_secrets(path):
        message = f"every user of this machine may read {path}, which has {' and '.join(names)}; run chmod 600 on it"
        open_stderr_log(log_format).write_message("warning", message)


def run_worker(options: Namespace) -> int:
    return run_app(load_app(options.app), engine_url(options, CliSettings.from_env()), options)


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

    if _run_event_loop(run()):
        # Everything is closed. A normal exit would wait for handler threads that never return.
        sys.stdout.flush()
        os._exit(DONE)
    return DONE


def _serve_metrics(address: str, queue: Ledger, worker: Worker) -> AbstractAsyncContextManager[str]:
    from onejob.http import metrics_server  # imported here, because the dependencies of the service are optional

    return metrics_server.serve_metrics(metrics_server.parse_metrics_address(address), queue, worker)


def _run_event_loop(work: Any) -> int:
    try:
        import uvloop
    except ImportError:
        return int(asyncio.run(work))
    return int(uvloop.run(work))


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


def report_failure(options: Namespace, failure: Problem, code: int) -> int:
    if options.json:
        write(to_json({"error": error_out(failure)}))
    print_error(failure.message)
    return code
