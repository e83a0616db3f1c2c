"""Upkeep of tallies: what they say is compared with the jobs that bear their mark.

The comparison is exact without a lock: every change of a slot makes a new version of the tally, so jobs that
were counted while the version stayed the same are the ones it speaks of.
"""

from . import tally as count
from .charging import limits_in
from .facts import Job, Record, Reservation, Tally, changed
from .ids import text_of
from .receipt import Recounted, Tended
from .slots import TallyCommand
from .states import ENDED, IdempotencyStatus, JobState, SlotState
from .step import Facts, Footprint, Step

UNSTEADY_MS = 10 * count.MINUTE_MS

# Jobs whose slot has no deadline, and those that hold money as well.
LIVE = tuple(state for state in JobState if state not in ENDED and state is not JobState.PREPARING)
HOLDING = (*LIVE, JobState.LOST)


class Recount(TallyCommand, frozen=True, gc=False, kw_only=True):
    """Set a tally to what its jobs say, if it is still the one that was counted; drop it when it says nothing."""

    expected: int  # the version under which the jobs were counted
    live: int
    cost_held: int
    marked: int = 0  # jobs that bear its mark, the ones being prepared too; while there are some, it stays

    def decide(self, facts: Facts, now: int) -> Step[Recounted]:
        tally = facts.tally
        if tally is None:
            return Step(Recounted(0, False, now))
        if tally.version != self.expected:  # busy: look again later
            if tally.due_at > now:
                return Step(Recounted(0, False, now))
            return Step(Recounted(0, False, now), (changed(tally, now, due_at=now + UNSTEADY_MS),))
        drift = abs(tally.live - self.live) + (tally.cost_held != self.cost_held)
        if not (drift or self.marked) and count.is_idle(tally, now):
            return Step(Recounted(0, True, now), drops=(tally,))
        mended = changed(
            tally,
            now,
            live=self.live,
            cost_held=self.cost_held,
            reservations=count.kept(tally, now),
            # One without limits is looked at again, until it says nothing any more and can go.
            due_at=0 if tally.limits else now + count.DAY_MS,
        )
        return Step(Recounted(drift, True, now), (mended,))


class Adopt(TallyCommand, frozen=True, gc=False, kw_only=True):
    """Count a job that was submitted before its user had limits. Nothing is refused: it is there already."""

    user: str
    job_id: bytes
    record_id: bytes = b""  # of its key, whose lease says how long the slot of a preparing job is held

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant, self.record_id, jobs=(self.job_id,), tally=self.tally_id, policy=self.policy_id
        )

    def decide(self, facts: Facts, now: int) -> Step[Tended]:
        job = facts.jobs.get(self.job_id)
        if job is None or job.slot or job.user != self.user:
            return Step(Tended(False, now))
        if facts.tally is None and not limits_in(facts):
            return Step(Tended(False, now))
        tally = facts.tally or count.blank(self.tally_id, self.tenant, self.user, now)
        counted = self._counted(tally, job, facts.record, now)
        if counted is None:
            return Step(Tended(False, now))
        return Step(Tended(True, now), (counted, changed(job, now, slot=tally.id)))

    def _counted(self, tally: Tally, job: Job, record: Record | None, now: int) -> Tally | None:
        if job.state in LIVE:
            held = tally.cost_held + job.cost_held
            return count.noted(tally, now, live=tally.live + 1, cost_held=held)
        if job.state is not JobState.PREPARING or record is None or record.job_id != job.id:
            return None
        # Whoever takes over a lease that ran out takes a slot as well.
        if record.status is not IdempotencyStatus.PENDING or now > record.lease_until:
            return None
        room = count.with_room(count.kept(tally, now))
        if room is None:
            return None
        own = Reservation(now, record.lease_until, SlotState.ACTIVE, job.cost_held, text_of(job.id))
        return count.noted(tally, now, reservations={**room, job.id.hex(): own})


def holds(job: Job, tally_id: bytes) -> tuple[int, int]:
    """The slots and the money that a job holds of a tally."""
    if job.slot != tally_id or job.state not in HOLDING:
        return 0, 0
    return int(job.state in LIVE), job.cost_held
