"""Exit codes, and which one a problem has. The code of the problem decides, never its text."""

from onejob.codes import CODES, ExitCode
from onejob.errors import OnejobError
from onejob.http.problems import Problem, to_problem

(
    DONE,
    FAILED,
    USAGE_ERROR,
    CONFLICT,
    UNAVAILABLE,
    NOT_FOUND,
    REFUSED,
    FORBIDDEN,
    JOB_UNSUCCESSFUL,
    JOB_UNFINISHED,
    INTERRUPTED,
) = ExitCode

EXIT_CODE_MEANINGS = {
    DONE: "done: created or replayed, found, or healthy",
    FAILED: "failed",
    USAGE_ERROR: "wrong usage or input: correct it",
    CONFLICT: "conflict: the key made another job; use a new key",
    UNAVAILABLE: "unavailable: retry with the same key",
    NOT_FOUND: "not found",
    REFUSED: "refused for now: quota, rate, or in progress elsewhere",
    FORBIDDEN: "not allowed: no credential, or one without the permission",
    JOB_UNSUCCESSFUL: "with --wait: the job ended without success",
    JOB_UNFINISHED: "with --wait-for: the job has not ended yet",
    INTERRUPTED: "interrupted",
}


class ServerRefused(OnejobError):
    """A problem that a server responded with."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.retryable = problem.retry_after is not None


def problem_from_error(error: OnejobError) -> Problem:
    """The problem of an error, the same on an engine and against a server."""
    if isinstance(error, ServerRefused):
        return error.problem
    problem = to_problem(error)
    # A store that must be repaired first is unavailable too, but a retry does not help.
    return problem if error.retryable else problem._replace(retry_after=None)


def exit_code(problem: Problem) -> int:
    # An unknown code of a newer server is a failure.
    row = CODES.get(problem.code)
    code = row.exit_code if row is not None else FAILED
    return FAILED if code == UNAVAILABLE and problem.retry_after is None else code
