"""The ledger's verbs for a held key: reserve it, renew its lease, settle it."""

import asyncio
from datetime import timedelta
from typing import Any, Unpack

from onejob.core.command import is_precondition_failure
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.key import KeyLike
from onejob.core.replies import AnyReply, KeyHeld, KeySettled
from onejob.core.reserve import Renew, Reserve, Settle, Verdict
from onejob.core.work import to_storable_text
from onejob.errors import Invalid
from onejob.runtime.present import to_exception
from onejob.runtime.receipts import HeldKey, Receipt, build_held_key, build_settled_receipt

from .base import LedgerBase, repeated_under_new_settings
from .parse import (
    Submission,
    SubmissionOptions,
    build_reserve,
    fence_fields,
    list_options,
    parse_lease_ms,
)
from .submissions import require_receipt

ERROR_BYTES_MAX = 1000


class PreparedKeyHeld(KeyHeld, frozen=True, kw_only=True):
    """A held key, and when its lease ends for this process."""

    lease_end: float  # on the clock of the event loop, counted from before the request was sent


class HeldKeyOperations(LedgerBase):
    @list_options
    async def check_or_reserve(
        self,
        /,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike,
        lease: timedelta | None = None,
        job: bool = True,
        **options: Unpack[SubmissionOptions],
    ) -> HeldKey | Receipt:
        """Hold a key while you work, or get its settled answer. With `job=False` only a record is stored."""
        submission = Submission(type=type, input=input, idempotency_key=idempotency_key, **options)
        return await self.reserve(submission, lease=lease, job=job)

    @repeated_under_new_settings
    async def reserve(
        self, submission: Submission, *, lease: timedelta | None = None, job: bool = True, wait: bool = True
    ) -> HeldKey | Receipt:
        """`check_or_reserve` for a Submission. With `wait=False` a key that is held elsewhere is refused at once."""
        if submission.idempotency_key is None:
            raise Invalid("idempotency_key", "only a key can be reserved; give one")
        ids = self._runtime.ids
        command = build_reserve(
            submission,
            self._caller,
            ids.job_id() if job else b"",
            holder=ids.holder(),
            lease_ms=self._runtime.lease_ms if lease is None else parse_lease_ms(lease),
            wait_if_held=wait,
            windows=self._runtime.windows,
            traceparent="" if self._runtime.tracing is None else self._runtime.tracing.current_traceparent(),
        )
        command = self._runtime.key_limit.apply(command)
        (command,) = await self._add_external_jobs((command,))
        result, sent_at = await self._reserve(command, has_external_jobs=True)
        if isinstance(result, KeyHeld):
            lease_end = end_of_lease(result, sent_at)
            return build_held_key(
                result, key=command.key, scope=command.scope, lease_ms=command.lease_ms, lease_end=lease_end
            )
        return await require_receipt(self._gate, command, result)

    async def _reserve(self, command: Reserve, *, has_external_jobs: bool) -> tuple[AnyReply | BaseException, float]:
        """Reserve as the holder whose answer was lost, if there is one: it may have the key already.

        Returns also when the request was sent, after the last wait for another holder.
        """
        loop = asyncio.get_running_loop()
        sent_at = loop.time()

        async def on_resend(command: Reserve) -> Reserve:
            nonlocal sent_at
            if has_external_jobs:
                command = await self._renew_external_job(command)
            sent_at = loop.time()
            return command

        unanswered = self._runtime.unanswered_reservations
        command = unanswered.resume(self._runtime.key_limit.apply(command))
        is_answered = False
        try:
            result = await self._gate.execute_one(command, on_resend=on_resend)
            is_answered = not isinstance(result, BaseException) and not is_precondition_failure(result)
            return result, sent_at
        finally:
            if not is_answered:
                unanswered.add(command)

    async def renew(self, held_key: HeldKey) -> HeldKey:
        """Extend the lease by its length; raises LeaseLost when another holder has the key."""
        sent_at = asyncio.get_running_loop().time()
        reply = await self._execute(Renew(**fence_fields(held_key, self._caller), lease_ms=held_key.lease_ms))
        if isinstance(reply, KeyHeld):
            lease_end = end_of_lease(reply, sent_at)
            return build_held_key(
                reply, key=held_key.key, scope=held_key.scope, lease_ms=held_key.lease_ms, lease_end=lease_end
            )
        raise to_exception(reply, held_key.key)

    async def commit(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key: its job may run, and duplicates get the job and these bytes."""
        return await self._settle(held_key, Verdict.COMMIT, receipt)

    async def reject(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key with a final refusal, which is kept for `rejected_ttl_seconds`."""
        return await self._settle(held_key, Verdict.REJECT, receipt, ttl_ms=self._runtime.rejected_ttl_ms)

    async def fail(self, held_key: HeldKey, error: str = "") -> Receipt:
        """Release the key unsettled: the receipt is `refused`; the same submission may try again, and keeps its job id."""
        return await self._settle(held_key, Verdict.FAIL, to_storable_text(error).encode()[:ERROR_BYTES_MAX])

    async def _settle(self, held_key: HeldKey, verdict: Verdict, receipt: bytes, *, ttl_ms: int = 0) -> Receipt:
        if len(receipt) > INPUT_BYTES_MAX:
            raise Invalid("receipt", f"a receipt has at most {INPUT_BYTES_MAX} bytes; keep it elsewhere")
        reply = await self._execute(
            Settle(
                **fence_fields(held_key, self._caller),
                verdict=verdict,
                receipt=receipt,
                ttl_ms=ttl_ms,
                actor=self._caller.actor,
                retention_ms=self._runtime.retention_ms,
            )
        )
        if isinstance(reply, KeySettled):
            return build_settled_receipt(reply)
        raise to_exception(reply, held_key.key)


def end_of_lease(held: KeyHeld, sent_at: float) -> float:
    """When the lease ends, at the latest, on the clock that `sent_at` was read from: it began after that."""
    return sent_at + (held.lease_until - held.at) / 1000
