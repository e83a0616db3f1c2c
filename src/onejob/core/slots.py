"""Slots with a deadline: reserved before a submission, then consumed, released or renewed; and a user's limits."""

from typing import ClassVar

from msgspec.structs import replace

from . import tally as count
from .charging import limits_from_facts
from .command import CommandData
from .facts import Job, Reservation, Usage, next_version
from .ids import format_job_id
from .quota import QuotaCharge, QuotaRequest, charge_usage, settled_reservations
from .receipt import Missing, Reason, Refused, SlotHeld, SlotSettled, UsageFound
from .states import ENDED_STATES, JobState, SlotState
from .step import Facts, Footprint, Step

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
        reservations = count.unexpired_reservations(tally, now) | {
            self.reservation: replace(one, expires_at=until)
        }
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
        return Step(
            SlotSettled(_RELEASED, now), (count.updated_usage(tally, now, reservations=reservations),)
        )


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
            message = (
                "the reservation and the job belong to different users; consume it with a job of its user"
            )
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
