"""Write the keys of a tenant as CSV or JSONL."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from msgspec import Struct

from onejob.cli.arguments import add_engine_arguments
from onejob.cli.backend import open_engine_backend
from onejob.cli.exit_codes import DONE
from onejob.cli.key_files import KeyFormat, KeyLine, add_format_argument, choose_format, export_keys, write_lines
from onejob.cli.render import print_error, to_json, write
from onejob.core.errors import Invalid
from onejob.ledger import Ledger
from onejob.ledger.parse import checked_lookup_scope
from onejob.settings import CliSettings

EXAMPLE = "onejob export keys.csv --tenant acme"
_PARTIAL_SUFFIX = ".partial"
_PAGE_LINES = 1000


class ExportOut(Struct, frozen=True, rename="camel"):
    file: str
    keys: int


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: -, standard output")
    command.add_argument("--force", action="store_true", help="replace the file if it exists")
    command.add_argument("--scope", help="only keys of this scope")
    add_format_argument(command)
    add_engine_arguments(command)


def run(options: Namespace) -> int:
    settings, format = CliSettings.from_env(), choose_format(options)
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
