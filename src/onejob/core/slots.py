"""Slots with a deadline: reserved before a submission, then consumed, released or renewed; and a user's limits."""

from typing import ClassVar

from msgspec.structs import replace

from . import quota as count
from .command import CommandData, Facts, Footprint, Step
from .facts import Job, Record, Reservation, Usage, next_version
from .identity import format_job_id
from .quota import QuotaCharge, QuotaRequest, charge_usage, limits_from_facts, settled_reservations
from .replies import Maintained, Missing, Reason, Reconciled, Refused, SlotHeld, SlotSettled, UsageFound
from .states import ENDED_STATES, IdempotencyStatus, JobState, SlotState

SLOT_TTL_MS_DEFAULT = 300_000
SLOT_TTL_MS_MIN = 1000
SLOT_TTL_MS_MAX = 24 * 3600 * 1000

_ACTIVE, _CONSUMED, _RELEASED = SlotState.ACTIVE, SlotState.CONSUMED, SlotState.RELEASED


class UsageCommand(CommandData, frozen=True, gc=False, kw_only=True):
    """A command over what one user holds."""

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
    """Give a user limits of its own; empty: the tenant's defaults hold again."""

    user: str
    limits: bytes

    def decide(self, facts: Facts, now: int) -> Step[UsageFound]:
        tally = facts.usage or count.new_usage(self.usage_id, self.tenant, self.user, now)
        if tally.limits == self.limits:
            return Step(UsageFound(facts.usage, facts.policy, now))
        written = count.updated_usage(tally, now, limits=self.limits)
        return Step(UsageFound(written, facts.policy, now), (written,))


