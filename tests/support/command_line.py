"""Runs the command in this process, and servers for it: a real one, and one that says what a test wrote."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from onejob.cli import main

ONEJOB = [sys.executable, "-m", "onejob.cli"]


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandRunner:
    """`onejob` with these words always at its end."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *always: str) -> None:
        self._capsys = capsys
        self._trailing_arguments = always

    def __call__(self, *words: str) -> CommandResult:
        self._capsys.readouterr()
        code = main([*words, *self._trailing_arguments])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return CommandResult(code, out, err)

    def with_arguments(self, *always: str) -> "CommandRunner":
        return CommandRunner(self._capsys, *always)


@contextmanager
def run_service(folder: Path, *words: str) -> Iterator[str]:
    """A real server on folder/onejob.db; its URL."""
    process = subprocess.Popen([*ONEJOB, "serve", "--port", "0", *words], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r" at (http://127\.0\.0\.1:\d+)", process.stdout.readline())
        assert found
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


class ScriptedServer:
    """Answers each connection with the next of these bytes, and keeps what was asked, and when. Empty: hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self.received_at: list[float] = []
        self._responses = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):  # it may be closed already, when every answer was given
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)

    def _serve(self) -> None:
        with self._listener, suppress(OSError):
            for answer in self._responses:
                connection, _ = self._listener.accept()
                with connection:
                    self.requests.append(_read_request(connection))
                    self.received_at.append(time.monotonic())
                    connection.sendall(answer)


def http_response(status: int, body: object, *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


def problem_response(status: int, code: str, *headers: str, retryable: bool = False) -> bytes:
    error = {"code": code, "message": f"{code} happened; do this", "retryable": retryable, "details": {}}
    body = {"type": "", "title": "", "status": status, "detail": "", "requestId": "r", "error": error}
    return http_response(status, body, *headers)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while True:
        data += connection.recv(65536)
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if found and len(body) >= (int(length[1]) if length else 0):
            return data
