"""The response bodies of the server as Structs. Unknown members of a newer server are ignored."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

TERMINAL_STATES: Final = frozenset({"success", "failed", "cancelled", "lost"})


class ResponseModel(Struct, frozen=True, rename="camel"):
    """A response body, or a part of one."""


class JobModel(ResponseModel, frozen=True, kw_only=True, rename="camel"):
    """A job as it was when the server responded."""

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
    progress: Any = None  # reported by the latest attempt
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL_STATES


class IdempotencyModel(ResponseModel, frozen=True, rename="camel"):
    outcome: str
    scope: str
    key: str | None = None
    expires_at: datetime | None = None


class WarningModel(ResponseModel, frozen=True, rename="camel"):
    """A limit that is nearly reached, or reached where it only warns."""

    limit: str
    message: str


class SubmitResponseModel(ResponseModel, frozen=True, rename="camel"):
    idempotency: IdempotencyModel
    job: JobModel | None = None
    job_id: str | None = None
    warnings: list[WarningModel] = field(default_factory=list)


class ReceiptModel(Struct, frozen=True, kw_only=True):
    """The result of a submission."""

    outcome: str
    key: str
    scope: str
    job_id: str
    job: JobModel | None  # None if the server knows the job by its id alone
    expires_at: datetime | None
    attempts: int
    warnings: list[WarningModel] = field(default_factory=list)

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    @property
    def replayed(self) -> bool:
        return self.outcome == "replayed"


class BatchItemModel(ResponseModel, frozen=True, rename="camel"):
    status: int
    job: JobModel | None = None
    idempotency: IdempotencyModel | None = None
    job_id: str | None = None
    error: object = None


class BatchResponseModel(ResponseModel, frozen=True, rename="camel"):
    verdicts: list[BatchItemModel]


class SequenceReceiptModel(ResponseModel, frozen=True, kw_only=True, rename="camel"):
    """The result of a submission under a sequence number."""

    outcome: str
    client_id: str
    scope: str
    key: str
    assigned_sequence: int
    last_committed_sequence: int
    jobs: list[JobModel]
    expires_at: datetime | None = None
    attempts: int = 1

    @property
    def committed(self) -> bool:
        return self.outcome == "COMMITTED"


class ClientStateModel(ResponseModel, frozen=True, rename="camel"):
    client_id: str
    scope: str
    last_committed_sequence: int
    last_seen: datetime | None = None


class JobResponseModel(ResponseModel, frozen=True, rename="camel"):
    job: JobModel


class JobPageModel(ResponseModel, frozen=True, rename="camel"):
    """Jobs, newest first. A page may be short, even empty: continue while there is a next."""

    jobs: list[JobModel]
    next: str | None = None

    def __iter__(self) -> Iterator[JobModel]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, index: int) -> JobModel:
        return self.jobs[index]


class EventModel(ResponseModel, frozen=True, rename="camel"):
    at: datetime
    what: str
    actor: str = ""
    detail: str = ""


class SiteModel(ResponseModel, frozen=True, rename="camel"):
    """How a job stands at one of its data centres, as far as the server has heard."""

    site: str
    state: str | None = None  # of the job there, `other job`, `refused` or `unknown`; None: it has not answered
    at: datetime | None = None
    on_its_way: str | None = None  # `submission` or `cancel`
    error: str | None = None
    error_at: datetime | None = None
    other_job: str | None = None  # of `other job`: the id of the job that the key belongs to there
    prevailing_job: str | None = None  # of that job and this one, the one with the smaller id
    cancel_at: str | None = None  # the site at which the other one of the two is to be cancelled
    cancel_command: str | None = None  # which cancels it there
    paths: list[str] = field(default_factory=list)  # where the two submissions differ


class SitesModel(ResponseModel, frozen=True, rename="camel"):
    sites: list[SiteModel]


class FailuresModel(ResponseModel, frozen=True, rename="camel"):
    failures: list[EventModel]


class KeyConflictModel(ResponseModel, frozen=True, rename="camel"):
    """Another body under the key, and where it differed."""

    at: datetime
    actor: str = ""
    paths: list[str] = field(default_factory=list)


class KeyHistoryModel(ResponseModel, frozen=True, kw_only=True, rename="camel"):
    """The state and the history of a key."""

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
    job: JobModel | None = None
    events: list[EventModel] = field(default_factory=list)
    recent_conflicts: list[KeyConflictModel] = field(default_factory=list)


class KeyPageModel(ResponseModel, frozen=True, rename="camel"):
    """Keys without their events. A page may be short, even empty: continue while there is a next."""

    keys: list[KeyHistoryModel]
    next: str | None = None

    def __iter__(self) -> Iterator[KeyHistoryModel]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> KeyHistoryModel:
        return self.keys[index]


class ForgetResponseModel(ResponseModel, frozen=True, rename="camel"):
    usable_after: datetime


class LogPageModel(ResponseModel, frozen=True, rename="camel"):
    """Log lines from an offset on; only the newest thousand are kept."""

    offset: int
    lines: list[str]
    next: int
    total: int
    state: str


class CostLimitModel(ResponseModel, frozen=True, rename="camel"):
    amount: int | float  # in units
    period: str
    action: str


class LimitsModel(ResponseModel, frozen=True, rename="camel"):
    """The limits of a user; None means unlimited."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimitModel | None = None


class EffectiveLimitsModel(ResponseModel, frozen=True, rename="camel"):
    """The limits in effect: those of the user, else the tenant's default, under its ceiling."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: list[CostLimitModel] = field(default_factory=list)


class QuotaModel(ResponseModel, frozen=True, rename="camel"):
    user: str
    limits: LimitsModel
    effective: EffectiveLimitsModel


class TenantQuotaModel(ResponseModel, frozen=True, rename="camel"):
    default: LimitsModel
    ceiling: LimitsModel


class MoneyModel(ResponseModel, frozen=True, rename="camel"):
    held: int | float
    spent: dict[str, int | float]  # in this day, week and month


class UsageModel(ResponseModel, frozen=True, rename="camel"):
    user: str
    used: int
    live: int
    reserved: int
    last_hour: int
    last_day: int
    money: MoneyModel
    limits: EffectiveLimitsModel


class HeldSlotModel(ResponseModel, frozen=True, rename="camel"):
    id: str
    expires_at: datetime
    user: str = ""
    warnings: list[WarningModel] = field(default_factory=list)


class SettledSlotModel(ResponseModel, frozen=True, rename="camel"):
    id: str
    state: str
    was_known: bool = True


class SlotReservationModel(ResponseModel, frozen=True, rename="camel"):
    id: str
    user: str
    state: str
    created_at: datetime
    expires_at: datetime
    job_id: str | None = None


class SlotReservationsModel(ResponseModel, frozen=True, rename="camel"):
    reservations: list[SlotReservationModel]
