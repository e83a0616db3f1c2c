"""Commands of the suite itself: they write and read every kind of fact, count, or fail on purpose."""

from typing import ClassVar

from onejob.core.command import CommandData, Facts, Footprint, Step, Trim
from onejob.core.facts import Attachment, Fact, Job, Memo, Policy, Record, Stream, Usage, next_version
from onejob.core.identity import policy_id
from onejob.core.replies import Reply


class FactsRead(Reply, frozen=True):
    """The facts that a command has read; for `IncrementCounter` the policy that it wrote."""

    record: Record | None
    jobs: tuple[Job, ...]
    stream: Stream | None
    usage: Usage | None
    policy: Policy | None
    at: int
    memo: Memo | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        facts_or_none = (self.record, *self.jobs, self.stream, self.usage, self.policy, self.memo)
        return tuple(fact for fact in facts_or_none if fact is not None)


class WriteFacts(CommandData, frozen=True, kw_only=True):
    """Write facts unchanged, and reply with the facts from before."""

    record: Record | None = None
    jobs: tuple[Job, ...] = ()
    stream: Stream | None = None
    usage: Usage | None = None
    policy: Policy | None = None
    memo: Memo | None = None
    attachments: tuple[Attachment, ...] = ()
    trims: tuple[Trim, ...] = ()
    footprint_override: Footprint | None = None  # None: exactly the facts that it writes

    @property
    def footprint(self) -> Footprint:
        if self.footprint_override is not None:
            return self.footprint_override
        jobs = {job.id for job in self.jobs}
        jobs |= {attachment.job_id for attachment in self.attachments} | {trim.job_id for trim in self.trims}
        others = (_id(self.stream), _id(self.usage), _id(self.policy))
        return Footprint(self.tenant, _id(self.record), tuple(sorted(jobs)), *others, memo=_id(self.memo))

    def decide(self, facts: Facts, now: int) -> Step[FactsRead]:
        facts_or_none = (self.record, *self.jobs, self.stream, self.usage, self.policy, self.memo)
        puts = tuple(fact for fact in facts_or_none if fact is not None)
        return Step(_facts_read(facts, now), puts, attachments=self.attachments, trims=self.trims)


class CreateFacts(WriteFacts, frozen=True, kw_only=True):
    """The same, declared to create what it writes, so that an engine may take all of it for new."""

    creates: ClassVar[bool] = True


class ReadFacts(CommandData, frozen=True, kw_only=True):
    """Reply with the facts of a footprint."""

    writes: ClassVar[bool] = False

    footprint: Footprint

    def decide(self, facts: Facts, now: int) -> Step[FactsRead]:
        return Step(_facts_read(facts, now))


class IncrementCounter(CommandData, frozen=True, kw_only=True):
    """Increment the version of a policy, so that a lost update shows as a repeated number."""

    name: str = "counter"

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=policy_id(self.tenant, self.name))

    def decide(self, facts: Facts, now: int) -> Step[FactsRead]:
        old = facts.policy
        if old is None:
            new = Policy(policy_id(self.tenant, self.name), self.tenant, self.name, b"1", now)
        else:
            new = next_version(old, now, body=str(old.version + 1).encode())
        return Step(FactsRead(None, (), None, None, new, now), (new,))


class FaultyWrite(CommandData, frozen=True, kw_only=True):
    """Raises in `decide`."""

    def decide(self, facts: Facts, now: int) -> Step[FactsRead]:
        raise ZeroDivisionError("this command is faulty")

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant)


class FaultyRead(FaultyWrite, frozen=True, kw_only=True):
    writes: ClassVar[bool] = False


class NoFootprintWrite(FaultyWrite, frozen=True, kw_only=True):
    """Raises in `footprint`."""

    @property
    def footprint(self) -> Footprint:
        raise ZeroDivisionError("this command has no footprint")


class NoFootprintRead(NoFootprintWrite, frozen=True, kw_only=True):
    writes: ClassVar[bool] = False


class WritingRead(IncrementCounter, frozen=True, kw_only=True):
    """Declares `writes = False`, and writes."""

    writes: ClassVar[bool] = False


def write_facts(*facts: Fact, attachments: tuple[Attachment, ...] = ()) -> WriteFacts:
    """The command that writes these facts of one tenant."""
    return WriteFacts(
        tenant=facts[0].tenant,
        record=next((fact for fact in facts if isinstance(fact, Record)), None),
        jobs=tuple(fact for fact in facts if isinstance(fact, Job)),
        stream=next((fact for fact in facts if isinstance(fact, Stream)), None),
        usage=next((fact for fact in facts if isinstance(fact, Usage)), None),
        policy=next((fact for fact in facts if isinstance(fact, Policy)), None),
        memo=next((fact for fact in facts if isinstance(fact, Memo)), None),
        attachments=attachments,
    )


def read_facts(*facts: Fact) -> ReadFacts:
    return ReadFacts(tenant=facts[0].tenant, footprint=write_facts(*facts).footprint)


def _id(fact: Fact | None) -> bytes:
    return b"" if fact is None else fact.id


def _facts_read(facts: Facts, now: int) -> FactsRead:
    jobs = tuple(sorted(facts.jobs.values(), key=lambda job: job.id))
    return FactsRead(facts.record, jobs, facts.stream, facts.usage, facts.policy, now, facts.memo)
