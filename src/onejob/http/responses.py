"""Responses: status, body and headers; problems in one format; the cached response to a submission."""

from collections.abc import AsyncGenerator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec import Raw, Struct, json

from onejob.core.facts import Job
from onejob.core.replies import Outcome
from onejob.core.timestamps import to_utc
from onejob.core.typed_json import encode_safely
from onejob.resources import Resource
from onejob.resources.jobs import JobView, to_job_view
from onejob.resources.keys import KeyHistory
from onejob.resources.submissions import ErrorBody, KeyOutcome
from onejob.runtime.receipts import Receipt, to_submit_response
from onejob.server.exchange import STATUS_LINES, encode_headers
from onejob.server.exchange import Header as Header

from .problems import Problem
from .request import AuthorizationCheck
from .schemas.types import ProblemOut

JSON_CONTENT_TYPE = (b"content-type", b"application/json")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
# Of a file whose URL changes with its content.
CACHEABLE_HEADERS: tuple[Header, ...] = ((b"cache-control", b"public, max-age=31536000, immutable"), _NO_SNIFFING)
# Of every other response: it is stored by no cache, and no browser guesses another type than the one it has.
COMMON_HEADERS: tuple[Header, ...] = ((b"cache-control", b"no-store"), _NO_SNIFFING)
ENCODED_CACHE_MAX = 4096
# Where the id of the request is another member than the first.
REQUEST_ID_BEFORE: dict[type[Resource], str] = {KeyHistory: "events"}

_ENCODER = json.Encoder()
_encode = partial(encode_safely, _ENCODER)
_PROBLEM_CONTENT_TYPE = (b"content-type", b"application/problem+json")
REPLAYED_HEADER = (b"idempotent-replayed", b"true")
_REPLAYED_OUTCOME = Outcome.REPLAYED  # looking up an enum member is slow in Python 3.11


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[Header, ...]
    stream: AsyncGenerator[bytes, None] | None = None  # instead of the body
    encoded_headers: bytes = b""  # the same headers as bytes, if they are known
    still_authorized: AuthorizationCheck | None = None  # of a stream: called before each piece
    is_cacheable: bool = False  # True: the URL names the content, so that a browser may keep it


class _CreatedOrReplayed(Struct):
    """The members of `SubmitResponse` that can be cached."""

    job: JobView
    idempotency: KeyOutcome


def json_response(status: int, body: Any, *headers: Header) -> Response:
    return Response(status, _encode(body), (JSON_CONTENT_TYPE, *headers))


def resource_response(status: int, resource: Resource, request_id: str, *headers: Header) -> Response:
    return Response(status, encode_with_request_id(resource, request_id), (JSON_CONTENT_TYPE, *headers))


def encode_with_request_id(resource: Resource, request_id: str) -> bytes:
    """The JSON of a resource, in which the id of the request is the first member."""
    body = _encode(resource)
    before = REQUEST_ID_BEFORE.get(type(resource))
    if before is None:
        return b'{"requestId":"%b",%b' % (request_id.encode(), body[1:])
    members: dict[str, Raw | str] = {}
    for name, value in json.decode(body, type=dict[str, Raw]).items():
        if name == before:
            members["requestId"] = request_id
        members[name] = value
    return _encode(members)


def raw_response(status: int, body: bytes, media_type: bytes, *headers: Header) -> Response:
    return Response(status, body, ((b"content-type", media_type), *headers))


def to_error_body(problem: Problem) -> ErrorBody:
    return ErrorBody(problem.code, problem.message, problem.retry_after is not None, dict(problem.details))


def problem_response(problem: Problem, request_id: str) -> Response:
    """`Retry-After` is there exactly when the same request may be sent again."""
    body = ProblemOut(
        f"urn:onejob:problem:{problem.code}",
        problem.title,
        problem.status,
        problem.message,
        request_id,
        to_error_body(problem),
    )
    headers = [_PROBLEM_CONTENT_TYPE]
    if problem.retry_after is not None:
        headers.append((b"retry-after", b"%d" % problem.retry_after))
    return Response(problem.status, _encode(body), tuple(headers))


def encode_last_response(response: Response, request_id: str) -> bytes:
    """The last response of a connection, which no exchange writes."""
    headers = (
        *response.headers,
        *COMMON_HEADERS,
        (b"x-request-id", request_id.encode()),
        (b"content-length", b"%d" % len(response.body)),
        (b"connection", b"close"),
    )
    return b"".join((STATUS_LINES[response.status], encode_headers(headers), b"\r\n", response.body))


def submission_response(receipt: Receipt, request_id: str) -> Response:
    """The job, and the outcome and window of its key. A replay is also marked by a header."""
    job = receipt.job_row
    if job is None:  # an external job: only its id is known, and it has no path here
        body = encode_with_request_id(to_submit_response(receipt), request_id)
        return Response(202, body, _submission_headers("", receipt.outcome, receipt.expires_ms))
    encode = _encode_cached if receipt.outcome is _REPLAYED_OUTCOME else _encode_without_request_id
    rest, headers, lines = encode(job, receipt.outcome, receipt.expires_ms)
    if receipt.warnings:
        rest = b'%b,"warnings":%b}' % (rest[:-1], _encode(receipt.warnings))
    return Response(202, b'{"requestId":"%b",%b' % (request_id.encode(), rest), headers, None, lines)


def _encode_without_request_id(job: Job, outcome: Outcome, expires_ms: int) -> tuple[bytes, tuple[Header, ...], bytes]:
    """The rest of the body, the headers, and the headers as bytes."""
    idempotency = KeyOutcome(job.key or None, job.scope, outcome, to_utc(expires_ms) if expires_ms else None)
    body = to_job_view(job)
    rest = _ENCODER.encode(_CreatedOrReplayed(body, idempotency))[1:]  # a few KiB: nothing to fear (`encode_safely`)
    headers = _submission_headers(body.id, outcome, expires_ms)
    return rest, headers, encode_headers(headers)


# The cache key is the whole job row: a job that has changed in any way is encoded again.
_encode_cached = lru_cache(ENCODED_CACHE_MAX)(_encode_without_request_id)


def _submission_headers(job_id: str, outcome: Outcome, expires_ms: int) -> tuple[Header, ...]:
    headers = [JSON_CONTENT_TYPE, (b"location", b"/api/jobs/" + job_id.encode())] if job_id else [JSON_CONTENT_TYPE]
    if outcome is _REPLAYED_OUTCOME:
        headers.append(REPLAYED_HEADER)
    if expires_ms:
        headers.append((b"idempotency-expires", _encode_timestamp(expires_ms)))
    return tuple(headers)


@lru_cache(ENCODED_CACHE_MAX)
def _encode_timestamp(ms: int) -> bytes:
    return to_utc(ms).isoformat().encode()
