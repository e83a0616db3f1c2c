"""Taking a key for the time of some work: for a submission that was said before, or for what is no job at all."""

import asyncio
from datetime import timedelta

from .core.facts import Record
from .core.identity import checked_name, scope_of
from .core.lookup import LookUp
from .core.receipt import Found, Held, Replayed, Settled
from .core.reservation import Reserve, Settle, Verdict
from .core.states import IdempotencyStatus
from .core.views import Receipt, Reservation
from .errors import Invalid
from .front import Front
from .intake import Submission, key_id, lease_ms, looked_up_id, reserve_of
from .outcome import answered, failure, reservation_of

POLL_SECONDS = 0.2


class Reserving(Front):
    async def reserve(
        self,
        submission: Submission,
        *,
        lease: timedelta | None = None,
        job: bool = True,
        wait: bool = True,
    ) -> Reservation | Receipt:
        """`check_or_reserve` for a submission that was said before. Without `wait` a held key is told at once."""
        if submission.idempotency_key is None:
            raise Invalid("idempotency_key", "only a key can be reserved; give one")
        ids = self._host.ids
        command = reserve_of(
            submission,
            self._caller,
            ids.job_id() if job else b"",
            holder=ids.holder(),
            lease_ms=self._host.lease_ms if lease is None else lease_ms(lease),
            patient=wait,
        )
        (result,) = await self._gate.results((command,))
        if isinstance(result, Held):
            return reservation_of(result, key=command.key, scope=command.scope, lease_ms=command.lease_ms)
        return await answered(self._gate, command, result)

    async def take(
        self, *, type: str, scope: str, key: str, mark: bytes, ttl_ms: int, lease_ms: int
    ) -> Held | Replayed:
        """`reserve` without a job, for edges that have checked and printed what they ask for already."""
        caller = self._caller
        command = Reserve(
            tenant=caller.tenant,
            job_id=b"",
            type=type,
            record_id=key_id(caller, scope, key),
            scope=scope,
            key=key,
            fingerprint=mark,
            actor=caller.actor,
            user=caller.user,
            ttl_ms=ttl_ms,
            holder=self._host.ids.holder(),
            lease_ms=lease_ms,
        )
        result = await self._gate.result(command)
        if isinstance(result, (Held, Replayed)):
            return result
        raise failure(result, key)

    async def settle(self, held: Held, verdict: Verdict, receipt: bytes = b"") -> Settled:
        """Say what became of a key that was taken so."""
        caller = self._caller
        reply = await self._gate.reply(
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
        if isinstance(reply, Settled):
            return reply
        raise failure(reply, "")

    @property
    def lease_ms(self) -> int:
        """How long a key is held unless it is said otherwise."""
        return self._host.lease_ms

    async def holder_lives(self, submission: Submission, *, seconds: float) -> bool:
        """Watch who holds a key, until it renews (True), lets go or lapses (False). In time nobody can tell: True."""
        assert submission.idempotency_key is not None
        scope = scope_of(checked_name("type", submission.type), submission.scope)
        look = LookUp(
            tenant=self._caller.tenant,
            record_id=looked_up_id(self._caller, submission.idempotency_key, scope),
        )
        first = await self._held(look)
        now = first
        for _ in range(max(1, round(seconds / POLL_SECONDS))):
            if first is None or now is None:
                return False
            if (now.token, now.lease_until) != (first.token, first.lease_until):
                return True
            await asyncio.sleep(POLL_SECONDS)
            now = await self._held(look)
        return now is not None

    async def _held(self, look: LookUp) -> Record | None:
        """The record of a key that somebody holds."""
        found = await self._ask(look)
        record = found.record if isinstance(found, Found) else None
        if record is None or record.status is not IdempotencyStatus.PENDING:
            return None
        assert isinstance(found, Found)
        return record if found.at <= record.lease_until else None
