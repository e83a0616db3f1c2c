"""The retry flow as tables, without a clock, a network or random numbers."""

from typing import Any

import pytest
from msgspec import json

import onejob
from onejob.client.errors import decode_or_raise
from onejob.client.flow import (
    CallOutcome,
    NoResponse,
    RetryPolicy,
    Send,
    ServerResponse,
    Sleep,
    StepResult,
    classify,
    retry_after,
    send_with_retries,
)
from onejob.client.requests import Call
from onejob.codes import CODES, NextAction
from onejob.core.replies import Reason
from onejob.resources.submissions import SubmitResponse

CUT, UNSENT = NoResponse("cut", sent=True), NoResponse("refused", sent=False)
DONE = ServerResponse(202, {}, b"{}")
CALL = Call(
    method="POST",
    path="/api/jobs",
    response_type=SubmitResponse,
    body=b"{}",
    key="k",
    window_ms=86_400_000,
)


def problem(code: str, status: int = 409, *, retryable: bool = False, **headers: str) -> ServerResponse:
    error = {"code": code, "message": "text", "retryable": retryable, "details": {}}
    return ServerResponse(
        status,
        {name.replace("_", "-"): text for name, text in headers.items()},
        json.encode({"error": error}),
    )


AWAY = problem("SERVICE_UNAVAILABLE", 503, retryable=True)


def run(
    *responses: ServerResponse | NoResponse, chance: float = 1.0, seconds: float = 0.0, **options: Any
) -> tuple[CallOutcome, list[float]]:
    """Drive a flow with these responses, each after `seconds`; returns its outcome and its pauses."""
    retry = options.pop("retry", RetryPolicy())
    steps = send_with_retries(CALL, retry, begin=1000.0, jitter=lambda: chance, **options)
    now, pauses, waiting = 1000.0, list[float](), iter(responses)
    step = next(steps)
    try:
        while True:
            if isinstance(step, Sleep):
                pauses.append(step.seconds)
                now += step.seconds
                step = steps.send(StepResult(now))
            else:
                assert isinstance(step, Send)
                assert step.call is CALL
                now += min(seconds, step.timeout)
                step = steps.send(StepResult(now, next(waiting)))
    except StopIteration as end:
        return end.value, pauses


@pytest.mark.parametrize(
    "failure", [CUT, UNSENT, AWAY, problem("INTERNAL_ERROR", 500), ServerResponse(502, {}, b"<html>")]
)
def test_server_errors_are_retried_with_growing_pauses(failure: ServerResponse | NoResponse) -> None:
    outcome, pauses = run(failure, failure, failure, DONE)
    assert outcome.response == DONE
    assert outcome.attempts == 4
    assert pauses == [0.2, 0.4, 0.8]


def test_pauses_are_spread_over_their_whole_length_and_capped() -> None:
    _, pauses = run(*[CUT] * 9, DONE, chance=0.5)
    assert pauses[0] == 0.1
    assert max(pauses) == 5.0


@pytest.mark.parametrize(
    ("answer", "act"),
    [
        *((problem(code, row.status), row.next_action) for code, row in CODES.items() if code != "SERVICE_UNAVAILABLE"),
        (AWAY, NextAction.RETRY),
        (problem("SERVICE_UNAVAILABLE", 503), NextAction.GIVE_UP),
        (problem("CONFLICT", 422), NextAction.FIX),
        (problem("CONFLICT", 409, retry_after="1"), NextAction.FIX),
        (problem("A_NEWER_ONE", 418), NextAction.GIVE_UP),
        (problem("A_NEWER_ONE", 418, retryable=True), NextAction.RETRY),
        *((ServerResponse(status, {}, b"<html>"), NextAction.RETRY) for status in (408, 425, 500, 502, 503, 504)),
        (ServerResponse(429, {}, b""), NextAction.WAIT),
        (ServerResponse(409, {"retry-after": "1"}, b""), NextAction.WAIT),
        *(
            (ServerResponse(status, {}, b"<html>"), NextAction.GIVE_UP)
            for status in (302, 400, 401, 403, 404, 409, 422)
        ),
        (CUT, NextAction.RETRY),
        (DONE, NextAction.KEEP),
    ],
)
def test_the_code_decides_and_never_the_text(answer: ServerResponse | NoResponse, act: NextAction) -> None:
    assert classify(answer) is act


@pytest.mark.parametrize("code", ["IN_PROGRESS", "RATE_LIMITED"])
def test_temporary_refusals_are_waited_for(code: str) -> None:
    busy = problem(code, retryable=True, retry_after="3")
    outcome, pauses = run(busy, DONE, chance=0.0)
    assert (outcome.response, pauses) == (DONE, [3.0])
    assert run(busy, retry=RetryPolicy(waits=False))[0].response == busy


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "99999999999999"}, 999_999_999.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_both_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(ServerResponse(503, headers, b"")) == seconds


def test_retry_after_is_capped_and_otherwise_respected() -> None:
    absurd = problem("RATE_LIMITED", 429, retryable=True, retry_after="31536000")
    _, pauses = run(absurd, DONE, chance=0.0)
    assert pauses == [60.0]


