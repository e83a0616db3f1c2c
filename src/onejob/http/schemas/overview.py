"""JSON bodies for operators: the overview, workers, job types, and one act on many jobs."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from onejob.core.activity import HOURS, MINUTES, Series
from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.engine import Durability
from onejob.ledger.operators import BulkAction, Overview
from onejob.runtime.paused_types import PausedType
from onejob.runtime.workers import WorkerInfo

from .types import JOB_ID, LABEL, RequestBody, ResponseBody, Timestamp, UtcTimestamp


class SeriesOut(ResponseBody, frozen=True, rename="camel"):
    """Counts over time, the oldest first; the last one is the current minute or hour."""

    minutes: list[int]
    hours: list[int]


class TypeOut(ResponseBody, frozen=True, rename="camel"):
    """The jobs of one type. The counts are those of the last snapshot."""

    type: str
    states: dict[str, int]
    ready: int  # jobs that wait for a worker
    oldest_ready_seconds: float | None
    ended_last_day: dict[str, int]  # attempts by how they ended
    paused_since: UtcTimestamp | None
    paused_by: str | None


class OverviewOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    now: UtcTimestamp
    engine: str
    durability: Durability
    caveat: str
    counted_at: UtcTimestamp | None  # when the jobs were counted; null: not yet
    states: dict[str, int]
    types: list[TypeOut]
    types_are_complete: bool
    live_keys: int  # of the tenant, when the jobs were counted; those that expired lately are among them
    submissions: dict[str, SeriesOut]  # by outcome
    ends: dict[str, SeriesOut]  # attempts by how they ended


class TypesOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    counted_at: UtcTimestamp | None
    types: list[TypeOut]


class WorkerOut(ResponseBody, frozen=True, rename="camel"):
    id: str
    name: str
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    concurrency: int
    running: int
    ended: dict[str, int]
    all_tenants: bool
    started_at: UtcTimestamp
    seen_at: UtcTimestamp


class WorkersOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    workers: list[WorkerOut]


class TypePausedOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    type: str
    paused: bool


class JobFilterBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    state: JobState | UnsetType = UNSET
    type: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    label: Annotated[str, Meta(description="As `name=value`.", extra_json_schema=LABEL)] | UnsetType = UNSET
    created_after: Timestamp | UnsetType = UNSET
    created_before: Timestamp | UnsetType = UNSET


class BulkBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    action: BulkAction
    filter: Annotated[JobFilterBody, Meta(extra_json_schema={"minProperties": 1})]
    cursor: Annotated[str, Meta(extra_json_schema=JOB_ID)] | UnsetType = UNSET
    dry_run: bool = False


class BulkOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    matched: int
    changed: int
    errors: list[str]
    next: str | None  # the `cursor` of the following call; null: all that match were visited
    more: bool  # of a dry run: more jobs match than were counted


def overview_out(
    overview: Overview, paused: list[PausedType], request_id: str, *, engine: str, durability: Durability, caveat: str
) -> OverviewOut:
    series = overview.activity.series
    return OverviewOut(
        request_id=request_id,
        now=to_utc(overview.now),
        engine=engine,
        durability=durability,
        caveat=caveat,
        counted_at=_counted_at(overview),
        states=overview.counts.by_state(),
        types=types_out(overview, paused),
        types_are_complete=overview.counts.is_complete,
        live_keys=overview.counts.keys,
        submissions={name: series_out(one) for name, one in series.items() if not name.startswith("end:")},
        ends={name[4:]: series_out(one) for name, one in series.items() if name.startswith("end:")},
    )


def types_out(overview: Overview, paused: list[PausedType]) -> list[TypeOut]:
    pauses = {one.type: one for one in paused}
    counts, ended = overview.counts.types, overview.activity.types
    return [
        TypeOut(
            type=type,
            states=counts[type].states if type in counts else {},
            ready=counts[type].ready if type in counts else 0,
            oldest_ready_seconds=(
                max(overview.now - counts[type].oldest_ready_at, 0) / 1000
                if type in counts and counts[type].oldest_ready_at
                else None
            ),
            ended_last_day={name: sum(one.hours) for name, one in ended.get(type, {}).items()},
            paused_since=pauses[type].since if type in pauses else None,
            paused_by=pauses[type].by if type in pauses else None,
        )
        for type in sorted({*counts, *ended, *pauses})
    ]


def series_out(series: Series) -> SeriesOut:
    return SeriesOut(_oldest_first(series.minutes, MINUTES), _oldest_first(series.hours, HOURS))


def worker_out(info: WorkerInfo) -> WorkerOut:
    return WorkerOut(
        id=info.id,
        name=info.name,
        host=info.host,
        pid=info.pid,
        version=info.version,
        types=info.types,
        concurrency=info.concurrency,
        running=info.running,
        ended=info.ended,
        all_tenants=info.tenant is None,
        started_at=to_utc(info.started_at or info.seen_at),
        seen_at=to_utc(info.seen_at),
    )


def _counted_at(overview: Overview) -> datetime | None:
    return to_utc(overview.counts.at) if overview.counts.at else None


def _oldest_first(counts: tuple[int, ...], length: int) -> list[int]:
    return [*reversed(counts + (0,) * (length - len(counts)))]
