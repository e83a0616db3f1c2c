"""How facts look from outside: text ids, UTC times, decoded labels."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from msgspec import Struct, json

from .command import Facts
from .facts import Job, Record, Reservation
from .identity import format_job_id
from .limits import EffectiveLimits, Limits, Period, TenantLimits, decode_limits, decode_tenant_limits, to_units
from .quota import current_counts, limits_from_facts, new_usage, unexpired_reservations
from .replies import LimitWarning, Outcome, UsageFound
from .states import Delivery, IdempotencyStatus, JobState, SlotState
from .timestamps import to_utc
from .work import Event

# What a user holds and may hold, as it looks from outside.


class Quota(Struct, frozen=True):
    """A user's own limits, the tenant's, and what follows from both."""

    user: str
    limits: Limits
    tenant: TenantLimits
    effective: EffectiveLimits


class UsageView(Struct, frozen=True):
    """What counts now. Money is in units."""

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
    """A reservation. One that belongs to a job being prepared bears the job's id, and ends with it."""

    id: str
    user: str
    state: SlotState
    created_at: datetime
    expires_at: datetime
    job_id: str | None


def to_quota(user: str, reply: UsageFound) -> Quota:
    own = b"" if reply.usage is None else reply.usage.limits
    tenants = b"" if reply.policy is None else reply.policy.body
    return Quota(user, decode_limits(own), decode_tenant_limits(tenants), _limits_from_reply(reply))


def to_usage_view(user: str, reply: UsageFound) -> UsageView:
    tally = reply.usage or new_usage(b"", "", user, reply.at)
    count = current_counts(tally, reply.at)
    return UsageView(
        user,
        count.live,
        count.reserved,
        count.last_hour,
        count.last_day,
        to_units(count.money_held),
        {period: to_units(amount) for period, amount in count.spent.items()},
        _limits_from_reply(reply),
    )


def to_slot_reservations(user: str, reply: UsageFound) -> Sequence[SlotReservation]:
    """The reservations that still say something, oldest first; an expired one says nothing."""
    if reply.usage is None:
        return []
    held = sorted(unexpired_reservations(reply.usage, reply.at).items(), key=lambda item: (item[1].created_at, item[0]))
    return [to_slot_reservation(id, user, one) for id, one in held]


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


class JobView:
    """The one job, as it stood when the answer was made."""

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
        """What the latest attempt told of itself; None: nothing."""
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
        return json.decode(self.row.labels, type=dict[str, str]) if self.row.labels else {}

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


class Receipt(Struct, frozen=True, kw_only=True):
    """What a submission is answered with."""

    outcome: Outcome
    key: str | None
    scope: str
    job_row: Job | None = None
    bare_job_id: str = ""  # of a job that is not ours to show: a foreign one, or one that is only named
    expires_ms: int = 0
    receipt: bytes = b""
    paths: tuple[str, ...] = ()  # where a conflicting body differs; only in a forecast
    warnings: tuple[LimitWarning, ...] = ()  # limits that are nearly reached; in a forecast also the one that refuses
    taken_over: bool = False  # the key and the job's id were there before; this submission made the job ready

    def __repr__(self) -> str:
        return f"<Receipt {self.outcome} job={self.job_id} key={self.key!r} scope={self.scope!r}>"

    @property
    def created(self) -> bool:
        return self.outcome is Outcome.CREATED

    @property
    def job(self) -> JobView | None:
        """None for a foreign job, a wrapped response, or a job that was only foreseen."""
        return None if self.job_row is None else JobView(self.job_row)

    @property
    def job_id(self) -> str:
        return self.bare_job_id if self.job_row is None else format_job_id(self.job_row.id)

    @property
    def expires_at(self) -> datetime | None:
        """Until then the same key is answered with the same job; None without a key."""
        return _to_utc_or_none(self.expires_ms)


class HeldKey(Struct, frozen=True):
    """A key that is yours until the lease ends: renew it while you work, then commit, reject or fail it."""

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


class KeyHistory(Struct, frozen=True):
    """What became of a key, and who asked for it."""

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


def to_key_history(record: Record, job: Job | None, events: tuple[Event, ...]) -> KeyHistory:
    held = record.status is IdempotencyStatus.PENDING and record.lease_until
    return KeyHistory(
        key=record.key,
        scope=record.scope,
        status=record.status,
        job=JobView(job) if job else None,
        actor=record.actor,
        user=record.user,
        first_seen=to_utc(record.created_at),
        expires_at=to_utc(max(record.expires_at, record.lease_until)),
        held_until=to_utc(record.lease_until) if held else None,
        hits=record.hits,
        conflicts=record.conflicts,
        last_hit_at=_to_utc_or_none(record.last_hit_at),
        events=events,
        events_total=job.events if job else 0,
    )


def _to_utc_or_none(ms: int) -> datetime | None:
    return to_utc(ms) if ms else None


# How a sequenced client sees its submissions and itself.


class SequenceOutcome(StrEnum):
    """The words of a sequenced receipt."""

    COMMITTED = "COMMITTED"
    ALREADY_COMMITTED = "ALREADY_COMMITTED"


class SequenceReceipt(Struct, frozen=True, kw_only=True):
    """What a number of a sequence is answered with."""

    outcome: SequenceOutcome
    client_id: str
    scope: str
    key: str
    assigned_sequence: int  # under which it was executed: not the one that was sent, where the key is an older one
    last_committed_sequence: int
    job_rows: tuple[Job, ...] = ()
    expires_ms: int = 0
    warnings: tuple[LimitWarning, ...] = ()

    @property
    def committed(self) -> bool:
        return self.outcome is SequenceOutcome.COMMITTED

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """Its jobs in their order; none when only the number is remembered."""
        return tuple(map(JobView, self.job_rows))

    @property
    def expires_at(self) -> datetime | None:
        """Until then the key is answered with these jobs; None when only the number is remembered."""
        return to_utc(self.expires_ms) if self.expires_ms else None


class ClientState(Struct, frozen=True):
    """How far a client's sequence is; it goes on with the next number."""

    client_id: str
    scope: str
    last_committed_sequence: int = 0
    last_seen: datetime | None = None  # None: never
