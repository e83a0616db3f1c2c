"""The ledger as servers, workers and middleware use it: with verbs that other callers do not need."""

import asyncio

from msgspec.structs import astuple

from onejob.core.command import Precondition
from onejob.core.facts import NOT_FREE, Job, Record
from onejob.core.identity import check_key_owner, checked_name, policy_id, resolve_scope
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Found, KeyHeld, KeySettled, Replayed
from onejob.core.reserve import Reserve, Settle, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus
from onejob.core.submit import StoreKey, Submit
from onejob.errors import LeaseExpired
from onejob.resources.jobs import StepView
from onejob.runtime.callers import Caller, key_record_id
from onejob.runtime.external_keys import look_up_external_keys
from onejob.runtime.present import to_exception, to_step_view
from onejob.runtime.receipts import HeldKey, Receipt, build_held_key

from . import Ledger
from .base import repeated_under_new_settings, runtime_of
from .held_keys import PreparedKeyHeld, end_of_lease
from .parse import Submission, lookup_record_id
from .steps import StepCall
from .submissions import build_receipt

POLL_SECONDS = 0.2


class ServiceLedger(Ledger):
    @classmethod
    def of(cls, ledger: Ledger) -> "ServiceLedger":
        """The same ledger, for the same caller."""
        return ledger if isinstance(ledger, ServiceLedger) else ServiceLedger(runtime_of(ledger), ledger.caller)

    def for_caller(self, caller: Caller) -> "ServiceLedger":
        return self if self._runtime.bind(caller) == self.caller else ServiceLedger(self._runtime, caller)

    def prepare(self, submission: Submission, precondition: Precondition | None = None) -> Submit:
        """The command of a submission, checked: to be sent by `submit_prepared`, and for `replay_now`."""
        return self._build_submit(submission, precondition)

    def replay_now(self, prepared: Submit) -> Receipt | None:
        """The receipt of a duplicate of what `prepare` returned, if it can be given at once; None: submit it.

        For servers only, see `Gate.replay_now`.
        """
        runtime = self._runtime
        if prepared.settings is not runtime.settings_body or (
            runtime.tracing is not None and runtime.tracing.is_recording
        ):
            return None
        reply = self._gate.replay_now(prepared)
        return None if reply is None else build_receipt(prepared, reply)

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
            lease_end = end_of_lease(result, sent_at)
            if asyncio.get_running_loop().time() < lease_end:
                return PreparedKeyHeld(*astuple(result), lease_end=lease_end)
            raise LeaseExpired(
                "the lease expired before the store answered, and nothing was begun; reserve the key again"
            )
        if isinstance(result, Replayed):
            return result
        raise to_exception(result, key)

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
        lease_end = end_of_lease(reply, sent_at)
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

    async def store_step_result(self, call: StepCall, result: bytes) -> StepView:
        """`finish_step` for a caller that has only the names of the step, and JSON."""
        return to_step_view(await self._execute_step(call.finish_command(result)))
