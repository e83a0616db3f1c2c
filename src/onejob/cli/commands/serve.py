"""Serve the HTTP API."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_concurrency_argument, add_listener_arguments, add_log_argument
from onejob.cli.command import report_failure
from onejob.cli.exit_codes import DONE, UNAVAILABLE, USAGE_ERROR
from onejob.errors import StoreRefused
from onejob.http.problems import problem, to_problem
from onejob.logs import LogFormat, open_stderr_log
from onejob.settings import exposed_secrets, load_service_config
from onejob.worker.app import load_app

EXAMPLE = "onejob serve --port 8001 --engine sqlite:///onejob.db"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    add_listener_arguments(command)
    add_log_argument(command)
    command.add_argument("--app", metavar="MODULE:APP", help="also run the jobs of this onejob.App in this process")
    add_concurrency_argument(command)


def run(options: Namespace) -> int:
    from onejob.http import serve  # imported here, because the dependencies of the service are optional

    overrides = {name: getattr(options, name) for name in ("host", "port", "engine", "workers", "tls_cert", "tls_key")}
    overrides["log_format"] = "json" if options.json else None
    try:
        app = None if options.app is None else load_app(options.app)
        config = load_service_config(options.config, overrides=overrides)
        if options.config is not None:
            _warn_of_exposed_secrets(options.config, config.log_format)
        serve.run(config, app=app, concurrency=options.concurrency)
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