class ReserveSlot(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Take a slot for a while. The reservation's own id is the holder: repeated, it is the same slot."""

    user: str
    reservation: str
    ttl_ms: int = SLOT_TTL_MS_DEFAULT
    max_concurrent: int | None = None  # applied with the policy's: the smaller of both

    def decide(self, facts: Facts, now: int) -> Step[SlotHeld | Refused]:
        tally = facts.usage or count.new_usage(self.usage_id, self.tenant, self.user, now)
        before = count.find_reservation(tally, self.reservation, now)
        if before is not None:
            return Step(self._repeat_reply(before, now))
        limits = limits_from_facts(facts)
        if self.max_concurrent is not None:
            most = limits.max_concurrent
            most = self.max_concurrent if most is None else min(most, self.max_concurrent)
            limits = replace(limits, max_concurrent=most)
        until = now + self.ttl_ms
        taken = charge_usage(
            tally, limits, QuotaRequest(reserve_until=until, reserve_id=self.reservation, is_new=False), now
        )
        if not isinstance(taken, QuotaCharge):
            return Step(taken)
        return Step(SlotHeld(self.reservation, until, now, taken.warnings), (taken.usage,))

    def _repeat_reply(self, before: Reservation, now: int) -> SlotHeld | Refused:
        if before.state is _ACTIVE:
            return SlotHeld(self.reservation, before.expires_at, now)
        return _slot_lost_refusal(before, now)


class SlotCommand(UsageCommand, frozen=True, gc=False, kw_only=True):
    """A command over one reservation."""

    reservation: str

    def find_reservation(self, facts: Facts, now: int) -> tuple[Usage, Reservation] | None:
        one = None if facts.usage is None else count.find_reservation(facts.usage, self.reservation, now)
        return None if facts.usage is None or one is None else (facts.usage, one)


class RenewSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Prolong a slot that has not expired."""

    ttl_ms: int = SLOT_TTL_MS_DEFAULT

    def decide(self, facts: Facts, now: int) -> Step[SlotHeld | Refused]:
        found = self.find_reservation(facts, now)
        if found is None or found[1].state is not _ACTIVE:
            return Step(_slot_lost_refusal(found[1] if found else None, now))
        tally, one = found
        until = now + self.ttl_ms
        reservations = count.unexpired_reservations(tally, now) | {self.reservation: replace(one, expires_at=until)}
        renewed = count.updated_usage(tally, now, reservations=reservations)
        return Step(SlotHeld(self.reservation, until, now), (renewed,))


class ReleaseSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Free a slot. One that is free already, or has expired, stays so."""

    def decide(self, facts: Facts, now: int) -> Step[SlotSettled | Refused]:
        found = self.find_reservation(facts, now)
        if found is None or found[1].state is _RELEASED:
            return Step(SlotSettled(_RELEASED, now))
        tally, one = found
        if one.state is _CONSUMED:
            message = "the reservation was consumed; end its job to free the slot"
            return Step(Refused(Reason.ALREADY_SETTLED, message, now))
        reservations = settled_reservations(tally, self.reservation, _RELEASED, now)
        return Step(SlotSettled(_RELEASED, now), (count.updated_usage(tally, now, reservations=reservations),))


class ConsumeSlot(SlotCommand, frozen=True, gc=False, kw_only=True):
    """Turn a slot into that of a job; without a job it only ends, for the job is counted elsewhere."""

    job_id: bytes = b""

    @property
    def footprint(self) -> Footprint:
        jobs = (self.job_id,) if self.job_id else ()
        return Footprint(self.tenant, jobs=jobs, usage=self.usage_id, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[SlotSettled | Refused | Missing]:
        found = self.find_reservation(facts, now)
        named = format_job_id(self.job_id) if self.job_id else ""
        if found is not None and found[1].state is _CONSUMED and found[1].job_id == named:
            return Step(SlotSettled(_CONSUMED, now))
        if found is None or found[1].state is not _ACTIVE:
            return Step(_slot_lost_refusal(found[1] if found else None, now))
        job = facts.jobs.get(self.job_id)
        if self.job_id and job is None:
            return Step(Missing(now))
        if job is not None and job.user != found[0].user:  # counted here, nobody would find it again
            message = "the reservation and the job belong to different users; consume it with a job of its user"
            return Step(Refused(Reason.NOT_THE_OWNER, message, now))
        reservations = settled_reservations(found[0], self.reservation, _CONSUMED, now, named)
        return self._consume_step(found[0], reservations, job, now)

    def _consume_step(
        self, usage: Usage, reservations: dict[str, Reservation], job: Job | None, now: int
    ) -> Step[SlotSettled | Refused | Missing]:
        # A job that has a slot, or needs none any more, is not counted a second time.
        if job is None or job.slot or job.state in ENDED_STATES or job.state is JobState.PREPARING:
            ended = count.updated_usage(usage, now, reservations=reservations)
            return Step(SlotSettled(_CONSUMED, now), (ended,))
        counted = count.updated_usage(
            usage,
            now,
            live=usage.live + 1,
            cost_held=usage.cost_held + job.cost_held,
            reservations=reservations,
        )
        return Step(SlotSettled(_CONSUMED, now), (counted, next_version(job, now, slot=usage.id)))


def _slot_lost_refusal(reservation: Reservation | None, now: int) -> Refused:
    what = (
        "is unknown, or it expired"
        if reservation is None or reservation.state is _ACTIVE
        else f"was {reservation.state}"
    )
    return Refused(Reason.SLOT_LOST, f"slot lost: the reservation {what}; reserve another slot", now)


# Upkeep of tallies: what they say is compared with the jobs that bear their mark.
#
# The comparison is exact without a lock: every change of a slot makes a new version of the tally, so jobs that
# were counted while the version stayed the same are the ones it speaks of.


RECONCILE_RETRY_MS = 10 * count.MINUTE_MS

# Jobs whose slot has no deadline, and those that hold money as well.
LIVE_STATES = tuple(state for state in JobState if state not in ENDED_STATES and state is not JobState.PREPARING)
COST_HOLDING_STATES = (*LIVE_STATES, JobState.LOST)


class Reconcile(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Set a tally to what its jobs say, if it is still the one that was counted; drop it when it says nothing."""

    expected_version: int  # the version under which the jobs were counted
    live: int
    cost_held: int
    jobs_counted: int = 0  # jobs that bear its mark, the ones being prepared too; while there are some, it stays

    def decide(self, facts: Facts, now: int) -> Step[Reconciled]:
        tally = facts.usage
        if tally is None:
            return Step(Reconciled(0, False, now))
        if tally.version != self.expected_version:  # busy: look again later
            if tally.due_at > now:
                return Step(Reconciled(0, False, now))
            return Step(Reconciled(0, False, now), (next_version(tally, now, due_at=now + RECONCILE_RETRY_MS),))
        drift = abs(tally.live - self.live) + (tally.cost_held != self.cost_held)
        if not (drift or self.jobs_counted) and count.is_idle(tally, now):
            return Step(Reconciled(0, True, now), drops=(tally,))
        mended = next_version(
            tally,
            now,
            live=self.live,
            cost_held=self.cost_held,
            reservations=count.unexpired_reservations(tally, now),
            # One without limits is looked at again, until it says nothing any more and can go.
            due_at=0 if tally.limits else now + count.DAY_MS,
        )
        return Step(Reconciled(drift, True, now), (mended,))


class Backfill(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Count a job that was submitted before its user had limits. Nothing is refused: it is there already."""

    user: str
    job_id: bytes
    record_id: bytes = b""  # of its key, whose lease says how long the slot of a preparing job is held

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, jobs=(self.job_id,), usage=self.usage_id, policy=self.policy_id)

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        job = facts.jobs.get(self.job_id)
        if job is None or job.slot or job.user != self.user:
            return Step(Maintained(False, now))
        if facts.usage is None and not limits_from_facts(facts):
            return Step(Maintained(False, now))
        tally = facts.usage or count.new_usage(self.usage_id, self.tenant, self.user, now)
        counted = self._usage_with_job(tally, job, facts.record, now)
        if counted is None:
            return Step(Maintained(False, now))
        return Step(Maintained(True, now), (counted, next_version(job, now, slot=tally.id)))

    def _usage_with_job(self, usage: Usage, job: Job, record: Record | None, now: int) -> Usage | None:
        if job.state in LIVE_STATES:
            held = usage.cost_held + job.cost_held
            return count.updated_usage(usage, now, live=usage.live + 1, cost_held=held)
        if job.state is not JobState.PREPARING or record is None or record.job_id != job.id:
            return None
        # Whoever takes over a lease that ran out takes a slot as well.
        if record.status is not IdempotencyStatus.PENDING or now > record.lease_until:
            return None
        room = count.make_room(count.unexpired_reservations(usage, now))
        if room is None:
            return None
        own = Reservation(now, record.lease_until, SlotState.ACTIVE, job.cost_held, format_job_id(job.id))
        return count.updated_usage(usage, now, reservations={**room, job.id.hex(): own})


def slots_and_cost_held(job: Job, usage_id: bytes) -> tuple[int, int]:
    """The slots and the money that a job holds of a tally."""
    if job.slot != usage_id or job.state not in COST_HOLDING_STATES:
        return 0, 0
    return int(job.state in LIVE_STATES), job.cost_held
