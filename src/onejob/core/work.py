"""What happens to a job after its submission."""

from .command import CommandData
from .ending import RETENTION_MS, ended
from .receipt import Cancelled, Missing
from .states import Move, allowed
from .step import Facts, Footprint, Step


class Cancel(CommandData, frozen=True, gc=False, kw_only=True):
    """End a job that has not ended; one that has stays as it is."""

    job_id: bytes
    actor: str
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,), follow_tally=True)

    def decide(self, facts: Facts, now: int) -> Step[Cancelled | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if not allowed(job.state, Move.CANCEL):
            return Step(Cancelled(job, False, now))
        end = ended(job, facts.tally, now, move=Move.CANCEL, actor=self.actor, retention_ms=self.retention_ms)
        return Step(Cancelled(end.job, True, now), end.puts, adds=end.adds, cuts=end.cuts)
