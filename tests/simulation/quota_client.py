"""A client that knows quotas: it reserves slots, uses or loses them, changes limits, and counts again."""

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
        """Take one, keep it for a while, then use it, give it back, or go away without a word."""
        if not self.usage_id:
            return
        name = encode_reservation_id(self.usage_id, self.simulation.ids.job_id())
        of: dict[str, Any] = {"tenant": self.tenant, "usage_id": self.usage_id, "policy_id": self.policy_id}
        most = 1 + op.body if op.is_repeated else None
        taken = await self.ask_until_answered(
            ReserveSlot(**of, user=self.user, reservation=name, ttl_ms=op.lease_ms, max_concurrent=most)
        )
        if not isinstance(taken, SlotHeld):
            return
        for _ in range(op.renewals):
            await asyncio.sleep(op.think_ms / 1000)
            await self.ask(RenewSlot(**of, reservation=name, ttl_ms=op.lease_ms))
        await asyncio.sleep(op.think_ms / 1000)
        await self._finish_slot(op, of | {"reservation": name})

    async def _finish_slot(self, op: Op, of: dict[str, Any]) -> None:
        match op.verdict:
            case Verdict.COMMIT if op.is_repeated:
                job_id = self.simulation.job_ids_by_key.get(self._record_id(op), b"")
                await self.ask_until_answered(ConsumeSlot(**of, job_id=job_id))
            case Verdict.COMMIT:
                await self.ask_until_answered(replace(self._build_submit(op), reservation=of["reservation"]))
            case Verdict.REJECT:
                await self.ask_until_answered(ReleaseSlot(**of))
                await self.ask(ReleaseSlot(**of))
            case Verdict.FAIL:
                await self.ask_until_answered(ConsumeSlot(**of))

    async def set_limits(self, op: Op) -> None:
        if self.usage_id:
            limits = b"" if op.is_repeated else encode_limits(Limits(max_concurrent=2 * op.body, jobs_per_hour=40))
            of: dict[str, Any] = {
                "tenant": self.tenant,
                "usage_id": self.usage_id,
                "policy_id": self.policy_id,
            }
            await self.ask_until_answered(SetLimits(**of, user=self.user, limits=limits))

    async def reconcile(self, op: Op) -> None:
        """As upkeep does: the jobs are read without a lock, and the version tells whether that was fair."""
        if not self.usage_id:
            return
        of: dict[str, Any] = {"tenant": self.tenant, "usage_id": self.usage_id, "policy_id": self.policy_id}
        found = await self.ask_until_answered(LookUpUsage(**of))
        if not isinstance(found, UsageFound) or found.usage is None:
            return
        held: list[tuple[int, int, bool]] = []

        async def work(gate: Gate) -> CallResults:
            page = await gate.scan(ListFacts(tenant=self.tenant, kind=Kind.JOB, limit=PAGE_MAX))
            jobs: Any = page.items
            held.extend((*slots_and_cost_held(job, self.usage_id), job.slot == self.usage_id) for job in jobs)
            return [found]

        if await self._send(work) == [found]:
            live, money, marked = (sum(one[n] for one in held) for n in range(3))
            counts: dict[str, Any] = {"live": live, "cost_held": money, "jobs_counted": marked}
            await self.ask(Reconcile(**of, expected_version=found.usage.version, **counts))
