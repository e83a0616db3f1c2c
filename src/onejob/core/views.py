"""What callers see: jobs, receipts, keys, sequences and quotas, with text ids and UTC times."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from msgspec import Struct, json

from .command import Facts
from .facts import Job, KeyConflict, Memo, Record, Reservation, is_held
from .identity import format_job_id
from .limits import EffectiveLimits, Limits, Period, TenantLimits, decode_limits, decode_tenant_limits, to_units
from .maintenance import decode_conflicts
from .quota import current_counts, limits_from_facts, new_usage, unexpired_reservations
from .replies import LimitWarning, Outcome, UsageFound
from .states import ENDED_STATES, Delivery, IdempotencyStatus, JobState, SlotState
from .timestamps import to_utc
from .work import Event

TRACEPARENT_LABEL = "traceparent"  # reserved: the trace context of the submission that created the job
_TRACEPARENT = b'"traceparent":"'


def decode_traceparent(labels: bytes) -> str:
    """The trace context among the encoded labels of a job; empty: none."""
    if _TRACEPARENT not in labels:
        return ""
    return json.decode(labels, type=dict[str, str]).get(TRACEPARENT_LABEL, "")


class JobView:
    """A job, as it was when the answer was made."""

    __slots__ = ("row",)

    def __init__(self, row: Job) -> None:
        self.row = row

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobView) and self.row == other.row

    def __hash__(self) -> int:
        return hash(self.row.id)

    @property
    def id(self) -> str:
        return format_job_id(self.row.id)

    @property
    def type(self) -> str:
        return self.row.type

    @property
    def state(self) -> JobState:
        return self.row.state

    @property
    def has_ended(self) -> bool:
        return self.row.state in ENDED_STATES

    @property
    def key(self) -> str | None:
        return self.row.key or None

    @property
    def scope(self) -> str:
        return self.row.scope

    @property
    def actor(self) -> str:
        return self.row.actor

    @property
    def user(self) -> str:
        return self.row.user

    @property
    def delivery(self) -> Delivery:
        return self.row.delivery

    @property
    def priority(self) -> int:
        return self.row.priority

    @property
    def attempts(self) -> int:
        return self.row.attempts

    @property
    def progress(self) -> Any:
        """The latest progress of the latest attempt; None: none."""
        return json.decode(self.row.progress) if self.row.progress else None

    @property
    def started_at(self) -> datetime | None:
        """When the latest attempt began."""
        return _to_utc_or_none(self.row.started_at)

    @property
    def error(self) -> str | None:
        return self.row.error or None

    @property
    def labels(self) -> Mapping[str, str]:
        """Those that the submitter chose; the reserved one for traces is left out."""
        labels = json.decode(self.row.labels, type=dict[str, str]) if self.row.labels else {}
        labels.pop(TRACEPARENT_LABEL, None)
        return labels

    @property
    def created_at(self) -> datetime:
        return to_utc(self.row.created_at)

    @property
    def changed_at(self) -> datetime:
        return to_utc(self.row.changed_at)

    @property
    def run_at(self) -> datetime | None:
        return _to_utc_or_none(self.row.run_at)

    @property
    def ended_at(self) -> datetime | None:
        return _to_utc_or_none(self.row.ended_at)


class StepState(StrEnum):
    BEGUN = "begun"  # it runs, or was interrupted
    FINISHED = "finished"


class StepView:
    """A step of a job's handler, as it was when the answer was made."""

    __slots__ = ("row",)

    def __init__(self, row: Memo) -> None:
        self.row = row

    def __repr__(self) -> str:
        return f"<Step {self.name!r} {self.state}>"

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def state(self) -> StepState:
        return StepState.FINISHED if self.row.ended_at else StepState.BEGUN

    @property
    def began_at(self) -> datetime:
        """When its latest run began."""
        return to_utc(self.row.began_at)

    @property
    def ended_at(self) -> datetime | None:
        return _to_utc_or_none(self.row.ended_at)

    @property
    def runs(self) -> int:
        return self.row.runs

    @property
    def token(self) -> int:
        """Of the attempt that began it last."""
        return self.row.token


class PurgeResult(Struct, frozen=True):
    """What a purge has deleted, and by when its bytes are gone.

    The facts are gone at once. A bucket keeps its log and its snapshots for a day; other stores keep no history of their own.
    """

    erased: int  # facts
    gone_at: datetime


