"""What a server answers with, as Structs. Members that only a newer server knows are passed over."""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

STATES_AT_REST: Final = frozenset({"success", "failed", "cancelled", "lost"})


class Wire(Struct, frozen=True, rename="camel"):
    """A part of an answer."""


class Job(Wire, frozen=True, kw_only=True, rename="camel"):
    """The one job, as it stood when the answer was made."""

    id: str
    type: str
    state: str
    scope: str = ""
    key: str | None = None
    actor: str = ""
    user: str = ""
    delivery: str = ""
    priority: int = 0
    attempts: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    changed_at: datetime | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    progress: Any = None  # as the latest attempt told it
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Nothing more happens to it by itself."""
        return self.state in STATES_AT_REST


class Idempotency(Wire, frozen=True, rename="camel"):
    outcome: str
    scope: str
    key: str | None = None
    expires_at: datetime | None = None


class Warned(Wire, frozen=True, rename="camel"):
    """A limit that is nearly reached, or quite where it only warns."""

    limit: str
    message: str


class Submitted(Wire, frozen=True, rename="camel"):
    idempotency: Idempotency
    job: Job | None = None
    job_id: str | None = None
    warnings: list[Warned] = field(default_factory=list)


class Receipt(Struct, frozen=True, kw_only=True):
    """What a submission was answered with."""

    outcome: str
    key: str
    scope: str
    job_id: str
    job: Job | None  # None: the server knows this job by its id alone
    expires_at: datetime | None
    attempts: int
    warnings: list[Warned] = field(default_factory=list)

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    @property
    def replayed(self) -> bool:
        return self.outcome == "replayed"


class Verdict(Wire, frozen=True, rename="camel"):
    """One item of a batch."""

    status: int
    job: Job | None = None
    idempotency: Idempotency | None = None
    job_id: str | None = None
    error: object = None


class Verdicts(Wire, frozen=True, rename="camel"):
    verdicts: list[Verdict]


class SequenceReceipt(Wire, frozen=True, kw_only=True, rename="camel"):
    """What a number of a sequence was answered with."""

    outcome: str
    client_id: str
    scope: str
    key: str
    assigned_sequence: int
    last_committed_sequence: int
    jobs: list[Job]
    expires_at: datetime | None = None
    attempts: int = 1

    @property
    def committed(self) -> bool:
        return self.outcome == "COMMITTED"


class ClientState(Wire, frozen=True, rename="camel"):
    client_id: str
    scope: str
    last_committed_sequence: int
    last_seen: datetime | None = None


class OneJob(Wire, frozen=True, rename="camel"):
    job: Job


class JobPage(Wire, frozen=True, rename="camel"):
    """Jobs, newest first. It may be short, even empty: go on while there is a next."""

    jobs: list[Job]
    next: str | None = None


class Event(Wire, frozen=True, rename="camel"):
    at: datetime
    what: str
    actor: str = ""
    detail: str = ""


class Story(Wire, frozen=True, kw_only=True, rename="camel"):
    """What became of a key, and who asked for it."""

    key: str
    scope: str
    status: str
    actor: str
    user: str
    first_seen: datetime
    expires_at: datetime
    held_until: datetime | None = None
    hits: int = 0
    conflicts: int = 0
    last_hit_at: datetime | None = None
    job: Job | None = None
    events: list[Event] = field(default_factory=list)


class KeyPage(Wire, frozen=True, rename="camel"):
    keys: list[Story]
    next: str | None = None


class Forgotten(Wire, frozen=True, rename="camel"):
    usable_after: datetime


class LogPage(Wire, frozen=True, rename="camel"):
    """Log lines from an offset on. Older ones than the newest thousand are not kept."""

    offset: int
    lines: list[str]
    next: int
    total: int
    state: str


class CostLimit(Wire, frozen=True, rename="camel"):
    amount: int | float  # in units
    period: str
    action: str


class Limits(Wire, frozen=True, rename="camel"):
    """None: unlimited."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimit | None = None


class Effective(Wire, frozen=True, rename="camel"):
    """What holds: the own limits, else the tenant's defaults, under its ceiling."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: list[CostLimit] = field(default_factory=list)


class Quota(Wire, frozen=True, rename="camel"):
    user: str
    limits: Limits
    effective: Effective


class TenantQuota(Wire, frozen=True, rename="camel"):
    default: Limits
    ceiling: Limits


class Money(Wire, frozen=True, rename="camel"):
    held: int | float
    spent: dict[str, int | float]  # in this day, week and month


class Usage(Wire, frozen=True, rename="camel"):
    user: str
    used: int
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money: Money
    limits: Effective


class SlotHeld(Wire, frozen=True, rename="camel"):
    id: str
    expires_at: datetime
    user: str = ""
    warnings: list[Warned] = field(default_factory=list)


class SlotSettled(Wire, frozen=True, rename="camel"):
    id: str
    state: str


class Slot(Wire, frozen=True, rename="camel"):
    id: str
    user: str
    state: str
    created_at: datetime
    expires_at: datetime
    job_id: str | None = None


class Slots(Wire, frozen=True, rename="camel"):
    reservations: list[Slot]
