"""Store the keys of a CSV or JSONL file, with the ids of the jobs that they made elsewhere."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import dropwhile
from typing import TextIO

from msgspec import Struct

from onejob.cli.arguments import add_engine_arguments, parse_duration
from onejob.cli.backend import open_engine_backend
from onejob.cli.exit_codes import CONFLICT, DONE, USAGE_ERROR, exit_code, problem_from_error
from onejob.cli.key_files import (
    ImportOptions,
    LineOutcome,
    LineResult,
    add_format_argument,
    choose_format,
    encode_result,
    import_keys,
    parse_window_ms,
    read_lines,
)
from onejob.cli.render import print_error, sanitize, to_json, write
from onejob.core.errors import Invalid
from onejob.core.identity import GLOBAL_SCOPE, checked_name
from onejob.errors import OnejobError
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import checked_lookup_scope
from onejob.settings import CliSettings

EXAMPLE = "onejob import keys.csv --scope charge --window 30d"
PROBLEMS_SHOWN_MAX = 20


class ImportOut(Struct, frozen=True, rename="camel"):
    file: str
    lines: int  # how far it has read the file
    counts: dict[str, int]
    problems: list[str]  # the first of them


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="-: standard input")
    command.add_argument("--scope", help="of lines that name none; default: queue, for all job types")
    command.add_argument(
        "--window", type=parse_duration, metavar="DURATION", help="of lines without expires_at; default: 24h"
    )
    command.add_argument("--from-line", type=int, default=1, metavar="N", help="continue with this line of the file")
    command.add_argument(
        "--rejects", metavar="FILE", help="append lines with a conflict or an error to this file, as JSON"
    )
    add_format_argument(command)
    add_engine_arguments(command)


def run(options: Namespace) -> int:
    settings, format = CliSettings.from_env(), choose_format(options)
    if options.from_line < 1:
        raise Invalid("from-line", "lines are numbered from 1; choose one")
    tenant = None if options.tenant is None else checked_name("tenant", options.tenant)
    scope = checked_lookup_scope(GLOBAL_SCOPE if options.scope is None else options.scope)
    window = options.window or settings.window
    summary, failed = _ImportSummary(), 0
    with _open_input(options.file) as file, _open_rejects(options.rejects) as rejects:
        lines = dropwhile(lambda line: line[0] < options.from_line, read_lines(file, format))
        with open_engine_backend(options, settings, creates_store=True) as backend:
            ledger = backend.ledger.async_ledger
            wanted = ImportOptions(
                tenant=tenant,
                scope=scope,
                window_ms=runtime_of(ledger).windows.ttl_ms if window is None else parse_window_ms(window),
            )
            try:
                backend.ledger.run(import_keys(ledger, lines, wanted, lambda result: summary.add(result, rejects)))
            except Invalid:
                raise  # the file is wrong from here on
            except OnejobError as error:
                failed = exit_code(problem_from_error(error))
                print_error(str(error))
                print_error(f"stopped; continue with --from-line {max(summary.last, options.from_line - 1) + 1}")
    done = summary.to_out(options.file)
    write(to_json(done) if options.json else _render_import(done))
    return failed or summary.exit_code


class _ImportSummary:
    def __init__(self) -> None:
        self.last = 0
        self._counts = Counter({outcome.value: 0 for outcome in LineOutcome})
        self._problems: list[str] = []

    def add(self, result: LineResult, rejects: TextIO | None) -> None:
        self.last = result.line
        self._counts[result.outcome.value] += 1
        if result.outcome not in (LineOutcome.CONFLICT, LineOutcome.INVALID):
            return
        if len(self._problems) < PROBLEMS_SHOWN_MAX:
            self._problems.append(f"line {result.line}: {result.outcome}: {result.reason}")
        if rejects is not None:
            rejects.write(encode_result(result) + "\n")

    @property
    def exit_code(self) -> int:
        if self._counts[LineOutcome.CONFLICT.value]:
            return CONFLICT
        return USAGE_ERROR if self._counts[LineOutcome.INVALID.value] else DONE

    def to_out(self, file: str) -> ImportOut:
        return ImportOut(file, self.last, dict(self._counts), self._problems)


def _render_import(done: ImportOut) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in done.counts.items())
    problems = sum(done.counts[outcome.value] for outcome in (LineOutcome.CONFLICT, LineOutcome.INVALID))
    lines = [f"imported {sanitize(done.file)}: {counts}", *(f"  {sanitize(problem)}" for problem in done.problems)]
    if problems > len(done.problems):
        lines.append(f"  and {problems - len(done.problems)} more; --rejects FILE has all")
    return "\n".join(lines)


@contextmanager
def _open_input(path: str) -> Iterator[TextIO]:
    """Bytes that are not UTF-8 stay in their line, which is then refused."""
    try:
        source = os.dup(sys.stdin.fileno()) if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid("file", f"{path} cannot be read ({error.strerror}); name a file of keys") from error
    with os.fdopen(source, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield file


def _open_rejects(path: str | None) -> AbstractContextManager[TextIO | None]:
    if path is None:
        return nullcontext()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)  # it has keys
    return os.fdopen(file, "a", encoding="utf-8", errors="backslashreplace")
