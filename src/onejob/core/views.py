"""How facts look from outside: text ids, UTC times, decoded labels."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, json

from .facts import Job, Record
from .history import Event
from .ids import format_job_id
from .moment import to_utc
from .receipt import LimitWarning, Outcome
from .states import Delivery, IdempotencyStatus, JobState


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
    warnings: tuple[
        LimitWarning, ...
    ] = ()  # limits that are nearly reached; in a forecast also the one that refuses
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
