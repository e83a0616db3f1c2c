"""Commands on a user's usage: reserve, renew, release, consume a slot; set limits; reconcile; backfill.

A reservation is a slot with a deadline, taken before a submission. Its id is drawn by the caller, so a repeated command
finds the same slot. The submission consumes it (quota.py); `ConsumeSlot` does so for a job that exists already.

`Reconcile` corrects a usage that differs from its jobs. It is exact without a lock: every change of a slot makes a new
version of the usage, so jobs that were counted while the version stayed the same are the ones that the usage counts.
"""

from typing import ClassVar

from msgspec.structs import replace

from .command import CommandData, Facts, Footprint, Step
from .facts import Job, Record, Reservation, Usage, next_version
from .identity import format_job_id
from .quota import (
    DAY_MS,
    MINUTE_MS,
    QuotaCharge,
    QuotaRequest,
    charge_usage,
    find_reservation,
    is_idle,
    limits_from_facts,
    make_room,
    new_usage,
    settled_reservations,
    unexpired_reservations,
    updated_usage,
)
from .replies import Maintained, Missing, Reason, Reconciled, Refused, SlotHeld, SlotSettled, UsageFound
from .states import ENDED_STATES, IdempotencyStatus, JobState, SlotState

SLOT_TTL_MS_DEFAULT = 300_000
SLOT_TTL_MS_MIN = 1000
SLOT_TTL_MS_MAX = 24 * 3600 * 1000
RECONCILE_RETRY_MS = 10 * MINUTE_MS

# Jobs whose slot has no deadline, and those that hold money as well.
LIVE_STATES = tuple(state for state in JobState if state not in ENDED_STATES and state is not JobState.PREPARING)
COST_HOLDING_STATES = (*LIVE_STATES, JobState.LOST)

_ACTIVE, _CONSUMED, _RELEASED = SlotState.ACTIVE, SlotState.CONSUMED, SlotState.RELEASED


class UsageCommand(CommandData, frozen=True, gc=False, kw_only=True):
    """A command on the usage of one user."""

    usage_id: bytes
    policy_id: bytes = b""  # of the tenant's limits

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, usage=self.usage_id, policy=self.policy_id)


class LookUpUsage(UsageCommand, frozen=True, gc=False, kw_only=True):
    writes: ClassVar[bool] = False

    def decide(self, facts: Facts, now: int) -> Step[UsageFound]:
        return Step(UsageFound(facts.usage, facts.policy, now))


