"""onejob: one logical submission makes one job, however often it is retried, raced, crashed or failed over."""

from .core.actor import Actor
from .core.attempts import Attempt
from .core.client_views import ClientState, SequenceOutcome, SequenceReceipt
from .core.fingerprint import fingerprint
from .core.invalid import Invalid, NotTheOwner
from .core.key import IdempotencyKey
from .core.limits import CostAction, CostLimit, Limits, Period, TenantLimits
from .core.receipt import Outcome
from .core.states import Delivery, IdempotencyStatus, JobState
from .core.usage import Quota, Slot, Usage
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
    WorkRefused,
)
from .ids import KeyGenerator
from .intake import Submission
from .ledger import Ledger
from .opening import open
from .sequences import SequencedSubmission
from .settings import IdempotencyConfig
from .webhooks import verify_webhook
from .worker import App, Context, Fatal, Retry, Worker

__all__ = [
    "Actor",
    "App",
    "Attempt",
    "ClientState",
    "Context",
    "CostAction",
    "CostLimit",
    "DefectiveCommand",
    "Delivery",
    "Fatal",
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
    "Limits",
    "MayBeDone",
    "NotFound",
    "NotTheOwner",
    "OnejobError",
    "Outcome",
    "Outdated",
    "Period",
    "Quota",
    "Receipt",
    "Reservation",
    "Retry",
    "SequenceOutcome",
    "SequenceReceipt",
    "SequencedSubmission",
    "Slot",
    "StoreRefused",
    "Story",
    "Submission",
    "SubmissionError",
    "SubmissionInProgress",
    "SubmissionRefused",
    "SubmissionRejected",
    "TenantLimits",
    "Unavailable",
    "Unknown",
    "Usage",
    "WorkRefused",
    "Worker",
    "fingerprint",
    "open",
    "verify_webhook",
]
