"""The service as bare ASGI: submit, look at a job, say whether we are well. Loopback only: it authenticates nobody."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw, Struct, json

from onejob.core.fingerprint import INPUT_BYTES_MAX, canonical
from onejob.core.states import Delivery
from onejob.core.views import JobView, Receipt
from onejob.errors import Invalid, OnejobError
from onejob.ids import Ids, SystemIds
from onejob.intake import ATTEMPTS_DEFAULT
from onejob.ledger import Ledger

from .key_header import key_of
from .problems import Problem, problem, problem_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_BYTES_MAX = INPUT_BYTES_MAX

log = logging.getLogger("onejob.http")


class SubmitBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    input: Raw = Raw(b"null")
    scope: str | None = None
    idempotency_ttl_seconds: float | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: int = 0
    run_at: datetime | None = None
    max_attempts: int = ATTEMPTS_DEFAULT
    timeout_seconds: float | None = None
    labels: dict[str, str] | None = None


class TooLarge(Exception):
    pass


class App:
    def __init__(self, ledger: Ledger, ids: Ids | None = None) -> None:
        self._ledger = ledger
        self._ids = ids or SystemIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._ids.nonce()
        try:
            status, body, headers = await self._route(scope, receive, request_id)
        except TooLarge:
            too_large = problem("PAYLOAD_TOO_LARGE", f"a body has at most {BODY_BYTES_MAX} bytes; send less")
            status, body, headers = _problem(too_large, request_id)
        except OnejobError as error:
            status, body, headers = _problem(problem_of(error), request_id)
        headers += [
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-request-id", request_id.encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope: Scope, receive: Receive, request_id: str) -> "Answer":
        path, method = scope["path"], scope["method"]
        if path == "/api/jobs" and method == "POST":
            return await self._submit(scope, receive, request_id)
        if path.startswith("/api/jobs/") and method == "GET":
            job = await self._ledger.job(path.removeprefix("/api/jobs/"))
            return _json(200, {"requestId": request_id, "job": job_json(job)})
        if path == "/healthz" and method == "GET":
            return _json(200, {"status": "ok", "durability": self._ledger.durability})
        if path in ("/api/jobs", "/healthz") or path.startswith("/api/jobs/"):
            return _problem(problem("METHOD_NOT_ALLOWED", f"{method} is not for {path}"), request_id)
        return _problem(problem("NOT_FOUND", "there is no such path"), request_id)

    async def _submit(self, scope: Scope, receive: Receive, request_id: str) -> "Answer":
        key = key_of(scope["headers"])
        body = _parsed(await _read(receive))
        ttl, timeout = body.idempotency_ttl_seconds, body.timeout_seconds
        receipt = await self._ledger.submit(
            body.type,
            body.input,
            idempotency_key=key,
            idempotency_ttl=None if ttl is None else _seconds("idempotencyTtlSeconds", ttl),
            scope=body.scope,
            delivery=body.delivery,
            priority=body.priority,
            run_at=body.run_at,
            max_attempts=body.max_attempts,
            timeout=None if timeout is None else _seconds("timeoutSeconds", timeout),
            labels=body.labels,
        )
        return _accepted(receipt, request_id)


Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("body", "the connection was closed before the body was complete; send it again")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge
        if not message.get("more_body"):
            return bytes(body)


def _parsed(data: bytes) -> SubmitBody:
    try:
        body = json.decode(data, type=SubmitBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("body", f"the body cannot be taken: {error}") from error
    canonical(data)  # two members of one name are refused anywhere, also outside the input
    return body


def _seconds(what: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise Invalid(what, f"{what} is a number of seconds; choose a smaller one") from error


def job_json(job: JobView) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
        "state": job.state,
        "key": job.key,
        "scope": job.scope,
        "actor": job.actor,
        "user": job.user,
        "delivery": job.delivery,
        "priority": job.priority,
        "attempts": job.attempts,
        "labels": job.labels,
        "createdAt": job.created_at,
        "changedAt": job.changed_at,
        "runAt": job.run_at,
        "endedAt": job.ended_at,
        "error": job.error,
    }


def _accepted(receipt: Receipt, request_id: str) -> Answer:
    told = {
        "key": receipt.key,
        "scope": receipt.scope,
        "outcome": receipt.outcome,
        "expiresAt": receipt.expires_at,
    }
    job = {"id": receipt.job_id} if receipt.job is None else job_json(receipt.job)
    status, body, headers = _json(202, {"requestId": request_id, "job": job, "idempotency": told})
    headers.append((b"location", f"/api/jobs/{receipt.job_id}".encode()))
    if not receipt.created:
        headers.append((b"idempotent-replayed", b"true"))
    if receipt.expires_at is not None:
        headers.append((b"idempotency-expires", receipt.expires_at.isoformat().encode()))
    return status, body, headers


def _json(status: int, body: Any) -> Answer:
    return status, json.encode(body), [(b"content-type", b"application/json")]


def _problem(found: Problem, request_id: str) -> Answer:
    retryable = found.retry_after is not None
    body = {
        "type": f"urn:onejob:{found.code}",
        "title": found.title,
        "status": found.status,
        "detail": found.message,
        "requestId": request_id,
        "error": {
            "code": found.code,
            "message": found.message,
            "retryable": retryable,
            "details": found.details,
        },
    }
    headers = [(b"content-type", b"application/problem+json")]
    if retryable:
        headers.append((b"retry-after", str(found.retry_after).encode()))
    return found.status, json.encode(body), headers
