"""What a command returns, and how it reaches a ledger: on an engine or through a server, or on an engine only."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from onejob.http.problems import Problem
from onejob.http.responses import to_error_body
from onejob.settings import CliSettings

from .backend import Backend, EngineBackend, open_backend, open_engine_backend
from .exit_codes import DONE
from .render import Screen, print_error, to_json, write

T = TypeVar("T")


class CommandResult(NamedTuple):
    """Printed as JSON, or as the text that `render` makes of it."""

    value: Any
    render: Callable[[Screen, Any], str]
    exit_code: int = DONE
    last_line: str = ""


def call_backend(
    options: Namespace, call: Callable[[Backend], T], render: Callable[[Screen, T], str], *, creates_store: bool = False
) -> CommandResult:
    """The options are parsed before it is opened, so that a mistake in them touches nothing."""
    with open_backend(options, CliSettings.from_env(), creates_store=creates_store) as backend:
        return CommandResult(call(backend), render)


def call_engine(
    options: Namespace,
    call: Callable[[EngineBackend], T],
    render: Callable[[Screen, T], str],
    *,
    creates_store: bool = False,
) -> CommandResult:
    with open_engine_backend(options, CliSettings.from_env(), creates_store=creates_store) as engine:
        return CommandResult(call(engine), render)


def report_failure(options: Namespace, failure: Problem, code: int) -> int:
    if options.json:
        write(to_json({"error": to_error_body(failure)}))
    print_error(failure.message)
    return code
