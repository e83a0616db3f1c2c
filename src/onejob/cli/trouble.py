"""What went wrong, as an exit code. The code of the problem decides, never its text."""

from onejob.errors import OnejobError
from onejob.http.problems import Problem, problem_of

DONE, FAILED, WRONG, CONFLICT, UNAVAILABLE, MISSING, REFUSED, FORBIDDEN, UNSUCCESSFUL, UNFINISHED = range(10)
INTERRUPTED = 130

MEANINGS = {
    DONE: "done: created or replayed, found, or healthy",
    FAILED: "failed",
    WRONG: "wrong usage or input: mend it",
    CONFLICT: "conflict: the key made another job; use a new key",
    UNAVAILABLE: "unavailable: repeat with the same key",
    MISSING: "not found",
    REFUSED: "refused for now: quota, rate, or in progress elsewhere",
    FORBIDDEN: "not allowed: no credential, or one without the right",
    UNSUCCESSFUL: "with --wait: the job ended, but not well",
    UNFINISHED: "with --wait-for: the job goes on",
    INTERRUPTED: "interrupted",
}

EXITS = {
    "BAD_REQUEST": WRONG,
    "VALIDATION_ERROR": WRONG,
    "UNAUTHORIZED": FORBIDDEN,
    "FORBIDDEN": FORBIDDEN,
    "NOT_FOUND": MISSING,
    "METHOD_NOT_ALLOWED": FAILED,
    "CONFLICT": CONFLICT,
    "IN_PROGRESS": REFUSED,
    "SEQUENCE_GAP": REFUSED,
    "IDEMPOTENCY_KEY_REUSED": CONFLICT,
    "ALREADY_SETTLED": CONFLICT,
    "STALE": CONFLICT,
    "TIMED_OUT": CONFLICT,
    "NOT_ALLOWED": CONFLICT,
    "REJECTED": FAILED,
    "PAYLOAD_TOO_LARGE": WRONG,
    "QUOTA_EXCEEDED": REFUSED,
    "COST_LIMIT_EXCEEDED": REFUSED,
    "RATE_LIMITED": REFUSED,
    "INTERNAL_ERROR": FAILED,
    "SERVICE_UNAVAILABLE": UNAVAILABLE,
}


class ServerRefused(OnejobError):
    """A server's own words for what went wrong."""

    def __init__(self, found: Problem) -> None:
        super().__init__(found.message)
        self.problem = found
        self.retryable = found.retry_after is not None


def found(error: OnejobError) -> Problem:
    """The same problem whether an engine met it or a server told it."""
    if isinstance(error, ServerRefused):
        return error.problem
    problem = problem_of(error)
    # A store that must be mended first is unavailable too, but to repeat is no help.
    return problem if error.retryable else problem._replace(retry_after=None)


def exit_code(problem: Problem) -> int:
    # A code that only a newer server knows is a plain failure.
    code = EXITS.get(problem.code, FAILED)
    return FAILED if code == UNAVAILABLE and problem.retry_after is None else code
