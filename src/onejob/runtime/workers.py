"""Which worker processes there are: each announces itself in a small policy that expires when it stops doing so."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version

from msgspec import Struct, json
from msgspec.structs import replace

from onejob.core.credentials import DropPolicy, SetPolicy
from onejob.core.identity import SYSTEM_TENANT, policy_id
from onejob.core.replies import PolicyFound
from onejob.core.timestamps import to_utc
from onejob.engine import Engine
from onejob.errors import OnejobError
from onejob.resources.operators import WorkerView

from .policies import decode_body, list_policies
from .present import to_exception

WORKER_POLICY_PREFIX = "worker/"
ANNOUNCE_SECONDS = 20.0
_TTL_MS = 60_000
TYPES_MAX = 100  # of one worker that are announced
_HOST_CHARS_MAX = 64
_WITHDRAW_SECONDS = 2.0

log = logging.getLogger("onejob")


class WorkerInfo(Struct, frozen=True, rename="camel"):
    """A worker process as it announced itself."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    concurrency: int
    running: int
    ended: dict[str, int]  # attempts since its start, by outcome
    started_at: int
    tenant: str | None  # None: it serves all tenants
    seen_at: int = 0


async def announce_worker(engine: Engine, info: WorkerInfo) -> int:
    """Say that the worker is there; returns the engine's time."""
    tenant = SYSTEM_TENANT if info.tenant is None else info.tenant
    name = WORKER_POLICY_PREFIX + info.id
    body = json.encode(replace(info, types=info.types[:TYPES_MAX]))
    (reply,) = await engine.execute(
        [SetPolicy(tenant=tenant, policy_id=policy_id(tenant, name), name=name, body=body, ttl_ms=_TTL_MS)]
    )
    if not isinstance(reply, PolicyFound):
        raise to_exception(reply, "")
    return reply.at


async def withdraw_worker(engine: Engine, info: WorkerInfo) -> None:
    tenant = SYSTEM_TENANT if info.tenant is None else info.tenant
    await engine.execute([DropPolicy(tenant=tenant, policy_id=policy_id(tenant, WORKER_POLICY_PREFIX + info.id))])


async def list_workers(engine: Engine, tenant: str) -> list[WorkerInfo]:
    """The workers of a tenant, and those that serve all tenants."""
    policies = [
        policy
        for owner in dict.fromkeys((tenant, SYSTEM_TENANT))
        for policy in await list_policies(engine, owner, WORKER_POLICY_PREFIX)
    ]
    return [replace(decode_body(policy, WorkerInfo), seen_at=policy.changed_at) for policy in policies]


def to_worker_view(info: WorkerInfo) -> WorkerView:
    return WorkerView(
        id=info.id,
        name=info.name,
        host=info.host,
        pid=info.pid,
        version=info.version,
        types=info.types,
        concurrency=info.concurrency,
        running=info.running,
        ended=info.ended,
        all_tenants=info.tenant is None,
        started_at=to_utc(info.started_at or info.seen_at),
        seen_at=to_utc(info.seen_at),
    )


class WorkerPresence:
    """Announces one worker while it runs: its name, which types it runs, how much it does."""

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
                log.debug("announcing a worker failed, will retry: %s", error)
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def withdraw(self) -> None:
        with suppress(OnejobError, TimeoutError):
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await withdraw_worker(self._engine, self._info)
