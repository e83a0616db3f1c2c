"""Keys of foreign jobs: made elsewhere, remembered here, so that the same key is answered with the same id."""

from .command import CommandData
from .facts import Record, is_live
from .ids import format_job_id
from .receipt import KeySettled, Reason, Refused
from .states import IdempotencyStatus
from .step import Facts, Footprint, Step


class StoreKey(CommandData, frozen=True, gc=False, kw_only=True):
    """Remember a key for a job that was made elsewhere. Repeated with the same id it succeeds."""

    record_id: bytes
    scope: str
    key: str
    external_id: str
    actor: str
    user: str
    ttl_ms: int

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True)

    def decide(self, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        record = facts.record
        if record is not None and is_live(record, now):
            if self.external_id in (
                record.foreign_id,
                format_job_id(record.job_id) if record.job_ids else "",
            ):
                return Step(KeySettled(record, facts.job, now))
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
            foreign_id=self.external_id,
        )
        return Step(KeySettled(stored, None, now), (stored,))
