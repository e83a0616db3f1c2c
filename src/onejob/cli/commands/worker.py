"""Run jobs with the handlers of an app."""

from argparse import ArgumentParser, Namespace

from onejob.cli.backend import engine_url
from onejob.cli.worker import add_worker_arguments, run_app
from onejob.ledger import URL_DEFAULT
from onejob.settings import CliSettings
from onejob.worker.app import load_app

EXAMPLE = "onejob worker shop.jobs:app --concurrency 20"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("app", metavar="MODULE:APP", help="the onejob.App, e.g. shop.jobs:app")
    add_worker_arguments(command)
    command.add_argument("--engine", metavar="URL", help=f"default: ONEJOB_ENGINE, else {URL_DEFAULT}")


def run(options: Namespace) -> int:
    return run_app(load_app(options.app), engine_url(options, CliSettings.from_env()), options)
