"""Present replies to Python callers: receipts and stored values are returned, everything else is raised."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import json
from msgspec.structs import asdict

from onejob.core.facts import AttachmentKind, Job, Memo, Record, is_held
from onejob.core.identity import format_job_id
from onejob.core.maintenance import decode_conflicts
from onejob.core.replies import (
    AnyReply,
    Conflict,
    Defect,
    Found,
    InProgress,
    Missing,
    Reason,
    Refused,
    Rejected,
)
from onejob.core.sites import REFUSED, WITHOUT_EFFECT, SiteAnswer, Sites, decode_answer, runs_elsewhere, site_of
from onejob.core.states import ENDED_STATES, JobState
from onejob.core.timestamps import to_utc
from onejob.core.work import Event, first_event
from onejob.engine import PAGE_MAX, Engine, ListAttachments
from onejob.errors import (
    DefectiveCommand,
    IdempotencyConflict,
    Invalid,
    LeaseLost,
    NotFound,
    Outdated,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
)
from onejob.resources.jobs import EventView, LogPage, SiteView, StepState, StepView, to_job_view
from onejob.resources.keys import KeyConflictView, KeyHistory, KeySummary

_LEASE_LOST_REASONS = (Reason.STALE, Reason.ALREADY_SETTLED)
OFFSET_MAX = 2**53 - 1


def to_step_view(memo: Memo) -> StepView:
    state = StepState.FINISHED if memo.ended_at else StepState.BEGUN
    return StepView(memo.name, state, memo.runs, to_utc(memo.began_at), to_utc_or_none(memo.ended_at), memo.token)


def to_event_view(event: Event) -> EventView:
    return EventView(to_utc(event.at), event.what, event.actor, event.detail)


def to_key_summary(record: Record, job: Job | None) -> KeySummary:
    return KeySummary(
        key=record.key,
        scope=record.scope,
        status=record.status,
        actor=record.actor,
        user=record.user,
        first_seen=to_utc(record.created_at),
        expires_at=to_utc(max(record.expires_at, record.lease_until)),
        held_until=to_utc(record.lease_until) if is_held(record) else None,
        hits=record.hits,
        conflicts=record.conflicts,
        last_hit_at=to_utc_or_none(record.last_hit_at),
        job=to_job_view(job) if job else None,
    )


def to_utc_or_none(ms: int) -> datetime | None:
    return to_utc(ms) if ms else None


def job_id_text(job_id: bytes) -> str:
    return format_job_id(job_id) if job_id else ""


class SettingsChanged(Unavailable):
    """The command was built under older settings of the ledger, and was not executed. The verbs build it again."""


def to_exception(reply: AnyReply | BaseException, key: str, paths: tuple[str, ...] = ()) -> BaseException:
    """The exception for a reply that is not the expected result."""
    match reply:
        case BaseException():
            return reply
        case Conflict():
            return IdempotencyConflict(key=key, job_id=reply.external_id or job_id_text(reply.job_id), paths=paths)
        case InProgress():
            return SubmissionInProgress(
                key=key, job_id=job_id_text(reply.job_id), retry_after=reply.retry_after_ms / 1000
            )
        case Rejected():
            return SubmissionRejected(key=key, job_id=job_id_text(reply.job_id), receipt=reply.receipt)
        case Refused() if reply.reason in _LEASE_LOST_REASONS:
            return LeaseLost(reply.message, reply.details)
        case Refused(reason=Reason.SETTINGS_CHANGED):
            return SettingsChanged(reply.message)
        case Refused():
            return SubmissionRefused(key=key, reason=reply.reason, message=reply.message, details=reply.details)
        case Missing():
            return NotFound("no such job or key; it may have expired, or belong to another user")
        case Defect(retryable=True):
            return Outdated(reply.message)
        case Defect():
            return DefectiveCommand(f"{reply.message}; this is a bug in onejob, please report it")
    return DefectiveCommand(f"unexpected reply {type(reply).__name__}; this is a bug in onejob, please report it")


async def load_input(engine: Engine, tenant: str, job_id: bytes) -> bytes:
    page = await engine.scan(ListAttachments(tenant=tenant, job_id=job_id, kind=AttachmentKind.INPUT, limit=1))
    if not page.items:
        raise NotFound("no such job; it may have expired, or belong to another user")
    return page.items[0].data


async def load_result(engine: Engine, job: Job) -> bytes:
    """The result of a job as JSON; empty if there is none."""
    query = ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.RESULT, start=job.token, limit=1)
    page = await engine.scan(query)
    return page.items[0].data if page.items else b""


async def load_log_page(engine: Engine, job: Job, *, offset: int, limit: int) -> LogPage:
    if not 0 <= offset <= OFFSET_MAX or not 1 <= limit <= PAGE_MAX:
        raise Invalid("offset", f"offset counts lines from 0, and a page has 1 to {PAGE_MAX} lines; choose others")
    query = ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.LOG, start=offset, limit=limit)
    items = (await engine.scan(query)).items if job.logs > offset else ()
    first = items[0].index if items else max(offset, job.logs)
    lines = tuple(item.data.decode() for item in items)
    following = first + len(lines)
    return LogPage(first, lines, following, max(job.logs, following), job.state)


async def load_events(engine: Engine, job: Job) -> tuple[EventView, ...]:
    """The events of a job that are still stored; the first one follows from the job row."""
    stored = await _load_event_views(engine, job, AttachmentKind.EVENT)
    return (to_event_view(first_event(job)), *stored)


async def load_failures(engine: Engine, job: Job) -> tuple[EventView, ...]:
    return await _load_event_views(engine, job, AttachmentKind.FAILURE)


async def _load_event_views(engine: Engine, job: Job, kind: AttachmentKind) -> tuple[EventView, ...]:
    page = await engine.scan(ListAttachments(tenant=job.tenant, job_id=job.id, kind=kind))
    return tuple(to_event_view(json.decode(item.data, type=Event)) for item in page.items)


async def load_key_history(engine: Engine, reply: AnyReply, key: str) -> KeyHistory:
    """The record of a key, and the events of its job."""
    if not isinstance(reply, Found) or reply.record is None:
        raise to_exception(reply, key)
    conflicts = decode_conflicts(reply.record.recent_conflicts)
    return KeyHistory(
        **asdict(to_key_summary(reply.record, reply.job)),
        events=await load_events(engine, reply.job) if reply.job else (),
        events_total=reply.job.events if reply.job else 0,
        recent_conflicts=tuple(
            KeyConflictView(to_utc(conflict.at), conflict.actor, conflict.paths) for conflict in conflicts
        ),
    )


def to_site_views(job: Job, deliveries: Iterable[Job], sites: Sites) -> list[SiteView]:
    answered = [(delivery, decode_answer(delivery)) for delivery in deliveries]
    homes = {answer.other_job: site_of(delivery) for delivery, answer in answered if answer.is_other_home}
    remains = _may_succeed(job, [answer for _, answer in answered])
    views = [_to_site_view(job, delivery, answer, homes, sites, remains=remains) for delivery, answer in answered]
    if views and not runs_elsewhere(job):
        views.append(
            SiteView(
                site=sites.here or "here",
                state=job.state,
                at=to_utc(job.changed_at),
                on_its_way=None,
                error=None,
                error_at=None,
            )
        )
    return sorted(views, key=lambda view: view.site)


def _may_succeed(job: Job, answers: Iterable[SiteAnswer]) -> bool:
    """True if the job has succeeded, or may still do, here or at a site: only then another one is too many."""
    states: list[str] = [answer.state for answer in answers]
    if not runs_elsewhere(job):
        states.append(job.state)
    return job.state is not JobState.CANCELLED and not WITHOUT_EFFECT.issuperset(states)


def _to_site_view(
    job: Job, delivery: Job, answer: SiteAnswer, homes: Mapping[str, str], sites: Sites, *, remains: bool
) -> SiteView:
    on_its_way = "cancel" if job.state is JobState.CANCELLED else None if answer.state else "submission"
    site, own_id, other_id = site_of(delivery), format_job_id(job.id), answer.other_job
    prevailing, cancel_at, cancel_command = None, None, None
    if other_id and not answer.is_external:
        prevailing = min(own_id, other_id)
        if prevailing == own_id and remains:
            cancel_at = homes.get(other_id, site)
            cancel_command = _cancel_command(other_id, sites.urls.get(cancel_at))
        elif prevailing == other_id and job.state not in ENDED_STATES:
            cancel_at, cancel_command = sites.here, _cancel_command(own_id, None)
    return SiteView(
        site=site,
        state=answer.state or (REFUSED if answer.is_refused else None),
        at=to_utc(answer.at) if answer.at else None,
        on_its_way=None if delivery.state in ENDED_STATES else on_its_way,
        error=answer.error or None,
        error_at=to_utc(answer.error_at) if answer.error_at else None,
        other_job=other_id or None,
        prevailing_job=prevailing,
        cancel_at=cancel_at,
        cancel_command=cancel_command,
        paths=answer.paths,
    )


def _cancel_command(job_id: str, url: str | None) -> str:
    """For a shell of the site, unless its address is known."""
    return f"onejob cancel {job_id}" + (f" --url {url}" if url else "")
