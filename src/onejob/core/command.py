"""What a command asks for and what it decides: footprint, facts, step."""

from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from .facts import FORMAT, Attachment, AttachmentKind, Fact, Job, Policy, Record, Stream, Usage
from .replies import Reason, Refused

# What every command carries: it is data, so it can travel and be stored.


class CommandData(Struct, frozen=True, gc=False, kw_only=True, tag=True, tag_field="is"):
    writes: ClassVar[bool] = True
    creates: ClassVar[bool] = False  # whether what it is about is most often not there yet

    tenant: str
    format: int = FORMAT

    @property
    def payload_bytes(self) -> int:
        return 0


R_co = TypeVar("R_co", covariant=True)

JOBS_MAX = 100


class Precondition(Struct, frozen=True, gc=False):
    """What gives a command its right: a policy of its tenant that was read before, and must read the same still.

    So nobody has to read it again first: whoever decides the command proves it, on the facts that it decides on.
    """

    policy_id: bytes
    expected_body: bytes
    valid_until: int = 0  # 0: without end

    def is_met(self, policy: Policy | None, now: int) -> bool:
        return policy is not None and policy.body == self.expected_body and not self.has_expired(now)

    def has_expired(self, now: int) -> bool:
        return bool(self.valid_until) and now > self.valid_until


def precondition_failed(now: int) -> Refused:
    """The answer to a command whose warrant does not stand: nothing of it was looked at."""
    return Refused(Reason.CREDENTIAL_CHANGED, "the credential was changed or revoked; send one that is valid", now)


def is_precondition_failure(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.CREDENTIAL_CHANGED


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
    usage: bytes = b""
    policy: bytes = b""
    follow_jobs: bool = False
    follow_usage: bool = False
    precondition: Precondition | None = None


class Facts(Struct, frozen=True, gc=False):
    """The facts of one footprint, as they are now."""

    record: Record | None = None
    jobs: Mapping[bytes, Job] = {}
    stream: Stream | None = None
    usage: Usage | None = None
    policy: Policy | None = None

    @property
    def job(self) -> Job | None:
        """The record's job, else the only one asked for."""
        if self.record is not None:
            return self.jobs.get(self.record.job_id)
        return next(iter(self.jobs.values()), None)


class Trim(Struct, frozen=True, gc=False):
    """One attachment to remove, so that what grows stays bounded."""

    job_id: bytes
    kind: AttachmentKind
    index: int


class Step(Struct, Generic[R_co], frozen=True, gc=False):
    """The decision: a reply, and the changes that are stored with it, all or nothing.

    A dropped job takes its attachments with it.
    """

    reply: R_co
    puts: tuple[Fact, ...] = ()
    drops: tuple[Fact, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    trims: tuple[Trim, ...] = ()


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
    def creates(self) -> bool:
        """Whether what it is about is most often not there yet: an engine may like such commands among themselves."""

    @property
    def payload_bytes(self) -> int:
        """How many bytes of payload it carries, so that queues can be bounded."""

    @property
    def footprint(self) -> Footprint: ...

    def decide(self, facts: Facts, now: int, /) -> Step[R_co]: ...
