"""Serve the HTTP API in front of managers, without a store of its own."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_listener_arguments, add_log_argument
from onejob.core.errors import Invalid
from onejob.engines.remote.url import is_managers_url
from onejob.settings import load_service_config

from . import serve

EXAMPLE = "onejob gate --manager http://m1:8002,http://m2:8002 --port 8001"


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--manager", metavar="URLS", help="all managers of one ledger; the credential is in ONEJOB_GATE_KEY"
    )
    add_listener_arguments(command)
    add_log_argument(command)


def run(options: Namespace) -> int:
    options.engine = options.manager
    engine = load_service_config(options.config, overrides={"engine": options.engine}).engine
    if not is_managers_url(engine):
        raise Invalid(
            "manager",
            "a gate needs its managers: give --manager http://m1:8002,m2:8002; `onejob serve` works on a store itself",
        )
    options.app, options.concurrency = None, 1
    return serve.run(options)
