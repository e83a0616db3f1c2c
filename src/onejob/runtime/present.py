"""Present replies to Python callers: receipts and stored values are returned, everything else is raised."""

from msgspec import Struct, json

from onejob.core.facts import AttachmentKind, Job
from onejob.core.identity import format_job_id
from onejob.core.replies import (
    AnyReply,
    Conflict,
    Defect,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Missing,
    Outcome,
    Reason,
    Refused,
    Rejected,
)
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.timestamps import to_utc
from onejob.core.views import HeldKey, KeyHistory, Receipt, to_key_history
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

_LEASE_LOST_REASONS = (Reason.STALE, Reason.ALREADY_SETTLED)
OFFSET_MAX = 2**53 - 1


class LogPage(Struct, frozen=True):
    """Log lines from an offset on; only the newest thousand are kept."""

    offset: int  # of the first line in this page
    lines: tuple[str, ...]
    total: int  # how many were written
    state: JobState

    @property
    def next(self) -> int:
        return self.offset + len(self.lines)


def job_id_text(job_id: bytes) -> str:
    return format_job_id(job_id) if job_id else ""


# A key that was released unsettled is pending: its submission was refused this time and may succeed later.
_OUTCOME_BY_STATUS = {
    IdempotencyStatus.COMMITTED: Outcome.CREATED,
    IdempotencyStatus.REJECTED: Outcome.REJECTED,
    IdempotencyStatus.PENDING: Outcome.REFUSED,
}


def build_held_key(held: KeyHeld, *, key: str, scope: str, lease_ms: int, lease_end: float) -> HeldKey:
    return HeldKey(
        key,
        scope,
        job_id_text(held.job_id),
        held.token,
        lease_ms,
        to_utc(held.lease_until),
        held.taken_over,
        held.record_id,
        held.holder,
        held.warnings,
        lease_end,
    )


def build_settled_receipt(reply: KeySettled) -> Receipt:
    record = reply.record
    return Receipt(
        outcome=_OUTCOME_BY_STATUS[record.status],
        key=record.key,
        scope=record.scope,
        job_row=reply.job,
        named_job_id=record.external_id,
        expires_ms=0 if record.status is IdempotencyStatus.PENDING else record.expires_at,
        receipt=record.receipt,
    )


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
    return LogPage(first, lines, max(job.logs, first + len(lines)), job.state)


async def load_events(engine: Engine, job: Job) -> tuple[Event, ...]:
    """The events of a job that are still stored; the first one follows from the job row."""
    page = await engine.scan(ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.EVENT))
    return (first_event(job), *(json.decode(item.data, type=Event) for item in page.items))


async def load_failures(engine: Engine, job: Job) -> tuple[Event, ...]:
    page = await engine.scan(ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.FAILURE))
    return tuple(json.decode(item.data, type=Event) for item in page.items)


async def load_key_history(engine: Engine, reply: AnyReply, key: str) -> KeyHistory:
    """The record of a key, and the events of its job."""
    if not isinstance(reply, Found) or reply.record is None:
        raise to_exception(reply, key)
    return to_key_history(reply.record, reply.job, await load_events(engine, reply.job) if reply.job else ())
