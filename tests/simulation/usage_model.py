"""What users hold, counted plainly: lists that are gone through anew for each question, written from the design."""

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
    """Taken for a while, by a reservation or for a job that is being prepared."""

    expires_at: int
    state: str = "active"
    cost: int = 0
    job: str = ""


@dataclass(slots=True)
class UserUsage:
    """A user who is counted, and everything that ever happened that could matter."""

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
        """Submitted in the last so many minutes or hours, the running one included."""
        return sum(many for when, many in self.submitted if now // step - when // step < steps)

    def spent(self, now: int, period: str) -> int:
        return sum(amount for when, amount in self.costs if _period_of(when, period) == _period_of(now, period))


@dataclass(slots=True)
class ModelPolicy:
    """A tenant's policy."""

    body: bytes
    changed_at: int
    version: int = 1


@dataclass(slots=True)
class QuotaRequest:
    """What somebody wants of a user's room."""

    jobs: int = 1
    cost: int = 0
    reservation: str = ""  # a slot that there may be
    until: int = 0  # 0: for good, else for a while under the name
    slot_name: str = ""
    job: str = ""
    counts_rate: bool = True  # counts by the hour and the day
    reclaims_own_slot: bool = False  # wants the slot that it had while it was prepared
    had_slot: bool = False
    caller_limit: int | None = None  # the caller's own limit


class UsageModel(ModelState):
    def __init__(self) -> None:
        super().__init__()
        self.usages: dict[bytes, UserUsage] = {}
        self.policies: dict[bytes, ModelPolicy] = {}

    def decision_time(self, now: int, *, tally: bytes = b"", policy: bytes = b"") -> int:
        purse, rules = self.usages.get(tally), self.policies.get(policy)
        return max(now, purse.changed_at if purse else 0, rules.changed_at if rules else 0)

    def live_jobs(self, tally: bytes) -> int:
        return sum(1 for job in self.jobs.values() if job.slot == tally and job.state in LIVE)

    def used(self, tally: bytes, now: int) -> int:
        purse = self.usages.get(tally)
        return 0 if purse is None else self.live_jobs(tally) + len(purse.active_slots(now))

    def cost_held(self, tally: bytes, now: int) -> int:
        jobs = sum(job.cost for job in self.jobs.values() if job.slot == tally and job.state in HOLDING_MONEY)
        return jobs + sum(slot.cost for slot in self.usages[tally].active_slots(now))

    def usage_counts(self, tally: bytes, now: int) -> tuple[Any, ...]:
        """All that can be counted, for a comparison."""
        purse = self.usages[tally]
        return (
            self.live_jobs(tally),
            len(purse.active_slots(now)),
            purse.jobs_within(now, MINUTE, 61),
            purse.jobs_within(now, HOUR, 25),
            self.cost_held(tally, now),
            tuple(purse.spent(now, period) for period in ("day", "week", "month")),
        )

    def effective_limits(self, tally: bytes, policy: bytes) -> dict[str, Any]:
        """The limits that hold for a user: the own, else the tenant's, and never above its ceiling."""
        own = _decode(self.usages[tally].limits if tally in self.usages else b"")
        tenant = _decode(self.policies[policy].body if policy in self.policies else b"")
        usual, ceiling = tenant.get("default", {}), tenant.get("ceiling", {})
        found: dict[str, Any] = {}
        for name in COUNT_LIMITS:
            limits = [own.get(name, usual.get(name)), ceiling.get(name)]
            limits = [limit for limit in limits if limit is not None]
            if limits:
                found[name] = min(limits)
        costs = [own.get("cost_limit") or usual.get("cost_limit"), ceiling.get("cost_limit")]
        if any(costs):
            found["costs"] = [cost for cost in costs if cost]
        return found

    def charge(
        self,
        usage_id: bytes,
        policy_id: bytes,
        need: QuotaRequest,
        now: int,
        *,
        dry_run: bool = False,
        always_counted: bool = False,
    ) -> Any:
        """A refusal, True when it is counted from now on, False when nobody counts."""
        allowed = self.effective_limits(usage_id, policy_id)
        if not usage_id or not (usage_id in self.usages or allowed or need.reservation or always_counted):
            return False
        refused = self._refusal(usage_id, allowed, need, now)
        if refused is None and not dry_run:
            self._record_charge(usage_id, need, now)
        return refused or True

    def _refusal(self, tally: bytes, allowed: dict[str, Any], need: QuotaRequest, now: int) -> Any:
        purse = self.usages.get(tally) or UserUsage(now)
        slot = purse.slot(need.reservation, now)
        if slot is not None and slot.state == "consumed" and need.job and slot.job == need.job:
            slot = None  # used up by an earlier attempt of the same job
        if slot is not None and slot.state != "active":
            return ("refused", "SLOT_LOST")
        if slot is not None and need.reclaims_own_slot:
            return None
        limits = [most for most in (allowed.get("max_concurrent"), need.caller_limit) if most is not None]
        if slot is None and limits and self.used(tally, now) + need.jobs > min(limits):
            return ("refused", "SLOT_LOST" if need.had_slot else "QUOTA_EXCEEDED")
        if need.counts_rate:
            for name, step, steps in (("jobs_per_hour", MINUTE, 61), ("jobs_per_day", HOUR, 25)):
                refused = _rate_limit_refusal(purse, allowed.get(name), need.jobs, now, step, steps)
                if refused is not None:
                    return refused
        if need.counts_rate or need.job:
            held = self.cost_held(tally, now) - (slot.cost if slot else 0) if tally in self.usages else 0
            for cost in allowed.get("costs", ()):
                before = purse.spent(now, cost["period"]) + held
                over = before + need.cost > cost["amount"] or before >= cost["amount"]
                if cost["action"] == "block" and over:
                    return ("refused", "COST_LIMIT_EXCEEDED")
        return None

    def _record_charge(self, tally: bytes, need: QuotaRequest, now: int) -> None:
        """Room for good is not noted here: it is counted from the jobs."""
        purse = self.usages.setdefault(tally, UserUsage(now))
        purse.changed_at = now
        slot = purse.slot(need.reservation, now)
        if need.reclaims_own_slot:
            purse.slots.pop(need.reservation, None)
        elif slot is not None:
            slot.state, slot.cost, slot.job = "consumed", 0, need.job
        if need.until:
            purse.slots[need.slot_name] = ModelSlot(need.until, cost=need.cost, job=need.job)
        if need.counts_rate:
            purse.submitted.append((now, need.jobs))

    def reclaim_slot(self, job: ModelJob | None, policy: bytes, now: int, *, until: int, dry_run: bool = False) -> Any:
        """The slot of a job that is being prepared, prolonged or for good, even if it was lost."""
        if job is None or not job.slot or job.slot not in self.usages:
            return False
        name = job.id.hex()
        need = QuotaRequest(
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
        return self.charge(job.slot, policy, need, now, dry_run=dry_run)

    def drop_slot(self, job: ModelJob | None, now: int) -> None:
        """Its preparation is over, and its slot with it."""
        if job is not None and job.slot in self.usages and job.state == "preparing":
            self.usages[job.slot].slots.pop(job.id.hex(), None)
            self.usages[job.slot].changed_at = now

    def end(self, job: ModelJob, state: str, now: int, *, cost: int | None = None) -> None:
        self.drop_slot(job, now)
        purse = self.usages.get(job.slot)
        if purse is not None:
            purse.changed_at = now
            spent = job.cost if cost is None and job.attempts else cost or 0
            if spent and state != "lost" and job.state != "preparing":
                purse.costs.append((now, spent))
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


def _rate_limit_refusal(purse: UserUsage, most: int | None, jobs: int, now: int, step: int, steps: int) -> Any:
    if most is None or purse.jobs_within(now, step, steps) + jobs <= most:
        return None
    if jobs > most:
        return ("refused", "QUOTA_EXCEEDED")
    then = now
    while purse.jobs_within(then, step, steps) + jobs > most:  # the first moment at which it would be let in
        then = (then // step + 1) * step
    return ("refused", "RATE_LIMITED", then - now)
