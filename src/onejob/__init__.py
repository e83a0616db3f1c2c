"""onejob: one logical submission makes one job, however often it is retried, raced, crashed or failed over."""

from .core.actor import Actor
from .core.client_views import ClientState, SequenceOutcome, SequenceReceipt
from .core.fingerprint import fingerprint
from .core.invalid import Invalid
from .core.key import IdempotencyKey
from .core.receipt import Outcome
from .core.states import Delivery, IdempotencyStatus, JobState
from .core.views import JobView as Job
from .core.views import Receipt, Reservation, Story
from .errors import (
    DefectiveCommand,
    IdempotencyConflict,
    LeaseLost,
    MayBeDone,
    NotFound,
    OnejobError,
    Outdated,
    StoreRefused,
    SubmissionError,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
)
from .ids import KeyGenerator
from .intake import Submission
from .ledger import Ledger
from .opening import open
from .sequences import SequencedSubmission
from .settings import IdempotencyConfig

__all__ = [
    "Actor",
    "ClientState",
    "DefectiveCommand",
    "Delivery",
    "IdempotencyConfig",
    "IdempotencyConflict",
    "IdempotencyKey",
    "IdempotencyStatus",
    "Invalid",
    "Job",
    "JobState",
    "KeyGenerator",
    "LeaseLost",
    "Ledger",
    "MayBeDone",
    "NotFound",
    "OnejobError",
    "Outcome",
    "Outdated",
    "Receipt",
    "Reservation",
    "SequenceOutcome",
    "SequenceReceipt",
    "SequencedSubmission",
    "StoreRefused",
    "Story",
    "Submission",
    "SubmissionError",
    "SubmissionInProgress",
    "SubmissionRefused",
    "SubmissionRejected",
    "Unavailable",
    "Unknown",
    "fingerprint",
    "open",
]
