"""Runs notices: tells submitters that their jobs have ended, at least once, in one process at a time."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import json

from onejob.claiming import Claims, Taken, Wanted
from onejob.clock import SystemClock
from onejob.core.facts import Job
from onejob.core.finish import Ends, Finish
from onejob.core.identity import NOTICE_TYPE
from onejob.core.ids import text_of
from onejob.core.lookup import LookUpJob
from onejob.core.notice import Notice
from onejob.core.receipt import Found
from onejob.core.views import JobView
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.webhooks import DELIVERY_HEADER, SIGNATURE_HEADER, secrets_of, signature

from .config import ServiceConfig
from .metrics import VERSION
from .posting import NotPosted, post
from .wire import Body, JobOut, job_out

AT_ONCE_MAX = 20
LEASE_MS = 60_000
PAUSE_FIRST = 0.2
PAUSE_MAX = 2.0
ACTOR = "system:notices"

log = logging.getLogger("onejob.http")


class NoticeOut(Body, frozen=True, rename="camel"):
    """What a submitter's URL is told."""

    delivery: str  # the same on every repetition
    job: JobOut


@asynccontextmanager
async def noticing(ledger: Ledger, config: ServiceConfig) -> AsyncIterator[None]:
    """Notices are run while somebody is inside, where the service sends any."""
    if config.callbacks == "none":
        yield
        return
    notifier = Notifier(ledger._host.gate, ledger._host.ids, allow_private=config.callbacks == "any")
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()  # what was being told is told again, when its lease has ended
        with suppress(asyncio.CancelledError):
            await task


class Notifier:
    def __init__(self, gate: Gate, ids: Ids, *, allow_private: bool) -> None:
        self._engine = gate
        self._claims = Claims(gate, ids)  # its own, so that tenants take their turns apart from other work
        self._ids = ids
        self._allow_private = allow_private

    async def run(self) -> None:
        pause = PAUSE_FIRST
        while True:
            try:
                pause = PAUSE_FIRST if await self.round() else min(pause * 2, PAUSE_MAX)
            except OnejobError as error:
                log.warning("notices were put off: %s", error)
                pause = PAUSE_MAX
            except Exception:
                log.exception("notices failed")
                pause = PAUSE_MAX
            await asyncio.sleep(pause)

    async def round(self) -> int:
        """Run the notices that are ready; how many there were."""
        wanted = Wanted(
            types=(NOTICE_TYPE,),
            holder=self._ids.holder(),
            limit=AT_ONCE_MAX,
            lease_ms=LEASE_MS,
            start=True,
        )
        taken = await self._claims.claim(wanted)
        await asyncio.gather(*map(self._tell, taken))
        return len(taken)

    async def _tell(self, taken: Taken) -> None:
        notice = taken.job
        error, final = "", False
        try:
            await self._deliver(notice, json.decode(taken.input, type=Notice))
        except NotPosted as failed:
            error = str(failed)
        except OnejobError as failed:
            error, final = "the job is gone", not failed.retryable
        ends = Ends.FAILED if error else Ends.SUCCESS
        await self._engine.execute(
            [
                Finish(
                    tenant=notice.tenant,
                    job_id=notice.id,
                    token=notice.token,
                    holder=notice.holder,
                    ends=ends,
                    error=error,
                    final=final,
                    actor=ACTOR,
                )
            ]
        )

    async def _deliver(self, notice: Job, said: Notice) -> None:
        tenant = notice.tenant
        (found,) = await self._engine.execute([LookUpJob(tenant=tenant, job_id=said.job_id)])
        if not isinstance(found, Found) or found.job is None:
            raise OnejobError("the job is gone")
        secrets = await secrets_of(self._engine, tenant)
        if not secrets:
            raise NotPosted("the tenant has no webhook secret; make one with `onejob webhook-secret create`")
        body = json.encode(NoticeOut(text_of(notice.id), job_out(JobView(found.job))))
        headers = {
            "User-Agent": f"onejob/{VERSION}",
            DELIVERY_HEADER: text_of(notice.id),
            SIGNATURE_HEADER: signature(secrets, body, SystemClock().wall_ms() // 1000),
        }
        status = await post(said.url, body, headers, allow_private=self._allow_private)
        if not 200 <= status < 300:
            raise NotPosted(f"answered {status}")
