"""A real S3 server on loopback for tests, from the binary of a wheel. It tells nobody that it runs."""

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.support.leftovers import new_folder
from tests.support.postgres_server import free_port

PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    "s3.port", "s3.port.grpc",
)  # fmt: skip
_START_SECONDS = 60.0
_STARTS_MAX = 3


class SeaweedServer:
    def __init__(self) -> None:
        self.folder = new_folder("s3")
        self._ports: dict[str, int] = {}
        self._numbers = iter(range(10**9))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def start(self) -> None:
        for _ in range(_STARTS_MAX):
            process = self._begin()
            if self._is_ready(process):
                return
            process.kill()
            process.wait(60)
        raise AssertionError(f"the S3 server does not start:\n{(self.folder / 'log').read_text()[-3000:]}")

    def _begin(self) -> "subprocess.Popen[bytes]":
        # Another process may take a port before the server does.
        self._ports = {name: free_port() for name in PORTS}
        options = [f"-{name}={port}" for name, port in self._ports.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    Path(sys.executable).with_name("weed"), "server", f"-dir={tempfile.mkdtemp(dir=self.folder)}",
                    "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-master.volumeSizeLimitMB=64",
                    "-master.electionTimeout=1s", "-volume.max=200", "-filer", "-s3", "-s3.port.iceberg=0",
                    "-s3.port.lance=0", *options,
                ],
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        return self.process

    def _is_ready(self, process: "subprocess.Popen[bytes]") -> bool:
        """True as soon as it stores an object; False if it ended, or needs too long."""
        for _ in range(int(_START_SECONDS / 0.1)):
            if process.poll() is not None:
                return False
            try:
                self._ask("PUT", "/jobs")
                self._ask("PUT", "/jobs/ready", b"yes")
                return True
            except (URLError, OSError):
                threading.Event().wait(0.1)
        return False

    def url(self) -> str:
        """The URL of an empty prefix."""
        return (
            f"s3://jobs/t{next(self._numbers)}?endpoint={self.endpoint}"
            "&access_key_id=any&secret_access_key=any&durability=process"
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ask(self, method: str, path: str, data: bytes | None = None) -> None:
        with urlopen(Request(self.endpoint + path, method=method, data=data), timeout=30) as answer:
            answer.read()
