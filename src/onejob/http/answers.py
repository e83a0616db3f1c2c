"""Answers: a status, a body, headers; one shape for all that goes wrong."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from msgspec import json

from .problems import Problem
from .wire import ErrorOut, ProblemOut

Header = tuple[bytes, bytes]
Allowed = Callable[[], Awaitable[bool]]

_encode = json.Encoder().encode
JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", b"application/problem+json")


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: tuple[Header, ...]
    stream: AsyncGenerator[bytes, None] | None = None  # instead of the body
    lines: bytes = b""  # the headers as they are sent, where they are kept
    allowed: Allowed | None = None  # of a stream: whether the client may still have it


def header_lines(headers: Iterable[Header]) -> bytes:
    """Headers as they are sent."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    joined = b"".join(lines)
    # A line break inside a header would begin another header, or another answer.
    if joined.count(b"\n") != len(lines):
        raise RuntimeError("a header has a line break in it")
    return joined


def answer(status: int, body: Any, *headers: Header) -> Answer:
    return Answer(status, _encode(body), (JSON, *headers))


def text(status: int, body: bytes, kind: bytes, *headers: Header) -> Answer:
    return Answer(status, body, ((b"content-type", kind), *headers))


def error_out(found: Problem) -> ErrorOut:
    return ErrorOut(found.code, found.message, found.retry_after is not None, dict(found.details))


def refusal(found: Problem, request_id: str) -> Answer:
    """`Retry-After` is there exactly when the same request may be sent again."""
    body = ProblemOut(
        f"urn:onejob:problem:{found.code}",
        found.title,
        found.status,
        found.message,
        request_id,
        error_out(found),
    )
    headers = [_PROBLEM]
    if found.retry_after is not None:
        headers.append((b"retry-after", b"%d" % found.retry_after))
    return Answer(found.status, _encode(body), tuple(headers))
