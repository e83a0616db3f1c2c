"""What a console lists besides jobs and keys: a search, a job's details, callbacks, sequenced clients, reservations."""

from msgspec import field

from . import Resource, UtcTimestamp
from .jobs import EventView, JobView
from .keys import KeySummary
from .quotas import SlotReservation


class SearchResult(Resource, frozen=True):
    job: JobView | None
    keys: tuple[KeySummary, ...]


class CallbackView(Resource, frozen=True):
    """A callback is a job of its own; it is `preparing` until the job that it reports has ended."""

    job: JobView  # of the callback itself: its attempts, its error, when it is tried next
    of: str = field(name="reportedJobId")
    url: str | None  # may contain a secret, so null for callers who may not inspect


class JobHistory(Resource, frozen=True):
    job: JobView
    attempts_max: int
    timeout_seconds: float | None
    estimated_cost: float | None
    lease_until: UtcTimestamp | None  # null: no worker has it
    worker: str | None  # the name of the worker that has or had it last, if it gave one
    delete_after: UtcTimestamp | None  # null: it has not ended
    log_lines: int
    events: tuple[EventView, ...]
    events_total: int
    callback: CallbackView | None


class Callbacks(Resource, frozen=True):
    callbacks: list[CallbackView]
    next: str | None


class UserReservations(Resource, frozen=True):
    reservations: list[SlotReservation]
    next: str | None


class SequencedClient(Resource, frozen=True):
    client_id: str
    scope: str
    owner: str
    last_committed_sequence: int
    last_seen: UtcTimestamp
    expires_at: UtcTimestamp
    is_idle: bool  # True: only the number is left, its keys have expired


class Clients(Resource, frozen=True):
    clients: list[SequencedClient]
    next: str | None