def test_the_deadline_is_for_all_attempts_together() -> None:
    outcome, pauses = run(*[CUT] * 100, seconds=20.0)
    assert outcome.response == CUT
    assert outcome.outcome_unknown
    assert outcome.attempts == 6, "the last attempt only has the time that the others left"
    assert 5 * 20.0 + sum(pauses) < 120.0
    assert not outcome.window_passed


def test_attempts_are_limited() -> None:
    outcome, _ = run(*[CUT] * 10, retry=RetryPolicy(attempts_max=3))
    assert outcome.attempts == 3


def test_nothing_is_sent_after_the_window() -> None:
    outcome, pauses = run(*[CUT] * 10, window_end=1001.0)
    assert outcome.window_passed
    assert sum(pauses) < 1.0
    with pytest.raises(onejob.WindowPassed) as passed:
        decode_or_raise(CALL, outcome)
    assert passed.value.key == "k"
    assert not passed.value.retryable


def test_a_call_that_may_not_be_repeated_is_sent_once_unless_no_byte_was_sent() -> None:
    assert run(CUT, may_retry=False)[0].attempts == 1
    assert run(AWAY, may_retry=False)[0].attempts == 1
    assert run(UNSENT, UNSENT, DONE, may_retry=False)[0].attempts == 3


def test_no_response_is_ambiguous_and_carries_the_key() -> None:
    for last in (CUT, AWAY, problem("INTERNAL_ERROR", 500)):
        outcome, _ = run(last, retry=RetryPolicy(attempts_max=1))
        with pytest.raises(onejob.AmbiguousOutcome) as ambiguous:
            decode_or_raise(CALL, outcome)
        assert ambiguous.value.key == "k"
        assert ambiguous.value.retryable


def test_a_call_that_was_never_sent_was_not_done() -> None:
    outcome, _ = run(UNSENT, UNSENT, retry=RetryPolicy(attempts_max=2))
    with pytest.raises(onejob.Unavailable, match="nothing was done"):
        decode_or_raise(CALL, outcome)


@pytest.mark.parametrize("code", sorted(CODES.keys() - {"IN_PROGRESS", "RATE_LIMITED"}))
def test_after_a_lost_response_only_a_refusal_about_the_key_is_definite(code: str) -> None:
    outcome, _ = run(CUT, problem(code), retry=RetryPolicy(attempts_max=2))
    with pytest.raises(onejob.OnejobError) as raised:
        decode_or_raise(CALL, outcome)
    assert isinstance(raised.value, onejob.AmbiguousOutcome) == (not CODES[code].settles)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CONFLICT", onejob.IdempotencyConflict),
        ("IN_PROGRESS", onejob.SubmissionInProgress),
        ("REJECTED", onejob.SubmissionRejected),
        ("VALIDATION_ERROR", onejob.Invalid),
        ("PAYLOAD_TOO_LARGE", onejob.Invalid),
        ("UNSUPPORTED_MEDIA_TYPE", onejob.Invalid),
        ("UNAUTHORIZED", onejob.NotAllowed),
        ("FORBIDDEN", onejob.NotAllowed),
        ("LOGIN_THROTTLED", onejob.NotAllowed),
        ("NOT_FOUND", onejob.NotFound),
        ("SEQUENCE_GAP", onejob.SubmissionRefused),
        ("ALREADY_COMMITTED", onejob.SubmissionRefused),
        ("QUOTA_EXCEEDED", onejob.SubmissionRefused),
        ("A_NEWER_ONE", onejob.ServerFailed),
    ],
)
def test_a_refusal_is_the_exception_that_the_ledger_raises(code: str, kind: type[Exception]) -> None:
    outcome, _ = run(problem(code), retry=RetryPolicy(waits=False))
    with pytest.raises(kind) as raised:
        decode_or_raise(CALL, outcome)
    if isinstance(raised.value, onejob.SubmissionRefused):
        assert raised.value.reason is Reason(code)


def test_a_response_that_is_not_accepted_counts_as_none() -> None:
    other = ServerResponse(202, {}, b"of another call")
    outcome, _ = run(other, DONE, accepts=lambda answer: answer is DONE)
    assert outcome.attempts == 2
    assert outcome.outcome_unknown


@pytest.mark.parametrize("wrong", [{"deadline": 0}, {"pause_max": float("nan")}, {"attempts_max": 0}])
def test_an_invalid_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(onejob.Invalid):
        RetryPolicy(**wrong)


@pytest.mark.parametrize("paths", [5, "a", {"a": 1}, None])
def test_a_conflict_is_one_whatever_its_details_are(paths: Any) -> None:
    body = {"error": {"code": "CONFLICT", "message": "text", "details": {"paths": paths}}}
    with pytest.raises(onejob.IdempotencyConflict):
        decode_or_raise(CALL, CallOutcome(ServerResponse(422, {}, json.encode(body)), 1, outcome_unknown=False))


def test_a_body_that_is_nested_too_deeply_is_none() -> None:
    deep = b"[" * 100_000
    assert not CALL.accepts(ServerResponse(202, {}, deep))
    assert classify(ServerResponse(400, {}, deep)) is NextAction.GIVE_UP
