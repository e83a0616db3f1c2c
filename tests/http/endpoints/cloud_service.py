"""Helpers for tests of the cloud contract: a service, blockable hooks, limits of a user."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import onejob
from onejob.core.identity import policy_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, encode_limits
from onejob.core.quota import UsageCounts, current_counts
from onejob.core.replies import UsageFound
from onejob.core.slots import LookUpUsage, SetLimits
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.endpoints.preparation import Preparation
from onejob.ledger.service import ServiceLedger
from tests.support.app_server import Client, serve_app

PATH = "/api/cloud/jobs/submit?provider="
CONFIG = {"config_name_to_load": "flux-lora"}


class CloudReply(NamedTuple):
    success: bool
    job_id: str | None
    status: str | None
    data_uploaded: bool
    idempotent_hit: bool
    error: str | None
    quota_warnings: list[str]
    cost_limit_warning: str | None


class CloudService:
    """A server, its ledger, and a client of the contract."""

    def __init__(self, client: Client, ledger: onejob.Ledger, app: HttpApp) -> None:
        self.client = client
        self.ledger = ledger
        self.app = app

    async def submit(
        self, key: str | None = None, *headers: bytes, provider: str = "replicate", **members: Any
    ) -> CloudReply:
        body = {**CONFIG, **members} | ({} if key is None else {"idempotency_key": key})
        return await self.submit_raw(json.dumps(body).encode(), *headers, provider=provider)

    async def submit_raw(self, body: bytes, *headers: bytes, provider: str = "replicate") -> CloudReply:
        reply = await self.client.ask("POST", PATH + provider, body, *headers)
        assert reply.status == 200
        assert tuple(reply.body) == CloudReply._fields
        return CloudReply(**reply.body)

    async def job(self, reply: CloudReply) -> onejob.Job:
        assert reply.job_id
        return await self.ledger.job(reply.job_id)

    async def set_limits(self, **limits: Any) -> None:
        await set_limits(self.ledger, **limits)

    async def usage_counts(self) -> UsageCounts:
        reply = await self.ledger._execute(LookUpUsage(tenant="default", usage_id=usage_id("default", "local")))
        assert isinstance(reply, UsageFound)
        assert reply.usage is not None
        return current_counts(reply.usage, reply.at)


async def set_limits(ledger: onejob.Ledger, user: str = "local", **limits: Any) -> None:
    await ledger._execute(
        SetLimits(
            tenant="default",
            usage_id=usage_id("default", user),
            policy_id=policy_id("default", QUOTA_POLICY_NAME),
            user=user,
            limits=encode_limits(Limits(**limits)),
        )
    )


@asynccontextmanager
async def run_cloud_service(
    url: str, *, lease: float = 30.0, config: ServiceConfig | None = None, **hooks: Any
) -> AsyncIterator[CloudService]:
    keys = onejob.IdempotencyConfig(pending_ttl_seconds=lease, cleanup_interval_seconds=60)
    async with onejob.open(url, config=keys) as opened:
        ledger = ServiceLedger.of(opened)
        app = HttpApp(ledger, config=config, prepare=hooks)
        async with serve_app(app) as client:
            yield CloudService(client, ledger, app)
            await app.preparations.shut_down(0)


class BlockableHook:
    """An async hook that waits for the test."""

    def __init__(self) -> None:
        self.preparations: list[Preparation] = []
        self.started = asyncio.Event()
        self.proceed = asyncio.Event()
        self.error: Exception | None = None
        self.result: Any = None

    async def __call__(self, preparation: Preparation) -> Any:
        self.preparations.append(preparation)
        self.started.set()
        await self.proceed.wait()
        if self.error is not None:
            raise self.error
        return self.result


class BlockableThreadHook:
    """A plain hook that waits for the test, in its thread."""

    def __init__(self) -> None:
        self.preparations: list[Preparation] = []
        self.started = threading.Event()
        self.proceed = threading.Event()

    def __call__(self, preparation: Preparation) -> None:
        self.preparations.append(preparation)
        self.started.set()
        assert self.proceed.wait(60)


def start_submission(service: CloudService, key: str | None = "k", **members: Any) -> "asyncio.Task[CloudReply]":
    return asyncio.create_task(service.submit(key, **members))


async def wait_until(happened: Any, seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.005)
