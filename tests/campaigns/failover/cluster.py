"""Two real servers on loopback, a primary and its synchronous standby, with the acts of an operator."""

import asyncio
import os
import shutil
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from tests.support.postgres_server import SUPERUSER, Server

# On every node: after a promotion, the former standby must wait for one.
STANDBY_NAMES = "ANY 1 (left, right)"
ATTACH_TRIES_MAX = 600
DATABASE = "jobs"


class Node(Server):
    """A server whose name is in the other one's synchronous_standby_names."""

    def __init__(self, name: str, standby_names: str) -> None:
        super().__init__(synchronous_standby_names=standby_names, wal_keep_size="64MB")
        self.name = name

    def follow(self, other: "Node") -> None:
        """Become the standby of the other node, from a new base backup."""
        shutil.rmtree(self.data, ignore_errors=True)
        dsn = f"host=127.0.0.1 port={other.port} user={SUPERUSER} application_name={self.name}"
        self.run("pg_basebackup", "-D", str(self.data), "-d", dsn, "-R", "-X", "stream", "-c", "fast")
        self.start()

    def kill(self) -> None:
        """SIGKILL the server and all of its child processes, so that none can clean up."""
        assert self.process is not None
        children = child_processes(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.process = None
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def stop_replication(self) -> None:
        """Stop the WAL senders, as if the network were cut shortly before the primary fails."""
        assert self.process is not None
        stop_replication(self.process.pid)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", str(self.data), "-w", "-t", "60")


class Cluster:
    """A primary and its standby, which swap roles."""

    def __init__(self, standby_names: str = STANDBY_NAMES) -> None:
        self.primary = Node("left", standby_names)
        self.standby = Node("right", standby_names)
        self._is_synchronous = bool(standby_names)
        self._ports = (self.primary.port, self.standby.port)

    def __enter__(self) -> Self:
        try:
            self.primary.init()
            self.primary.start()
            self.attach()
            self.primary.run("createdb", "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", SUPERUSER, DATABASE)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def url(self) -> str:
        """Names both nodes, and declares a quorum if they have one."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://{SUPERUSER}@{hosts}/{DATABASE}{'?durability=quorum' if self._is_synchronous else ''}"

    def fail_over(self, *, silent_seconds: float = 0.0) -> None:
        """Kill the primary, maybe after a cut of replication, and promote the standby, which then has none."""
        if silent_seconds:
            self.primary.stop_replication()
            threading.Event().wait(silent_seconds)
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def attach(self) -> None:
        """Rebuild the other node as the standby, and wait until it streams."""
        self.standby.follow(self.primary)
        for _ in range(ATTACH_TRIES_MAX):
            if self._is_attached():
                return
            threading.Event().wait(0.05)
        raise AssertionError(f"the standby does not follow\n{self.standby.log()}")

    def remove(self) -> None:
        for node in (self.primary, self.standby):
            node.remove()

    def query(self, sql: str) -> list[Any]:
        return asyncio.run(self._query(sql))

    async def _query(self, sql: str, database: str = DATABASE) -> list[Any]:
        connection = await asyncpg.connect(self.primary.url(database))
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    def _is_attached(self) -> bool:
        sql = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state <> 'potential'"
        return bool(asyncio.run(self._query(sql, "postgres")))


def stop_replication(postmaster: int) -> None:
    for child in child_processes(postmaster):
        with suppress(FileNotFoundError, ProcessLookupError):  # a session that has just ended
            if b"walsender" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGSTOP)


def child_processes(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]
