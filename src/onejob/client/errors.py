"""Turns the outcome of a call into its decoded response, or into the exception that it means."""

from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from onejob.codes import NextAction
from onejob.errors import (
    AmbiguousOutcome,
    IdempotencyConflict,
    Invalid,
    NotAllowed,
    NotFound,
    OnejobError,
    Reason,
    ServerFailed,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
    WindowPassed,
)

from .decoding import decode_response
from .flow import CallOutcome, NoResponse, ProblemBody, ServerResponse, classify, is_definitive, parse_problem
from .requests import Call

T = TypeVar("T")
_REASONS = frozenset(Reason)


def decode_or_raise(call: Call[T], outcome: CallOutcome) -> T:
    response = outcome.response
    if isinstance(response, NoResponse):
        raise_no_response(call, outcome, response.reason)
    action = classify(response)
    if action is NextAction.KEEP:
        return decode_response(response.body, call.response_type)
    problem = parse_problem(response)
    error = error_from_problem(problem, response, call.key or "")
    if call.key is None:
        raise error
    if outcome.outcome_unknown and problem is not None and problem.code == Reason.ALREADY_COMMITTED:
        # A lost attempt executed the number under this key, or another process did under its own: both look the same.
        outcome = replace(outcome, window_passed=True)
        raise_no_response(replace(call, sequenced=False), outcome, "its number was executed before", error)
    if action is NextAction.RETRY or (outcome.outcome_unknown and not is_definitive(problem)):
        raise_no_response(call, outcome, str(error), error)
    raise error


def raise_no_response(call: Call[Any], outcome: CallOutcome, reason: str, cause: Exception | None = None) -> NoReturn:
    """Raise for a call without a definite response: what that means depends on the call and on whether it was sent."""
    if not outcome.outcome_unknown or call.method == "GET":
        raise Unavailable(f"the server gave no answer ({reason}): nothing was done; retry later") from cause
    if call.key is None:
        raise Unknown(f"the server gave no answer ({reason}): it may be done; retry it") from cause
    tries = f"{outcome.attempts} attempt{'s' if outcome.attempts > 1 else ''}"
    if outcome.window_passed and not call.sequenced:
        raise WindowPassed(
            f"no definite answer after {tries} ({reason}), and the window of the key may be over: the job may exist, "
            "and a retry could make a second one; look for it first",
            key=call.key,
            attempts=outcome.attempts,
        ) from cause
    raise AmbiguousOutcome(
        f"no definite answer after {tries} ({reason}): the job may exist; retry with the same key and body",
        key=call.key,
        attempts=outcome.attempts,
    ) from cause


def error_from_problem(problem: ProblemBody | None, response: ServerResponse, key: str) -> OnejobError:
    if problem is None:
        return ServerFailed(
            f"the server answered {response.status} without a onejob error body; check the URL", status=response.status
        )
    text, details = problem.message, problem.details
    match problem.code:
        case "CONFLICT":
            paths = details.get("paths")
            paths = tuple(map(str, paths)) if isinstance(paths, list) else ()
            return IdempotencyConflict(key=key, job_id=str(details.get("jobId") or ""), paths=paths)
        case "IN_PROGRESS":
            return SubmissionInProgress(key=key, job_id=str(details.get("jobId") or ""), retry_after=1.0)
        case "REJECTED":
            return SubmissionRejected(key=key, job_id=str(details.get("jobId") or ""), receipt=b"")
        case "BAD_REQUEST" | "VALIDATION_ERROR" | "PAYLOAD_TOO_LARGE" | "UNSUPPORTED_MEDIA_TYPE" | "METHOD_NOT_ALLOWED":
            return Invalid(str(details.get("what") or "request"), text)
        case "UNAUTHORIZED" | "FORBIDDEN" | "LOGIN_THROTTLED":
            return NotAllowed(text)
        case "NOT_FOUND":
            return NotFound(text)
        case "SERVICE_UNAVAILABLE":
            return Unavailable(text)
    if problem.code in _REASONS:
        return SubmissionRefused(key=key, reason=Reason(problem.code), message=text, details=details)
    return ServerFailed(text, status=response.status, code=problem.code)
