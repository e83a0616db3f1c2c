"""Which tests are long, and so not in `make quick`: they start a program, e.g. a database, a server, or a worker that is killed.

A test starts one if its module imports what starts programs, if a fixture of it does, or if its parameters name an engine
that is a server. The mark `long` says it of the others, e.g. those that compute for seconds.
"""

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeGuard

import pytest

from tests.support import (
    command_line,
    doc_pages,
    manager_process,
    mariadb_server,
    outbox,
    pgbouncer,
    postgres_server,
    raw_http,
    seaweedfs,
    serve_process,
)

_PROGRAMS: tuple[Any, ...] = (
    subprocess, multiprocessing, command_line.run_service, manager_process.run_manager_process,
    manager_process.ManagerProcess, mariadb_server.MariadbServer, outbox.kill_relays, pgbouncer.Pooler, doc_pages.reading,
    postgres_server.Server, raw_http.run_server, raw_http.Server, seaweedfs.SeaweedServer, serve_process.run_serve_process,
)  # fmt: skip
_SERVERS = {"postgres", "postgresql", "bucket", "manager"}


def starts_a_program(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    return (
        _has_programs(item.module.__name__)
        or any(used is program for used in _used_by_fixtures(item) for program in _PROGRAMS)
        or _names_a_server(item)
    )


@cache
def _has_programs(module: str) -> bool:
    """True if a module has something that starts programs, or something of a module of tests that has."""
    for value in list(vars(sys.modules[module]).values()):
        if any(value is program for program in _PROGRAMS):
            return True
        origin = getattr(value, "__module__", None) or getattr(value, "__name__", None)
        if origin != module and _is_of_tests(origin) and _has_programs(origin):
            return True
    return False


def _is_of_tests(module: object) -> TypeGuard[str]:
    """What is in tests/support has many users, and is named in `_PROGRAMS`."""
    return isinstance(module, str) and module.startswith("tests.") and not module.startswith("tests.support.")


def _used_by_fixtures(item: pytest.Function) -> Iterator[Any]:
    for fixtures in item._fixtureinfo.name2fixturedefs.values():
        for fixture in fixtures:
            used: Any = fixture.func
            if hasattr(used, "__code__"):
                yield from (used.__globals__.get(name) for name in used.__code__.co_names)


def _names_a_server(item: pytest.Function) -> bool:
    """The fixture that has a parameter opens the engine of that name."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and any(
        isinstance(value, str) and value in _SERVERS for value in callspec.params.values()
    )
