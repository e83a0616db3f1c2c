"""What users hold, counted plainly: lists that are gone through anew for each question, written from the design."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from .shelf import Shelf, Work

MINUTE, HOUR = 60_000, 3_600_000
LIVE = ("scheduled", "pending", "running")
HOLDING = (*LIVE, "lost")
COUNTS = ("max_concurrent", "jobs_per_hour", "jobs_per_day")


@dataclass(slots=True)
class Slot:
    """Taken for a while, by a reservation or for a job that is being prepared."""

    expires: int
    state: str = "active"
    cost: int = 0
    job: str = ""


@dataclass(slots=True)
class Purse:
    """A user who is counted, and everything that ever happened that could matter."""

    stamp: int
    limits: bytes = b""
    slots: dict[str, Slot] = field(default_factory=dict)
    submitted: list[tuple[int, int]] = field(default_factory=list)  # when, how many
    paid: list[tuple[int, int]] = field(default_factory=list)  # when, how much

    def slot(self, name: str, now: int) -> Slot | None:
        one = self.slots.get(name)
        return one if one is not None and now <= one.expires else None

    def active(self, now: int) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.state == "active" and now <= slot.expires]

    def jobs_in(self, now: int, step: int, steps: int) -> int:
        """Submitted in the last so many minutes or hours, the running one included."""
        return sum(many for when, many in self.submitted if now // step - when // step < steps)

    def spent(self, now: int, period: str) -> int:
        return sum(amount for when, amount in self.paid if _named(when, period) == _named(now, period))


@dataclass(slots=True)
class Rules:
    """A tenant's policy."""

    body: bytes
    stamp: int
    version: int = 1


@dataclass(slots=True)
class Need:
    """What somebody wants of a user's room."""

    jobs: int = 1
    cost: int = 0
    using: str = ""  # a slot that there may be
    until: int = 0  # 0: for good, else for a while under the name
    name: str = ""
    job: str = ""
    new: bool = True  # counts by the hour and the day
    back: bool = False  # wants the slot that it had while it was prepared
    had: bool = False
    most: int | None = None  # the caller's own limit


