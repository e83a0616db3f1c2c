"""The commands `export` and `import`: files of keys, in CSV and JSONL."""

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import TextIO

from msgspec import Struct

from onejob.cli.backend import open_engine_backend
from onejob.cli.exit_codes import CONFLICT, DONE, USAGE_ERROR, exit_code, problem_from_error
from onejob.cli.key_files import (
    ImportOptions,
    KeyFormat,
    KeyLine,
    LineOutcome,
    LineResult,
    encode_result,
    export_keys,
    import_keys,
    parse_window_ms,
    read_lines,
    write_lines,
)
from onejob.cli.render import print_error, sanitize, to_json, write
from onejob.core.errors import Invalid
from onejob.core.identity import GLOBAL_SCOPE, checked_name
from onejob.errors import OnejobError
from onejob.ledger import Ledger
from onejob.ledger.parse import checked_lookup_scope
from onejob.settings import CliSettings

PROBLEMS_SHOWN_MAX = 20
_PARTIAL_SUFFIX = ".partial"
_PAGE_LINES = 1000
_SUFFIXES = {".csv": KeyFormat.CSV, ".jsonl": KeyFormat.JSONL, ".ndjson": KeyFormat.JSONL}


class ExportOut(Struct, frozen=True, rename="camel"):
    file: str
    keys: int


class ImportOut(Struct, frozen=True, rename="camel"):
    file: str
    lines: int  # how far it has read the file
    counts: dict[str, int]
    problems: list[str]  # the first of them


def run_export(options: Namespace) -> int:
    settings, format = CliSettings.from_env(), _choose_format(options)
    scope = None if options.scope is None else checked_lookup_scope(options.scope)
    with open_engine_backend(options, settings, creates_store=False) as backend, _open_output(options) as file:
        keys = backend.ledger.run(_export(backend.ledger.async_ledger, file, format, scope))
    if options.json:
        _report(options, to_json(ExportOut(options.file, keys)))
    else:
        _report(options, f"keys exported: {keys}")
    return DONE


async def _export(ledger: Ledger, file: TextIO, format: KeyFormat, scope: str | None) -> int:
    count, page = 0, list[KeyLine]()
    async for line in export_keys(ledger, scope=scope):
        page.append(line)
        if len(page) == _PAGE_LINES:
            write_lines(page, file, format, header=not count)
            count, page = count + len(page), []
    write_lines(page, file, format, header=not count)
    return count + len(page)


@contextmanager
def _open_output(options: Namespace) -> Iterator[TextIO]:
    """Standard output; or a file that gets its name when it is complete and synced."""
    if options.file == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(options.file)
    if path.exists() and not options.force:
        raise Invalid("file", f"{path} exists; name another file, or replace it with --force")
    partial = path.with_name(path.name + _PARTIAL_SUFFIX)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _report(options: Namespace, text: str) -> None:
    if options.file == "-":
        print_error(text)
    else:
        write(text)


def run_import(options: Namespace) -> int:
    settings, format = CliSettings.from_env(), _choose_format(options)
    if options.from_line < 1:
        raise Invalid("from-line", "lines are numbered from 1; choose one")
    tenant = None if options.tenant is None else checked_name("tenant", options.tenant)
    scope = checked_lookup_scope(GLOBAL_SCOPE if options.scope is None else options.scope)
    window = options.window or settings.window
    summary, failed = _ImportSummary(), 0
    with _open_input(options.file) as file, _open_rejects(options.rejects) as rejects:
        lines = dropwhile(lambda one: one[0] < options.from_line, read_lines(file, format))
        with open_engine_backend(options, settings, creates_store=True) as backend:
            ledger = backend.ledger.async_ledger
            wanted = ImportOptions(
                tenant=tenant,
                scope=scope,
                window_ms=ledger.runtime.windows.ttl_ms if window is None else parse_window_ms(window),
            )
            try:
                backend.ledger.run(import_keys(ledger, lines, wanted, lambda one: summary.add(one, rejects)))
            except Invalid:
                raise  # the file is wrong from here on
            except OnejobError as error:
                failed = exit_code(problem_from_error(error))
                print_error(str(error))
                print_error(f"stopped; go on with --from-line {max(summary.last, options.from_line - 1) + 1}")
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
    problems = sum(done.counts[one.value] for one in (LineOutcome.CONFLICT, LineOutcome.INVALID))
    lines = [f"imported {sanitize(done.file)}: {counts}", *(f"  {sanitize(problem)}" for problem in done.problems)]
    if problems > len(done.problems):
        lines.append(f"  and {problems - len(done.problems)} more; --rejects FILE has all")
    return "\n".join(lines)


@contextmanager
def _open_input(path: str) -> Iterator[TextIO]:
    """Bytes that are no UTF-8 stay in their line, which is then refused."""
    try:
        source = os.dup(sys.stdin.fileno()) if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid("file", f"{path} cannot be read ({error.strerror}); name a file of keys") from error
    with os.fdopen(source, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        yield file


@contextmanager
def _open_rejects(path: str | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        yield file


def _choose_format(options: Namespace) -> KeyFormat:
    if options.format is not None:
        return KeyFormat(options.format)
    if options.file == "-":
        return KeyFormat.JSONL
    found = _SUFFIXES.get(Path(options.file).suffix.lower())
    if found is None:
        raise Invalid("format", f"the name of {options.file} does not say what it is; add --format csv or jsonl")
    return found
