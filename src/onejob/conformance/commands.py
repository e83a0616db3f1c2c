"""Commands of the suite's own: they write every kind of fact, look at it, count, and misbehave."""

from typing import ClassVar

from onejob.core.command import CommandData
from onejob.core.facts import Attachment, Fact, Job, Policy, Record, Stream, Tally, changed
from onejob.core.identity import policy_id
from onejob.core.receipt import Reply
from onejob.core.step import Cut, Facts, Footprint, Step


class Seen(Reply, frozen=True):
    """The facts that a command was given; of `Count`, what it made of them."""

    record: Record | None
    jobs: tuple[Job, ...]
    stream: Stream | None
    tally: Tally | None
    policy: Policy | None
    at: int

    @property
    def facts(self) -> tuple[Fact, ...]:
        named = (self.record, *self.jobs, self.stream, self.tally, self.policy)
        return tuple(fact for fact in named if fact is not None)


class Write(CommandData, frozen=True, kw_only=True):
    """Put facts just as they are, and say what was there before."""

    record: Record | None = None
    jobs: tuple[Job, ...] = ()
    stream: Stream | None = None
    tally: Tally | None = None
    policy: Policy | None = None
    adds: tuple[Attachment, ...] = ()
    cuts: tuple[Cut, ...] = ()
    within: Footprint | None = None  # None: what it puts, and no more

    @property
    def footprint(self) -> Footprint:
        if self.within is not None:
            return self.within
        jobs = {job.id for job in self.jobs}
        jobs |= {add.job_id for add in self.adds} | {cut.job_id for cut in self.cuts}
        return Footprint(
            self.tenant,
            _id(self.record),
            tuple(sorted(jobs)),
            _id(self.stream),
            _id(self.tally),
            _id(self.policy),
        )

    def decide(self, facts: Facts, now: int) -> Step[Seen]:
        named = (self.record, *self.jobs, self.stream, self.tally, self.policy)
        puts = tuple(fact for fact in named if fact is not None)
        return Step(_seen(facts, now), puts, adds=self.adds, cuts=self.cuts)


class Look(CommandData, frozen=True, kw_only=True):
    """Say what a footprint holds."""

    writes: ClassVar[bool] = False

    footprint: Footprint

    def decide(self, facts: Facts, now: int) -> Step[Seen]:
        return Step(_seen(facts, now))


class Count(CommandData, frozen=True, kw_only=True):
    """Add one to a policy's version: two that took the same step for theirs would show."""

    name: str = "counter"

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=policy_id(self.tenant, self.name))

    def decide(self, facts: Facts, now: int) -> Step[Seen]:
        old = facts.policy
        if old is None:
            new = Policy(policy_id(self.tenant, self.name), self.tenant, self.name, b"1", now)
        else:
            new = changed(old, now, body=str(old.version + 1).encode())
        return Step(Seen(None, (), None, None, new, now), (new,))


class Faulty(CommandData, frozen=True, kw_only=True):
    """Fails while it is decided."""

    def decide(self, facts: Facts, now: int) -> Step[Seen]:
        raise ZeroDivisionError("this command is faulty")

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant)


class FaultyLook(Faulty, frozen=True, kw_only=True):
    writes: ClassVar[bool] = False


class Shapeless(Faulty, frozen=True, kw_only=True):
    """Fails before it is decided."""

    @property
    def footprint(self) -> Footprint:
        raise ZeroDivisionError("this command has no footprint")


class ShapelessLook(Shapeless, frozen=True, kw_only=True):
    writes: ClassVar[bool] = False


class SneakyLook(Count, frozen=True, kw_only=True):
    """Says that it only reads, and writes."""

    writes: ClassVar[bool] = False


def written(*facts: Fact, adds: tuple[Attachment, ...] = ()) -> Write:
    """The command that puts these facts of one tenant."""
    return Write(
        tenant=facts[0].tenant,
        record=next((fact for fact in facts if isinstance(fact, Record)), None),
        jobs=tuple(fact for fact in facts if isinstance(fact, Job)),
        stream=next((fact for fact in facts if isinstance(fact, Stream)), None),
        tally=next((fact for fact in facts if isinstance(fact, Tally)), None),
        policy=next((fact for fact in facts if isinstance(fact, Policy)), None),
        adds=adds,
    )


def look(*facts: Fact) -> Look:
    return Look(tenant=facts[0].tenant, footprint=written(*facts).footprint)


def _id(fact: Fact | None) -> bytes:
    return b"" if fact is None else fact.id


def _seen(facts: Facts, now: int) -> Seen:
    jobs = tuple(sorted(facts.jobs.values(), key=lambda job: job.id))
    return Seen(facts.record, jobs, facts.stream, facts.tally, facts.policy, now)
