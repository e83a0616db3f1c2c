"""Taking a key for the time of some work, for a submission that was said before."""

from datetime import timedelta

from .core.receipt import Held
from .core.views import Receipt, Reservation
from .errors import Invalid
from .front import Front
from .intake import Submission, lease_ms, reserve_of
from .outcome import answered, reservation_of


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
