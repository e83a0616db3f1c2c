"""The ledger's verbs for a held key: reserve it, renew its lease, settle it."""

import asyncio
from datetime import timedelta
from typing import Any, Unpack

from msgspec.structs import astuple

from onejob.core.command import is_precondition_failure
from onejob.core.facts import NOT_FREE, Job, Record
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.identity import check_key_owner, checked_name, policy_id, resolve_scope
from onejob.core.key import KeyLike
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.lookup import LookUpKey
from onejob.core.replies import AnyReply, Found, KeyHeld, KeySettled, Replayed
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus
from onejob.core.submit import StoreKey
from onejob.core.work import to_storable_text
from onejob.errors import Invalid, LeaseExpired
from onejob.runtime.callers import key_record_id
from onejob.runtime.external_keys import look_up_external_keys
from onejob.runtime.present import to_exception
from onejob.runtime.receipts import HeldKey, Receipt, build_held_key, build_settled_receipt

from .base import LedgerBase, repeated_under_new_settings
from .parse import (
    Submission,
    SubmissionOptions,
    build_reserve,
    fence_fields,
    list_options,
    lookup_record_id,
    parse_lease_ms,
)
from .submissions import require_receipt

ERROR_BYTES_MAX = 1000
POLL_SECONDS = 0.2


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
            lease_end = _lease_end(result, sent_at)
            return build_held_key(
                result, key=command.key, scope=command.scope, lease_ms=command.lease_ms, lease_end=lease_end
            )
        return await require_receipt(self._gate, command, result)

    @repeated_under_new_settings
    async def reserve_prepared(
        self, *, type: str, scope: str, key: str, fingerprint: bytes, ttl_ms: int | None, lease_ms: int
    ) -> PreparedKeyHeld | Replayed:
        """Reserve a key without a job; the caller has checked the names and computed the fingerprint."""
        caller = self._caller
        check_key_owner(scope, key, caller.actor)
        command = Reserve(
            job_id=b"",
            type=type,
            tenant=caller.tenant,
            record_id=key_record_id(caller, scope, key),
            scope=scope,
            key=key,
            fingerprint=fingerprint,
            actor=caller.actor,
            user=caller.user,
            ttl_ms=self._runtime.windows.by_type.get(type, self._runtime.windows.ttl_ms) if ttl_ms is None else ttl_ms,
            settings=caller.settings,
            holder=self._runtime.ids.holder(),
            lease_ms=lease_ms,
        )
        result, sent_at = await self._reserve(command, has_external_jobs=False)
        if isinstance(result, KeyHeld):
            lease_end = _lease_end(result, sent_at)
            if asyncio.get_running_loop().time() < lease_end:
                return PreparedKeyHeld(*astuple(result), lease_end=lease_end)
            raise LeaseExpired(
                "the lease expired before the store answered, and nothing was begun; reserve the key again"
            )
        if isinstance(result, Replayed):
            return result
        raise to_exception(result, key)

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
            lease_end = _lease_end(reply, sent_at)
            return build_held_key(
                reply, key=held_key.key, scope=held_key.scope, lease_ms=held_key.lease_ms, lease_end=lease_end
            )
        raise to_exception(reply, held_key.key)

    async def take_over_preparation(self, job: Job) -> HeldKey | None:
        """Hold the key of a job whose preparation was abandoned; None if that is not so any more, or not allowed now."""
        caller, lease_ms = self._caller, self._runtime.lease_ms
        version = await self._find_free_version(job)
        if version == NOT_FREE:
            return None
        sent_at = asyncio.get_running_loop().time()
        reply = await self._execute(
            TakeOver(
                tenant=caller.tenant,
                record_id=key_record_id(caller, job.scope, job.key),
                holder=self._runtime.ids.holder(),
                lease_ms=lease_ms,
                policy_id=policy_id(caller.tenant, QUOTA_POLICY_NAME),
                free_version=version,
            )
        )
        if not isinstance(reply, KeyHeld):
            return None
        lease_end = _lease_end(reply, sent_at)
        return build_held_key(reply, key=job.key, scope=job.scope, lease_ms=lease_ms, lease_end=lease_end)

    async def _find_free_version(self, job: Job) -> int | None:
        """The version of the record of a preparing job that may be taken over; None: any, since nothing is stored for all types.

        If its key is stored for an external job, the preparation ends here, and the key is not free.
        """
        caller, retention_ms = self._caller, self._runtime.retention_ms
        if not await self._runtime.external_keys.has_keys(caller.tenant):
            return None
        keys = ((job.scope, job.key),)
        (found,) = await look_up_external_keys(self._gate, caller, keys, retention_ms=retention_ms)
        external = found.external_job
        if external is None:
            return found.free_version
        store = StoreKey(
            tenant=caller.tenant,
            record_id=key_record_id(caller, job.scope, job.key),
            scope=job.scope,
            key=job.key,
            external_id=external.id,
            actor=external.actor,
            user=external.user,
            ttl_ms=external.ttl_ms,
            retention_ms=retention_ms,
            settings=caller.settings,
        )
        await self._execute(store)
        return NOT_FREE

    async def commit(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key: its job may run, and duplicates get the job and these bytes."""
        return await self._settle(held_key, Verdict.COMMIT, receipt)

    async def reject(self, held_key: HeldKey, receipt: bytes = b"") -> Receipt:
        """Settle the key with a final refusal, which is kept for `rejected_ttl_seconds`."""
        return await self._settle(held_key, Verdict.REJECT, receipt, ttl_ms=self._runtime.rejected_ttl_ms)

    async def fail(self, held_key: HeldKey, error: str = "") -> Receipt:
        """Release the key unsettled: the receipt is `refused`; the same submission may try again, and keeps its job id."""
        return await self._settle(held_key, Verdict.FAIL, to_storable_text(error).encode()[:ERROR_BYTES_MAX])

    async def settle_prepared(self, held: KeyHeld, verdict: Verdict, receipt: bytes = b"") -> KeySettled:
        """Settle a key that `reserve_prepared` returned."""
        caller = self._caller
        reply = await self._gate.dispatch(
            Settle(
                tenant=caller.tenant,
                record_id=held.record_id,
                job_id=held.job_id,
                token=held.token,
                holder=held.holder,
                verdict=verdict,
                receipt=receipt,
                actor=caller.actor,
            )
        )
        if isinstance(reply, KeySettled):
            return reply
        raise to_exception(reply, "")

    @property
    def lease_ms(self) -> int:
        """The default lease."""
        return self._runtime.lease_ms

    async def held_token(self, submission: Submission) -> int | None:
        """The token of the key's holder; None: nobody holds it now."""
        assert submission.idempotency_key is not None
        scope = resolve_scope(checked_name("type", submission.type), submission.scope)
        record_id = lookup_record_id(self._caller, submission.idempotency_key, scope)
        record = await self._load_held_record(LookUpKey(tenant=self._caller.tenant, record_id=record_id))
        return None if record is None else record.token

    async def is_holder_alive(self, submission: Submission, *, seconds: float) -> bool:
        """Poll a held key: True when its lease is renewed, False when it is settled or expires.

        True as well when neither happens in time.
        """
        assert submission.idempotency_key is not None
        scope = resolve_scope(checked_name("type", submission.type), submission.scope)
        lookup = LookUpKey(
            tenant=self._caller.tenant, record_id=lookup_record_id(self._caller, submission.idempotency_key, scope)
        )
        first = latest = await self._load_held_record(lookup)
        for _ in range(max(1, round(seconds / POLL_SECONDS))):
            if first is None or latest is None:
                return False
            if (latest.token, latest.lease_until) != (first.token, first.lease_until):
                return True
            await asyncio.sleep(POLL_SECONDS)
            latest = await self._load_held_record(lookup)
        return latest is not None

    async def _load_held_record(self, lookup: LookUpKey) -> Record | None:
        """The record of a key if its lease still runs."""
        reply = await self._execute(lookup)
        if not isinstance(reply, Found) or reply.record is None:
            return None
        record = reply.record
        holds = record.status is IdempotencyStatus.PENDING and reply.at <= record.lease_until
        return record if holds else None

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


def _lease_end(held: KeyHeld, sent_at: float) -> float:
    """When the lease ends, at the latest, on the clock that `sent_at` was read from: it began after that."""
    return sent_at + (held.lease_until - held.at) / 1000
