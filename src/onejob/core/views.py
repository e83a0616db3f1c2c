"""How facts look from outside: text ids, UTC times, decoded labels."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, json

from .facts import Job, Record
from .history import Event
from .ids import text_of
from .moment import utc
from .receipt import Caution, Outcome
from .states import Delivery, IdempotencyStatus, JobState


class JobView:
    """The one job, as it stood when the answer was made."""

    __slots__ = ("head",)

    def __init__(self, head: Job) -> None:
        self.head = head

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobView) and self.head == other.head

    def __hash__(self) -> int:
        return hash(self.head.id)

    @property
    def id(self) -> str:
        return text_of(self.head.id)

    @property
    def type(self) -> str:
        return self.head.type

    @property
    def state(self) -> JobState:
        return self.head.state

    @property
    def key(self) -> str | None:
        return self.head.key or None

    @property
    def scope(self) -> str:
        return self.head.scope

    @property
    def actor(self) -> str:
        return self.head.actor

    @property
    def user(self) -> str:
        return self.head.user

    @property
    def delivery(self) -> Delivery:
        return self.head.delivery

    @property
    def priority(self) -> int:
        return self.head.priority

    @property
    def attempts(self) -> int:
        return self.head.attempts

    @property
    def progress(self) -> Any:
        """What the latest attempt told of itself; None: nothing."""
        return json.decode(self.head.progress) if self.head.progress else None

    @property
    def started_at(self) -> datetime | None:
        """When the latest attempt began."""
        return _time(self.head.started_at)

    @property
    def error(self) -> str | None:
        return self.head.error or None

    @property
    def labels(self) -> Mapping[str, str]:
        return json.decode(self.head.labels, type=dict[str, str]) if self.head.labels else {}

    @property
    def created_at(self) -> datetime:
        return utc(self.head.created_at)

    @property
    def changed_at(self) -> datetime:
        return utc(self.head.changed_at)

    @property
    def run_at(self) -> datetime | None:
        return _time(self.head.run_at)

    @property
    def ended_at(self) -> datetime | None:
        return _time(self.head.ended_at)


class Receipt(Struct, frozen=True, kw_only=True):
    """What a submission is answered with."""

    outcome: Outcome
    key: str | None
    scope: str
    head: Job | None = None
    told_id: str = ""  # of a job that is not ours to show: a foreign one, or one that is only named
    expires_ms: int = 0
    receipt: bytes = b""
    paths: tuple[str, ...] = ()  # where a conflicting body differs; only in a forecast
    warnings: tuple[
        Caution, ...
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
        return None if self.head is None else JobView(self.head)

    @property
    def job_id(self) -> str:
        return self.told_id if self.head is None else text_of(self.head.id)

    @property
    def expires_at(self) -> datetime | None:
        """Until then the same key is answered with the same job; None without a key."""
        return _time(self.expires_ms)


class Reservation(Struct, frozen=True):
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
    warnings: tuple[Caution, ...] = ()


class Story(Struct, frozen=True):
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


def story(record: Record, job: Job | None, events: tuple[Event, ...]) -> Story:
    held = record.status is IdempotencyStatus.PENDING and record.lease_until
    return Story(
        key=record.key,
        scope=record.scope,
        status=record.status,
        job=JobView(job) if job else None,
        actor=record.actor,
        user=record.user,
        first_seen=utc(record.created_at),
        expires_at=utc(max(record.expires_at, record.lease_until)),
        held_until=utc(record.lease_until) if held else None,
        hits=record.hits,
        conflicts=record.conflicts,
        last_hit_at=_time(record.last_hit_at),
        events=events,
        events_total=job.events if job else 0,
    )


def _time(ms: int) -> datetime | None:
    return utc(ms) if ms else None
