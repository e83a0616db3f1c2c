"""The ledger's verbs for sequenced clients: submit the next number, ask for the last one."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from onejob.core.command import JOBS_MAX
from onejob.core.facts import JobSpec
from onejob.core.fingerprint import INPUT_BYTES_MAX, batch_fingerprint
from onejob.core.identity import checked_client_id, stream_id, stream_scope
from onejob.core.key import KeyLike, checked_key
from onejob.core.replies import (
    AnyReply,
    Missing,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    SequenceOutcome,
    StreamFound,
)
from onejob.core.sequence import LookUpStream, SubmitSequence, checked_sequence
from onejob.core.submit import Submit
from onejob.core.timestamps import to_utc
from onejob.errors import Invalid
from onejob.ids import Ids
from onejob.resources.jobs import to_job_view
from onejob.resources.submissions import ClientState, SequenceReceipt
from onejob.runtime.callers import STANDARD_WINDOWS, Caller, DefaultWindows
from onejob.runtime.present import to_exception, to_utc_or_none

from .base import LedgerBase, repeated_under_new_settings
from .parse import JobOptions, Submission, build_submit, checked_submission, list_options

if TYPE_CHECKING:
    from onejob.tracing import SubmissionSpan

Scope = str | tuple[str, str]
_spec_values = attrgetter(*JobSpec.__struct_fields__)


class SequencedSubmission(Struct, frozen=True, kw_only=True):
    """One number of a client's sequence, unchecked."""

    client_id: str
    sequence: int
    idempotency_key: KeyLike
    scope: Scope
    jobs: Sequence[Submission]
    idempotency_ttl: timedelta | None = None
    idempotency_ttl_days: float | None = None