class Purses(Shelf):
    def __init__(self) -> None:
        super().__init__()
        self.purses: dict[bytes, Purse] = {}
        self.rules: dict[bytes, Rules] = {}

    def stamped(self, now: int, *, tally: bytes = b"", policy: bytes = b"") -> int:
        purse, rules = self.purses.get(tally), self.rules.get(policy)
        return max(now, purse.stamp if purse else 0, rules.stamp if rules else 0)

    def live(self, tally: bytes) -> int:
        return sum(1 for job in self.jobs.values() if job.slot == tally and job.state in LIVE)

    def used(self, tally: bytes, now: int) -> int:
        purse = self.purses.get(tally)
        return 0 if purse is None else self.live(tally) + len(purse.active(now))

    def money(self, tally: bytes, now: int) -> int:
        jobs = sum(job.cost for job in self.jobs.values() if job.slot == tally and job.state in HOLDING)
        return jobs + sum(slot.cost for slot in self.purses[tally].active(now))

    def standing(self, tally: bytes, now: int) -> tuple[Any, ...]:
        """All that can be counted, for a comparison."""
        purse = self.purses[tally]
        return (
            self.live(tally),
            len(purse.active(now)),
            purse.jobs_in(now, MINUTE, 61),
            purse.jobs_in(now, HOUR, 25),
            self.money(tally, now),
            tuple(purse.spent(now, period) for period in ("day", "week", "month")),
        )

    def allowed(self, tally: bytes, policy: bytes) -> dict[str, Any]:
        """The limits that hold for a user: the own, else the tenant's, and never above its ceiling."""
        own = _read(self.purses[tally].limits if tally in self.purses else b"")
        tenant = _read(self.rules[policy].body if policy in self.rules else b"")
        usual, ceiling = tenant.get("default", {}), tenant.get("ceiling", {})
        found: dict[str, Any] = {}
        for name in COUNTS:
            limits = [own.get(name, usual.get(name)), ceiling.get(name)]
            limits = [limit for limit in limits if limit is not None]
            if limits:
                found[name] = min(limits)
        costs = [own.get("cost_limit") or usual.get("cost_limit"), ceiling.get("cost_limit")]
        if any(costs):
            found["costs"] = [cost for cost in costs if cost]
        return found

    def charge(
        self, tally: bytes, policy: bytes, need: Need, now: int, *, dry: bool = False, anyway: bool = False
    ) -> Any:
        """A refusal, True when it is counted from now on, False when nobody counts."""
        allowed = self.allowed(tally, policy)
        if not tally or not (tally in self.purses or allowed or need.using or anyway):
            return False
        refused = self._no_room(tally, allowed, need, now)
        if refused is None and not dry:
            self._occupy(tally, need, now)
        return refused or True

    def _no_room(self, tally: bytes, allowed: dict[str, Any], need: Need, now: int) -> Any:
        purse = self.purses.get(tally) or Purse(now)
        slot = purse.slot(need.using, now)
        if slot is not None and slot.state == "consumed" and need.job and slot.job == need.job:
            slot = None  # used up by an earlier attempt of the same job
        if slot is not None and slot.state != "active":
            return ("refused", "SLOT_LOST")
        if slot is not None and need.back:
            return None
        limits = [most for most in (allowed.get("max_concurrent"), need.most) if most is not None]
        if slot is None and limits and self.used(tally, now) + need.jobs > min(limits):
            return ("refused", "SLOT_LOST" if need.had else "QUOTA_EXCEEDED")
        if need.new:
            for name, step, steps in (("jobs_per_hour", MINUTE, 61), ("jobs_per_day", HOUR, 25)):
                refused = _too_often(purse, allowed.get(name), need.jobs, now, step, steps)
                if refused is not None:
                    return refused
        if need.new or need.job:
            held = self.money(tally, now) - (slot.cost if slot else 0) if tally in self.purses else 0
            for cost in allowed.get("costs", ()):
                before = purse.spent(now, cost["period"]) + held
                over = before + need.cost > cost["amount"] or before >= cost["amount"]
                if cost["action"] == "block" and over:
                    return ("refused", "COST_LIMIT_EXCEEDED")
        return None

    def _occupy(self, tally: bytes, need: Need, now: int) -> None:
        """Room for good is not noted here: it is counted from the jobs."""
        purse = self.purses.setdefault(tally, Purse(now))
        purse.stamp = now
        slot = purse.slot(need.using, now)
        if need.back:
            purse.slots.pop(need.using, None)
        elif slot is not None:
            slot.state, slot.cost, slot.job = "consumed", 0, need.job
        if need.until:
            purse.slots[need.name] = Slot(need.until, cost=need.cost, job=need.job)
        if need.new:
            purse.submitted.append((now, need.jobs))

    def regain(self, job: Work | None, policy: bytes, now: int, *, until: int, dry: bool = False) -> Any:
        """The slot of a job that is being prepared, prolonged or for good, even if it was lost."""
        if job is None or not job.slot or job.slot not in self.purses:
            return False
        name = job.id.hex()
        need = Need(1, job.cost, name, until, name, text(job.id), new=False, back=True, had=True)
        return self.charge(job.slot, policy, need, now, dry=dry)

    def drop_slot(self, job: Work | None, now: int) -> None:
        """Its preparation is over, and its slot with it."""
        if job is not None and job.slot in self.purses and job.state == "preparing":
            self.purses[job.slot].slots.pop(job.id.hex(), None)
            self.purses[job.slot].stamp = now

    def end(self, job: Work, state: str, now: int, *, cost: int | None = None) -> None:
        self.drop_slot(job, now)
        purse = self.purses.get(job.slot)
        if purse is not None:
            purse.stamp = now
            spent = job.cost if cost is None and job.attempts else cost or 0
            if spent and state != "lost" and job.state != "preparing":
                purse.paid.append((now, spent))
        job.state, job.ended, job.stamp = state, now, now
        if state != "lost" or not job.cost:
            job.slot = b""


def text(job_id: bytes) -> str:
    return str(UUID(bytes=job_id)) if job_id else ""


def _read(body: bytes) -> dict[str, Any]:
    return json.loads(body) if body else {}


def _named(now: int, period: str) -> Any:
    day = datetime.fromtimestamp(now / 1000, UTC).date()
    return {"day": day, "week": day.isocalendar()[:2], "month": (day.year, day.month)}[period]


def _too_often(purse: Purse, most: int | None, jobs: int, now: int, step: int, steps: int) -> Any:
    if most is None or purse.jobs_in(now, step, steps) + jobs <= most:
        return None
    if jobs > most:
        return ("refused", "QUOTA_EXCEEDED")
    then = now
    while purse.jobs_in(then, step, steps) + jobs > most:  # the first moment at which it would be let in
        then = (then // step + 1) * step
    return ("refused", "RATE_LIMITED", then - now)
