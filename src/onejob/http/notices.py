"""Runs notices: tells submitters that their jobs have ended, at least once, in one process at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import json

from onejob.claiming import ClaimedJob, ClaimRequest, Claims
from onejob.clock import SystemClock
from onejob.core.facts import Job
from onejob.core.finish import Finish, FinishOutcome
from onejob.core.identity import CALLBACK_TYPE
from onejob.core.ids import format_job_id
from onejob.core.lookup import LookUpJob
from onejob.core.notice import CallbackInput
from onejob.core.receipt import Found
from onejob.core.views import JobView
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.webhooks import DELIVERY_HEADER, SIGNATURE_HEADER, load_secrets, sign

from .config import ServiceConfig
from .metrics import VERSION
from .posting import PostFailed, post
from .wire import JobOut, ResponseBody, job_out

CALLBACKS_AT_ONCE_MAX = 20
LEASE_MS = 60_000
PAUSE_FIRST = 0.2
PAUSE_MAX = 2.0
ACTOR = "system:notices"

log = logging.getLogger("onejob.http")


class CallbackOut(ResponseBody, frozen=True, rename="camel"):
    """What a submitter's URL is told."""

    delivery: str  # the same on every repetition
    job: JobOut


@asynccontextmanager
async def callback_delivery(ledger: Ledger, config: ServiceConfig) -> AsyncIterator[None]:
    """Notices are run while somebody is inside, where the service sends any."""
    if config.callbacks == "none":
        yield
        return
    notifier = CallbackSender(
        ledger._runtime.gate, ledger._runtime.ids, allow_private=config.callbacks == "any"
    )
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()  # what was being told is told again, when its lease has ended
        with suppress(asyncio.CancelledError):
            await task


class CallbackSender:
    def __init__(self, gate: Gate, ids: Ids, *, allow_private: bool) -> None:
        self._gate = gate
        self._claims = Claims(gate, ids)  # its own, so that tenants take their turns apart from other work
        self._ids = ids
        self._allow_private = allow_private

    async def run(self) -> None:
        pause = PAUSE_FIRST
        while True:
            try:
                pause = PAUSE_FIRST if await self.deliver_ready() else min(pause * 2, PAUSE_MAX)
            except OnejobError as error:
                log.warning("notices were put off: %s", error)
                pause = PAUSE_MAX
            except Exception:
                log.exception("notices failed")
                pause = PAUSE_MAX
            await asyncio.sleep(pause)

    async def deliver_ready(self) -> int:
        """Run the notices that are ready; how many there were."""
        wanted = ClaimRequest(
            types=(CALLBACK_TYPE,),
            holder=self._ids.holder(),
            limit=CALLBACKS_AT_ONCE_MAX,
            lease_ms=LEASE_MS,
            start=True,
        )
        taken = await self._claims.claim(wanted)
        await asyncio.gather(*map(self._run_callback, taken))
        return len(taken)

    async def _run_callback(self, claimed: ClaimedJob) -> None:
        notice = claimed.job
        error, final = "", False
        try:
            await self._deliver(notice, json.decode(claimed.input, type=CallbackInput))
        except PostFailed as failed:
            error = str(failed)
        except OnejobError as failed:
            error, final = "the job is gone", not failed.retryable
        ends = FinishOutcome.FAILED if error else FinishOutcome.SUCCESS
        await self._gate.execute(
            [
                Finish(
                    tenant=notice.tenant,
                    job_id=notice.id,
                    token=notice.token,
                    holder=notice.holder,
                    outcome=ends,
                    error=error,
                    final=final,
                    actor=ACTOR,
                )
            ]
        )

    async def _deliver(self, callback_job: Job, callback: CallbackInput) -> None:
        tenant = callback_job.tenant
        (found,) = await self._gate.execute([LookUpJob(tenant=tenant, job_id=callback.job_id)])
        if not isinstance(found, Found) or found.job is None:
            raise OnejobError("the job is gone")
        secrets = await load_secrets(self._gate, tenant)
        if not secrets:
            raise PostFailed("the tenant has no webhook secret; make one with `onejob webhook-secret create`")
        body = json.encode(CallbackOut(format_job_id(callback_job.id), job_out(JobView(found.job))))
        headers = {
            "User-Agent": f"onejob/{VERSION}",
            DELIVERY_HEADER: format_job_id(callback_job.id),
            SIGNATURE_HEADER: sign(secrets, body, SystemClock().wall_ms() // 1000),
        }
        status = await post(callback.url, body, headers, allow_private=self._allow_private)
        if not 200 <= status < 300:
            raise PostFailed(f"answered {status}")
