"""The answers to submissions, and the keys that callers hold. A receipt builds its job when somebody asks for it."""

from datetime import datetime

from msgspec import Struct

from onejob.core.facts import Job
from onejob.core.identity import format_job_id
from onejob.core.replies import KeyHeld, KeySettled, LimitWarning, Outcome
from onejob.core.states import IdempotencyStatus
from onejob.core.timestamps import to_utc
from onejob.resources.jobs import JobView, to_job_view
from onejob.resources.submissions import KeyOutcome, SubmitResponse

from .present import job_id_text, to_utc_or_none

# A key that was released unsettled is pending: its submission was refused this time and may succeed later.
_OUTCOME_BY_STATUS = {
    IdempotencyStatus.COMMITTED: Outcome.CREATED,
    IdempotencyStatus.REJECTED: Outcome.REJECTED,
    IdempotencyStatus.PENDING: Outcome.REFUSED,
}


class Receipt(Struct, frozen=True, kw_only=True):
    """The answer to a submission."""

    outcome: Outcome
    key: str | None
    scope: str
    job_row: Job | None = None
    named_job_id: str = ""  # of a job without a row here: an external one, or one that is only named
    expires_ms: int = 0
    receipt: bytes = b""
    paths: tuple[str, ...] = ()  # where a conflicting body differs; only in a dry run
    warnings: tuple[LimitWarning, ...] = ()  # limits nearly reached; in a dry run also the one that refuses
    taken_over: bool = False  # key and job id existed; this submission took them over and made the job ready

    def __repr__(self) -> str:
        return f"<Receipt {self.outcome} job={self.job_id} key={self.key!r} scope={self.scope!r}>"

    @property
    def created(self) -> bool:
        return self.outcome is Outcome.CREATED

    @property
    def job(self) -> JobView | None:
        """None for an external job, a wrapped response, or a dry run."""
        return None if self.job_row is None else to_job_view(self.job_row)

    @property
    def job_id(self) -> str:
        return self.named_job_id if self.job_row is None else format_job_id(self.job_row.id)

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key replays this job; None without a key."""
        return to_utc_or_none(self.expires_ms)


class HeldKey(Struct, frozen=True):
    """A key that the caller holds until the lease ends: renew it while working, then commit, reject or fail it."""

    key: str
    scope: str
    job_id: str  # empty for a record without a job
    token: int
    lease_ms: int
    lease_until: datetime
    taken_over: bool
    record_id: bytes
    holder: bytes
    warnings: tuple[LimitWarning, ...] = ()
    # On the monotonic clock of the process, counted from before the request was sent: never later than in the store.
    lease_end: float = 0.0


def build_held_key(held: KeyHeld, *, key: str, scope: str, lease_ms: int, lease_end: float) -> HeldKey:
    return HeldKey(
        key,
        scope,
        job_id_text(held.job_id),
        held.token,
        lease_ms,
        to_utc(held.lease_until),
        held.taken_over,
        held.record_id,
        held.holder,
        held.warnings,
        lease_end,
    )


def build_settled_receipt(reply: KeySettled) -> Receipt:
    record = reply.record
    return Receipt(
        outcome=_OUTCOME_BY_STATUS[record.status],
        key=record.key,
        scope=record.scope,
        job_row=reply.job,
        named_job_id=record.external_id,
        expires_ms=0 if record.status is IdempotencyStatus.PENDING else record.expires_at,
        receipt=record.receipt,
    )


def to_submit_response(receipt: Receipt) -> SubmitResponse:
    job = receipt.job
    return SubmitResponse(
        job,
        to_key_outcome(receipt),
        (receipt.job_id or None) if job is None else None,
        receipt.warnings,
        receipt.paths,
    )


def to_key_outcome(receipt: Receipt) -> KeyOutcome:
    return KeyOutcome(receipt.key, receipt.scope, receipt.outcome, receipt.expires_at)
