"""Read-only commands: look up a key or a job, and the dry run of a submission."""

from typing import ClassVar

from .command import CommandData, Facts, Footprint, Step
from .facts import is_live
from .replies import DryRunReply, Found, Missing
from .reserve import Reserve
from .sequence import SubmitSequence
from .submit import ExistingKeyReply, Submit


class LookUpKey(CommandData, frozen=True, gc=False, kw_only=True):
    """The record of a key and its job. An expired record is missing, deleted or not."""

    writes: ClassVar[bool] = False

    record_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[Found | Missing]:
        record = facts.record
        if record is None or not is_live(record, now):
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


class LookUpAnswer(CommandData, frozen=True, gc=False, kw_only=True):
    """The reply that a submission's key has already; Missing if the submission would change anything."""

    writes: ClassVar[bool] = False

    command: Submit

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.command.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[ExistingKeyReply | Missing]:
        record = facts.record
        if record is None or not is_live(record, now):
            return Step(Missing(now))
        return Step(self.command.reply_for_existing_key(record, facts, now) or Missing(now))


class DryRun(CommandData, frozen=True, gc=False, kw_only=True):
    """What a submission would be answered: its own decision, with nothing stored."""

    writes: ClassVar[bool] = False

    command: Submit | Reserve | SubmitSequence

    @property
    def payload_bytes(self) -> int:
        return self.command.payload_bytes

    @property
    def footprint(self) -> Footprint:
        return self.command.footprint

    def decide(self, facts: Facts, now: int) -> Step[DryRunReply]:
        return Step(DryRunReply(self.command.decide(facts, now).reply, now))
