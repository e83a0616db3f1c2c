"""Upkeep of tallies: what they say is compared with the jobs that bear their mark.

The comparison is exact without a lock: every change of a slot makes a new version of the tally, so jobs that
were counted while the version stayed the same are the ones it speaks of.
"""

from . import tally as count
from .charging import limits_from_facts
from .facts import Job, Record, Reservation, Usage, next_version
from .ids import format_job_id
from .receipt import Maintained, Reconciled
from .slots import UsageCommand
from .states import ENDED_STATES, IdempotencyStatus, JobState, SlotState
from .step import Facts, Footprint, Step

RECONCILE_RETRY_MS = 10 * count.MINUTE_MS

# Jobs whose slot has no deadline, and those that hold money as well.
LIVE_STATES = tuple(
    state for state in JobState if state not in ENDED_STATES and state is not JobState.PREPARING
)
COST_HOLDING_STATES = (*LIVE_STATES, JobState.LOST)


class Reconcile(UsageCommand, frozen=True, gc=False, kw_only=True):
    """Set a tally to what its jobs say, if it is still the one that was counted; drop it when it says nothing."""

    expected_version: int  # the version under which the jobs were counted
    live: int
    cost_held: int
    jobs_counted: int = (
        0  # jobs that bear its mark, the ones being prepared too; while there are some, it stays
    )

    def decide(self, facts: Facts, now: int) -> Step[Reconciled]:
        tally = facts.usage
        if tally is None:
            return Step(Reconciled(0, False, now))
        if tally.version != self.expected_version:  # busy: look again later
            if tally.due_at > now:
                return Step(Reconciled(0, False, now))
            return Step(
                Reconciled(0, False, now), (next_version(tally, now, due_at=now + RECONCILE_RETRY_MS),)
            )
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
        return Footprint(
            self.tenant, self.record_id, jobs=(self.job_id,), usage=self.usage_id, policy=self.policy_id
        )

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
