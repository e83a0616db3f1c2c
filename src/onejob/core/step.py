"""What a command asks for and what it decides: footprint, facts, step."""

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from .facts import Attachment, Beside, Fact, Job, Policy, Record, Stream, Tally
from .receipt import Reason, Refused

R_co = TypeVar("R_co", covariant=True)

JOBS_MAX = 100


class Warrant(Struct, frozen=True, gc=False):
    """What gives a command its right: a policy of its tenant that was read before, and must read the same still.

    So nobody has to read it again first: whoever decides the command proves it, on the facts that it decides on.
    """

    policy: bytes
    body: bytes
    until: int = 0  # 0: without end

    def stands(self, policy: Policy | None, now: int) -> bool:
        return policy is not None and policy.body == self.body and not self.is_over(now)

    def is_over(self, now: int) -> bool:
        return bool(self.until) and now > self.until


def lapsed(now: int) -> Refused:
    """The answer to a command whose warrant does not stand: nothing of it was looked at."""
    return Refused(Reason.LAPSED, "the credential was changed or revoked; send one that is valid", now)


def is_lapsed(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.LAPSED


class Footprint(Struct, frozen=True, gc=False):
    """The facts a command touches: at most one of each kind, and up to a hundred jobs.

    Empty bytes mean none. `follow_jobs` adds the jobs that the record names, `follow_tally` the tally that
    the jobs' slot mark names; following goes only forward, record → job → tally. Whatever `jobs` names is
    loaded in any case: another command of the same batch may drop the record before this one is decided.
    A command with a warrant that does not stand is not decided at all.
    """

    tenant: str
    record: bytes = b""
    jobs: tuple[bytes, ...] = ()
    stream: bytes = b""
    tally: bytes = b""
    policy: bytes = b""
    follow_jobs: bool = False
    follow_tally: bool = False
    warrant: Warrant | None = None


class Facts(Struct, frozen=True, gc=False):
    """The facts of one footprint, as they are now."""

    record: Record | None = None
    jobs: Mapping[bytes, Job] = {}
    stream: Stream | None = None
    tally: Tally | None = None
    policy: Policy | None = None

    @property
    def job(self) -> Job | None:
        """The record's job, else the only one asked for."""
        if self.record is not None:
            return self.jobs.get(self.record.job_id)
        return next(iter(self.jobs.values()), None)


class Cut(Struct, frozen=True, gc=False):
    """One attachment to remove, so that what grows stays bounded."""

    job_id: bytes
    beside: Beside
    index: int


class Step(Struct, Generic[R_co], frozen=True, gc=False):
    """The decision: a reply, and the changes that are stored with it, all or nothing.

    A dropped job takes its attachments with it.
    """

    reply: R_co
    puts: tuple[Fact, ...] = ()
    drops: tuple[Fact, ...] = ()
    adds: tuple[Attachment, ...] = ()
    cuts: tuple[Cut, ...] = ()


class Command(Protocol[R_co]):
    """A pure decision over a few facts; total: it has an answer to every state."""

    @property
    def format(self) -> int: ...

    @property
    def tenant(self) -> str: ...

    @property
    def writes(self) -> bool:
        """False: it never changes anything, so it needs no commit."""

    @property
    def makes(self) -> bool:
        """Whether what it is about is most often not there yet: an engine may like such commands among themselves."""

    @property
    def bulk(self) -> int:
        """How many bytes of payload it carries, so that queues can be bounded."""

    @property
    def footprint(self) -> Footprint: ...

    def decide(self, facts: Facts, now: int, /) -> Step[R_co]: ...
