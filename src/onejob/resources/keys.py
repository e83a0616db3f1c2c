"""An idempotency key: its state, and the history of its use."""

from collections.abc import Sequence

from onejob.core.states import IdempotencyStatus

from . import Items, Resource, UtcTimestamp
from .jobs import EventView, JobView


class KeySummary(Resource, frozen=True):
    """A key and its job, without its events."""

    key: str
    scope: str
    status: IdempotencyStatus
    actor: str
    user: str
    first_seen: UtcTimestamp
    expires_at: UtcTimestamp
    held_until: UtcTimestamp | None
    hits: int
    conflicts: int
    last_hit_at: UtcTimestamp | None
    job: JobView | None


class KeyConflictView(Resource, frozen=True):
    """Another body under the key: `paths` say where it differed. Without any, the bodies were not compared."""

    at: UtcTimestamp
    actor: str
    paths: Sequence[str]


class KeyHistory(KeySummary, frozen=True):
    """A key, its record, its events and its last conflicts."""

    events: Sequence[EventView]
    events_total: int
    recent_conflicts: Sequence[KeyConflictView]  # the last 8, oldest first


class Keys(Resource, Items[KeySummary], frozen=True):
    """Keys without their events. A page may be short, even empty: continue while there is a `next`."""

    keys: list[KeySummary]
    next: str | None  # the cursor of the next page

    def _items(self) -> Sequence[KeySummary]:
        return self.keys


class KeyForgotten(Resource, frozen=True):
    usable_after: UtcTimestamp


class PurgeResult(Resource, frozen=True):
    """What a purge has deleted, and by when its bytes are gone.

    The facts are gone at once. A bucket keeps its log and its snapshots for a day; other stores keep no history of their own.
    """

    erased: int  # facts
    gone_at: UtcTimestamp
