"""The ledger's verbs for submissions: submit, dry run, cancel a job, forget a key; and how their receipts are built."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from onejob import audit
from onejob.core.command import Precondition, is_settings_refusal
from onejob.core.facts import JOB_ID_BYTES, KeyConflict
from onejob.core.fingerprint import differing_paths
from onejob.core.identity import parse_job_id
from onejob.core.key import KeyLike, checked_key
from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import Forget
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Conflict,
    Created,
    DryRunReply,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    LimitName,
    LimitWarning,
    Outcome,
    Refused,
    Rejected,
    Replayed,
)
from onejob.core.submit import SubmissionCommand, Submit
from onejob.core.timestamps import to_utc
from onejob.core.work import Cancel
from onejob.engine import Engine
from onejob.engines.gate import Gate
from onejob.errors import (
    IdempotencyConflict,
    Invalid,
    MayBeDone,
    OnejobError,
    Unknown,
)
from onejob.resources.jobs import JobView, to_job_view
from onejob.runtime.present import SettingsChanged, job_id_text, load_input, to_exception
from onejob.runtime.receipts import Receipt

from .base import SETTINGS_ATTEMPTS_MAX, LedgerBase, check_job_visible, repeated_under_new_settings
from .parse import (
    Submission,
    SubmissionOptions,
    build_submit,
    build_verb_key,
    caller_for_user,
    checked_submission,
    list_options,
    lookup_record_id,
)

if TYPE_CHECKING:
    from onejob.tracing import Tracing

SUBMIT_CHUNK_SIZE = 1000
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
# Bodies are compared on the event loop: beyond these limits a conflict is reported without its paths.
COMPARED_BYTES_MAX = 64 << 10
COMPARED_MAX = 20


class SubmissionOperations(LedgerBase):
    @list_options
    async def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """Create a job, or return the one that this key already created."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.submit_prepared(submission)

    async def submit_prepared(
        self, submission: Submission, precondition: Precondition | None = None, prepared: Submit | None = None
    ) -> Receipt:
        """`submit` for a Submission; it is refused if the precondition is not met when it is decided.

        `prepared` is what `prepare` returned for both, to be sent once.
        """
        runtime = self._runtime
        if runtime.tracing is not None:
            return await self._submit_traced(runtime.tracing, submission, precondition)
        command = self._build_submit(submission, precondition) if prepared is None else prepared
        if asyncio.get_running_loop().time() >= runtime.external_keys.none_until:
            (command,) = await self._add_external_jobs((command,))
        result = await self._gate.execute_one(command, on_resend=self._renew_external_job)
        receipt = build_receipt(command, result)
        if receipt is not None:
            return receipt
        if is_settings_refusal(result):
            await runtime.adopt_changed_settings()
            # As `repeated_under_new_settings`, without a call for all others; a subclass has counted it already.
            if runtime.settings_body != command.settings:
                return await SubmissionOperations.submit_prepared(self, submission, precondition)
        return await require_receipt(self._gate, command, result)

    @repeated_under_new_settings
    async def _submit_traced(
        self, tracing: "Tracing", submission: Submission, precondition: Precondition | None
    ) -> Receipt:
        with tracing.trace_submission(submission.type) if tracing.is_recording else nullcontext() as span:
            traceparent = tracing.current_traceparent() if span is None else span.traceparent
            command = self._build_submit(submission, precondition, traceparent)
            (command,) = await self._add_external_jobs((command,))
            result = await self._gate.execute_one(command, on_resend=self._renew_external_job)
            receipt = await require_receipt(self._gate, command, result)
            if span is not None:
                span.set_receipt(receipt)
            return receipt

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        """Submit independently of each other; each submission gets its receipt, or its error."""
        tracing = self._runtime.tracing
        if tracing is None:
            return await self._submit_chunks(submissions)
        submissions = list(submissions)
        types = {str(submission.type) for submission in submissions if isinstance(submission, Submission)}
        with tracing.trace_submission(types.pop() if len(types) == 1 else "jobs", len(submissions)) as span:
            verdicts = await self._submit_chunks(submissions, span.traceparent)
            span.set_receipts(verdicts)
            return verdicts

    async def _submit_chunks(
        self, submissions: Iterable[Submission], traceparent: str = ""
    ) -> list[Receipt | OnejobError]:
        verdicts: list[Receipt | OnejobError] = []
        remaining = iter(submissions)
        while chunk := list(islice(remaining, SUBMIT_CHUNK_SIZE)):
            verdicts += await self._submit_chunk(chunk, traceparent)
        return verdicts

    async def _submit_chunk(self, chunk: list[Submission], traceparent: str) -> list[Receipt | OnejobError]:
        verdicts = await self._try_submit_chunk(chunk, traceparent)
        for _ in range(SETTINGS_ATTEMPTS_MAX - 1):
            not_executed = [n for n, verdict in enumerate(verdicts) if isinstance(verdict, SettingsChanged)]
            if not not_executed:
                break
            await self._runtime.adopt_changed_settings()
            repeated = await self._try_submit_chunk([chunk[n] for n in not_executed], traceparent)
            for n, verdict in zip(not_executed, repeated, strict=True):
                verdicts[n] = verdict
        return verdicts

    async def _try_submit_chunk(self, chunk: list[Submission], traceparent: str) -> list[Receipt | OnejobError]:
        commands = [self._try_build_submit(submission, traceparent) for submission in chunk]
        submits = [command for command in commands if isinstance(command, Submit)]
        return await collect_receipts(self._gate, commands, await self._execute_submits(submits))

    async def _execute_submits(self, submits: list[Submit]) -> Sequence[AnyReply | BaseException]:
        try:
            sent = await self._add_external_jobs(submits)
        except OnejobError as error:
            return [error] * len(submits)
        return await self._gate.execute_each(sent, on_resend=self._renew_external_job)

    @list_options
    async def dry_run(
        self,
        /,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """What `submit` with these arguments would return. Changes nothing; a refusal is a receipt too."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.dry_run_prepared(submission)

    @repeated_under_new_settings
    async def dry_run_prepared(self, submission: Submission) -> Receipt:
        (command,) = await self._add_external_jobs((self._build_submit(submission),))
        reply = await self._execute(DryRun(tenant=command.tenant, command=command))
        return await build_dry_run_receipt(self._gate, command, reply)

    async def cancel(self, job_id: str, *, idempotency_key: str | None = None) -> JobView:
        """End a job that has not ended; one that has is returned as it is. With a key, a retry changes nothing."""
        caller = self._caller
        reply = await self._execute(
            Cancel(
                tenant=caller.tenant,
                job_id=await check_job_visible(self._gate, caller, parse_job_id(job_id)),
                actor=caller.actor,
                retention_ms=self._runtime.retention_ms,
                verb_key=build_verb_key(idempotency_key),
            )
        )
        if isinstance(reply, Cancelled):
            return to_job_view(reply.job)
        raise to_exception(reply, idempotency_key or "")

    @repeated_under_new_settings
    async def forget(self, key: KeyLike, *, scope: str, user: str | None = None) -> datetime:
        """Let a key expire early. Returns the time after which it may be used again; its job stays."""
        caller, key = self._caller, checked_key(key)
        reply = await self._execute(
            Forget(
                tenant=caller.tenant,
                record_id=lookup_record_id(caller_for_user(caller, user), key, scope),
                actor=caller.actor,
                grace_ms=self._runtime.cache_ttl_ms_max,
                settings=caller.settings,
            )
        )
        if not isinstance(reply, Forgotten):
            raise to_exception(reply, key)
        # The record will be gone, so this line is the only trace of the caller that removed it.
        digest = audit.key_digest(key)
        audit.write_audit_record("forget", tenant=caller.tenant, actor=caller.actor, scope=scope, key=digest)
        return to_utc(reply.expires_at)

    def _build_submit(
        self, submission: Submission, precondition: Precondition | None = None, traceparent: str = ""
    ) -> Submit:
        runtime, caller = self._runtime, self._bound_caller
        if caller.settings is not runtime.settings_body:
            caller = self._caller
        command = build_submit(
            submission,
            caller,
            runtime.ids.job_id(),
            precondition,
            windows=runtime.windows,
            traceparent=traceparent,
            sites=runtime.sites,
        )
        for apply in runtime.submission_filters:
            command = apply(command)
        return command

    def _try_build_submit(self, submission: Submission, traceparent: str = "") -> Submit | Invalid:
        try:
            return self._build_submit(checked_submission(submission), traceparent=traceparent)
        except Invalid as error:
            return error


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
            named_job_id=result.external_id,
            expires_ms=result.expires_at,
            receipt=result.receipt,
        )
    return None


async def require_receipt(gate: Gate, command: SubmissionCommand, result: AnyReply | BaseException) -> Receipt:
    """`build_receipt`, or the exception that the result stands for."""
    receipt = build_receipt(command, result)
    if receipt is None:
        raise await build_submission_error(gate, command, result)
    return receipt


async def build_submission_error(
    gate: Gate, command: SubmissionCommand, result: AnyReply | BaseException
) -> OnejobError:
    """The exception for a submission without a receipt; a conflict lists where the bodies differ, as does its key."""
    if isinstance(result, Unknown) and not command.key:
        return MayBeDone("the job may exist, and without a key there is no way to tell; list the jobs before you retry")
    paths: tuple[str, ...] = ()
    if isinstance(result, Conflict):
        paths = await find_differences(gate, command, result)
        gate.hits.add_paths(command.record_id, KeyConflict(result.at, command.actor), paths)
    error = to_exception(result, command.key, paths)
    if isinstance(error, OnejobError):
        return error
    raise error


async def collect_receipts(
    gate: Gate, commands: Sequence[Submit | Invalid], results: Iterable[AnyReply | BaseException]
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
                job_id = result.external_id or job_id_text(result.job_id)
                verdicts.append(IdempotencyConflict(key=command.key, job_id=job_id))
            else:
                verdicts.append(build_receipt(command, result) or await build_submission_error(gate, command, result))
    return verdicts


async def build_dry_run_receipt(gate: Gate, command: SubmissionCommand, reply: AnyReply) -> Receipt:
    """What would happen, as a receipt with any outcome."""
    if not isinstance(reply, DryRunReply):
        raise to_exception(reply, command.key)
    result = reply.reply
    if isinstance(result, Replayed):
        return await require_receipt(gate, command, result)
    job_id = ""  # a job that would be created has none: the real submission draws another candidate
    paths: tuple[str, ...] = ()
    if isinstance(result, Conflict):
        job_id = result.external_id or job_id_text(result.job_id)
        paths = await find_differences(gate, command, result)
    elif isinstance(result, (InProgress, Rejected)):
        job_id = job_id_text(result.job_id)
    return Receipt(
        outcome=_OUTCOMES[type(result)],
        key=command.key or None,
        scope=command.scope,
        named_job_id=job_id,
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
        by_id, by_key = await engine.execute(
            [
                LookUpJob(tenant=command.tenant, job_id=conflict.job_id),
                LookUpKey(tenant=command.tenant, record_id=command.record_id),
            ]
        )
        first_input = await load_input(engine, command.tenant, conflict.job_id)
    except OnejobError:
        return ()  # the conflict is reported without its details
    first_type = by_id.job.type if isinstance(by_id, Found) and by_id.job is not None else command.type
    return compare_submissions(command, first_type, first_input, by_key)


def compare_submissions(
    command: SubmissionCommand, first_type: str, first_input: bytes, by_key: AnyReply
) -> tuple[str, ...]:
    """The JSON paths at which a submission differs from the first one under its key; only of small inputs."""
    paths: tuple[str, ...] = ("/type",) if first_type != command.type else ()
    if max(len(first_input), len(command.input)) > COMPARED_BYTES_MAX:
        return paths
    paths += differing_paths(first_input, command.input)
    # What else a fingerprint has are the sites, and the other jobs of a batch.
    is_single = isinstance(by_key, Found) and by_key.record is not None and len(by_key.record.job_ids) == JOB_ID_BYTES
    return paths or (("/sites",) if is_single and command.job_id else ())
