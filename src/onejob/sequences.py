"""Sequenced clients in Python: every number is executed once, whatever its key, and none is left out."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .core.client_views import ClientState, SequenceOutcome, SequenceReceipt
from .core.fingerprint import INPUT_BYTES_MAX, batch_fingerprint
from .core.identity import checked_client_id, stream_id, stream_scope
from .core.key import checked_key
from .core.moment import utc
from .core.receipt import AlreadyCommitted, AnyReply, Committed, Missing, StreamFound
from .core.sequence import Item, LookUpStream, SubmitSequence, checked_sequence
from .core.step import JOBS_MAX
from .core.submission import Submit
from .errors import Invalid
from .front import Front
from .ids import Ids
from .intake import Caller, Submission, checked_submission, submit_of
from .outcome import failure

Scope = str | tuple[str, str]


class SequencedSubmission(Struct, frozen=True, kw_only=True):
    """One number of a client's sequence, as a caller says it."""

    client_id: str
    sequence: int
    idempotency_key: str
    scope: Scope
    jobs: Sequence[Submission]
    idempotency_ttl: timedelta | None = None
    idempotency_ttl_days: float | None = None


class Sequences(Front):
    """The part of the front door that sequenced clients come through."""

    async def submit_sequence(
        self,
        /,
        client_id: str,
        sequence: int,
        idempotency_key: str,
        type: str | None = None,
        input: Any = None,
        *,
        scope: Scope,
        jobs: Iterable[Submission] | None = None,
        idempotency_ttl: timedelta | None = None,
        idempotency_ttl_days: float | None = None,
        **options: Any,
    ) -> SequenceReceipt:
        """Execute a client's next number, or get the answer it had: one job, or a batch, all or nothing."""
        if jobs is None and type is not None:
            jobs = (Submission(type=type, input=input, **options),)
        elif jobs is None or type is not None or input is not None or options:
            raise Invalid("jobs", "give the type, input and options of one job, or a list of jobs")
        return await self.send_sequence(
            SequencedSubmission(
                client_id=client_id,
                sequence=sequence,
                idempotency_key=idempotency_key,
                scope=scope,
                jobs=tuple(islice(jobs, JOBS_MAX + 1)),
                idempotency_ttl=idempotency_ttl,
                idempotency_ttl_days=idempotency_ttl_days,
            )
        )

    async def send_sequence(self, said: SequencedSubmission) -> SequenceReceipt:
        """`submit_sequence` for a number that was said before, as edges do."""
        command = sequence_of(said, self._caller, self._host.ids)
        (result,) = await self._gate.results((command,))
        return receipt_of(command, result)

    async def get_client_state(self, client_id: str, *, scope: Scope, any_owner: bool = False) -> ClientState:
        """How far a client is: 0 if it never came. Another credential's client is told of only with `any_owner`."""
        scope = stream_scope(scope)
        caller = self._caller
        look = LookUpStream(
            tenant=caller.tenant,
            stream_id=stream_id(caller.tenant, scope, checked_client_id(client_id)),
            owner="" if any_owner else caller.actor,
        )
        reply = await self._ask(look)
        match reply:
            case Missing():
                return ClientState(client_id, scope)
            case StreamFound():
                return ClientState(client_id, scope, reply.stream.last, utc(reply.stream.last_seen))
        raise failure(reply, "")


def sequence_of(said: SequencedSubmission, caller: Caller, ids: Ids) -> SubmitSequence:
    """The command of one number; whatever is wrong with it is said here."""
    client_id, scope = checked_client_id(said.client_id), stream_scope(said.scope)
    sequence = checked_sequence(said.sequence)
    key = checked_key(said.idempotency_key)
    jobs = said.jobs
    if not 1 <= len(jobs) <= JOBS_MAX:
        raise Invalid("jobs", f"a batch has 1 to {JOBS_MAX} jobs; split it into several numbers")
    parsed = [
        _parsed(job, said, scope, caller, ids, place=f"jobs[{n}]: " if len(jobs) > 1 else "")
        for n, job in enumerate(jobs)
    ]
    if sum(len(one.input) for one in parsed) > INPUT_BYTES_MAX:
        raise Invalid("jobs", f"the inputs of a batch have at most {INPUT_BYTES_MAX} bytes in all; split it")
    first = parsed[0]
    return SubmitSequence(
        tenant=caller.tenant,
        stream_id=stream_id(caller.tenant, scope, client_id),
        record_id=first.record_id,
        scope=scope,
        client_id=client_id,
        sequence=sequence,
        key=key,
        fingerprint=batch_fingerprint([one.fingerprint for one in parsed]),
        items=tuple(map(_item, parsed)),
        actor=caller.actor,
        user=caller.user,
        owner=caller.actor,
        ttl_ms=first.ttl_ms,
        tally_id=first.tally_id,
        policy_id=first.policy_id,
    )


def receipt_of(command: SubmitSequence, reply: AnyReply | BaseException) -> SequenceReceipt:
    """The receipt of a number that was executed, now or before; raises where it was not."""
    if not isinstance(reply, (Committed, AlreadyCommitted)):
        raise failure(reply, command.key)
    new = isinstance(reply, Committed)
    return SequenceReceipt(
        outcome=SequenceOutcome.COMMITTED if new else SequenceOutcome.ALREADY_COMMITTED,
        client_id=command.client_id,
        scope=command.scope,
        key=command.key,
        assigned_sequence=reply.sequence,
        last_committed_sequence=reply.sequence if isinstance(reply, Committed) else reply.last,
        heads=reply.jobs,
        expires_ms=reply.expires_at,
        warnings=reply.cautions if isinstance(reply, Committed) else (),
    )


def _parsed(
    job: Submission, said: SequencedSubmission, scope: str, caller: Caller, ids: Ids, *, place: str
) -> Submit:
    """One job, read as a submission of its own would be: the same checks, the same fingerprint."""
    checked_submission(job, place)
    if (job.idempotency_key, job.scope, job.idempotency_ttl, job.idempotency_ttl_days) != (None,) * 4:
        raise Invalid(
            "jobs", f"{place}key, scope and window are those of the number; leave them out of its jobs"
        )
    if job.callback is not None:
        raise Invalid("callback", f"{place}a number of a sequence has no callback; leave it out")
    if job.reservation is not None:
        raise Invalid("reservation", f"{place}a number of a sequence takes its slots itself; leave it out")
    whole = replace(
        job,
        scope=scope,
        idempotency_key=said.idempotency_key,
        idempotency_ttl=said.idempotency_ttl,
        idempotency_ttl_days=said.idempotency_ttl_days,
    )
    try:
        return submit_of(whole, caller, ids.job_id())
    except Invalid as error:
        if not place:
            raise
        raise Invalid(error.what, f"{place}{error}") from error


def _item(job: Submit) -> Item:
    return Item(
        job_id=job.job_id,
        type=job.type,
        input=job.input,
        delivery=job.delivery,
        priority=job.priority,
        run_at=job.run_at,
        attempts_max=job.attempts_max,
        timeout_ms=job.timeout_ms,
        labels=job.labels,
        cost=job.cost,
    )
