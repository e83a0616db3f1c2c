"""All exceptions, as one tree. Every message names the cause and what to do next.

OnejobError
├── Invalid                 the value is wrong: correct it (also a ValueError)
│   └── NotTheOwner             it belongs to another caller: use your own
├── SubmissionError         the submission was not accepted; has `key`
│   ├── IdempotencyConflict     the key was used for something else: use a new key
│   ├── SubmissionInProgress    another caller holds the key: retry later
│   ├── SubmissionRejected      rejected for good, and remembered
│   └── SubmissionRefused       refused (quota, rate, sequence gap); not remembered
├── LeaseLost               the held key or the job has another holder, or is settled: stop
│   └── LeaseExpired            the lease ran out before the store answered: stop, and reserve the key again
├── WorkRefused             an operation of a worker or operator was refused; has `reason` and `details`
├── NotFound                no such job or key
├── NotAllowed              no valid credential, or one without the permission
├── ServerFailed            a response that no onejob server sends: check the URL
├── Unavailable             certainly not done: retry
│   ├── NotAccepted             refused before it was sent to the store: closed, overloaded or cut off
│   ├── TenantRefused           the gate's credential may not act for the tenant, or not send this command
│   ├── FactsLocked             another transaction holds what it needs: retry, and see what hangs
│   ├── Outdated                a newer program wrote the stored data: upgrade this one
│   └── StoreRefused            the store does not meet the requirements: fix it first
├── Unknown                 may be done: retry the same command with the same key
│   ├── PartlyDone              some commands of a batch were executed; has `results`
│   ├── MayBeDone               there was no key: check before you retry
│   └── AmbiguousOutcome        no answer in time; has the `key` to retry with
│       └── WindowPassed            and the key may have expired: check before you retry
└── DefectiveCommand        a bug in the program: report it
"""

from collections.abc import Mapping, Sequence

from .core.errors import Invalid, NotTheOwner, OnejobError
from .core.replies import AnyReply, Reason

__all__ = [
    "AmbiguousOutcome",
    "DefectiveCommand",
    "FactsLocked",
    "IdempotencyConflict",
    "Invalid",
    "LeaseExpired",
    "LeaseLost",
    "MayBeDone",
    "NotAccepted",
    "NotAllowed",
    "NotFound",
    "NotTheOwner",
    "OnejobError",
    "Outdated",
    "PartlyDone",
    "Reason",
    "ServerFailed",
    "StoreRefused",
    "SubmissionError",
    "SubmissionInProgress",
    "SubmissionRefused",
    "SubmissionRejected",
    "TenantRefused",
    "Unavailable",
    "Unknown",
    "WindowPassed",
    "WorkRefused",
]


class SubmissionError(OnejobError):
    """A submission was not accepted; `key` is its key."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class IdempotencyConflict(SubmissionError):
    """The key was used with another body."""

    def __init__(self, *, key: str, job_id: str, paths: tuple[str, ...] = (), message: str = "") -> None:
        used = (
            f"this key already made job {job_id} from another body"
            if job_id
            else "this key was used for another request"
        )
        differ = f" (they differ at {', '.join(paths)})" if paths else ""
        super().__init__(message or f"{used}{differ}; use a new key, or send the original body again", key=key)
        self.job_id = job_id
        self.paths = paths


class SubmissionInProgress(SubmissionError):
    """Another caller holds the key, and has not settled it in time: retry with the same key after `retry_after` seconds."""

    retryable = True

    def __init__(self, *, key: str, job_id: str, retry_after: float) -> None:
        held = f"another caller is still submitting job {job_id}" if job_id else "another caller holds this key"
        super().__init__(f"{held}; retry with the same key in {retry_after:.1f} s", key=key)
        self.job_id = job_id
        self.retry_after = retry_after


class SubmissionRejected(SubmissionError):
    """The holder of the key has rejected the submission for good."""

    def __init__(self, *, key: str, job_id: str, receipt: bytes) -> None:
        super().__init__("this submission was rejected for good; correct it and submit it under a new key", key=key)
        self.job_id = job_id
        self.receipt = receipt


class SubmissionRefused(SubmissionError):
    """`details` names the limit and its use; `retry_after` is set if waiting that long is enough."""

    def __init__(
        self, *, key: str, reason: Reason, message: str, details: Mapping[str, int | str] | None = None
    ) -> None:
        super().__init__(message, key=key)
        self.reason = reason
        self.details = dict(details or {})
        wait_ms = self.details.get("retry_after_ms")
        self.retry_after = int(wait_ms) / 1000 if wait_ms is not None else None  # in seconds
        self.retryable = self.retry_after is not None


class LeaseLost(OnejobError):
    """The held key or the attempt has expired, was taken over or is settled; `details` may hold the current state."""

    def __init__(self, message: str, details: Mapping[str, int | str] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class LeaseExpired(LeaseLost):
    """The lease ran out on the clock of this process before the store answered. Another caller may hold the key by now."""


class WorkRefused(OnejobError):
    """The attempt has timed out, or the job's state does not allow the operation. Nothing was changed."""

    def __init__(self, reason: Reason, message: str, details: Mapping[str, int | str]) -> None:
        super().__init__(message)
        self.reason = reason
        self.details = dict(details)


class NotFound(OnejobError):
    """There is no such job or key in this tenant."""


class NotAllowed(OnejobError):
    """The server does not know the credential, or the credential lacks the permission."""


class ServerFailed(OnejobError):
    """A response that the client cannot interpret; `code` is the server's error code, or empty."""

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unavailable(OnejobError):
    """Certainly not done: retry."""

    retryable = True


class NotAccepted(Unavailable):
    """Refused by this process before it was sent to the store: the ledger is closed, overloaded or cut off."""


class Unknown(OnejobError):
    """May be done: execute the same command again."""

    retryable = True


class PartlyDone(Unknown):
    """Each command of a batch has its own result: a reply, or the failure of one that was not executed."""

    def __init__(self, message: str, results: Sequence[AnyReply | Exception] = ()) -> None:
        super().__init__(message)
        self.results = results


class MayBeDone(Unknown):
    """The outcome of a submission without a key is unknown: retrying it could make a second job."""

    retryable = False


class AmbiguousOutcome(Unknown):
    """No definite answer in time: the job may exist. Retrying with the same key and body is safe."""

    def __init__(self, message: str, *, key: str, attempts: int) -> None:
        super().__init__(message)
        self.key = key
        self.attempts = attempts


class WindowPassed(AmbiguousOutcome):
    """The job may exist, and its key may have expired: retrying could make a second job."""

    retryable = False


class TenantRefused(Unavailable):
    """The credential of a gate may not act for the tenant of a command, or not send this command: nothing was done."""


class FactsLocked(Unavailable):
    """Another transaction has held locks on its facts for too long. The store works: other commands can be executed."""

    def __init__(self, message: str, ids: Sequence[bytes] = ()) -> None:
        super().__init__(message)
        self.ids = ids  # one of them is locked; empty: not known which


class Outdated(Unavailable):
    """The stored data was written by a newer program, whose format this one cannot read."""


class StoreRefused(Unavailable):
    """The store cannot give the engine's guarantees, is damaged, or is newer than this program."""

    retryable = False


class DefectiveCommand(OnejobError):
    """A command that cannot be decided or stored."""