class SequenceOperations(LedgerBase):
    @list_options
    async def submit_sequence(
        self,
        /,
        client_id: str,
        sequence: int,
        idempotency_key: KeyLike,
        type: str | None = None,
        input: Any = None,
        *,
        scope: Scope,
        jobs: Iterable[Submission] | None = None,
        idempotency_ttl: timedelta | None = None,
        idempotency_ttl_days: float | None = None,
        **options: Unpack[JobOptions],
    ) -> SequenceReceipt:
        """Execute a client's next number (one job, or a batch, all or nothing), or return the answer it had."""
        if jobs is None and type is not None:
            jobs = (Submission(type=type, input=input, **options),)
        elif jobs is None or type is not None or input is not None or options:
            raise Invalid("jobs", "give the type, input and options of one job, or a list of jobs")
        return await self.submit_sequence_prepared(
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

    async def submit_sequence_prepared(self, sequenced: SequencedSubmission) -> SequenceReceipt:
        """`submit_sequence` for a SequencedSubmission."""
        tracing = self._runtime.tracing
        if tracing is None:
            return await self._submit_number(sequenced)
        types = {str(submission.type) for submission in sequenced.jobs if isinstance(submission, Submission)}
        with tracing.trace_submission(types.pop() if len(types) == 1 else "jobs", len(sequenced.jobs)) as span:
            return await self._submit_number(sequenced, span)

    @repeated_under_new_settings
    async def _submit_number(
        self, sequenced: SequencedSubmission, span: "SubmissionSpan | None" = None
    ) -> SequenceReceipt:
        runtime, traceparent = self._runtime, "" if span is None else span.traceparent
        command = build_submit_sequence(
            sequenced, self._caller, runtime.ids, windows=runtime.windows, traceparent=traceparent
        )
        (result,) = await self._gate.execute_each((runtime.key_limit.apply(command),))
        receipt = build_sequence_receipt(command, result)
        if span is not None:
            replayed = result.jobs[:1] if isinstance(result, SequenceAlreadyCommitted) else ()
            span.set_sequence_outcome(receipt.outcome, *replayed)
        return receipt

    async def get_client_state(self, client_id: str, *, scope: Scope, any_owner: bool = False) -> ClientState:
        """The last committed number of a client, 0 if there is none; with `any_owner` also another credential's."""
        scope = stream_scope(scope)
        caller = self._caller
        lookup = LookUpStream(
            tenant=caller.tenant,
            stream_id=stream_id(caller.tenant, scope, checked_client_id(client_id)),
            owner="" if any_owner else caller.actor,
        )
        match reply := await self._execute(lookup):
            case Missing():
                return ClientState(client_id, scope, 0, None)
            case StreamFound():
                return ClientState(client_id, scope, reply.stream.last, to_utc(reply.stream.last_seen))
        raise to_exception(reply, "")


def build_submit_sequence(
    sequenced: SequencedSubmission,
    caller: Caller,
    ids: Ids,
    *,
    windows: DefaultWindows = STANDARD_WINDOWS,
    traceparent: str = "",
) -> SubmitSequence:
    """Check one number of a sequence and make its command; raises Invalid for the first value that is wrong."""
    client_id, scope = checked_client_id(sequenced.client_id), stream_scope(sequenced.scope)
    sequence = checked_sequence(sequenced.sequence)
    key = checked_key(sequenced.idempotency_key)
    jobs = sequenced.jobs
    if not 1 <= len(jobs) <= JOBS_MAX:
        raise Invalid("jobs", f"a batch has 1 to {JOBS_MAX} jobs; split it into several numbers")
    submits = _build_job_submits(sequenced, scope, caller, ids, windows, traceparent)
    if sum(len(submit.input) for submit in submits) > INPUT_BYTES_MAX:
        raise Invalid("jobs", f"the inputs of a batch have at most {INPUT_BYTES_MAX} bytes in all; split it")
    first = submits[0]
    return SubmitSequence(
        tenant=caller.tenant,
        stream_id=stream_id(caller.tenant, scope, client_id),
        record_id=first.record_id,
        scope=scope,
        client_id=client_id,
        sequence=sequence,
        key=key,
        fingerprint=batch_fingerprint([submit.fingerprint for submit in submits]),
        items=tuple(JobSpec(*_spec_values(submit)) for submit in submits),
        actor=caller.actor,
        user=caller.user,
        owner=caller.actor,
        ttl_ms=first.ttl_ms,
        usage_id=first.usage_id,
        policy_id=first.policy_id,
        settings=caller.settings,
    )


def build_sequence_receipt(command: SubmitSequence, reply: AnyReply | BaseException) -> SequenceReceipt:
    """The receipt of a number that was executed, now or before; raises for any other reply."""
    if not isinstance(reply, (SequenceCommitted, SequenceAlreadyCommitted)):
        raise to_exception(reply, command.key)
    new = isinstance(reply, SequenceCommitted)
    jobs = tuple(map(to_job_view, reply.jobs))
    return SequenceReceipt(
        outcome=SequenceOutcome.COMMITTED if new else SequenceOutcome.ALREADY_COMMITTED,
        client_id=command.client_id,
        scope=command.scope,
        key=command.key,
        assigned_sequence=reply.sequence,
        last_committed_sequence=reply.sequence if isinstance(reply, SequenceCommitted) else reply.last,
        job=jobs[0] if len(jobs) == 1 else None,
        jobs=jobs,
        expires_at=to_utc_or_none(reply.expires_at),
        warnings=reply.warnings if isinstance(reply, SequenceCommitted) else (),
    )


def _with_key_of_number(job: Submission, sequenced: SequencedSubmission, scope: str, location: str) -> Submission:
    checked_submission(job, location)
    if (job.idempotency_key, job.scope, job.idempotency_ttl, job.idempotency_ttl_days) != (None,) * 4:
        raise Invalid("jobs", f"{location}key, scope and window belong to the number; leave them out of its jobs")
    if job.callback is not None:
        raise Invalid("callback", f"{location}a number of a sequence has no callback; leave it out")
    if job.sites is not None:
        raise Invalid("sites", f"{location}a number of a sequence runs here alone; leave its sites out")
    if job.reservation is not None:
        raise Invalid("reservation", f"{location}a number of a sequence takes its slots itself; leave it out")
    return replace(
        job,
        scope=scope,
        idempotency_key=sequenced.idempotency_key,
        idempotency_ttl=sequenced.idempotency_ttl,
        idempotency_ttl_days=sequenced.idempotency_ttl_days,
    )


def _build_job_submits(
    sequenced: SequencedSubmission, scope: str, caller: Caller, ids: Ids, windows: DefaultWindows, traceparent: str
) -> list[Submit]:
    submits: list[Submit] = []
    for n, job in enumerate(sequenced.jobs):
        location = f"jobs[{n}]: " if len(sequenced.jobs) > 1 else ""
        submission = _with_key_of_number(job, sequenced, scope, location)
        submits.append(_build_job_submit(submission, caller, ids.job_id(), windows, location, traceparent))
    return submits


def _build_job_submit(
    submission: Submission, caller: Caller, job_id: bytes, windows: DefaultWindows, location: str, traceparent: str
) -> Submit:
    """One job, with the same checks and the same fingerprint as a submission of its own."""
    try:
        return build_submit(submission, caller, job_id, windows=windows, traceparent=traceparent)
    except Invalid as error:
        if not location:
            raise
        raise Invalid(error.what, f"{location}{error}") from error
