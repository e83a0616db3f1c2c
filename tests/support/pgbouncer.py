"""A real pgbouncer in transaction mode in front of the test server."""

import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from tempfile import mkdtemp

from .postgres_server import SUPERUSER, Server, free_port

# Debian installs it in /usr/sbin, which may not be on PATH.
PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
_START_TRIES = 200
_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 200
default_pool_size = {pool_size}
logfile = {log}
"""


class Pooler:
    """Has fewer connections to the server than clients have to it, so that clients share sessions."""

    def __init__(self, server: Server, *, pool_size: int) -> None:
        self.port = free_port()
        self.folder = Path(mkdtemp(prefix="pooler-", dir=server.folder))
        users, self.log = self.folder / "users", self.folder / "log"
        users.write_text(f'"{SUPERUSER}" ""\n')
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(server_port=server.port, port=self.port, users=users, log=self.log, pool_size=pool_size)
        )
        if server.user is not None:
            for path in (self.folder, users, settings):
                shutil.chown(path, server.user)
        assert PGBOUNCER is not None
        self._process = subprocess.Popen(
            [PGBOUNCER, "-q", str(settings)],
            user=server.user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait_for_start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)  # stops at once, unlike SIGINT
        self._process.wait(60)

    def _wait_for_start(self) -> None:
        for _ in range(_START_TRIES):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self.log.read_text() if self.log.exists() else "no log"
                threading.Event().wait(0.02)
            else:
                return
        raise AssertionError("pgbouncer does not listen")
