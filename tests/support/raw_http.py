"""`onejob serve` as a process, and clients that send given bytes to it."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ONEJOB = [sys.executable, "-m", "onejob.cli"]
BODY = {"type": "charge", "input": {"amount": 42}}
STOP_SECONDS = 120


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Server:
    """`onejob serve` in a folder; its stderr goes to the file `log`."""

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        environ: dict[str, str] | None = None,
        command: Sequence[str] = ONEJOB,
        home: Path | None = None,
    ) -> None:
        self.log = folder / "log"
        config = folder / "onejob.toml"
        config.write_text(settings)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "serve", "--port", "0", "--config", str(config)],
                cwd=home or folder,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                text=True,
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        found = re.search(r"(?: at |\"address\":\s?\")https?://127\.0\.0\.1:(\d+)", self.ready_line)
        if found is None:
            self.kill()
        assert found, self.log.read_text()
        self.port = int(found[1])

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> HttpResponse:
        """One request on a new connection."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        with self.connect() as connection:
            connection.sendall(request(method, path, data, headers))
            return parse_responses(receive_all(connection))[-1]

    def submit(self, key: str, body: object = BODY, **headers: str) -> HttpResponse:
        return self.ask("POST", "/api/jobs", body, idempotency_key=key, **headers)

    def send_raw(self, data: bytes, *, half_close: bool = False) -> list[HttpResponse]:
        """Send these bytes, and read responses until the server closes the connection."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has closed the connection already
            return parse_responses(receive_all(connection))

    def connect(self, seconds: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def kill(self) -> None:
        self.process.kill()
        self._wait_for_exit()

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait_for_exit()

    def _wait_for_exit(self) -> int:
        assert self.process.stdout is not None
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


def engine_line(url: str) -> str:
    """The `engine` setting. It must come first, because a TOML table may follow."""
    return f'engine = "{url}"\n'


@contextmanager
def run_server(
    folder: Path, settings: str = "", *, environ: dict[str, str] | None = None, command: Sequence[str] = ONEJOB
) -> Iterator[Server]:
    server = Server(folder, settings, environ=environ, command=command)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        else:
            server.kill()


def request(
    method: str, path: str, data: bytes = b"", headers: Mapping[str, str] | None = None, *, close: bool = True
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (headers or {}).items()]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def submission(key: str, body: object = BODY, **headers: str) -> bytes:
    """A submission that keeps the connection open."""
    data = json.dumps(body).encode()
    return request("POST", "/api/jobs", data, {"idempotency_key": key, **headers}, close=False)


def receive_all(connection: socket.socket) -> bytes:
    data = b""
    try:
        while piece := connection.recv(65_536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def parse_responses(data: bytes) -> list[HttpResponse]:
    """Every complete response in the received bytes, informational ones included."""
    found: list[HttpResponse] = []
    start = 0
    while (end := data.find(b"\r\n\r\n", start)) >= 0:
        first, *lines = data[start:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        start = end + 4 + int(headers.get("content-length", 0))
        found.append(HttpResponse(int(first.split()[1]), headers, data[end + 4 : start]))
    return found


class KeepAliveClient:
    """A persistent connection; for many clients in one event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> "KeepAliveClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, data: bytes) -> HttpResponse | None:
        """Send a request; None: the connection ended before the response."""
        try:
            self._writer.write(data)
            head = await self._reader.readuntil(b"\r\n\r\n")
            (reply,) = parse_responses(head)
            length = int(reply.headers.get("content-length", 0))
            return reply._replace(content=await self._reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            return None

    def close(self) -> None:
        self._writer.close()


async def submitted_job_id(server: Server, key: str) -> str:
    client = await KeepAliveClient.connect(server.port)
    reply = await client.ask(submission(key))
    client.close()
    assert reply is not None
    assert reply.status == 202
    return str(reply.body["job"]["id"])
