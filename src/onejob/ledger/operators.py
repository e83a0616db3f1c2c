"""What operators ask a ledger: counts and activity, workers, paused types, and one act on all jobs that match a filter."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TypedDict

from msgspec import Struct

from onejob.core.activity import HOURS, MINUTES, Activity, Series
from onejob.core.facts import Job
from onejob.core.identity import format_job_id, is_service_type
from onejob.core.timestamps import to_utc
from onejob.core.work import Resolution
from onejob.engine import Durability
from onejob.errors import (
    Invalid,
    LeaseLost,
    NotAllowed,
    NotFound,
    SubmissionRefused,
    Unavailable,
    Unknown,
    WorkRefused,
)
from onejob.resources.jobs import JobView, to_job_view
from onejob.resources.operators import BulkResult, OverviewView, SeriesView, Types, TypeView, WorkerView
from onejob.runtime.counts import CountsSnapshot
from onejob.runtime.paused_types import PausedType
from onejob.runtime.present import to_utc_or_none
from onejob.runtime.workers import list_workers, to_worker_view

from .base import LedgerBase
from .reads import JobFilter
from .submissions import SubmissionOperations
from .work import WorkOperations

BULK_PAGE_MAX = 500  # jobs that one call changes
BULK_COUNT_MAX = 10_000  # matches that one call counts
BULK_ERRORS_MAX = 10


class Overview(Struct, frozen=True):
    now: int  # the engine's time
    counts: CountsSnapshot
    activity: Activity


class BulkAction(StrEnum):
    CANCEL = "cancel"
    RERUN = "rerun"
    RESOLVE_SUCCEEDED = "resolve-succeeded"
    RESOLVE_FAILED = "resolve-failed"


class _VerbKey(TypedDict):
    idempotency_key: str | None


class OverviewOperations(LedgerBase):
    async def overview(self) -> Overview:
        """Counts and activity of the tenant: the same in all processes."""
        self._require_overseer()
        tenant = self._caller.tenant
        counts, now = await self._runtime.job_counts.load(tenant)
        activity, _ = await self._runtime.activity.load(tenant)
        return Overview(now, counts, activity)

    async def workers(self) -> list[WorkerView]:
        """The workers that run jobs of this tenant and were heard of within the last minute."""
        return [to_worker_view(info) for info in await list_workers(self._gate, self._caller.tenant)]

    async def paused_types(self) -> list[PausedType]:
        return await self._runtime.paused_types.list(self._caller.tenant)

    async def pause_type(self, type: str) -> None:
        """Let nobody claim jobs of a type, within two seconds. Submissions are accepted, and running jobs go on."""
        await self._runtime.paused_types.pause(self._caller.tenant, type, by=self._caller.actor)

    async def resume_type(self, type: str) -> None:
        await self._runtime.paused_types.resume(self._caller.tenant, type)

    async def count_jobs(self, filter: JobFilter) -> tuple[int, bool]:
        """How many jobs match, up to BULK_COUNT_MAX; and whether there are more."""
        self._require_overseer()
        total, before = 0, None
        while total < BULK_COUNT_MAX:
            page = await self._gate.scan(filter.to_query(self._caller.tenant, before=before, limit=1000))
            total += len(_without_service_jobs(page.items, filter))
            if not page.more:
                return total, False
            before = format_job_id(page.scanned_to or page.items[-1].id)
        return total, True

    async def bulk_action(
        self, action: BulkAction, filter: JobFilter, *, before: str | None = None, idempotency_key: str | None = None
    ) -> BulkResult:
        """Cancel, rerun or resolve the next jobs that match a filter; call it again with `next` for the others.

        A job that cannot be changed (it has ended meanwhile, the quota is full) does not stop the others. Jobs of
        the service itself, which belong to other jobs, match only a filter that names their type.
        """
        self._require_overseer()
        query = filter.to_query(self._caller.tenant, before=before, limit=BULK_PAGE_MAX)
        page = await self._gate.scan(query)
        changed, errors = 0, list[str]()
        jobs = _without_service_jobs(page.items, filter)
        for job in jobs:
            try:
                changed += (await self._act(action, to_job_view(job), idempotency_key)).state is not job.state
            except (Invalid, LeaseLost, NotFound, SubmissionRefused, WorkRefused) as error:
                if len(errors) < BULK_ERRORS_MAX:
                    errors.append(f"{format_job_id(job.id)}: {error}")
            except Unavailable as error:
                if not changed:
                    raise
                raise Unknown(f"{changed} jobs were changed before the store failed ({error}); do it again") from error
        last = page.scanned_to or (page.items[-1].id if page.items else b"")
        return BulkResult(len(jobs), changed, errors, format_job_id(last) if page.more else None, more=False)

    async def _act(self, action: BulkAction, job: JobView, idempotency_key: str | None) -> JobView:
        key: _VerbKey = {"idempotency_key": idempotency_key}
        submissions, work = (
            SubmissionOperations(self._runtime, self._caller),
            WorkOperations(self._runtime, self._caller),
        )
        verbs: dict[BulkAction, Callable[[], Awaitable[JobView]]] = {
            BulkAction.CANCEL: lambda: submissions.cancel(job.id, **key),
            BulkAction.RERUN: lambda: work.rerun(job.id, **key),
            BulkAction.RESOLVE_SUCCEEDED: lambda: work.resolve(job.id, Resolution.SUCCEEDED, **key),
            BulkAction.RESOLVE_FAILED: lambda: work.resolve(job.id, Resolution.FAILED, **key),
        }
        return await verbs[action]()

    def _require_overseer(self) -> None:
        if not self._caller.sees_all_users:
            raise NotAllowed("you see only your own jobs; ask for a credential with the role operator")


def _without_service_jobs(jobs: Sequence[Job], filter: JobFilter) -> Sequence[Job]:
    return [job for job in jobs if filter.type is not None or not is_service_type(job.type)]


def to_overview_view(
    overview: Overview, paused: list[PausedType], *, engine: str, durability: Durability, caveat: str
) -> OverviewView:
    series = overview.activity.series
    return OverviewView(
        now=to_utc(overview.now),
        engine=engine,
        durability=durability,
        caveat=caveat,
        counted_at=to_utc_or_none(overview.counts.at),
        states=overview.counts.by_state(),
        types=_to_type_views(overview, paused),
        types_are_complete=overview.counts.is_complete,
        live_keys=overview.counts.keys,
        submissions={name: _to_series_view(row) for name, row in series.items() if not name.startswith("end:")},
        ends={name[4:]: _to_series_view(row) for name, row in series.items() if name.startswith("end:")},
    )


def to_types(overview: Overview, paused: list[PausedType]) -> Types:
    return Types(to_utc_or_none(overview.counts.at), _to_type_views(overview, paused))


def _to_type_views(overview: Overview, paused: list[PausedType]) -> list[TypeView]:
    pauses = {pause.type: pause for pause in paused}
    counts, ended = overview.counts.types, overview.activity.types
    return [
        TypeView(
            type=type,
            states=counts[type].states if type in counts else {},
            ready=counts[type].ready if type in counts else 0,
            oldest_ready_seconds=(
                max(overview.now - counts[type].oldest_ready_at, 0) / 1000
                if type in counts and counts[type].oldest_ready_at
                else None
            ),
            ended_last_day={name: sum(row.hours) for name, row in ended.get(type, {}).items()},
            paused_since=pauses[type].since if type in pauses else None,
            paused_by=pauses[type].by if type in pauses else None,
        )
        for type in sorted({*counts, *ended, *pauses})
    ]


def _to_series_view(series: Series) -> SeriesView:
    return SeriesView(_oldest_first(series.minutes, MINUTES), _oldest_first(series.hours, HOURS))


def _oldest_first(counts: tuple[int, ...], length: int) -> list[int]:
    return [*reversed(counts + (0,) * (length - len(counts)))]
