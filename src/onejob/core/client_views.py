"""How a sequenced client sees its submissions and itself."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from .facts import Job
from .moment import to_utc
from .receipt import LimitWarning
from .views import JobView


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
    assigned_sequence: (
        int  # under which it was executed: not the one that was sent, where the key is an older one
    )
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
