"""Taking a key for the time of some work: for a submission that was said before, or for what is no job at all."""

import asyncio
from datetime import timedelta

from onejob.core.facts import Record
from onejob.core.identity import checked_name, resolve_scope
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Found, KeyHeld, KeySettled, Replayed
from onejob.core.reserve import Reserve, Settle, Verdict
from onejob.core.states import IdempotencyStatus
from onejob.core.views import HeldKey, Receipt
from onejob.errors import Invalid

from .base import LedgerBase
from .parse import Submission, build_reserve, key_record_id, lookup_record_id, parse_lease_ms
from .present import build_held_key, require_receipt, to_exception

POLL_SECONDS = 0.2


class HeldKeyOperations(LedgerBase):
    async def reserve(
        self,
        submission: Submission,
        *,
        lease: timedelta | None = None,
        job: bool = True,
        wait: bool = True,
    ) -> HeldKey | Receipt:
        """`check_or_reserve` for a submission that was said before. Without `wait` a held key is told at once."""
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
        )
        (result,) = await self._gate.execute_each((command,))
        if isinstance(result, KeyHeld):
            return build_held_key(result, key=command.key, scope=command.scope, lease_ms=command.lease_ms)
        return await require_receipt(self._gate, command, result)

    async def reserve_prepared(
        self, *, type: str, scope: str, key: str, fingerprint: bytes, ttl_ms: int, lease_ms: int
    ) -> KeyHeld | Replayed:
        """`reserve` without a job, for edges that have checked and printed what they ask for already."""
        caller = self._caller
        command = Reserve(
            tenant=caller.tenant,
            job_id=b"",
            type=type,
            record_id=key_record_id(caller, scope, key),
            scope=scope,
            key=key,
            fingerprint=fingerprint,
            actor=caller.actor,
            user=caller.user,
            ttl_ms=ttl_ms,
            holder=self._runtime.ids.holder(),
            lease_ms=lease_ms,
        )
        result = await self._gate.execute_one(command)
        if isinstance(result, (KeyHeld, Replayed)):
            return result
        raise to_exception(result, key)

    async def settle_prepared(self, held: KeyHeld, verdict: Verdict, receipt: bytes = b"") -> KeySettled:
        """Say what became of a key that was taken so."""
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
        """How long a key is held unless it is said otherwise."""
        return self._runtime.lease_ms

    async def is_holder_alive(self, submission: Submission, *, seconds: float) -> bool:
        """Watch who holds a key, until it renews (True), lets go or lapses (False). In time nobody can tell: True."""
        assert submission.idempotency_key is not None
        scope = resolve_scope(checked_name("type", submission.type), submission.scope)
        look = LookUpKey(
            tenant=self._caller.tenant,
            record_id=lookup_record_id(self._caller, submission.idempotency_key, scope),
        )
        first = await self._load_held_record(look)
        now = first
        for _ in range(max(1, round(seconds / POLL_SECONDS))):
            if first is None or now is None:
                return False
            if (now.token, now.lease_until) != (first.token, first.lease_until):
                return True
            await asyncio.sleep(POLL_SECONDS)
            now = await self._load_held_record(look)
        return now is not None

    async def _load_held_record(self, lookup: LookUpKey) -> Record | None:
        """The record of a key that somebody holds."""
        found = await self._execute(lookup)
        record = found.record if isinstance(found, Found) else None
        if record is None or record.status is not IdempotencyStatus.PENDING:
            return None
        assert isinstance(found, Found)
        return record if found.at <= record.lease_until else None
