"""`onejob serve` as a process, for tests that need a URL: browsers, fuzzers, scrapers."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServeProcess:
    def __init__(self, port: int) -> None:
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> HttpResponse:
        data = b"" if body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, data, given)
            response = connection.getresponse()
            response_headers = {name.lower(): value for name, value in response.getheaders()}
            return HttpResponse(response.status, response_headers, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.ask("GET", path, **headers)

    def submit(self, type: str, input: object, key: str) -> HttpResponse:
        return self.ask("POST", "/api/jobs", {"type": type, "input": input}, idempotency_key=key)


@contextmanager
def run_serve_process(folder: Path, *options: str) -> Iterator[ServeProcess]:
    """Serve on a free port."""
    command = [sys.executable, "-m", "onejob.cli", "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            found = re.search(r" at http://127\.0\.0\.1:(\d+)", running.stdout.readline())
            assert found, "the service did not start"
            yield ServeProcess(int(found[1]))
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(60)
