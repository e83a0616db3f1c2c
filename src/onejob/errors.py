"""What can go wrong, as one tree. Every message says the next act.

OnejobError
├── Invalid                 the value itself is wrong: mend it (also a ValueError)
│   └── NotTheOwner             it is somebody else's: use your own
├── SubmissionError         the submission was not accepted; has `key`
│   ├── IdempotencyConflict     the key made another job: use a new key
│   ├── SubmissionInProgress    somebody else is at it: repeat later
│   ├── SubmissionRejected      a final verdict, remembered
│   └── SubmissionRefused       not now: quota, rate, gap; not remembered
├── LeaseLost               a reservation or a job is no longer yours: stop
├── WorkRefused             a verb of a worker or operator was refused; has `reason` and `details`
├── NotFound                no such job or key
├── NotAllowed              no credential, or one without the right
├── ServerFailed            a server answered what no onejob server should: see whether the URL is right
├── Unavailable             certainly not done: repeat
│   ├── Outdated                a newer program wrote what is stored: upgrade this one
│   └── StoreRefused            the store is not what it must be: mend it first
├── Unknown                 may be done: repeat the same command with the same key
│   ├── MayBeDone               there was no key: look before you repeat
│   └── AmbiguousOutcome        no answer in time; has the `key` to repeat with
│       └── WindowPassed            and the key's window may be over: look before you repeat
└── DefectiveCommand        a bug of the program: report it
"""

from collections.abc import Mapping

from .core.errors import Invalid, NotTheOwner, OnejobError
from .core.replies import Reason

__all__ = [
    "AmbiguousOutcome",
    "DefectiveCommand",
    "IdempotencyConflict",
    "Invalid",
    "LeaseLost",
    "MayBeDone",
    "NotAllowed",
    "NotFound",
    "NotTheOwner",
    "OnejobError",
    "Outdated",
    "Reason",
    "ServerFailed",
    "StoreRefused",
    "SubmissionError",
    "SubmissionInProgress",
    "SubmissionRefused",
    "SubmissionRejected",
    "Unavailable",
    "Unknown",
    "WindowPassed",
    "WorkRefused",
]


class SubmissionError(OnejobError):
    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class IdempotencyConflict(SubmissionError):
    """The key was used for another body."""

    def __init__(self, *, key: str, job_id: str, paths: tuple[str, ...] = ()) -> None:
        differ = f" (they differ at {', '.join(paths)})" if paths else ""
        super().__init__(
            f"this key already made job {job_id or 'of another kind'} from another body{differ}; "
            "use a new key for a new job, or send the original body again",
            key=key,
        )
        self.job_id = job_id
        self.paths = paths


class SubmissionInProgress(SubmissionError):
    retryable = True

    def __init__(self, *, key: str, job_id: str, retry_after: float) -> None:
        super().__init__(
            f"another caller is still submitting job {job_id}; repeat with the same key in {retry_after:.1f} s",
            key=key,
        )
        self.job_id = job_id
        self.retry_after = retry_after


class SubmissionRejected(SubmissionError):
    def __init__(self, *, key: str, job_id: str, receipt: bytes) -> None:
        super().__init__("this submission was rejected for good; correct it and submit it under a new key", key=key)
        self.job_id = job_id
        self.receipt = receipt


class SubmissionRefused(SubmissionError):
    """Says in `details` which limit, and how much of it is used; `retry_after` where waiting so long is enough."""

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
    """The reservation or the attempt expired, was taken over or is settled; `details` may say how it stands."""

    def __init__(self, message: str, details: Mapping[str, int | str] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class WorkRefused(OnejobError):
    """The time of the attempt is over, or the state of the job does not allow it. Nothing was changed."""

    def __init__(self, reason: Reason, message: str, details: Mapping[str, int | str]) -> None:
        super().__init__(message)
        self.reason = reason
        self.details = dict(details)


class NotFound(OnejobError):
    """No such job or key in this tenant."""


class NotAllowed(OnejobError):
    """The server does not know the credential, or it lacks the right."""


class ServerFailed(OnejobError):
    """A server's answer that no rule here knows; `code` is the server's own word, or empty."""

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Unavailable(OnejobError):
    """Certainly not done: repeat."""

    retryable = True


class Unknown(OnejobError):
    """May be done: execute the same command again."""

    retryable = True


class MayBeDone(Unknown):
    """A submission without a key whose fate is not known: repeating it might make a second job."""

    retryable = False


class AmbiguousOutcome(Unknown):
    """No definite answer in time: the job may exist. To repeat with the same key and body is safe."""

    def __init__(self, message: str, *, key: str, attempts: int) -> None:
        super().__init__(message)
        self.key = key
        self.attempts = attempts


class WindowPassed(AmbiguousOutcome):
    """The job may exist, and the key's window may be over: a repetition could make a second one."""

    retryable = False


class Outdated(Unavailable):
    """What is stored was written by a newer program, which alone knows what it says."""


class StoreRefused(Unavailable):
    """The store does not honour what the engine promises, or is damaged, or newer than this program."""

    retryable = False


class DefectiveCommand(OnejobError):
    """A command that cannot be decided or stored."""
