"""onejob: one logical submission makes one job, however often it is retried, raced, crashed or failed over."""

from typing import TYPE_CHECKING, Any

from . import sync
from .core.errors import Invalid, NotTheOwner
from .core.fingerprint import fingerprint
from .core.identity import Actor
from .core.key import IdempotencyKey
from .core.limits import CostAction, CostLimit, Limits, Period, TenantLimits
from .core.replies import Outcome, SequenceOutcome
from .core.states import Delivery, IdempotencyStatus, JobState
from .engines.gate import GateIdempotencyCache
from .errors import (
    AmbiguousOutcome,
    DefectiveCommand,
    IdempotencyConflict,
    LeaseExpired,
    LeaseLost,
    MayBeDone,
    NotAllowed,
    NotFound,
    OnejobError,
    Outdated,
    ServerFailed,
    StoreRefused,
    SubmissionError,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
    WindowPassed,
    WorkRefused,
)
from .ids import KeyGenerator
from .ledger import Ledger, open
from .ledger.parse import Submission
from .ledger.sequences import SequencedSubmission
from .ledger.work import Attempt
from .resources.jobs import JobView as Job
from .resources.keys import KeyHistory, PurgeResult
from .resources.quotas import SlotReservation
from .resources.submissions import ClientState, SequenceReceipt
from .runtime.quota_views import Quota, UsageView
from .runtime.receipts import HeldKey, Receipt
from .settings import IdempotencyConfig
from .webhooks import verify_webhook
from .worker import App, Context, Fatal, Retry, StepConflict, StepInterrupted, Worker

if TYPE_CHECKING:
    from .client.client import AsyncClient, Client
    from .client.flow import RetryPolicy
    from .manager.ledger import ManagerIdempotencyLedger

__all__ = [
    "Actor",
    "AmbiguousOutcome",
    "App",
    "AsyncClient",
    "Attempt",
    "Client",
    "ClientState",
    "Context",
    "CostAction",
    "CostLimit",
    "DefectiveCommand",
    "Delivery",
    "Fatal",
    "GateIdempotencyCache",
    "HeldKey",
    "IdempotencyConfig",
    "IdempotencyConflict",
    "IdempotencyKey",
    "IdempotencyStatus",
    "Invalid",
    "Job",
    "JobState",
    "KeyGenerator",
    "KeyHistory",
    "LeaseExpired",
    "LeaseLost",
    "Ledger",
    "Limits",
    "ManagerIdempotencyLedger",
    "MayBeDone",
    "NotAllowed",
    "NotFound",
    "NotTheOwner",
    "OnejobError",
    "Outcome",
    "Outdated",
    "Period",
    "PurgeResult",
    "Quota",
    "Receipt",
    "Retry",
    "RetryPolicy",
    "SequenceOutcome",
    "SequenceReceipt",
    "SequencedSubmission",
    "ServerFailed",
    "SlotReservation",
    "StepConflict",
    "StepInterrupted",
    "StoreRefused",
    "Submission",
    "SubmissionError",
    "SubmissionInProgress",
    "SubmissionRefused",
    "SubmissionRejected",
    "TenantLimits",
    "Unavailable",
    "Unknown",
    "UsageView",
    "WindowPassed",
    "WorkRefused",
    "Worker",
    "fingerprint",
    "open",
    "sync",
    "verify_webhook",
]

# Imported on first use, because only they need httpx (`onejob[client]`), or because few processes are managers.
_IMPORTED_LATE = {
    "AsyncClient": "client.client",
    "Client": "client.client",
    "ManagerIdempotencyLedger": "manager.ledger",
    "RetryPolicy": "client.flow",
}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f".{_IMPORTED_LATE[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise ModuleNotFoundError(f"onejob.{name} needs httpx; install onejob[client]", name="httpx") from error
