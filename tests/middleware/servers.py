"""uvicorn or gunicorn in its own process, which can be killed, and an HTTP client that can disconnect early."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


class Server:
    def __init__(self, folder: Path, port: int, process: "subprocess.Popen[bytes]") -> None:
        self._folder = folder
        self.port = port
        self._process = process

    def runs(self, name: str) -> int:
        """How often a handler ran, in all processes."""
        file = self._folder / "runs"
        return file.read_text().split().count(name) if file.exists() else 0

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def kill(self) -> None:
        """Kill the server with its worker processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    async def send_request(
        self, path: str, key: str | None = "", body: bytes = b"{}", *, method: str = "POST", **headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        fields = {"host": "x", "connection": "close", "content-type": "application/json"}
        fields |= {"content-length": str(len(body))} | {n.replace("_", "-"): v for n, v in headers.items()}
        if key is not None:
            fields["idempotency-key"] = key
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        await writer.drain()
        return reader, writer

    async def ask(self, path: str, key: str | None, body: bytes = b"{}", **options: str) -> HttpResponse:
        reader, writer = await self.send_request(path, key, body, **options)
        try:
            data = await asyncio.wait_for(reader.read(), 40)
        finally:
            writer.transport.abort()
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        received = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return HttpResponse(int(first.split()[1]), received, rest)


# The same application behind each form of the middleware, by its import path.
APPS = {
    "asgi": "tests.middleware.counting_apps:app",
    "fastapi": "tests.middleware.counting_apps:fastapi_app",
    "wsgi": "tests.middleware.counting_flask:app",
    "django": "tests.middleware.counting_django:app",
}
WSGI_APPS = ("wsgi", "django")
THREADS = 40


def server_command(app: str, fd: int) -> list[str]:
    if app in WSGI_APPS:
        gunicorn = [sys.executable, "-m", "gunicorn", APPS[app], "--worker-class", "gthread", "--threads", str(THREADS)]
        return [*gunicorn, "--bind", f"fd://{fd}", "--graceful-timeout", "1"]
    return [sys.executable, "-m", "uvicorn", APPS[app], "--fd", str(fd)]


@contextmanager
def run_server(folder: Path, store: str, app: str = "asgi", *arguments: str, **environment: str) -> Iterator[Server]:
    with socket.socket() as listener, (folder / "log").open("ab") as log:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [*server_command(app, listener.fileno()), "--log-level", "critical", *arguments],
            cwd=REPOSITORY,
            env=os.environ | {"COUNTED_FOLDER": str(folder), "COUNTED_STORE": store} | environment,
            pass_fds=(listener.fileno(),),
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Server(folder, port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
