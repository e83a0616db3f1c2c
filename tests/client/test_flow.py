"""When a call is sent again, as tables: no clock, no network, no chance."""

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
from onejob.client.models import SubmitResponseModel
from onejob.client.requests import Call
from onejob.codes import CODES, NextAction
from onejob.core.replies import Reason

CUT, UNSENT = NoResponse("cut", sent=True), NoResponse("refused", sent=False)
DONE = ServerResponse(202, {}, b"{}")
CALL = Call(
    method="POST",
    path="/api/jobs",
    response_type=SubmitResponseModel,
    body=b"{}",
    key="k",
    window_ms=86_400_000,
)


def problem_answer(code: str, status: int = 409, *, retryable: bool = False, **headers: str) -> ServerResponse:
    error = {"code": code, "message": "text", "retryable": retryable, "details": {}}
    return ServerResponse(
        status,
        {name.replace("_", "-"): text for name, text in headers.items()},
        json.encode({"error": error}),
    )


AWAY = problem_answer("SERVICE_UNAVAILABLE", 503, retryable=True)


def run(
    *said: ServerResponse | NoResponse, chance: float = 1.0, seconds: float = 0.0, **options: Any
) -> tuple[CallOutcome, list[float]]:
    """Drive a flow with these answers, each after so many seconds; what it ended with, and its pauses."""
    retry = options.pop("retry", RetryPolicy())
    steps = send_with_retries(CALL, retry, begin=1000.0, jitter=lambda: chance, **options)
    now, pauses, waiting = 1000.0, list[float](), iter(said)
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
    "trouble", [CUT, UNSENT, AWAY, problem_answer("INTERNAL_ERROR", 500), ServerResponse(502, {}, b"<html>")]
)
def test_server_errors_are_retried_with_growing_pauses(trouble: ServerResponse | NoResponse) -> None:
    ended, pauses = run(trouble, trouble, trouble, DONE)
    assert ended.response == DONE
    assert ended.attempts == 4
    assert pauses == [0.2, 0.4, 0.8]


def test_pauses_are_spread_over_their_whole_length_and_capped() -> None:
    _, pauses = run(*[CUT] * 9, DONE, chance=0.5)
    assert pauses[0] == 0.1
    assert max(pauses) == 5.0


@pytest.mark.parametrize(
    ("answer", "act"),
    [
        *(
            (problem_answer(code, row.status), row.next_action)
            for code, row in CODES.items()
            if code != "SERVICE_UNAVAILABLE"
        ),
        (AWAY, NextAction.RETRY),
        (problem_answer("SERVICE_UNAVAILABLE", 503), NextAction.GIVE_UP),
        (problem_answer("CONFLICT", 422), NextAction.FIX),
        (problem_answer("CONFLICT", 409, retry_after="1"), NextAction.FIX),
        (problem_answer("A_NEWER_ONE", 418), NextAction.GIVE_UP),
        (problem_answer("A_NEWER_ONE", 418, retryable=True), NextAction.RETRY),
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
def test_what_passes_is_waited_for(code: str) -> None:
    busy = problem_answer(code, retryable=True, retry_after="3")
    ended, pauses = run(busy, DONE, chance=0.0)
    assert (ended.response, pauses) == (DONE, [3.0])
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


def test_retry_after_is_capped_and_never_undercut() -> None:
    absurd = problem_answer("RATE_LIMITED", 429, retryable=True, retry_after="31536000")
    _, pauses = run(absurd, DONE, chance=0.0)
    assert pauses == [60.0]


def test_the_deadline_is_for_all_attempts_together() -> None:
    ended, pauses = run(*[CUT] * 100, seconds=20.0)
    assert ended.response == CUT
    assert ended.outcome_unknown
    assert ended.attempts == 6, "the last of them only has what the others left"
    assert 5 * 20.0 + sum(pauses) < 120.0
    assert not ended.window_passed


def test_attempts_end() -> None:
    ended, _ = run(*[CUT] * 10, retry=RetryPolicy(attempts_max=3))
    assert ended.attempts == 3


def test_nothing_is_sent_after_the_window() -> None:
    ended, pauses = run(*[CUT] * 10, window_end=1001.0)
    assert ended.window_passed
    assert sum(pauses) < 1.0
    with pytest.raises(onejob.WindowPassed) as passed:
        decode_or_raise(CALL, ended)
    assert passed.value.key == "k"
    assert not passed.value.retryable


def test_what_may_not_be_repeated_is_sent_once_unless_nothing_left() -> None:
    assert run(CUT, repeat=False)[0].attempts == 1
    assert run(AWAY, repeat=False)[0].attempts == 1
    assert run(UNSENT, UNSENT, DONE, repeat=False)[0].attempts == 3


def test_no_answer_is_ambiguous_and_carries_the_key() -> None:
    for last in (CUT, AWAY, problem_answer("INTERNAL_ERROR", 500)):
        ended, _ = run(last, retry=RetryPolicy(attempts_max=1))
        with pytest.raises(onejob.AmbiguousOutcome) as ambiguous:
            decode_or_raise(CALL, ended)
        assert ambiguous.value.key == "k"
        assert ambiguous.value.retryable


def test_a_call_that_never_left_was_not_done() -> None:
    ended, _ = run(UNSENT, UNSENT, retry=RetryPolicy(attempts_max=2))
    with pytest.raises(onejob.Unavailable, match="nothing was done"):
        decode_or_raise(CALL, ended)


@pytest.mark.parametrize("code", sorted(CODES.keys() - {"IN_PROGRESS", "RATE_LIMITED"}))
def test_after_a_lost_answer_only_a_refusal_about_the_key_is_definite(code: str) -> None:
    ended, _ = run(CUT, problem_answer(code), retry=RetryPolicy(attempts_max=2))
    with pytest.raises(onejob.OnejobError) as raised:
        decode_or_raise(CALL, ended)
    assert isinstance(raised.value, onejob.AmbiguousOutcome) == (not CODES[code].settles)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CONFLICT", onejob.IdempotencyConflict),
        ("IN_PROGRESS", onejob.SubmissionInProgress),
        ("REJECTED", onejob.SubmissionRejected),
        ("VALIDATION_ERROR", onejob.Invalid),
        ("PAYLOAD_TOO_LARGE", onejob.Invalid),
        ("UNAUTHORIZED", onejob.NotAllowed),
        ("FORBIDDEN", onejob.NotAllowed),
        ("NOT_FOUND", onejob.NotFound),
        ("SEQUENCE_GAP", onejob.SubmissionRefused),
        ("QUOTA_EXCEEDED", onejob.SubmissionRefused),
        ("A_NEWER_ONE", onejob.ServerFailed),
    ],
)
def test_a_refusal_is_the_exception_that_the_ledger_raises(code: str, kind: type[Exception]) -> None:
    ended, _ = run(problem_answer(code), retry=RetryPolicy(waits=False))
    with pytest.raises(kind) as raised:
        decode_or_raise(CALL, ended)
    if isinstance(raised.value, onejob.SubmissionRefused):
        assert raised.value.reason is Reason(code)


def test_an_answer_that_does_not_fit_is_none() -> None:
    other = ServerResponse(202, {}, b"of another call")
    ended, _ = run(other, DONE, accepts=lambda answer: answer is DONE)
    assert ended.attempts == 2
    assert ended.outcome_unknown


@pytest.mark.parametrize("wrong", [{"deadline": 0}, {"pause_max": float("nan")}, {"attempts_max": 0}])
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(onejob.Invalid):
        RetryPolicy(**wrong)
