"""A real MariaDB server on loopback for tests, from the programs of the system."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pymysql

from tests.http.test_tls import make_files

from .leftovers import new_folder
from .postgres_server import free_port

# Debian installs it in /usr/sbin, which may not be on PATH.
MARIADBD = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
_SHARE = Path("/usr/share/mysql")
_START_TRIES = 600
_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--character-set-server=latin1",  # what it was for decades, and still is where nobody has set it
    "--default-storage-engine=MyISAM",
)
USER, PASSWORD = "shop", "p@ss/word"


class MariadbServer:
    """In its own folder, with a user who must give a password. It never runs as root, which MariaDB refuses."""

    def __init__(self) -> None:
        assert MARIADBD is not None
        self.folder = new_folder("mariadb")
        self.port = free_port()
        self._user = pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.tls = make_files(self.folder / "tls")
        try:
            self._install()
            self._process = self._start()
            self._wait_for_start()
        except BaseException:
            self.stop()
            raise

    def new_database(self, name: str) -> str:
        """The URL of a new database that the user owns."""
        root = self._connect()
        with root.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"GRANT ALL ON {name}.* TO '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        root.close()
        return f"mysql://{USER}:p%40ss%2Fword@127.0.0.1:{self.port}/{name}"

    def end_connections(self) -> None:
        """End those of the user, as a restart of the server does."""
        root = self._connect()
        with root.cursor() as cursor:
            cursor.execute(f"KILL USER {USER}@127.0.0.1")
        root.close()

    def stop(self) -> None:
        if (process := getattr(self, "_process", None)) is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _install(self) -> None:
        """What mariadb-install-db does, which needs a package more and fills tables of help and time zones."""
        self._command = [str(MARIADBD), "--no-defaults", f"--datadir={self.folder / 'data'}", *_SETTINGS]
        sql = "SET @auth_root_socket = NULL;\nSET @skip_auth_anonymous = 1;\nCREATE DATABASE mysql;\nUSE mysql;\n"
        sql += "\n".join((_SHARE / name).read_text() for name in _TABLES)
        data = self.folder / "data"
        data.mkdir()
        if self._user is not None:
            shutil.chown(data, self._user)
        done = subprocess.run(
            [*self._command, "--bootstrap"], input=sql, user=self._user, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _start(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*self._command, f"--port={self.port}", f"--socket={self.folder / 'socket'}",
                 f"--ssl-cert={self.tls.cert}", f"--ssl-key={self.tls.key}"],
                stdout=log, stderr=log, user=self._user,
            )  # fmt: skip

    def _connect(self) -> Any:
        return pymysql.connect(unix_socket=str(self.folder / "socket"), user="root", autocommit=True)

    def _wait_for_start(self) -> None:
        for _ in range(_START_TRIES):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                threading.Event().wait(0.02)
            else:
                return
        raise AssertionError((self.folder / "log").read_text())
