"""Taking a key for the time of some work, for a submission that was said before."""

import asyncio
from datetime import timedelta

from .core.facts import Record
from .core.identity import checked_name, scope_of
from .core.lookup import LookUp
from .core.receipt import Found, Held
from .core.states import IdempotencyStatus
from .core.views import Receipt, Reservation
from .errors import Invalid
from .front import Front
from .intake import Submission, lease_ms, looked_up_id, reserve_of
from .outcome import answered, reservation_of

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
