"""Keys of foreign jobs: made elsewhere, remembered here, so that the same key is answered with the same id."""

from .command import CommandData
from .facts import Record, live
from .ids import text_of
from .receipt import Reason, Refused, Settled
from .states import IdempotencyStatus
from .step import Facts, Footprint, Step


class StoreKey(CommandData, frozen=True, gc=False, kw_only=True):
    """Remember a key for a job that was made elsewhere. Repeated with the same id it succeeds."""

    record_id: bytes
    scope: str
    key: str
    foreign_id: str
    actor: str
    user: str
    ttl_ms: int

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[Settled | Refused]:
        record = facts.record
        if record is not None and live(record, now):
            if self.foreign_id in (record.foreign_id, text_of(record.job_id) if record.job_ids else ""):
                return Step(Settled(record, facts.job, now))
            message = "this key already names another job; use a new key"
            return Step(Refused(Reason.IDEMPOTENCY_KEY_REUSED, message, now))
        stored = Record(
            self.record_id,
            self.tenant,
            self.scope,
            self.key,
            IdempotencyStatus.COMMITTED,
            fingerprint=b"",
            job_ids=b"",
            holder=b"",
            token=1,
            lease_until=0,
            created_at=now,
            changed_at=now,
            expires_at=now + self.ttl_ms,
            ttl_ms=self.ttl_ms,
            actor=self.actor,
            user=self.user,
            version=1 if record is None else record.version + 1,
            foreign_id=self.foreign_id,
        )
        return Step(Settled(stored, None, now), (stored,))
