"""From replies to what a Python caller gets: receipts are returned, everything else is raised."""

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

# What a job left behind: its result and its log lines.


OFFSET_MAX = 2**53 - 1


class LogPage(Struct, frozen=True):
    """Log lines from an offset on. Older ones than the newest thousand are not kept."""

    offset: int  # of the first line here
    lines: tuple[str, ...]
    total: int  # how many there were
    state: JobState

    @property
    def next(self) -> int:
        return self.offset + len(self.lines)


async def load_result(engine: Engine, job: Job) -> bytes:
    """The JSON that a job ended with; empty where there is none."""
    query = ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.RESULT, start=job.token, limit=1)
    page = await engine.scan(query)
    return page.items[0].data if page.items else b""


async def load_log_page(engine: Engine, job: Job, *, offset: int, limit: int) -> LogPage:
    if not 0 <= offset <= OFFSET_MAX or not 1 <= limit <= PAGE_MAX:
        raise Invalid("offset", f"offset counts lines from 0, and a page has 1 to {PAGE_MAX}; choose others")
    query = ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.LOG, start=offset, limit=limit)
    items = (await engine.scan(query)).items if job.logs > offset else ()
    first = items[0].index if items else max(offset, job.logs)
    lines = tuple(item.data.decode() for item in items)
    return LogPage(first, lines, max(job.logs, first + len(lines)), job.state)


_OUTCOMES: dict[type[Any], Outcome] = {
    Created: Outcome.CREATED,
    KeyHeld: Outcome.CREATED,
    Replayed: Outcome.REPLAYED,
    InProgress: Outcome.IN_PROGRESS,
    Conflict: Outcome.CONFLICT,
    Rejected: Outcome.REJECTED,
    Refused: Outcome.REFUSED,
}
_CREATED, _REPLAYED = Outcome.CREATED, Outcome.REPLAYED  # at hand: every answer has one of them
# Comparing bodies is work for the loop: beyond these a conflict stands without its paths.
COMPARED_BYTES_MAX = 64 << 10
COMPARED_MAX = 20
_LEASE_LOST_REASONS = (Reason.STALE, Reason.ALREADY_SETTLED)


def job_id_text(job_id: bytes) -> str:
    return format_job_id(job_id) if job_id else ""


def build_receipt(command: SubmissionCommand, result: AnyReply | BaseException) -> Receipt | None:
    """The receipt of a submission that has a job; None when the result says something else."""
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
        bare_job_id=record.foreign_id,
        expires_ms=record.expires_at,
        receipt=record.receipt,
    )


def to_exception(reply: AnyReply | BaseException, key: str, paths: tuple[str, ...] = ()) -> BaseException:
    """The exception for a reply that is no answer to what was asked."""
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
            return NotFound("no such job or key here; it may have expired, or belong to somebody else")
        case Defect(retryable=True):
            return Outdated(reply.message)
        case Defect():
            return DefectiveCommand(f"{reply.message}; this is a bug of onejob, please report it")
    return DefectiveCommand(f"an unexpected {type(reply).__name__}; this is a bug of onejob, please report it")


async def require_receipt(engine: Engine, command: SubmissionCommand, result: AnyReply | BaseException) -> Receipt:
    """The receipt of a submission; raises where there is none."""
    receipt = build_receipt(command, result)
    if receipt is None:
        raise await build_submission_error(engine, command, result)
    return receipt


async def build_submission_error(
    engine: Engine, command: SubmissionCommand, result: AnyReply | BaseException
) -> OnejobError:
    """What to raise for a submission without a receipt; says where a conflicting body differs."""
    if isinstance(result, Unknown) and not command.key:
        return MayBeDone("it may be done, and without a key nobody can tell; look at the jobs before you repeat it")
    paths = await find_differences(engine, command, result) if isinstance(result, Conflict) else ()
    error = to_exception(result, command.key, paths)
    if isinstance(error, OnejobError):
        return error
    raise error


