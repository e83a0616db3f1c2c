"""What a server answers with, as Structs. Members that only a newer server knows are passed over."""

from datetime import datetime
from typing import Final

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
    ended_at: datetime | None = None
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


class Submitted(Wire, frozen=True, rename="camel"):
    idempotency: Idempotency
    job: Job | None = None
    job_id: str | None = None


class Receipt(Struct, frozen=True, kw_only=True):
    """What a submission was answered with."""

    outcome: str
    key: str
    scope: str
    job_id: str
    job: Job | None  # None: the server knows this job by its id alone
    expires_at: datetime | None
    attempts: int

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
