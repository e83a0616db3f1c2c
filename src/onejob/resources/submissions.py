"""The answers to submissions: of one job, of a batch, of a sequence number; and the state of a sequenced client."""

from collections.abc import Sequence
from typing import Any

from onejob.core.replies import LimitWarning, Outcome, SequenceOutcome

from . import Resource, UtcTimestamp
from .jobs import JobView


class KeyOutcome(Resource, frozen=True):
    key: str | None
    scope: str
    outcome: Outcome
    expires_at: UtcTimestamp | None


class SubmitResponse(Resource, frozen=True, omit_defaults=True):
    job: JobView | None
    idempotency: KeyOutcome
    job_id: str | None = None  # where only the id of the job is known: an external job, or a dry run
    warnings: Sequence[LimitWarning] = ()
    paths: Sequence[str] = ()  # of a dry run that found a conflict: where the bodies differ


class ErrorBody(Resource, frozen=True):
    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class BatchVerdict(Resource, frozen=True, omit_defaults=True):
    """One item of a batch: a job, or an error."""

    status: int
    job: JobView | None = None
    idempotency: KeyOutcome | None = None
    error: ErrorBody | None = None
    job_id: str | None = None  # where only the id of the job is known: an external job
    warnings: Sequence[LimitWarning] = ()


class BatchResponse(Resource, frozen=True):
    verdicts: list[BatchVerdict]


class SequenceReceipt(Resource, frozen=True):
    """The answer to a sequence number."""

    outcome: SequenceOutcome
    client_id: str
    scope: str
    key: str
    assigned_sequence: int  # under which the key was executed; not the one sent, if the key was used before
    last_committed_sequence: int
    job: JobView | None  # where there is exactly one
    jobs: Sequence[JobView]  # in order
    expires_at: UtcTimestamp | None  # until when the key replays these jobs; None once its record has expired
    warnings: Sequence[LimitWarning]

    @property
    def committed(self) -> bool:
        return self.outcome == SequenceOutcome.COMMITTED


class ClientState(Resource, frozen=True):
    """The last committed number of a client's sequence; the client continues with the next one."""

    client_id: str
    scope: str
    last_committed_sequence: int
    last_seen: UtcTimestamp | None  # None: never