async def collect_receipts(
    engine: Engine, commands: Sequence[Submit | Invalid], results: Iterable[AnyReply | BaseException]
) -> list[Receipt | OnejobError]:
    """A receipt or an error for each; what was invalid was never sent and has no result."""
    waiting = iter(results)
    compared = 0
    verdicts: list[Receipt | OnejobError] = []
    for command in commands:
        if isinstance(command, Invalid):
            verdicts.append(command)
        else:
            result = next(waiting)
            compared += isinstance(result, Conflict)
            if isinstance(result, Conflict) and compared > COMPARED_MAX:
                verdicts.append(IdempotencyConflict(key=command.key, job_id=job_id_text(result.job_id)))
            else:
                verdicts.append(build_receipt(command, result) or await build_submission_error(engine, command, result))
    return verdicts


async def build_dry_run_receipt(engine: Engine, command: SubmissionCommand, reply: AnyReply) -> Receipt:
    """What would happen, as a receipt of any outcome."""
    if not isinstance(reply, DryRunReply):
        raise to_exception(reply, command.key)
    foreseen = reply.reply
    if isinstance(foreseen, Replayed):
        return await require_receipt(engine, command, foreseen)
    told_id = ""
    paths: tuple[str, ...] = ()
    if isinstance(foreseen, Conflict):
        told_id = foreseen.external_id or job_id_text(foreseen.job_id)
        paths = await find_differences(engine, command, foreseen)
    elif isinstance(foreseen, (InProgress, Rejected)):
        told_id = job_id_text(foreseen.job_id)
    # A job that would be created has no id yet: the real submission draws its own.
    return Receipt(
        outcome=_OUTCOMES[type(foreseen)],
        key=command.key or None,
        scope=command.scope,
        bare_job_id=told_id,
        expires_ms=getattr(foreseen, "expires_at", 0),
        paths=paths,
        warnings=_dry_run_warnings(foreseen),
    )


def _dry_run_warnings(reply: AnyReply) -> tuple[LimitWarning, ...]:
    if isinstance(reply, Refused) and reply.details.get("limit") in set(LimitName):
        return (LimitWarning(LimitName(str(reply.details["limit"])), reply.message),)
    return reply.warnings if isinstance(reply, (Created, KeyHeld)) else ()


async def find_differences(engine: Engine, command: SubmissionCommand, conflict: Conflict) -> tuple[str, ...]:
    """The JSON paths at which two bodies under one key differ; none where the first is gone, or one is large."""
    if not conflict.job_id or len(command.input) > COMPARED_BYTES_MAX:
        return ()
    try:
        (found,) = await engine.execute([LookUpJob(tenant=command.tenant, job_id=conflict.job_id)])
        before = await load_input(engine, command.tenant, conflict.job_id)
    except OnejobError:
        return ()  # the conflict stands without its details
    other_type = isinstance(found, Found) and found.job is not None and found.job.type != command.type
    kind = ("/type",) if other_type else ()
    return kind if len(before) > COMPARED_BYTES_MAX else kind + differing_paths(before, command.input)


async def load_input(engine: Engine, tenant: str, job_id: bytes) -> bytes:
    page = await engine.scan(ListAttachments(tenant=tenant, job_id=job_id, kind=AttachmentKind.INPUT, limit=1))
    if not page.items:
        raise NotFound("no such job here; it may have expired, or belong to somebody else")
    return page.items[0].data


async def load_events(engine: Engine, job: Job) -> tuple[Event, ...]:
    """A job's story as far as it is kept; the first event is implied by its head."""
    page = await engine.scan(ListAttachments(tenant=job.tenant, job_id=job.id, kind=AttachmentKind.EVENT))
    return (first_event(job), *(json.decode(add.data, type=Event) for add in page.items))


async def load_key_history(engine: Engine, reply: AnyReply, key: str) -> KeyHistory:
    """The record that was found under a key, and what happened to its job."""
    if not isinstance(reply, Found) or reply.record is None:
        raise to_exception(reply, key)
    return to_key_history(reply.record, reply.job, await load_events(engine, reply.job) if reply.job else ())
