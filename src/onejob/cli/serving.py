"""The command `serve`: its arguments, and the service it starts."""

import argparse

from onejob.errors import StoreRefused
from onejob.http.answers import error_out
from onejob.http.problems import Problem, problem, to_problem
from onejob.settings import load_service_config

from .screen import print_error, to_json, write
from .trouble import DONE, UNAVAILABLE, USAGE_ERROR


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
    from onejob.worker.loading import load_app

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
