"""The ledger's verbs for submissions: submit, dry run, cancel a job, forget a key."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any, Unpack

from onejob import audit
from onejob.core.command import Precondition
from onejob.core.identity import parse_job_id
from onejob.core.lookup import DryRun
from onejob.core.maintenance import Forget
from onejob.core.replies import Cancelled, Forgotten
from onejob.core.submit import Submit
from onejob.core.timestamps import to_utc
from onejob.core.views import JobView, Receipt
from onejob.core.work import Cancel
from onejob.errors import Invalid, OnejobError

from .base import LedgerBase, check_job_visible
from .parse import (
    Submission,
    SubmissionOptions,
    build_submit,
    caller_for_user,
    checked_submission,
    list_options,
    lookup_record_id,
)
from .present import build_dry_run_receipt, build_receipt, collect_receipts, require_receipt, to_exception

SUBMIT_CHUNK_SIZE = 1000


class SubmissionOperations(LedgerBase):
    @list_options
    async def submit(
        self, type: str, input: Any = None, *, idempotency_key: str | None = None, **options: Unpack[SubmissionOptions]
    ) -> Receipt:
        """Create a job, or return the one that this key already created."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.submit_prepared(submission)

    async def submit_prepared(self, submission: Submission, precondition: Precondition | None = None) -> Receipt:
        """`submit` for a Submission; it is refused if the precondition is not met when it is decided."""
        command = build_submit(submission, self._caller, self._runtime.ids.job_id(), precondition)
        result = await self._gate.execute_one(command)
        return build_receipt(command, result) or await require_receipt(self._gate, command, result)

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        """Submit independently of each other; each submission gets its receipt, or its error."""
        verdicts: list[Receipt | OnejobError] = []
        remaining = iter(submissions)
        while chunk := list(islice(remaining, SUBMIT_CHUNK_SIZE)):
            commands = [self._try_build_submit(submission) for submission in chunk]
            results = await self._gate.execute_each([command for command in commands if isinstance(command, Submit)])
            verdicts += await collect_receipts(self._gate, commands, results)
        return verdicts

    @list_options
    async def dry_run(
        self,
        /,
        type: str,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """What `submit` with these arguments would return. Changes nothing; a refusal is a receipt too."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.dry_run_prepared(submission)

    async def dry_run_prepared(self, submission: Submission) -> Receipt:
        command = build_submit(submission, self._caller, self._runtime.ids.job_id())
        reply = await self._execute(DryRun(tenant=command.tenant, command=command))
        return await build_dry_run_receipt(self._gate, command, reply)

    async def cancel(self, job_id: str) -> JobView:
        """End a job that has not ended; one that has is returned as it is."""
        caller = self._caller
        reply = await self._execute(
            Cancel(
                tenant=caller.tenant,
                job_id=await check_job_visible(self._gate, caller, parse_job_id(job_id)),
                actor=caller.actor,
                retention_ms=self._runtime.retention_ms,
            )
        )
        if isinstance(reply, Cancelled):
            return JobView(reply.job)
        raise to_exception(reply, "")

    async def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        """Let a key expire early. Returns the time after which it may be used again; its job stays."""
        caller = self._caller
        reply = await self._execute(
            Forget(
                tenant=caller.tenant,
                record_id=lookup_record_id(caller_for_user(caller, user), key, scope),
                actor=caller.actor,
                grace_ms=self._runtime.cache_ttl_ms_max,
            )
        )
        if not isinstance(reply, Forgotten):
            raise to_exception(reply, key)
        # The record will be gone, so this line is the only trace of who removed it.
        digest = audit.key_digest(key)
        audit.write_audit_record("forget", tenant=caller.tenant, actor=caller.actor, scope=scope, key=digest)
        return to_utc(reply.expires_at)

    def _try_build_submit(self, submission: Submission) -> Submit | Invalid:
        try:
            return build_submit(checked_submission(submission), self._caller, self._runtime.ids.job_id())
        except Invalid as error:
            return error
