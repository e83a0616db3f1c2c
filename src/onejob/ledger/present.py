"""Present replies to Python callers: receipts and stored values are returned, everything else is raised."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, json

from onejob.core.facts import AttachmentKind, Job
from onejob.core.fingerprint import differing_paths
from onejob.core.identity import format_job_id
from onejob.core.lookup import LookUpJob
from onejob.core.replies import (
    AnyReply,
    Conflict,
    Created,
    Defect,
    DryRunReply,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    LimitName,
    LimitWarning,
    Missing,
    Outcome,
    Reason,
    Refused,
    Rejected,
    Replayed,
)
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.submit import SubmissionCommand, Submit
from onejob.core.timestamps import to_utc
from onejob.core.views import HeldKey, KeyHistory, Receipt, to_key_history
from onejob.core.work import Event, first_event
from onejob.engine import PAGE_MAX, Engine, ListAttachments
from onejob.errors import (
    DefectiveCommand,
    IdempotencyConflict,
    Invalid,
    LeaseLost,
    MayBeDone,
    NotFound,
    OnejobError,
    Outdated,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unknown,
)

_OUTCOMES: dict[type[Any], Outcome] = {
    Created: Outcome.CREATED,
    KeyHeld: Outcome.CREATED,
    Replayed: Outcome.REPLAYED,
    InProgress: Outcome.IN_PROGRESS,
    Conflict: Outcome.CONFLICT,
    Rejected: Outcome.REJECTED,
    Refused: Outcome.REFUSED,
}
_CREATED, _REPLAYED = Outcome.CREATED, Outcome.REPLAYED  # looked up once: nearly every receipt has one of them
_LEASE_LOST_REASONS = (Reason.STALE, Reason.ALREADY_SETTLED)
# Bodies are compared on the event loop: beyond these limits a conflict is reported without its paths.
COMPARED_BYTES_MAX = 64 << 10
COMPARED_MAX = 20
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


def build_receipt(command: SubmissionCommand, result: AnyReply | BaseException) -> Receipt | None:
    """The receipt of a submission that was created or replayed; None for any other result."""
    if isinstance(result, Created):
        return Receipt(
            outcome=_CREATED,
            key=command.key or None,
            scope=command.scope,
            job_row=result.job,
            expires_ms=result.expires_at,
            warnings=result.warnings,
            taken_over=result.job.id != command.job_id,
        )
    if isinstance(result, Replayed):
        return Receipt(
            outcome=_REPLAYED,
            key=command.key,
            scope=command.scope,
            job_row=result.job,
            bare_job_id=result.external_id,
            expires_ms=result.expires_at,
            receipt=result.receipt,
        )
    return None


def build_held_key(held: KeyHeld, *, key: str, scope: str, lease_ms: int) -> HeldKey:
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
    )


def build_settled_receipt(reply: KeySettled) -> Receipt:
    record = reply.record
    rejected = record.status is IdempotencyStatus.REJECTED
    return Receipt(
        outcome=Outcome.REJECTED if rejected else Outcome.CREATED,
        key=record.key,
        scope=record.scope,
        job_row=reply.job,
        bare_job_id=record.external_id,
        expires_ms=record.expires_at,
        receipt=record.receipt,
    )


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
        case Refused():
            return SubmissionRefused(key=key, reason=reply.reason, message=reply.message, details=reply.details)
        case Missing():
            return NotFound("no such job or key; it may have expired, or belong to another user")
        case Defect(retryable=True):
            return Outdated(reply.message)
        case Defect():
            return DefectiveCommand(f"{reply.message}; this is a bug in onejob, please report it")
    return DefectiveCommand(f"unexpected reply {type(reply).__name__}; this is a bug in onejob, please report it")


async def require_receipt(engine: Engine, command: SubmissionCommand, result: AnyReply | BaseException) -> Receipt:
    """`build_receipt`, or the exception that the result stands for."""
    receipt = build_receipt(command, result)
    if receipt is None:
        raise await build_submission_error(engine, command, result)
    return receipt


async def build_submission_error(
    engine: Engine, command: SubmissionCommand, result: AnyReply | BaseException
) -> OnejobError:
    """The exception for a submission without a receipt; a conflict lists where the bodies differ."""
    if isinstance(result, Unknown) and not command.key:
        return MayBeDone("the job may exist, and without a key there is no way to tell; list the jobs before you retry")
    paths = await find_differences(engine, command, result) if isinstance(result, Conflict) else ()
    error = to_exception(result, command.key, paths)
    if isinstance(error, OnejobError):
        return error
    raise error


async def collect_receipts(
    engine: Engine, commands: Sequence[Submit | Invalid], results: Iterable[AnyReply | BaseException]
) -> list[Receipt | OnejobError]:
    """A receipt or an error for each command; an invalid one was not executed and has no result."""
    remaining = iter(results)
    compared = 0
    verdicts: list[Receipt | OnejobError] = []
    for command in commands:
        if isinstance(command, Invalid):
            verdicts.append(command)
        else:
            result = next(remaining)
            compared += isinstance(result, Conflict)
            if isinstance(result, Conflict) and compared > COMPARED_MAX:
                verdicts.append(IdempotencyConflict(key=command.key, job_id=job_id_text(result.job_id)))
            else:
                verdicts.append(build_receipt(command, result) or await build_submission_error(engine, command, result))
    return verdicts


async def build_dry_run_receipt(engine: Engine, command: SubmissionCommand, reply: AnyReply) -> Receipt:
    """What would happen, as a receipt with any outcome."""
    if not isinstance(reply, DryRunReply):
        raise to_exception(reply, command.key)
    result = reply.reply
    if isinstance(result, Replayed):
        return await require_receipt(engine, command, result)
    job_id = ""  # a job that would be created has none: the real submission draws another candidate
    paths: tuple[str, ...] = ()
    if isinstance(result, Conflict):
        job_id = result.external_id or job_id_text(result.job_id)
        paths = await find_differences(engine, command, result)
    elif isinstance(result, (InProgress, Rejected)):
        job_id = job_id_text(result.job_id)
    return Receipt(
        outcome=_OUTCOMES[type(result)],
        key=command.key or None,
        scope=command.scope,
        bare_job_id=job_id,
        expires_ms=getattr(result, "expires_at", 0),
        paths=paths,
        warnings=_dry_run_warnings(result),
    )


def _dry_run_warnings(reply: AnyReply) -> tuple[LimitWarning, ...]:
    if isinstance(reply, Refused) and reply.details.get("limit") in set(LimitName):
        return (LimitWarning(LimitName(str(reply.details["limit"])), reply.message),)
    return reply.warnings if isinstance(reply, (Created, KeyHeld)) else ()


async def find_differences(engine: Engine, command: SubmissionCommand, conflict: Conflict) -> tuple[str, ...]:
    """The JSON paths at which two bodies under one key differ; none if the first was deleted or one is large."""
    if not conflict.job_id or len(command.input) > COMPARED_BYTES_MAX:
        return ()
    try:
        (reply,) = await engine.execute([LookUpJob(tenant=command.tenant, job_id=conflict.job_id)])
        first_input = await load_input(engine, command.tenant, conflict.job_id)
    except OnejobError:
        return ()  # the conflict is reported without its details
    other_type = isinstance(reply, Found) and reply.job is not None and reply.job.type != command.type
    paths = ("/type",) if other_type else ()
    return paths if len(first_input) > COMPARED_BYTES_MAX else paths + differing_paths(first_input, command.input)


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


async def load_key_history(engine: Engine, reply: AnyReply, key: str) -> KeyHistory:
    """The record of a key, and the events of its job."""
    if not isinstance(reply, Found) or reply.record is None:
        raise to_exception(reply, key)
    return to_key_history(reply.record, reply.job, await load_events(engine, reply.job) if reply.job else ())
