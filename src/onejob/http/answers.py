"""Answers: a status, a body, headers; one shape for all that goes wrong."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from msgspec import json

from .problems import Problem
from .wire import ErrorOut, ProblemOut

Header = tuple[bytes, bytes]
AuthorizationCheck = Callable[[], Awaitable[bool]]

_encode = json.Encoder().encode
JSON_CONTENT_TYPE = (b"content-type", b"application/json")
_PROBLEM_CONTENT_TYPE = (b"content-type", b"application/problem+json")


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[Header, ...]
    stream: AsyncGenerator[bytes, None] | None = None  # instead of the body
    encoded_headers: bytes = b""  # the headers as they are sent, where they are kept
    still_authorized: AuthorizationCheck | None = None  # of a stream: whether the client may still have it


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Headers as they are sent."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    joined = b"".join(lines)
    # A line break inside a header would begin another header, or another answer.
    if joined.count(b"\n") != len(lines):
        raise RuntimeError("a header has a line break in it")
    return joined


def json_response(status: int, body: Any, *headers: Header) -> Response:
    return Response(status, _encode(body), (JSON_CONTENT_TYPE, *headers))


def raw_response(status: int, body: bytes, media_type: bytes, *headers: Header) -> Response:
    return Response(status, body, ((b"content-type", media_type), *headers))


def error_out(problem: Problem) -> ErrorOut:
    return ErrorOut(problem.code, problem.message, problem.retry_after is not None, dict(problem.details))


def problem_response(problem: Problem, request_id: str) -> Response:
    """`Retry-After` is there exactly when the same request may be sent again."""
    body = ProblemOut(
        f"urn:onejob:problem:{problem.code}",
        problem.title,
        problem.status,
        problem.message,
        request_id,
        error_out(problem),
    )
    headers = [_PROBLEM_CONTENT_TYPE]
    if problem.retry_after is not None:
        headers.append((b"retry-after", b"%d" % problem.retry_after))
    return Response(problem.status, _encode(body), tuple(headers))
