"""Delivers submissions to other data centres, and asks them how the jobs stand, over the wire of their managers.

A delivery is a job of the home (core/sites.py), which this process claims, sends and reports. It is never started, so
a claim that a crash interrupted can be taken by anybody once its lease has ended. Each site has a loop of its own: one that
hangs delays no other. What is sent and what an answer means is decided in core/site_delivery.py.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from onejob.backoff import Backoff
from onejob.core.command import Command, is_settings_refusal
from onejob.core.facts import Job
from onejob.core.identity import record_id
from onejob.core.ledger_settings import decode_settings, is_closed
from onejob.core.lookup import LookUpJob
from onejob.core.replies import Found
from onejob.core.site_delivery import (
    ReportDelivery,
    answer_after,
    answer_with_home,
    command_for_site,
    failed_answer,
    question_after,
    unknown_answer,
)
from onejob.core.sites import UNKNOWN, SiteAnswer, SiteDelivery, decode_answer, decode_delivery, site_type
from onejob.engine import Engine, ListInputs
from onejob.engines.gate import Gate
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.messages import SITE_BODY_BYTES_MAX
from onejob.errors import OnejobError, PartlyDone, StoreRefused, TenantRefused, Unavailable, Unknown
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.runtime.claims import ClaimedJob
from onejob.runtime.service_loop import ServiceLoop

from .config import SiteConfig, SitesConfig

DELIVERIES_AT_ONCE_MAX = 50
INPUT_BYTES_AT_ONCE_MAX = SITE_BODY_BYTES_MAX // 2  # of one request
LEASE_MS = 20_000
SECONDS_MAX = 10.0  # of a request to a site; it is repeated
PAUSE_FIRST = 0.1
PAUSE_MAX = 1.0
HOME_SECONDS_MAX = 5.0  # of the question where another job is at home; with the request it stays within the lease

log = logging.getLogger("onejob.http")


@asynccontextmanager
async def site_delivery(ledger: Ledger, config: SitesConfig) -> AsyncIterator[None]:
    """Deliver to these sites inside this context."""
    runtime = runtime_of(ledger)
    senders = [
        SiteSender(name, site, runtime.gate, runtime.ids, retention_ms=runtime.retention_ms)
        for name, site in config.ledgers.items()
    ]
    tasks = [asyncio.create_task(sender.run()) for sender in senders]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class PreparedDelivery(NamedTuple):
    """A claimed delivery, and what is sent for it: None if nothing is."""

    job: Job
    delivery: SiteDelivery
    earlier: SiteAnswer
    at: int  # the time of the home
    command: Command[Any] | None


class SiteSender:
    """The deliveries to one site."""

    def __init__(self, name: str, site: SiteConfig, gate: Gate, ids: Ids, *, retention_ms: int) -> None:
        self._name = name
        self._site = site
        self._gate = gate
        self._loop = ServiceLoop(
            f"delivery to site {name}",
            gate,
            ids,
            type=site_type(name),
            lease_ms=LEASE_MS,
            start=False,
            room=lambda _: DELIVERIES_AT_ONCE_MAX,
            handle=self._handle,
            backoff=Backoff(PAUSE_FIRST, PAUSE_MAX),
            retention_ms=retention_ms,
        )
        self._retention_ms = retention_ms
        self._engine: Engine | None = None
        self._is_lost = False

    async def run(self) -> None:
        try:
            await self._loop.run()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        self._loop.close()
        await self._disconnect()

    async def deliver_ready(self) -> int:
        """Deliver what is ready, some of each tenant; returns how many there were."""
        return await self._loop.run_once()

    async def _handle(self, claimed: Sequence[ClaimedJob]) -> None:
        tenant = claimed[0].job.tenant
        known = [(claim, decode_delivery(claim.input)) for claim in claimed]
        unreadable = [claim for claim, delivery in known if delivery is None]
        if unreadable:
            log.warning("%d jobs for site %s have an unreadable input; marked failed", len(unreadable), self._name)
            await self._gate.execute([self._unreadable_report(tenant, claim) for claim in unreadable])
        deliveries = [(claim, delivery) for claim, delivery in known if delivery is not None]
        if deliveries:
            await self._deliver(tenant, deliveries)

    def _unreadable_report(self, tenant: str, claimed: ClaimedJob) -> ReportDelivery:
        """It ends this job alone: which job it should deliver is not known."""
        answer = SiteAnswer(UNKNOWN, claimed.at, "its input is not a delivery", claimed.at)
        return self._report(tenant, claimed.job, claimed.job.id, 0, answer)

    def _report(self, tenant: str, job: Job, home_id: bytes, deliveries: int, answer: SiteAnswer) -> ReportDelivery:
        return ReportDelivery(
            tenant=tenant,
            job_id=job.id,
            token=job.token,
            holder=job.holder,
            home_id=home_id,
            deliveries=deliveries,
            answer=answer,
            retention_ms=self._retention_ms,
        )

    async def _deliver(self, tenant: str, claimed: Sequence[tuple[ClaimedJob, SiteDelivery]]) -> None:
        try:
            engine = await self._connect()
            settings = await self._load_settings(engine)
        except OnejobError as error:
            answers = [_failed(claim, delivery, error) for claim, delivery in claimed]
        else:
            answers = await self._send(engine, await self._prepare(tenant, claimed, settings))
        await self._gate.execute(
            [
                self._report(tenant, claim.job, delivery.job_id, delivery.deliveries, answer)
                for (claim, delivery), answer in zip(claimed, answers, strict=True)
            ]
        )

    async def _load_settings(self, engine: Engine) -> bytes:
        """What proves the settings of the site's ledger, as its manager has last said."""
        owner = engine.info.owner
        settings = owner.settings if owner is not None else b""
        if not settings or is_closed(settings):
            await self._disconnect()  # the next hello has the new ones
            raise Unavailable(f"the settings of the ledger of site {self._name} are being changed; retry")
        return settings

    async def _prepare(
        self, tenant: str, claimed: Sequence[tuple[ClaimedJob, SiteDelivery]], settings: bytes
    ) -> list[PreparedDelivery]:
        """What to send, from the jobs as they are now."""
        deliveries = [delivery for _, delivery in claimed]
        replies = await self._gate.execute([LookUpJob(tenant=tenant, job_id=wanted.job_id) for wanted in deliveries])
        homes = {reply.job.id: reply.job for reply in replies if isinstance(reply, Found) and reply.job is not None}
        job_ids = tuple(sorted(homes))
        page = await self._gate.scan(ListInputs(job_ids=job_ids, limit=max(len(job_ids), 1)))
        inputs = {item.job_id: item.data for item in page.items}
        owns_keys = decode_settings(settings).owns_keys
        prepared: list[PreparedDelivery] = []
        for (claim, delivery), reply in zip(claimed, replies, strict=True):
            earlier, home, at = decode_answer(claim.job), homes.get(delivery.job_id), getattr(reply, "at", claim.at)
            command = None
            if home is not None and home.id in inputs:
                owner = home.user if owns_keys else ""
                identity = record_id(home.tenant, home.scope, home.key, owner)
                command = command_for_site(
                    delivery, earlier, home, inputs[home.id], at, record_id=identity, settings=settings
                )
            prepared.append(PreparedDelivery(claim.job, delivery, earlier, at, command))
        return prepared

    async def _send(self, engine: Engine, batch: Sequence[PreparedDelivery]) -> list[SiteAnswer]:
        commands = [prepared.command for prepared in batch if prepared.command is not None]
        results: list[Any] = []
        try:
            async with asyncio.timeout(SECONDS_MAX):
                for part in _parts(commands):
                    results += await _execute_each(engine, part)
            self._note_reached()
            if any(map(is_settings_refusal, results)):
                await self._disconnect()  # the next hello has the new settings
        except (OnejobError, TimeoutError) as error:
            self._note_lost(error)
            await self._disconnect()  # the next one reads the credential again
            results += [error] * (len(commands) - len(results))
        remaining = iter(results)
        answers = [_answer(prepared, None if prepared.command is None else next(remaining)) for prepared in batch]
        return await self._find_homes(engine, batch[0].job.tenant, answers)

    async def _find_homes(self, engine: Engine, tenant: str, answers: list[SiteAnswer]) -> list[SiteAnswer]:
        """Ask whether this site is the home of the other jobs. Without an answer they are shown as jobs of this site."""
        questions = [question_after(answer, tenant) for answer in answers]
        asked = [question for question in questions if question is not None]
        if not asked:
            return answers
        try:
            async with asyncio.timeout(HOME_SECONDS_MAX):
                replies = iter(await _execute_each(engine, asked))
        except (OnejobError, TimeoutError):
            return answers
        return [
            answer if question is None else answer_with_home(answer, next(replies))
            for answer, question in zip(answers, questions, strict=True)
        ]

    async def _connect(self) -> Engine:
        if self._engine is None:
            try:
                self._engine = await RemoteEngine.open(self._site.managers, gate_key=self._site.read_gate_key())
            except (OnejobError, OSError, ValueError) as error:
                self._note_lost(error)
                raise error if isinstance(error, OnejobError) else Unavailable(str(error)) from error
        return self._engine

    async def _disconnect(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(OnejobError):
                await engine.aclose()

    def _note_reached(self) -> None:
        if self._is_lost:
            log.warning("site %s is reachable again", self._name)
        self._is_lost = False

    def _note_lost(self, error: Exception) -> None:
        if not self._is_lost:
            log.warning("site %s cannot be reached, will retry: %s", self._name, error)
        self._is_lost = True


def _parts(commands: Sequence[Command[Any]]) -> list[list[Command[Any]]]:
    """The commands in order, cut into requests that are not too large."""
    parts: list[list[Command[Any]]] = []
    room = 0
    for command in commands:
        room -= command.payload_bytes
        if not parts or room < 0:
            parts.append([])
            room = INPUT_BYTES_AT_ONCE_MAX - command.payload_bytes
        parts[-1].append(command)
    return parts


async def _execute_each(engine: Engine, commands: Sequence[Command[Any]]) -> Sequence[Any]:
    """Each command's reply or its own failure."""
    try:
        return await engine.execute(commands)
    except PartlyDone as error:
        return error.results


def _failed(claimed: ClaimedJob, delivery: SiteDelivery, error: OnejobError) -> SiteAnswer:
    """The answer of a site that was not reached at all."""
    earlier = decode_answer(claimed.job)
    if claimed.at > (delivery.follow_until if earlier.state else delivery.deliver_until):
        return unknown_answer(earlier, claimed.at)
    return failed_answer(earlier, str(error), claimed.at, is_refused=isinstance(error, StoreRefused))


def _answer(prepared: PreparedDelivery, result: Any) -> SiteAnswer:
    match result:
        case None:
            return unknown_answer(prepared.earlier, prepared.at)
        case TenantRefused():
            return failed_answer(prepared.earlier, str(result), prepared.at, is_refused=True)
        case Unavailable() | Unknown() | OnejobError():
            return failed_answer(prepared.earlier, str(result), prepared.at)
        case BaseException():
            return failed_answer(prepared.earlier, f"no answer within {SECONDS_MAX:g} s", prepared.at)
    return answer_after(result, prepared.earlier, prepared.delivery.job_id, prepared.at)
