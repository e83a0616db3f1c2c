"""What operators see: counts of jobs and what happened to them, job types, workers, and one act on many jobs."""

from onejob.engine import Durability

from . import Resource, UtcTimestamp


class SeriesView(Resource, frozen=True):
    """Counts over time, the oldest first; the last one is the current minute or hour."""

    minutes: list[int]
    hours: list[int]


class TypeView(Resource, frozen=True):
    """The jobs of one type. The counts are those of the last snapshot."""

    type: str
    states: dict[str, int]
    ready: int  # jobs that wait for a worker
    oldest_ready_seconds: float | None
    ended_last_day: dict[str, int]  # attempts by how they ended
    paused_since: UtcTimestamp | None
    paused_by: str | None


class OverviewView(Resource, frozen=True):
    now: UtcTimestamp
    engine: str
    durability: Durability
    caveat: str
    counted_at: UtcTimestamp | None  # when the jobs were counted; null: not yet
    states: dict[str, int]
    types: list[TypeView]
    types_are_complete: bool
    live_keys: int  # of the tenant, when the jobs were counted; those that expired lately are among them
    submissions: dict[str, SeriesView]  # by outcome
    ends: dict[str, SeriesView]  # attempts by how they ended


class Types(Resource, frozen=True):
    counted_at: UtcTimestamp | None
    types: list[TypeView]


class TypePaused(Resource, frozen=True):
    type: str
    paused: bool


class WorkerView(Resource, frozen=True):
    """A worker process as it announced itself."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    concurrency: int
    running: int
    ended: dict[str, int]  # attempts since its start, by outcome
    all_tenants: bool
    started_at: UtcTimestamp
    seen_at: UtcTimestamp


class Workers(Resource, frozen=True):
    workers: list[WorkerView]


class BulkResult(Resource, frozen=True):
    matched: int
    changed: int
    errors: list[str]  # of jobs that could not be changed, at most BULK_ERRORS_MAX
    next: str | None  # the `cursor` of the following call; null: all that match were visited
    more: bool  # of a dry run: more jobs match than were counted
