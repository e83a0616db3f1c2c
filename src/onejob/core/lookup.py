"""Reading as a decision: as ordered and as durable as every other command, and it changes nothing."""

from typing import ClassVar

from .command import CommandData
from .facts import live
from .receipt import Foreseen, Found, Missing
from .reservation import Reserve
from .sequence import SubmitSequence
from .step import Facts, Footprint, Step
from .submission import Submit


class LookUp(CommandData, frozen=True, gc=False, kw_only=True):
    """What became of a key. An expired record is as good as gone, swept or not."""

    writes: ClassVar[bool] = False

    record_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[Found | Missing]:
        record = facts.record
        if record is None or not live(record, now):
            return Step(Missing(now))
        return Step(Found(record, facts.job, now))


class LookUpJob(CommandData, frozen=True, gc=False, kw_only=True):
    writes: ClassVar[bool] = False

    job_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,))

    def decide(self, facts: Facts, now: int) -> Step[Found | Missing]:
        job = facts.jobs.get(self.job_id)
        return Step(Missing(now) if job is None else Found(None, job, now))


class Probe(CommandData, frozen=True, gc=False, kw_only=True):
    """What would happen to a submission: its own decision, with nothing stored."""

    writes: ClassVar[bool] = False

    command: Submit | Reserve | SubmitSequence

    @property
    def bulk(self) -> int:
        return self.command.bulk

    @property
    def footprint(self) -> Footprint:
        return self.command.footprint

    def decide(self, facts: Facts, now: int) -> Step[Foreseen]:
        return Step(Foreseen(self.command.decide(facts, now).reply, now))