class SetLimits(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Set a user's own limits; empty: the tenant's defaults apply again."""

    user: str
    limits: bytes
    not_after: int = 0  # on the engine's time; 0: no limit

    @property
    def has_echo(self) -> bool:
        return False

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, usage=self.usage_id, policy=self.policy_id, not_after=self.not_after)

    def decide(self, facts: Facts, now: int) -> Step[UsageFound]:
        usage = facts.usage or new_usage(self.usage_id, self.tenant, self.user, now)
        if usage.limits == self.limits:
            return Step(UsageFound(facts.usage, facts.policy, now))
        written = updated_usage(usage, now, limits=self.limits)
        return Step(UsageFound(written, facts.policy, now), (written,))


class ReserveSlot(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Take a slot until a deadline."""

    user: str
    reservation: str
    ttl_ms: int = SLOT_TTL_MS_DEFAULT
    max_concurrent: int | None = None  # the smaller of this one and the limit in force applies

    def decide(self, facts: Facts, now: int) -> Step[SlotHeld | Refused]:
        usage = facts.usage or new_usage(self.usage_id, self.tenant, self.user, now)
        reservation = find_reservation(usage, self.reservation, now)
        if reservation is not None:
            return Step(self._repeat_reply(reservation, now))
        limits = limits_from_facts(facts)
        if self.max_concurrent is not None:
            allowed = limits.max_concurrent
            allowed = self.max_concurrent if allowed is None else min(allowed, self.max_concurrent)
            limits = replace(limits, max_concurrent=allowed)
        until = now + self.ttl_ms
        request = QuotaRequest(reserve_until=until, reserve_id=self.reservation, is_new=False)
        charged = charge_usage(usage, limits, request, now)
        if not isinstance(charged, QuotaCharge):
            return Step(charged)
        return Step(SlotHeld(self.reservation, until, now, charged.warnings), (charged.usage,))

    def _repeat_reply(self, reservation: Reservation, now: int) -> SlotHeld | Refused:
        if reservation.state is _ACTIVE:
            return SlotHeld(self.reservation, reservation.expires_at, now)
        return _slot_lost_refusal(reservation, now)


class SlotCommand(UsageCommand, frozen=True, gc=False, kw_only=True):
    """A command on one reservation."""

    reservation: str

    def find_reservation(self, facts: Facts, now: int) -> tuple[Usage, Reservation] | None:
        if facts.usage is None:
            return None
        reservation = find_reservation(facts.usage, self.reservation, now)
        return None if reservation is None else (facts.usage, reservation)


class RenewSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Extend the deadline of a slot that has not expired."""

    ttl_ms: int = SLOT_TTL_MS_DEFAULT

    def decide(self, facts: Facts, now: int) -> Step[SlotHeld | Refused]:
        found = self.find_reservation(facts, now)
        if found is None or found[1].state is not _ACTIVE:
            return Step(_slot_lost_refusal(found[1] if found else None, now))
        usage, reservation = found
        until = now + self.ttl_ms
        reservations = unexpired_reservations(usage, now) | {self.reservation: replace(reservation, expires_at=until)}
        renewed = updated_usage(usage, now, reservations=reservations)
        return Step(SlotHeld(self.reservation, until, now), (renewed,))


class ReleaseSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Free a slot. One that is free already, or has expired, is answered the same."""

    def decide(self, facts: Facts, now: int) -> Step[SlotSettled | Refused]:
        found = self.find_reservation(facts, now)
        if found is None or found[1].state is _RELEASED:
            return Step(SlotSettled(_RELEASED, now, was_known=found is not None))
        usage, reservation = found
        if reservation.state is _CONSUMED:
            message = "the reservation was consumed; end its job to free the slot"
            return Step(Refused(Reason.ALREADY_SETTLED, message, now))
        reservations = settled_reservations(usage, self.reservation, _RELEASED, now)
        return Step(SlotSettled(_RELEASED, now), (updated_usage(usage, now, reservations=reservations),))


class ConsumeSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Turn a slot into that of a job. Without a job it only ends: the job is counted elsewhere."""

    job_id: bytes = b""

    @property
    def footprint(self) -> Footprint:
        jobs = (self.job_id,) if self.job_id else ()
        return Footprint(self.tenant, jobs=jobs, usage=self.usage_id, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[SlotSettled | Refused | Missing]:
        found = self.find_reservation(facts, now)
        job_id = format_job_id(self.job_id) if self.job_id else ""
        if found is not None and found[1].state is _CONSUMED and found[1].job_id == job_id:
            return Step(SlotSettled(_CONSUMED, now))
        if found is None or found[1].state is not _ACTIVE:
            return Step(_slot_lost_refusal(found[1] if found else None, now))
        usage = found[0]
        job = facts.jobs.get(self.job_id)
        if self.job_id and job is None:
            return Step(Missing(now))
        if job is not None and job.user != usage.user:  # a job counts towards its own user only
            message = "the reservation and the job belong to different users; consume it with a job of its user"
            return Step(Refused(Reason.NOT_THE_OWNER, message, now))
        reservations = settled_reservations(usage, self.reservation, _CONSUMED, now, job_id)
        return self._consume_step(usage, reservations, job, now)

    def _consume_step(
        self, usage: Usage, reservations: dict[str, Reservation], job: Job | None, now: int
    ) -> Step[SlotSettled | Refused | Missing]:
        # A job that has a slot, or no longer needs one, is not counted again.
        if job is None or job.usage_id or job.state in ENDED_STATES or job.state is JobState.PREPARING:
            return Step(SlotSettled(_CONSUMED, now), (updated_usage(usage, now, reservations=reservations),))
        counted = updated_usage(
            usage, now, live=usage.live + 1, cost_held=usage.cost_held + job.cost_held, reservations=reservations
        )
        return Step(SlotSettled(_CONSUMED, now), (counted, next_version(job, now, usage_id=usage.id)))


def _slot_lost_refusal(reservation: Reservation | None, now: int) -> Refused:
    state = None if reservation is None else reservation.state
    what = "is unknown, or it expired" if state in (None, _ACTIVE) else f"was {state}"
    # A reservation that was used says nothing about the quota.
    reason = Reason.SLOT_LOST if state in (None, _ACTIVE) else Reason.ALREADY_SETTLED
    return Refused(reason, f"slot lost: the reservation {what}; reserve another slot", now)


class Reconcile(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Set a usage to what its jobs add up to, if it has not changed since they were counted; delete an idle one."""

    expected_version: int  # the version under which the jobs were counted
    live: int
    cost_held: int
    jobs_counted: int = 0  # jobs whose `usage_id` names it, preparing ones too; while there are some, it stays

    def decide(self, facts: Facts, now: int) -> Step[Reconciled]:
        usage = facts.usage
        if usage is None:
            return Step(Reconciled(0, False, now))
        if usage.version != self.expected_version:  # it changed while its jobs were counted: try again later
            if usage.due_at > now:
                return Step(Reconciled(0, False, now))
            return Step(Reconciled(0, False, now), (next_version(usage, now, due_at=now + RECONCILE_RETRY_MS),))
        drift = abs(usage.live - self.live) + (usage.cost_held != self.cost_held)
        if not (drift or self.jobs_counted) and is_idle(usage, now):
            return Step(Reconciled(0, True, now), drops=(usage,))
        corrected = next_version(
            usage,
            now,
            live=self.live,
            cost_held=self.cost_held,
            reservations=unexpired_reservations(usage, now),
            # A usage without limits is visited again until it is idle and can be deleted.
            due_at=0 if usage.limits else now + DAY_MS,
        )
        return Step(Reconciled(drift, True, now), (corrected,))


class Backfill(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Count a job that was submitted before its user had limits. It exists already, so it is never refused."""

    user: str
    job_id: bytes
    record_id: bytes = b""  # of its key, whose lease is the deadline of a preparing job's slot

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, jobs=(self.job_id,), usage=self.usage_id, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        job = facts.jobs.get(self.job_id)
        if job is None or job.usage_id or job.user != self.user:
            return Step(Maintained(False, now))
        if facts.usage is None and not limits_from_facts(facts):
            return Step(Maintained(False, now))
        usage = facts.usage or new_usage(self.usage_id, self.tenant, self.user, now)
        counted = self._usage_with_job(usage, job, facts.record, now)
        if counted is None:
            return Step(Maintained(False, now))
        return Step(Maintained(True, now), (counted, next_version(job, now, usage_id=usage.id)))

    def _usage_with_job(self, usage: Usage, job: Job, record: Record | None, now: int) -> Usage | None:
        if job.state in LIVE_STATES:
            cost_held = usage.cost_held + job.cost_held
            return updated_usage(usage, now, live=usage.live + 1, cost_held=cost_held)
        if job.state is not JobState.PREPARING or record is None or record.job_id != job.id:
            return None
        # A take-over of an expired lease takes a slot as well.
        if record.status is not IdempotencyStatus.PENDING or now > record.lease_until:
            return None
        remaining = make_room(unexpired_reservations(usage, now))
        if remaining is None:
            return None
        reservation = Reservation(now, record.lease_until, _ACTIVE, job.cost_held, format_job_id(job.id))
        return updated_usage(usage, now, reservations={**remaining, job.id.hex(): reservation})


def slots_and_cost_held(job: Job, usage_id: bytes) -> tuple[int, int]:
    """How many slots and how much money of a usage a job holds."""
    if job.usage_id != usage_id or job.state not in COST_HOLDING_STATES:
        return 0, 0
    return int(job.state in LIVE_STATES), job.cost_held
