"""The command `onejob`: runs a command, prints its response and returns the exit code."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress

from onejob.errors import Invalid, OnejobError
from onejob.http.responses import error_out
from onejob.settings import CiEnvironment, CliSettings

from . import parser
from .commands import check, completion, demo, import_, prove, relay, run_once, serve, submit
from .exit_codes import DONE, FAILED, INTERRUPTED, USAGE_ERROR, exit_code, problem_from_error
from .render import Screen, print_error, to_json, write

# Module -> the extra that installs it.
_EXTRAS = {"asyncpg": "postgres", "pymysql": "mysql", "opentelemetry": "otel"}


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(words)
    except SystemExit as stop:  # --help, --version or wrong usage
        if words[:1] == ["run-once"] and stop.code == USAGE_ERROR:
            return run_once.EX_USAGE
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
        options = parser.build_parser().parse_args(words)
        if (run := _PROGRAMS.get(options.command)) is not None:
            return run(options)
        settings = CliSettings.from_env()
        ci = CiEnvironment.from_env()
        result = submit.run_command(options, settings, ci)
        screen = Screen.from_stdout(color=settings.color)
        if text := to_json(result.value) if options.json else result.render(screen, result.value):
            write(text)
        if last_line := submit.report_to_ci(options, ci, result.value):
            write(last_line)
        return result.exit_code
    except OnejobError as error:
        problem = problem_from_error(error)
        if CiEnvironment.from_env().annotates:
            submit.annotate("error", f"onejob: {problem.message}")
        if getattr(options, "json", False):
            write(to_json({"error": error_out(problem)}))
        print_error(problem.message)
        return exit_code(problem)


def _run_manager_or_gate(options: Namespace) -> int:
    from .commands import manager  # imported here, because the dependencies of the service are optional

    return manager.run_manager(options) if options.command == "manager" else manager.run_gate(options)


def _print_completion(options: Namespace) -> int:
    write(completion.build_script(parser.build_parser(), options.shell))
    return DONE


def _check(options: Namespace) -> int:
    report = check.run_check(options)
    write(
        to_json(report) if options.json else check.render_junit(report) if options.junit else check.render_text(report)
    )
    return report.exit_code


def _prove(options: Namespace) -> int:
    verdict, report = prove.run_prove(options)
    if options.json:
        write(report)
    else:
        write("\n".join([*verdict.problems, f"report: {options.report}/report.html", str(verdict)]))
    return prove.PROVED if verdict.is_kept else prove.DISPROVED


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


# Commands that write their own output.
_PROGRAMS: dict[str, Callable[[Namespace], int]] = {
    "serve": serve.serve,
    "manager": _run_manager_or_gate,
    "gate": _run_manager_or_gate,
    "worker": serve.run_worker,
    "completion": _print_completion,
    "demo": demo.run_demo,
    "relay": relay.run_relay,
    "check": _check,
    "prove": _prove,
    "run-once": run_once.run_once,
    "export": import_.run_export,
    "import": import_.run_import,
}
