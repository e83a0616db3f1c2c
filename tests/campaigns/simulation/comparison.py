"""Converts replies and stored facts to tuples that can be compared with those of the model."""

from collections.abc import Callable
from typing import Any

from onejob.core.facts import Job, Kind, Memo, Policy, Record, Stream, Usage
from onejob.core.quota import current_counts
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Claimed,
    Conflict,
    Created,
    DryRunReply,
    Extended,
    Finished,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Maintained,
    Missing,
    PolicyFound,
    Reconciled,
    Refused,
    Rejected,
    Released,
    Replayed,
    Resolved,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    SlotHeld,
    SlotSettled,
    Started,
    StepBegun,
    StepFinished,
    StreamFound,
    UsageFound,
)

from .model import Model, ModelReply


def model_reply(reply: AnyReply) -> ModelReply:
    """A reply in the form of the model."""
    convert = _CONVERTERS.get(type(reply))
    return convert(reply) if convert else ("defect", getattr(reply, "message", repr(reply)))


def _refused(r: Any) -> ModelReply:
    more = [r.details[name] for name in ("retry_after_ms", "last_committed_sequence") if name in r.details]
    return ("refused", r.reason.value, *more)


def _found(r: Any) -> ModelReply:
    state = r.job.state.value if r.job else ""
    if r.record is None:
        return ("found", r.job.id, "", 0, state)
    return ("found", r.record.job_id, r.record.status.value, r.record.token, state)


def _replayed(r: Any) -> ModelReply:
    job_id, state = (r.job.id, r.job.state.value) if r.job else (b"", "")
    return ("replayed", job_id, state, r.expires_at, r.receipt)


_CONVERTERS: dict[type[Any], Callable[[Any], ModelReply]] = {
    Created: lambda r: ("created", r.job.id, r.job.state.value, r.expires_at),
    Replayed: _replayed,
    InProgress: lambda r: ("in_progress", r.job_id, r.retry_after_ms),
    Conflict: lambda r: ("conflict", r.job_id),
    Rejected: lambda r: ("rejected", r.job_id, r.receipt, r.expires_at),
    Refused: _refused,
    KeyHeld: lambda r: ("held", r.job_id, r.token, r.holder, r.lease_until, r.taken_over),
    KeySettled: lambda r: ("settled", r.record.status.value, r.record.job_id, r.record.token),
    Found: _found,
    Missing: lambda r: ("missing",),
    DryRunReply: lambda r: ("dry run", model_reply(r.reply)),
    Cancelled: lambda r: ("cancelled", r.job.id, r.job.state.value, r.changed),
    Forgotten: lambda r: ("forgotten", r.expires_at),
    Maintained: lambda r: ("maintained", r.changed),
    PolicyFound: lambda r: ("policy", r.policy.body),
    UsageFound: lambda r: ("usage", stored_fact(r.usage, r.at)),
    SlotHeld: lambda r: ("slot", r.reservation, r.expires_at),
    SlotSettled: lambda r: ("slot settled", r.state.value),
    SequenceCommitted: lambda r: ("committed", tuple(job.id for job in r.jobs), r.sequence, r.expires_at),
    SequenceAlreadyCommitted: lambda r: (
        "already", tuple(job.id for job in r.jobs), r.sequence, r.last, r.expires_at,
    ),
    StreamFound: lambda r: ("stream", r.stream.last, r.stream.owner),
    Reconciled: lambda r: ("reconciled", r.drift, r.changed),
    Claimed: lambda r: ("claimed", r.job.id, r.job.token, r.job.lease_until),
    Started: lambda r: ("started", r.job.id, r.job.token, r.job.lease_until),
    Extended: lambda r: ("extended", r.job.id, r.job.lease_until, r.job.logs),
    Released: lambda r: ("released", r.job.id, r.job.state.value),
    Finished: lambda r: ("finished", r.job.id, r.job.state.value),
    Resolved: lambda r: ("resolved", r.job.id, r.job.state.value),
    StepBegun: lambda r: ("step begun", r.memo.token, r.memo.holder, r.memo.runs),
    StepFinished: lambda r: ("step finished", r.memo.result),
}  # fmt: skip


def modelled_fact(model: Model, kind: Kind, id: bytes, now: int) -> ModelReply | None:
    match kind:
        case Kind.RECORD if id in model.keys:
            k = model.keys[id]
            lease = (k.status, k.fingerprint, b"".join(k.jobs) or k.job, k.holder, k.token, k.lease_until)
            return (
                *lease,
                k.expires_at,
                k.receipt,
                k.hits,
                k.conflicts,
                k.changed_at,
                k.client_id,
                k.sequence,
                k.external_id,
            )
        case Kind.JOB if id in model.jobs:
            job = model.jobs[id]
            return (job.state, job.ended_at, job.slot, job.cost, job.token, job.lease_until, job.attempts)
        case Kind.STREAM if id in model.streams:
            stream = model.streams[id]
            return (stream.last, stream.last_seen, stream.owner, stream.expires_at, stream.changed_at, stream.evicted)
        case Kind.USAGE if id in model.usages:
            return model.usage_counts(id, now)
        case Kind.POLICY if id in model.policies:
            return (model.policies[id].body, model.policies[id].version)
        case Kind.MEMO if id in model.memos:
            memo = model.memos[id]
            return (memo.job, memo.fingerprint, memo.token, memo.holder, memo.runs, memo.result, memo.changed_at)
    return None


def stored_fact(fact: Any, now: int) -> ModelReply | None:
    match fact:
        case Record():
            lease = (fact.status.value, fact.fingerprint, fact.job_ids, fact.holder, fact.token)
            rest = (fact.lease_until, fact.expires_at, fact.receipt, fact.hits, fact.conflicts)
            return (*lease, *rest, fact.changed_at, fact.client_id, fact.sequence, fact.external_id)
        case Job():
            attempt = (fact.token, fact.lease_until, fact.attempts)
            return (fact.state.value, fact.ended_at, fact.usage_id, fact.cost_held, *attempt)
        case Stream():
            expiry = (fact.expires_at, fact.changed_at, bool(fact.evicted))
            return (fact.last, fact.last_seen, fact.owner, *expiry)
        case Usage():
            live, reserved, hour, day, held, spent = current_counts(fact, now)
            return (live, reserved, hour, day, held, tuple(spent.values()))
        case Policy():
            return (fact.body, fact.version)
        case Memo():
            result = fact.result if fact.ended_at else None
            return (fact.job_id, fact.fingerprint, fact.token, fact.holder, fact.runs, result, fact.changed_at)
    return None


def format_short(reply: ModelReply) -> str:
    return " ".join(part.hex()[-12:] if isinstance(part, bytes) else str(part) for part in reply)
