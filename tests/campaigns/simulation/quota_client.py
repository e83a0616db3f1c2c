"""Operations of a client with quotas: reserve slots, use or lose them, change limits, reconcile usage."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onejob.core.facts import Kind
from onejob.core.identity import encode_reservation_id
from onejob.core.limits import Limits, encode_limits
from onejob.core.replies import SlotHeld, UsageFound
from onejob.core.reserve import Verdict
from onejob.core.slots import (
    ConsumeSlot,
    LookUpUsage,
    Reconcile,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
    slots_and_cost_held,
)
from onejob.engine import PAGE_MAX, ListFacts
from onejob.engines.gate import Gate

from .plan import Op
from .process import CallResults

if TYPE_CHECKING:
    from .client_protocol import ClientProtocol
else:
    ClientProtocol = object


class QuotaClient(ClientProtocol):
    async def reserve_slot(self, op: Op) -> None:
        """Reserve a slot, renew it, then use, release or abandon it."""
        if not self.usage_id:
            return
        name = encode_reservation_id(self.usage_id, self.simulation.ids.job_id())
        ids: dict[str, Any] = {"tenant": self.tenant, "usage_id": self.usage_id, "policy_id": self.policy_id}
        limit = 1 + op.body if op.is_repeated else None
        reply = await self.ask_until_answered(
            ReserveSlot(**ids, user=self.user, reservation=name, ttl_ms=op.lease_ms, max_concurrent=limit)
        )
        if not isinstance(reply, SlotHeld):
            return
        for _ in range(op.renewals):
            await asyncio.sleep(op.think_ms / 1000)
            await self.ask(RenewSlot(**ids, reservation=name, ttl_ms=op.lease_ms))
        await asyncio.sleep(op.think_ms / 1000)
        await self._finish_slot(op, ids | {"reservation": name})

    async def _finish_slot(self, op: Op, ids: dict[str, Any]) -> None:
        match op.verdict:
            case Verdict.COMMIT if op.is_repeated:
                job_id = self.simulation.job_ids_by_key.get(self._record_id(op), b"")
                await self.ask_until_answered(ConsumeSlot(**ids, job_id=job_id))
            case Verdict.COMMIT:
                await self.ask_until_answered(replace(self._build_submit(op), reservation=ids["reservation"]))
            case Verdict.REJECT:
                await self.ask_until_answered(ReleaseSlot(**ids))
                await self.ask(ReleaseSlot(**ids))
            case Verdict.FAIL:
                await self.ask_until_answered(ConsumeSlot(**ids))

    async def set_limits(self, op: Op) -> None:
        if self.usage_id:
            limits = b"" if op.is_repeated else encode_limits(Limits(max_concurrent=2 * op.body, jobs_per_hour=40))
            ids: dict[str, Any] = {
                "tenant": self.tenant,
                "usage_id": self.usage_id,
                "policy_id": self.policy_id,
            }
            await self.ask_until_answered(SetLimits(**ids, user=self.user, limits=limits))

    async def reconcile(self, op: Op) -> None:
        """Reconcile as maintenance does: jobs are read without a lock, and the version shows whether they changed."""
        if not self.usage_id:
            return
        ids: dict[str, Any] = {"tenant": self.tenant, "usage_id": self.usage_id, "policy_id": self.policy_id}
        found = await self.ask_until_answered(LookUpUsage(**ids))
        if not isinstance(found, UsageFound) or found.usage is None:
            return
        counted_jobs: list[tuple[int, int, bool]] = []

        async def work(gate: Gate) -> CallResults:
            page = await gate.scan(ListFacts(tenant=self.tenant, kind=Kind.JOB, limit=PAGE_MAX))
            jobs: Any = page.items
            counted_jobs.extend(
                (*slots_and_cost_held(job, self.usage_id), job.usage_id == self.usage_id) for job in jobs
            )
            return [found]

        if await self._send(work) == [found]:
            live, cost_held, jobs_counted = map(sum, zip(*counted_jobs, strict=True)) if counted_jobs else (0, 0, 0)
            counts: dict[str, Any] = {"live": live, "cost_held": cost_held, "jobs_counted": jobs_counted}
            await self.ask(Reconcile(**ids, expected_version=found.usage.version, **counts))
