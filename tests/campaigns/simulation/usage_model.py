"""Quotas in the model: usage is counted again from lists for each decision, written from the design."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from .model_state import ModelJob, ModelState

MINUTE, HOUR = 60_000, 3_600_000
LIVE = ("scheduled", "pending", "running")
HOLDING_MONEY = (*LIVE, "lost")
COUNT_LIMITS = ("max_concurrent", "jobs_per_hour", "jobs_per_day")


@dataclass(slots=True)
class ModelSlot:
    """A slot with a deadline: a reservation, or that of a job which is being prepared."""

    expires_at: int
    state: str = "active"
    cost: int = 0
    job: str = ""


@dataclass(slots=True)
class UserUsage:
    """A user with quotas: reservations, and all submissions and costs so far."""

    changed_at: int
    limits: bytes = b""
    slots: dict[str, ModelSlot] = field(default_factory=dict)
    submitted: list[tuple[int, int]] = field(default_factory=list)  # when, how many
    costs: list[tuple[int, int]] = field(default_factory=list)  # when, how much

    def slot(self, name: str, now: int) -> ModelSlot | None:
        one = self.slots.get(name)
        return one if one is not None and now <= one.expires_at else None

    def active_slots(self, now: int) -> list[ModelSlot]:
        return [slot for slot in self.slots.values() if slot.state == "active" and now <= slot.expires_at]

    def jobs_within(self, now: int, step: int, steps: int) -> int:
        """Jobs submitted in the last `steps` minutes or hours, the current one included."""
        return sum(many for when, many in self.submitted if now // step - when // step < steps)

    def spent(self, now: int, period: str) -> int:
        return sum(amount for when, amount in self.costs if _period_of(when, period) == _period_of(now, period))


@dataclass(slots=True)
class ModelPolicy:
    body: bytes
    changed_at: int
    version: int = 1


@dataclass(slots=True)
class QuotaRequest:
    """What a command requests from the quota of a user."""

    jobs: int = 1
    cost: int = 0
    reservation: str = ""  # a reserved slot to use
    until: int = 0  # 0: the slot of a job; else a deadline, with `slot_name`
    slot_name: str = ""
    job: str = ""
    counts_rate: bool = True  # counts towards the hourly and daily limits
    reclaims_own_slot: bool = False  # takes back the slot of its preparation
    had_slot: bool = False
    caller_limit: int | None = None  # limit of the reservation request itself


class UsageModel(ModelState):
    def __init__(self) -> None:
        super().__init__()
        self.usages: dict[bytes, UserUsage] = {}
        self.policies: dict[bytes, ModelPolicy] = {}

    def decision_time(self, now: int, *, usage: bytes = b"", policy: bytes = b"") -> int:
        usage_row, policy_row = self.usages.get(usage), self.policies.get(policy)
        return max(now, usage_row.changed_at if usage_row else 0, policy_row.changed_at if policy_row else 0)

    def live_jobs(self, usage_id: bytes) -> int:
        return sum(1 for job in self.jobs.values() if job.slot == usage_id and job.state in LIVE)

    def used(self, usage_id: bytes, now: int) -> int:
        usage = self.usages.get(usage_id)
        return 0 if usage is None else self.live_jobs(usage_id) + len(usage.active_slots(now))

    def cost_held(self, usage_id: bytes, now: int) -> int:
        jobs = sum(job.cost for job in self.jobs.values() if job.slot == usage_id and job.state in HOLDING_MONEY)
        return jobs + sum(slot.cost for slot in self.usages[usage_id].active_slots(now))

    def usage_counts(self, usage_id: bytes, now: int) -> tuple[Any, ...]:
        """All counts, for comparison."""
        usage = self.usages[usage_id]
        return (
            self.live_jobs(usage_id),
            len(usage.active_slots(now)),
            usage.jobs_within(now, MINUTE, 61),
            usage.jobs_within(now, HOUR, 25),
            self.cost_held(usage_id, now),
            tuple(usage.spent(now, period) for period in ("day", "week", "month")),
        )

    def effective_limits(self, usage_id: bytes, policy: bytes) -> dict[str, Any]:
        """The user's own limits or else the tenant's defaults, never above the ceiling."""
        own_limits = _decode(self.usages[usage_id].limits if usage_id in self.usages else b"")
        tenant = _decode(self.policies[policy].body if policy in self.policies else b"")
        defaults, ceiling = tenant.get("default", {}), tenant.get("ceiling", {})
        found: dict[str, Any] = {}
        for name in COUNT_LIMITS:
            limits = [own_limits.get(name, defaults.get(name)), ceiling.get(name)]
            limits = [limit for limit in limits if limit is not None]
            if limits:
                found[name] = min(limits)
        costs = [own_limits.get("cost_limit") or defaults.get("cost_limit"), ceiling.get("cost_limit")]
        if any(costs):
            found["costs"] = [cost for cost in costs if cost]
        return found

    def charge(
        self,
        usage_id: bytes,
        policy_id: bytes,
        request: QuotaRequest,
        now: int,
        *,
        dry_run: bool = False,
        always_counted: bool = False,
    ) -> Any:
        """A refusal; True if the request is counted now; False if the user has no quota."""
        limits = self.effective_limits(usage_id, policy_id)
        if not usage_id or not (usage_id in self.usages or limits or request.reservation or always_counted):
            return False
        refused = self._refusal(usage_id, limits, request, now)
        if refused is None and not dry_run:
            self._record_charge(usage_id, request, now)
        return refused or True

    def _refusal(self, usage_id: bytes, limits: dict[str, Any], request: QuotaRequest, now: int) -> Any:
        usage = self.usages.get(usage_id) or UserUsage(now)
        slot = usage.slot(request.reservation, now)
        if slot is not None and slot.state == "consumed" and request.job and slot.job == request.job:
            slot = None  # consumed by an earlier attempt of the same job
        if slot is not None and slot.state != "active":
            return ("refused", "SLOT_LOST")
        if slot is not None and request.reclaims_own_slot:
            return None
        slot_limits = [limit for limit in (limits.get("max_concurrent"), request.caller_limit) if limit is not None]
        if slot is None and slot_limits and self.used(usage_id, now) + request.jobs > min(slot_limits):
            return ("refused", "SLOT_LOST" if request.had_slot else "QUOTA_EXCEEDED")
        if request.counts_rate:
            for name, step, steps in (("jobs_per_hour", MINUTE, 61), ("jobs_per_day", HOUR, 25)):
                refused = _rate_limit_refusal(usage, limits.get(name), request.jobs, now, step, steps)
                if refused is not None:
                    return refused
        if request.counts_rate or request.job:
            held = self.cost_held(usage_id, now) - (slot.cost if slot else 0) if usage_id in self.usages else 0
            for cost in limits.get("costs", ()):
                before = usage.spent(now, cost["period"]) + held
                over = before + request.cost > cost["amount"] or before >= cost["amount"]
                if cost["action"] == "block" and over:
                    return ("refused", "COST_LIMIT_EXCEEDED")
        return None

    def _record_charge(self, usage_id: bytes, request: QuotaRequest, now: int) -> None:
        """Slots of jobs are not recorded here: they are counted from the jobs."""
        usage = self.usages.setdefault(usage_id, UserUsage(now))
        usage.changed_at = now
        slot = usage.slot(request.reservation, now)
        if request.reclaims_own_slot:
            usage.slots.pop(request.reservation, None)
        elif slot is not None:
            slot.state, slot.cost, slot.job = "consumed", 0, request.job
        if request.until:
            usage.slots[request.slot_name] = ModelSlot(request.until, cost=request.cost, job=request.job)
        if request.counts_rate:
            usage.submitted.append((now, request.jobs))

    def reclaim_slot(self, job: ModelJob | None, policy: bytes, now: int, *, until: int, dry_run: bool = False) -> Any:
        """Extend or settle the slot of a job that is being prepared, even if the slot was lost."""
        if job is None or not job.slot or job.slot not in self.usages:
            return False
        name = job.id.hex()
        request = QuotaRequest(
            1,
            job.cost,
            name,
            until,
            name,
            job_id_text(job.id),
            counts_rate=False,
            reclaims_own_slot=True,
            had_slot=True,
        )
        return self.charge(job.slot, policy, request, now, dry_run=dry_run)

    def drop_slot(self, job: ModelJob | None, now: int) -> None:
        """Free the slot of a preparation."""
        if job is not None and job.slot in self.usages and job.state == "preparing":
            self.usages[job.slot].slots.pop(job.id.hex(), None)
            self.usages[job.slot].changed_at = now

    def end(self, job: ModelJob, state: str, now: int, *, cost: int | None = None) -> None:
        self.drop_slot(job, now)
        usage = self.usages.get(job.slot)
        if usage is not None:
            usage.changed_at = now
            spent = job.cost if cost is None and job.attempts else cost or 0
            if spent and state != "lost" and job.state != "preparing":
                usage.costs.append((now, spent))
        job.state, job.ended_at, job.changed_at = state, now, now
        if state != "lost" or not job.cost:
            job.slot = b""


def job_id_text(job_id: bytes) -> str:
    return str(UUID(bytes=job_id)) if job_id else ""


def _decode(body: bytes) -> dict[str, Any]:
    return json.loads(body) if body else {}


def _period_of(now: int, period: str) -> Any:
    day = datetime.fromtimestamp(now / 1000, UTC).date()
    return {"day": day, "week": day.isocalendar()[:2], "month": (day.year, day.month)}[period]


def _rate_limit_refusal(usage: UserUsage, limit: int | None, jobs: int, now: int, step: int, steps: int) -> Any:
    if limit is None or usage.jobs_within(now, step, steps) + jobs <= limit:
        return None
    if jobs > limit:
        return ("refused", "QUOTA_EXCEEDED")
    retry_at = now
    while usage.jobs_within(retry_at, step, steps) + jobs > limit:
        retry_at = (retry_at // step + 1) * step
    return ("refused", "RATE_LIMITED", retry_at - now)
