"""Commands: what one is, the facts it asks for (Footprint, Facts) and what it decides (Step).

A command is data and a pure function: `decide` maps the facts that its footprint names, and the time, to a `Step`, which
is a reply and the changes to store with it. It does no I/O and has an answer to every state, so that an engine can
execute many commands in one transaction and repeat any of them. Because commands are data, they can be sent and stored.
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from .facts import FORMAT, Attachment, AttachmentKind, Fact, Job, Memo, Policy, Record, Stream, Usage, unexpired_policy
from .identity import tenant_prefix
from .replies import Reason, Refused

R_co = TypeVar("R_co", covariant=True)

JOBS_MAX = 100


class Precondition(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A policy of the tenant (an API key) that was read when the command was made, and must be unchanged.

    It is checked with the facts of the decision, so that an authorised command needs no read of its own before it.
    """

    policy_id: bytes
    expected_body: bytes
    valid_until: int = 0  # 0: no expiry

    def is_met(self, policy: Policy | None, now: int) -> bool:
        current = unexpired_policy(policy, now)
        return current is not None and current.body == self.expected_body and not self.has_expired(now)

    def has_expired(self, now: int) -> bool:
        return bool(self.valid_until) and now > self.valid_until


def precondition_failed(now: int) -> Refused:
    """The reply to a command whose precondition is not met: it was not decided at all."""
    return Refused(Reason.CREDENTIAL_CHANGED, "the credential was changed or revoked; send one that is valid", now)


def settings_changed(now: int) -> Refused:
    """The reply to a command that was built under other settings than the ledger's: it was not decided at all."""
    message = "the settings of the ledger were changed, and nothing was done; retry"
    return Refused(Reason.SETTINGS_CHANGED, message, now)


def is_precondition_failure(reply: object) -> bool:
    """True if the command was not decided, because its credential or the settings of the ledger changed."""
    return isinstance(reply, Refused) and reply.reason in _UNDECIDED_REASONS


def is_settings_refusal(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.SETTINGS_CHANGED


_UNDECIDED_REASONS = frozenset({Reason.CREDENTIAL_CHANGED, Reason.SETTINGS_CHANGED})


def is_temporary_refusal(reply: object) -> bool:
    """True for a refusal that depends on the moment: a copy of the command that is executed later may be accepted."""
    return isinstance(reply, Refused) and reply.reason in _MOMENTARY_REASONS


_MOMENTARY_REASONS = frozenset(
    {Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED, Reason.RATE_LIMITED, Reason.SEQUENCE_GAP}
)


def arrived_too_late(now: int) -> Refused:
    """The reply to a command that is executed after its `not_after`: it was not decided at all."""
    return Refused(Reason.TOO_LATE, "the command came too late, and nothing was done; retry it", now)


def is_late_arrival(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.TOO_LATE


class Footprint(Struct, frozen=True, gc=False):
    """The facts a command touches: at most one of each kind, and up to a hundred jobs.

    Empty bytes mean none. `follow_jobs` adds the jobs that the record names, `follow_usage` the usage that
    their `usage_id` names; following goes only forward, record → jobs → usage. What `jobs` names is loaded in any
    case: another command of the same batch may drop the record before this one is decided.
    A command whose precondition is not met, that is executed after `not_after`, or that was built under other settings of
    the ledger, is not decided at all.
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
    memo: bytes = b""
    not_after: int = 0  # on the engine's time; 0: no limit
    settings: bytes = b""  # the body of the ledger's settings, which must be stored (ledger_settings.py); empty: any

    def is_within_tenant(self) -> bool:
        """True if every id belongs to the tenant. The ids of jobs are random and begin with nothing in particular."""
        credential = b"" if self.precondition is None else self.precondition.policy_id
        ids = (self.record, self.stream, self.usage, self.policy, self.memo, credential)
        prefix = tenant_prefix(self.tenant)
        return all(id.startswith(prefix) for id in ids if id)


class Facts(Struct, frozen=True, gc=False):
    """The facts that one footprint names, as they are now."""

    record: Record | None = None
    jobs: Mapping[bytes, Job] = {}
    stream: Stream | None = None
    usage: Usage | None = None
    policy: Policy | None = None
    memo: Memo | None = None

    @property
    def job(self) -> Job | None:
        """The record's job; without a record, the only job that was asked for."""
        if self.record is not None:
            return self.jobs.get(self.record.job_id)
        return next(iter(self.jobs.values()), None)


class Trim(Struct, frozen=True, gc=False):
    """One attachment to delete, so that logs and events stay bounded."""

    job_id: bytes
    kind: AttachmentKind
    index: int


class Step(Struct, Generic[R_co], frozen=True, gc=False):
    """The decision: a reply, and the changes that are stored with it, all or nothing.

    A dropped job takes its attachments and memos with it.
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
        """True if its facts usually do not exist yet: an engine may batch such commands separately."""

    @property
    def payload_bytes(self) -> int:
        """The size of its payload, so that queues can be bounded."""

    @property
    def may_be_overtaken(self) -> bool:
        """True if what its caller sends after it does not depend on it, so that smaller commands may go first."""

    @property
    def has_echo(self) -> bool:
        """True if a late copy of it undoes nothing; otherwise the sender must set `not_after`."""

    @property
    def footprint(self) -> Footprint: ...

    def decide(self, facts: Facts, now: int, /) -> Step[R_co]: ...


class CommandBase(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    tag=True,
    tag_field="is",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The base of all commands. It has no fields, because msgspec lets a Struct inherit fields from one base only:
    a submission has them from `JobSpec`, every other command from `CommandData`.

    Commands are sent to other processes, perhaps of an older version. What has its default is not sent, and what the receiver
    does not know is refused: a field can be added without harm, but no default may ever change.
    """

    writes: ClassVar[bool] = True
    creates: ClassVar[bool] = False
    may_be_overtaken: ClassVar[bool] = False

    @property
    def payload_bytes(self) -> int:
        return 0

    @property
    def has_echo(self) -> bool:
        return True


class CommandData(CommandBase, frozen=True, gc=False, kw_only=True):
    tenant: str
    format: int = FORMAT
