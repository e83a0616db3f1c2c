"""The command `onejob`: runs a command, prints its result and returns the exit code."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from onejob.errors import Invalid, OnejobError
from onejob.http.responses import to_error_body
from onejob.settings import CiEnvironment, CliSettings

from .exit_codes import FAILED, INTERRUPTED, exit_code, problem_from_error
from .parser import build_parser
from .render import Screen, annotate, print_error, to_json, write

# Module -> the extra that installs it.
_EXTRAS = {
    "asyncpg": "postgres",
    "sqlalchemy": "relay",
    "psycopg": "relay",
    "pymysql": "relay",
    "shtab": "completion",
    "opentelemetry": "otel",
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(words)
    except SystemExit as stop:  # --help, --version or wrong usage
        return stop.code if isinstance(stop.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except OSError as error:
        _discard_stdout()
        print_error(f"{error}; correct it, then retry")
        return FAILED
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0], "service")
        print_error(f"{error.name} is not installed; install onejob[{extra}]")
        return FAILED


def _run(words: list[str]) -> int:
    options = Namespace(json=False)
    try:
        _check_utf8(words)
        options = build_parser(words[:1]).parse_args(words)
        result = options.run(options)
        if isinstance(result, int):
            return result
        screen = Screen.from_stdout(color=CliSettings.from_env().color)
        if text := to_json(result.value) if options.json else result.render(screen, result.value):
            write(text)
        if result.last_line:
            write(result.last_line)
        return int(result.exit_code)
    except OnejobError as error:
        problem = problem_from_error(error)
        if CiEnvironment.from_env().annotates:
            annotate("error", f"onejob: {problem.message}")
        if getattr(options, "json", False):
            write(to_json({"error": to_error_body(problem)}))
        print_error(problem.message)
        return exit_code(problem)


def _check_utf8(words: list[str]) -> None:
    try:
        for word in words:
            word.encode()
    except UnicodeEncodeError:
        raise Invalid("arguments", "an argument is not UTF-8; write it in UTF-8") from None


def _discard_stdout() -> None:
    """Standard output failed: what Python flushes at its exit must not fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
