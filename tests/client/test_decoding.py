"""Responses of servers of another version."""

from typing import Any

import pytest
from msgspec import Raw, ValidationError, json

from onejob.client.decoding import decode_response
from onejob.core.replies import LimitName, Outcome
from onejob.core.states import Delivery, JobState
from onejob.resources.jobs import Jobs, JobView, SingleJob
from onejob.resources.quotas import SlotReservations
from onejob.resources.submissions import SubmitResponse

JOB: dict[str, Any] = {
    "id": "01a1e2f5-39f9-73f8-930c-48a088963d1e",
    "type": "t",
    "state": "running",
    "key": "k",
    "scope": "t",
    "actor": "a",
    "user": "u",
    "delivery": "at_least_once",
    "priority": 0,
    "attempts": 1,
    "labels": {"shop": "eu"},
    "createdAt": "2026-01-01T00:00:00Z",
    "changedAt": "2026-01-01T00:00:01Z",
    "runAt": None,
    "startedAt": "2026-01-01T00:00:01Z",
    "endedAt": None,
    "progress": {"done": 0.5},
    "error": None,
}


def test_an_unknown_member_is_ignored() -> None:
    job = decode_response(json.encode({"job": JOB | {"later": 1}, "requestId": "r"}), SingleJob).job
    assert (job.state, job.delivery) == (JobState.RUNNING, Delivery.AT_LEAST_ONCE)
    assert type(job.state) is JobState
    assert job.progress == {"done": 0.5}


def test_an_unknown_value_of_an_enum_is_text_and_everything_else_is_as_usual() -> None:
    page = decode_response(json.encode({"jobs": [JOB, JOB | {"state": "paused"}], "next": None}), Jobs)
    known, unknown = page
    assert type(unknown) is JobView
    assert (unknown.state, unknown.has_ended, repr(unknown).split()[-1]) == ("paused", False, "paused>")
    assert (unknown.created_at, unknown.labels, unknown.progress) == (known.created_at, known.labels, known.progress)
    assert type(unknown.delivery) is Delivery
    assert known == decode_response(json.encode({"job": JOB}), SingleJob).job


def test_an_unknown_value_is_text_in_every_part_of_a_response() -> None:
    idempotency = {"key": "k", "scope": "t", "outcome": "postponed", "expiresAt": None}
    warnings = [{"limit": "jobsPerYear", "message": "soon"}, {"limit": "costLimit", "message": "m"}]
    body = {"job": None, "idempotency": idempotency, "jobId": "j", "warnings": warnings}
    answer = decode_response(json.encode(body), SubmitResponse)
    assert (answer.job, answer.job_id, answer.idempotency.outcome) == (None, "j", "postponed")
    assert [warning.limit for warning in answer.warnings] == ["jobsPerYear", LimitName.COST]
    slot = {"id": "s", "user": "u", "state": "frozen", "createdAt": JOB["createdAt"], "expiresAt": JOB["createdAt"]}
    (reservation,) = decode_response(json.encode({"reservations": [slot]}), SlotReservations).reservations
    assert (reservation.state, reservation.job_id) == ("frozen", None)


def test_a_member_that_may_be_null_may_be_missing() -> None:
    body = {"idempotency": {"scope": "t", "outcome": "created"}, "jobId": "j"}
    answer = decode_response(json.encode(body), SubmitResponse)
    assert (answer.job, answer.idempotency.key, answer.idempotency.outcome) == (None, None, Outcome.CREATED)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"job": {}},
        {"job": JOB | {"id": 7}},
        {"job": JOB | {"state": 7}},
        {"job": JOB | {"createdAt": "yesterday"}},
        {"job": {name: value for name, value in JOB.items() if name != "state"}},
    ],
)
def test_another_body_is_refused(body: Any) -> None:
    with pytest.raises(ValidationError):
        decode_response(json.encode(body), SingleJob)


def test_a_result_is_read_as_it_is() -> None:
    assert bytes(decode_response(b'{ "a": 1e2 }', Raw)) == b'{ "a": 1e2 }'
