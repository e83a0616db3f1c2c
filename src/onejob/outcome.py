"""From replies to what a Python caller gets: receipts are returned, everything else is raised."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import json

from . import audit
from .core.arrival import Arrival
from .core.facts import Beside, Job
from .core.fingerprint import differing_paths
from .core.history import Event, first_event
from .core.ids import text_of
from .core.lookup import LookUpJob
from .core.moment import utc
from .core.receipt import (
    AnyReply,
    Caution,
    Conflict,
    Created,
    Defect,
    Foreseen,
    Forgotten,
    Found,
    Held,
    InProgress,
    Limit,
    Missing,
    Outcome,
    Reason,
    Refused,
    Rejected,
    Replayed,
    Settled,
)
from .core.states import IdempotencyStatus
from .core.submission import Submit
from .core.views import Receipt, Reservation, Story, story
from .engine import Attachments, Engine
from .errors import (
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
from .intake import Caller

_OUTCOMES: dict[type[Any], Outcome] = {
    Created: Outcome.CREATED,
    Held: Outcome.CREATED,
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
_HOLDERS_LOSS = (Reason.STALE, Reason.ALREADY_SETTLED)


def id_text(job_id: bytes) -> str:
    return text_of(job_id) if job_id else ""


def receipt_of(arrival: Arrival, result: AnyReply | BaseException) -> Receipt | None:
    """The receipt of a submission that has a job; None when the result says something else."""
    if isinstance(result, Created):
        return Receipt(
            outcome=_CREATED,
            key=arrival.key or None,
            scope=arrival.scope,
            head=result.job,
            expires_ms=result.expires_at,
            warnings=result.cautions,
            taken_over=result.job.id != arrival.job_id,
        )
    if isinstance(result, Replayed):
        return Receipt(
            outcome=_REPLAYED,
            key=arrival.key,
            scope=arrival.scope,
            head=result.job,
            told_id=result.foreign_id,
            expires_ms=result.expires_at,
            receipt=result.receipt,
        )
    return None


def reservation_of(held: Held, *, key: str, scope: str, lease_ms: int) -> Reservation:
    return Reservation(
        key,
        scope,
        id_text(held.job_id),
        held.token,
        lease_ms,
        utc(held.lease_until),
        held.taken_over,
        held.record_id,
        held.holder,
        held.cautions,
    )


def settled_of(reply: Settled) -> Receipt:
    record = reply.record
    rejected = record.status is IdempotencyStatus.REJECTED
    return Receipt(
        outcome=Outcome.REJECTED if rejected else Outcome.CREATED,
        key=record.key,
        scope=record.scope,
        head=reply.job,
        told_id=record.foreign_id,
        expires_ms=record.expires_at,
        receipt=record.receipt,
    )


def forgotten_of(reply: AnyReply, caller: Caller, *, key: str, scope: str) -> datetime:
    """The moment after which a key may be used anew; that it was forgotten is told, for its record will be gone."""
    if not isinstance(reply, Forgotten):
        raise failure(reply, key)
    audit.told("forget", tenant=caller.tenant, actor=caller.actor, scope=scope, key=audit.hidden(key))
    return utc(reply.expires_at)


def failure(reply: AnyReply | BaseException, key: str, paths: tuple[str, ...] = ()) -> BaseException:
    """The exception for a reply that is no answer to what was asked."""
    match reply:
        case BaseException():
            return reply
        case Conflict():
            return IdempotencyConflict(key=key, job_id=reply.foreign_id or id_text(reply.job_id), paths=paths)
        case InProgress():
            return SubmissionInProgress(
                key=key, job_id=id_text(reply.job_id), retry_after=reply.retry_after_ms / 1000
            )
        case Rejected():
            return SubmissionRejected(key=key, job_id=id_text(reply.job_id), receipt=reply.receipt)
        case Refused() if reply.reason in _HOLDERS_LOSS:
            return LeaseLost(reply.message, reply.details)
        case Refused():
            return SubmissionRefused(
                key=key, reason=reply.reason, message=reply.message, details=reply.details
            )
        case Missing():
            return NotFound("no such job or key here; it may have expired, or belong to somebody else")
        case Defect(retryable=True):
            return Outdated(reply.message)
        case Defect():
            return DefectiveCommand(f"{reply.message}; this is a bug of onejob, please report it")
    return DefectiveCommand(
        f"an unexpected {type(reply).__name__}; this is a bug of onejob, please report it"
    )


async def answered(engine: Engine, arrival: Arrival, result: AnyReply | BaseException) -> Receipt:
    """The receipt of a submission; raises where there is none."""
    receipt = receipt_of(arrival, result)
    if receipt is None:
        raise await unanswered(engine, arrival, result)
    return receipt


async def unanswered(engine: Engine, arrival: Arrival, result: AnyReply | BaseException) -> OnejobError:
    """What to raise for a submission without a receipt; says where a conflicting body differs."""
    if isinstance(result, Unknown) and not arrival.key:
        return MayBeDone(
            "it may be done, and without a key nobody can tell; look at the jobs before you repeat it"
        )
    paths = await differences(engine, arrival, result) if isinstance(result, Conflict) else ()
    error = failure(result, arrival.key, paths)
    if isinstance(error, OnejobError):
        return error
    raise error


async def each_verdict(
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
                verdicts.append(IdempotencyConflict(key=command.key, job_id=id_text(result.job_id)))
            else:
                verdicts.append(receipt_of(command, result) or await unanswered(engine, command, result))
    return verdicts


async def forecast(engine: Engine, arrival: Arrival, reply: AnyReply) -> Receipt:
    """What would happen, as a receipt of any outcome."""
    if not isinstance(reply, Foreseen):
        raise failure(reply, arrival.key)
    foreseen = reply.reply
    if isinstance(foreseen, Replayed):
        return await answered(engine, arrival, foreseen)
    told_id = ""
    paths: tuple[str, ...] = ()
    if isinstance(foreseen, Conflict):
        told_id = foreseen.foreign_id or id_text(foreseen.job_id)
        paths = await differences(engine, arrival, foreseen)
    elif isinstance(foreseen, (InProgress, Rejected)):
        told_id = id_text(foreseen.job_id)
    # A job that would be created has no id yet: the real submission draws its own.
    return Receipt(
        outcome=_OUTCOMES[type(foreseen)],
        key=arrival.key or None,
        scope=arrival.scope,
        told_id=told_id,
        expires_ms=getattr(foreseen, "expires_at", 0),
        paths=paths,
        warnings=_warnings(foreseen),
    )


def _warnings(foreseen: AnyReply) -> tuple[Caution, ...]:
    if isinstance(foreseen, Refused) and foreseen.details.get("limit") in set(Limit):
        return (Caution(Limit(str(foreseen.details["limit"])), foreseen.message),)
    return foreseen.cautions if isinstance(foreseen, (Created, Held)) else ()


async def differences(engine: Engine, arrival: Arrival, conflict: Conflict) -> tuple[str, ...]:
    """The JSON paths at which two bodies under one key differ; none where the first is gone, or one is large."""
    if not conflict.job_id or len(arrival.input) > COMPARED_BYTES_MAX:
        return ()
    try:
        (found,) = await engine.execute([LookUpJob(tenant=arrival.tenant, job_id=conflict.job_id)])
        before = await input_of(engine, arrival.tenant, conflict.job_id)
    except OnejobError:
        return ()  # the conflict stands without its details
    other_type = isinstance(found, Found) and found.job is not None and found.job.type != arrival.type
    kind = ("/type",) if other_type else ()
    return kind if len(before) > COMPARED_BYTES_MAX else kind + differing_paths(before, arrival.input)


async def input_of(engine: Engine, tenant: str, job_id: bytes) -> bytes:
    page = await engine.scan(Attachments(tenant=tenant, job_id=job_id, beside=Beside.INPUT, limit=1))
    if not page.items:
        raise NotFound("no such job here; it may have expired, or belong to somebody else")
    return page.items[0].data


async def events_of(engine: Engine, job: Job) -> tuple[Event, ...]:
    """A job's story as far as it is kept; the first event is implied by its head."""
    page = await engine.scan(Attachments(tenant=job.tenant, job_id=job.id, beside=Beside.EVENT))
    return (first_event(job), *(json.decode(add.data, type=Event) for add in page.items))


async def story_of(engine: Engine, reply: AnyReply, key: str) -> Story:
    """The record that was found under a key, and what happened to its job."""
    if not isinstance(reply, Found) or reply.record is None:
        raise failure(reply, key)
    return story(reply.record, reply.job, await events_of(engine, reply.job) if reply.job else ())
