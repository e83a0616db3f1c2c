"""Runs the service on uvicorn. Without authentication it binds to loopback and to nothing else."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from msgspec import json

from onejob.engine import Durability
from onejob.errors import Invalid
from onejob.keeping import left_alone
from onejob.ledger import Ledger
from onejob.opening import open as open_ledger

from .app import App, unobserved
from .config import ServiceConfig
from .cors import Cors, loopback
from .logs import Log, stderr_log, unforeseen
from .notices import noticing
from .protocol import guarded

BACKLOG = 2048
FILES_WANTED = 65_536
LAST_WORDS_SECONDS = 1.0
PREPARATIONS_SHARE = 0.75


class Server(uvicorn.Server):
    """uvicorn, which says when it is ready, and when told to leave first releases those who wait."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        ready: Callable[[], None],
        release: Callable[[], None],
        leave: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._release = release
        self._leave = leave
        self._leaving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._release()
        self._leaving = asyncio.create_task(self._leave())
        await super().shutdown(sockets)
        if self.server_state.tasks:  # their time is over, and they are saying so
            await asyncio.wait(self.server_state.tasks, timeout=LAST_WORDS_SECONDS)
        if not self.force_exit:
            await asyncio.wait((self._leaving,))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """To be asked to leave is no failure; to be asked twice means at once."""
        if self.should_exit:
            self.force_exit = True
            if self._leaving is not None:
                self._leaving.get_loop().call_soon_threadsafe(self._leaving.cancel)
        self.should_exit = True


async def serve(config: ServiceConfig) -> None:
    if not config.auth and not loopback(config.host):
        raise Invalid(
            "host",
            f"nobody is authenticated here, so {config.host} would be open to all; bind to 127.0.0.1, "
            "or set auth = true",
        )
    log = stderr_log(config.log_format)
    asyncio.get_running_loop().set_exception_handler(unforeseen)
    try:
        with bound(config.host, config.port) as listener:
            async with open_ledger(config.engine) as ledger, noticing(ledger, config):
                await _server(config, ledger, log, listener).serve(sockets=[listener])
    finally:
        log.flush()


def bound(host: str, port: int) -> socket.socket:
    """A socket that nobody else has, and that does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{host}:{port} cannot be had ({error.strerror or error})") from error
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def public(url: str) -> str:
    """An engine's URL without its password."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":…@", 1) if password else url


def ready_line(config: ServiceConfig, address: str, durability: Durability) -> str:
    engine = public(config.engine)
    if config.log_format == "json":
        return json.encode({"address": address, "engine": engine, "durability": durability}).decode()
    return f"onejob serves {engine} at {address} (durability: {durability})"


def run(config: ServiceConfig) -> None:
    """Serve until a signal comes."""
    _make_room()
    try:
        import uvloop
    except ImportError:
        asyncio.run(_served(config))
    else:
        uvloop.run(_served(config))


async def _served(config: ServiceConfig) -> None:
    await serve(config)
    if left_alone():
        # All is closed and said. The end of the loop would wait for hooks that hear no cancellation, for ever.
        sys.stdout.flush()
        os._exit(0)


def _make_room() -> None:
    """Every connection is an open file, and the usual allowance of these is small."""
    try:
        import resource
    except ImportError:
        return  # there is no such allowance here
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _server(config: ServiceConfig, ledger: Ledger, log: Log, listener: socket.socket) -> Server:
    def ready() -> None:
        print(ready_line(config, address(listener), ledger.durability), flush=True)

    def refused(request_id: str, status: int) -> None:
        if config.log_requests != "none":
            log.refused(request_id, status)
        app.refused(status)

    observe = {"all": log.request, "failed": log.failure, "none": unobserved}[config.log_requests]
    app = App(ledger, config=config, observe=observe)
    settings = uvicorn.Config(
        Cors(app, config.cors_origins) if config.cors_origins else app,
        http=guarded(config, refused),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=config.drain_seconds_max,  # type: ignore[arg-type]  # fractions are fine
    )
    return Server(
        settings,
        ready=ready,
        release=ledger._host.release_waiters,
        # Before the drain ends, so that whoever waits for a preparation still hears what became of it.
        leave=lambda: app.preparations.leave(config.drain_seconds_max * PREPARATIONS_SHARE),
    )
