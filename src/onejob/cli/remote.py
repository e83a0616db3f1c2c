"""The commands against a server. The answers are decoded, so that only what is known here is shown."""

from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import json

from onejob.client.calls import WINDOW_DEFAULT
from onejob.core.identity import checked_client_id, checked_name
from onejob.core.ids import format_job_id, parse_job_id
from onejob.core.key import checked_key
from onejob.core.money import to_micros, to_units
from onejob.core.states import JobState
from onejob.errors import OnejobError
from onejob.http.sequence_wire import ClientStateOut, SequenceOut
from onejob.http.wire import JobsOut, KeyOut, KeysOut, SingleJobOut, SubmitOut
from onejob.intake import Submission, checked_lookup_scope
from onejob.sequences import SequencedSubmission

from .calls import ServerClient, ServerReply
from .door import Backend, SubmitResult
from .quota_doors import ServerQuotas
from .work_doors import ServerWork

T = TypeVar("T")
_encode = json.Encoder(decimal_format="number").encode


class ServerBackend(ServerQuotas, ServerWork, Backend):
    def __init__(self, server: ServerClient) -> None:
        self._server = server

    def submit(self, submission: Submission) -> SubmitResult:
        # Encoded once: a repetition sends the very same bytes. Without a key it could make a second job.
        body = _encode(_body(submission))
        window = (submission.idempotency_ttl or WINDOW_DEFAULT).total_seconds()
        keyed = submission.idempotency_key is not None
        said = self._server.send("POST", "/api/jobs", body, repeat=keyed, window=window)
        answer = self._read(said, SubmitOut)
        named = answer.job.id if answer.job else answer.job_id or ""
        return SubmitResult(named, answer.job, answer.idempotency, answer.warnings)

    def submit_sequence(self, submission: SequencedSubmission) -> SequenceOut:
        (one,) = submission.jobs
        ttl = submission.idempotency_ttl
        number = {
            "scope": submission.scope,
            "sequence": submission.sequence,
            "idempotencyKey": submission.idempotency_key,
        }
        window = {} if ttl is None else {"idempotencyTtlSeconds": ttl.total_seconds()}
        body = _encode(_body(one) | number | window)
        path = f"{_client_path(submission.client_id)}/jobs"
        return self._read(self._server.send("POST", path, body, repeat=True), SequenceOut)

    def client_state(self, client_id: str, *, scope: str) -> ClientStateOut:
        return self._get(
            f"{_client_path(client_id)}/state", ClientStateOut, scope=checked_name("scope", scope)
        )

    def job(self, job_id: str) -> SingleJobOut:
        return self._get(_job_path(job_id), SingleJobOut)

    def jobs(
        self, *, state: JobState | None, type: str | None, user: str | None, limit: int, cursor: str | None
    ) -> JobsOut:
        return self._get("/api/jobs", JobsOut, state=state, type=type, user=user, limit=limit, cursor=cursor)

    def cancel(self, job_id: str) -> SingleJobOut:
        # To cancel what is cancelled changes nothing.
        return self._read(self._server.send("POST", f"{_job_path(job_id)}/cancel", repeat=True), SingleJobOut)

    def explain(self, key: str, *, scope: str, user: str | None) -> KeyOut:
        path = f"/api/keys/{quote(checked_key(key), safe='')}"
        return self._get(path, KeyOut, scope=checked_lookup_scope(scope), user=user)

    def keys(self, *, scope: str | None, user: str | None, limit: int, cursor: str | None) -> KeysOut:
        return self._get("/api/keys", KeysOut, scope=scope, user=user, limit=limit, cursor=cursor)

    def close(self) -> None:
        pass  # every call has its own connection

    def _get(self, path: str, kind: type[T], **query: object) -> T:
        fields = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(fields)}" if fields else path
        return self._read(self._server.send("GET", target, repeat=True), kind)

    def _read(self, said: ServerReply, kind: type[T]) -> T:
        try:
            return json.decode(said.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OnejobError(
                f"{self._server.url} answered in words that are not onejob's; see whether the URL is right"
            ) from error


def _job_path(job_id: str) -> str:
    """Checked here, as an engine would: an empty id would name another path."""
    return f"/api/jobs/{format_job_id(parse_job_id(job_id))}"


def _client_path(client_id: str) -> str:
    return f"/api/clients/{quote(checked_client_id(client_id), safe='')}"


def _body(submission: Submission) -> dict[str, Any]:
    """Only what was said; the server knows the rest."""
    ttl, timeout, cost = submission.idempotency_ttl, submission.timeout, submission.estimated_cost
    body = {
        "type": submission.type,
        "input": submission.input,
        "idempotencyKey": submission.idempotency_key,
        "scope": submission.scope,
        "idempotencyTtlSeconds": None if ttl is None else ttl.total_seconds(),
        "delivery": submission.delivery,
        "priority": submission.priority,
        "runAt": submission.run_at,
        "maxAttempts": submission.max_attempts,
        "timeoutSeconds": None if timeout is None else timeout.total_seconds(),
        "labels": dict(submission.labels) if submission.labels else None,
        "estimatedCost": None if cost is None else to_units(to_micros("estimated_cost", cost)),
        "reservation": submission.reservation,
    }
    return {name: value for name, value in body.items() if value is not None}
