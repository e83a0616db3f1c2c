"""Announces a worker to operators while it runs: who it is, which types it runs, how much it does."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version

from msgspec.structs import replace

from onejob.engine import Engine
from onejob.errors import OnejobError
from onejob.ledger.workers import ANNOUNCE_SECONDS, WorkerInfo, announce_worker, withdraw_worker

_HOST_CHARS_MAX = 64
_WITHDRAW_SECONDS = 2.0

log = logging.getLogger("onejob.worker")


class Presence:
    def __init__(
        self,
        engine: Engine,
        *,
        id: str,
        name: str,
        types: tuple[str, ...],
        concurrency: int,
        tenant: str | None,
        running: Callable[[], int],
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        self._engine = engine
        self._running = running
        self._counts = counts
        self._info = WorkerInfo(
            id=id,
            name=name,
            host=socket.gethostname()[:_HOST_CHARS_MAX],
            pid=os.getpid(),
            version=version("onejob"),
            types=types,
            concurrency=concurrency,
            running=0,
            ended={},
            started_at=0,
            tenant=tenant,
        )

    async def announce_until_cancelled(self) -> None:
        """An operator's list is not worth an outage: what cannot be announced now is announced later."""
        while True:
            info = replace(self._info, running=self._running(), ended=dict(self._counts()))
            try:
                now = await announce_worker(self._engine, info)
                if not self._info.started_at:
                    self._info = replace(self._info, started_at=now)
            except OnejobError as error:
                log.debug("announcing the worker failed, will retry: %s", error)
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def withdraw(self) -> None:
        with suppress(OnejobError, TimeoutError):
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await withdraw_worker(self._engine, self._info)