class Receipt(Struct, frozen=True, kw_only=True):
    """The answer to a submission."""

    outcome: Outcome
    key: str | None
    scope: str
    job_row: Job | None = None
    named_job_id: str = ""  # of a job without a row here: an external one, or one that is only named
    expires_ms: int = 0
    receipt: bytes = b""
    paths: tuple[str, ...] = ()  # where a conflicting body differs; only in a dry run
    warnings: tuple[LimitWarning, ...] = ()  # limits nearly reached; in a dry run also the one that refuses
    taken_over: bool = False  # key and job id existed; this submission took them over and made the job ready

    def __repr__(self) -> str:
        return f"<Receipt {self.outcome} job={self.job_id} key={self.key!r} scope={self.scope!r}>"

    @property
    def created(self) -> bool:
        return self.outcome is Outcome.CREATED

    @property
    def job(self) -> JobView | None:
        """None for an external job, a wrapped response, or a dry run."""
        return None if self.job_row is None else JobView(self.job_row)

    @property
    def job_id(self) -> str:
        return self.named_job_id if self.job_row is None else format_job_id(self.job_row.id)

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key replays this job; None without a key."""
        return _to_utc_or_none(self.expires_ms)


class HeldKey(Struct, frozen=True):
    """A key that the caller holds until the lease ends: renew it while working, then commit, reject or fail it."""

    key: str
    scope: str
    job_id: str  # empty for a record without a job
    token: int
    lease_ms: int
    lease_until: datetime
    taken_over: bool
    record_id: bytes
    holder: bytes
    warnings: tuple[LimitWarning, ...] = ()
    # On the monotonic clock of the process, counted from before the request was sent: never later than in the store.
    lease_end: float = 0.0


class KeyHistory(Struct, frozen=True):
    """A key, its job and its events: its first submission, and what became of it."""

    key: str
    scope: str
    status: IdempotencyStatus
    job: JobView | None
    actor: str
    user: str
    first_seen: datetime
    expires_at: datetime
    held_until: datetime | None
    hits: int
    conflicts: int
    last_hit_at: datetime | None
    events: tuple[Event, ...]
    events_total: int
    recent_conflicts: tuple[KeyConflict, ...] = ()  # the last 8, oldest first


def to_key_history(record: Record, job: Job | None, events: tuple[Event, ...]) -> KeyHistory:
    return KeyHistory(
        key=record.key,
        scope=record.scope,
        status=record.status,
        job=JobView(job) if job else None,
        actor=record.actor,
        user=record.user,
        first_seen=to_utc(record.created_at),
        expires_at=to_utc(max(record.expires_at, record.lease_until)),
        held_until=to_utc(record.lease_until) if is_held(record) else None,
        hits=record.hits,
        conflicts=record.conflicts,
        last_hit_at=_to_utc_or_none(record.last_hit_at),
        events=events,
        events_total=job.events if job else 0,
        recent_conflicts=decode_conflicts(record.recent_conflicts),
    )


class SequenceOutcome(StrEnum):
    COMMITTED = "COMMITTED"
    ALREADY_COMMITTED = "ALREADY_COMMITTED"


class SequenceReceipt(Struct, frozen=True, kw_only=True):
    """The answer to a sequence number."""

    outcome: SequenceOutcome
    client_id: str
    scope: str
    key: str
    assigned_sequence: int  # the number under which the key was executed; not the one sent, if the key was used before
    last_committed_sequence: int
    job_rows: tuple[Job, ...] = ()
    expires_ms: int = 0
    warnings: tuple[LimitWarning, ...] = ()

    @property
    def committed(self) -> bool:
        return self.outcome is SequenceOutcome.COMMITTED

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """Its jobs in order."""
        return tuple(map(JobView, self.job_rows))

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key replays these jobs; None once its record has expired."""
        return _to_utc_or_none(self.expires_ms)


class ClientState(Struct, frozen=True):
    """The last committed number of a client's sequence; the client continues with the next one."""

    client_id: str
    scope: str
    last_committed_sequence: int = 0
    last_seen: datetime | None = None  # None: never


class Quota(Struct, frozen=True):
    """A user's own limits, the tenant's, and the ones in force."""

    user: str
    limits: Limits
    tenant: TenantLimits
    effective: EffectiveLimits


class UsageView(Struct, frozen=True):
    """What a user has in use, submitted and spent. Money is in units."""

    user: str
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money_held: Decimal
    spent: Mapping[Period, Decimal]
    limits: EffectiveLimits

    @property
    def used(self) -> int:
        return self.live + self.reserved


class SlotReservation(Struct, frozen=True):
    """A quota slot with a deadline. That of a job being prepared has the job's id, and ends with its lease."""

    id: str
    user: str
    state: SlotState
    created_at: datetime
    expires_at: datetime
    job_id: str | None


def to_quota(user: str, reply: UsageFound) -> Quota:
    user_limits = b"" if reply.usage is None else reply.usage.limits
    tenant_limits = b"" if reply.policy is None else reply.policy.body
    return Quota(user, decode_limits(user_limits), decode_tenant_limits(tenant_limits), _limits_from_reply(reply))


def to_usage_view(user: str, reply: UsageFound) -> UsageView:
    counts = current_counts(reply.usage or new_usage(b"", "", user, reply.at), reply.at)
    return UsageView(
        user,
        counts.live,
        counts.reserved,
        counts.last_hour,
        counts.last_day,
        to_units(counts.money_held),
        {period: to_units(amount) for period, amount in counts.spent.items()},
        _limits_from_reply(reply),
    )


def to_slot_reservations(user: str, reply: UsageFound) -> Sequence[SlotReservation]:
    """The reservations that have not expired, oldest first."""
    if reply.usage is None:
        return []
    reservations = unexpired_reservations(reply.usage, reply.at).items()
    oldest_first = sorted(reservations, key=lambda item: (item[1].created_at, item[0]))
    return [to_slot_reservation(id, user, reservation) for id, reservation in oldest_first]


def to_slot_reservation(id: str, user: str, reservation: Reservation) -> SlotReservation:
    return SlotReservation(
        id,
        user,
        reservation.state,
        to_utc(reservation.created_at),
        to_utc(reservation.expires_at),
        reservation.job_id or None,
    )


def _limits_from_reply(reply: UsageFound) -> EffectiveLimits:
    return limits_from_facts(Facts(usage=reply.usage, policy=reply.policy))


def _to_utc_or_none(ms: int) -> datetime | None:
    return to_utc(ms) if ms else None
