"""What is written down about requests: a line for each, and where things went wrong. On stderr, as text or JSON.

Of a path only its pattern is written, of an exception only its type and place: keys, payloads and credentials are in
neither. Lines of requests are gathered for a moment, since a system call for each would cost more than the line.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

from msgspec import DecodeError, Struct, json

from onejob import audit
from onejob.clock import Clock, SystemClock
from onejob.core.moment import utc

from .answers import Answer
from .routes import Route

GATHER_SECONDS = 0.1
GATHER_BYTES_MAX = 65_536
PIECE_BYTES_MAX = 4096
TRAIL_PLACES_MAX = 12
TRAIL_CAUSES_MAX = 4

Format = Literal["text", "json"]

_REPLAYED = (b"idempotent-replayed", b"true")
_encode = json.Encoder().encode


class RequestLine(Struct, frozen=True, rename="camel", omit_defaults=True):
    at: str
    level: str
    request_id: str
    method: str
    route: str  # the pattern; "-" where there is none
    status: int
    ms: float
    outcome: str
    worker: int = 0  # 0: there is only this process

    def text(self) -> str:
        return (
            f"{self.at} {self.level} {_named(self.worker)}{self.status} {self.method} {self.route} {self.outcome} "
            f"{self.ms:.1f}ms {self.request_id}"
        )


class MessageLine(Struct, frozen=True, omit_defaults=True):
    at: str
    level: str
    message: str
    worker: int = 0

    def text(self) -> str:
        return f"{self.at} {self.level} {_named(self.worker)}{self.message}"


class AuditLine(Struct, frozen=True, omit_defaults=True):
    at: str
    level: str
    audit: dict[str, Any]  # what, tenant, actor, and what it was done to
    worker: int = 0

    def text(self) -> str:
        told = " ".join(f"{name}={value!r}" for name, value in self.audit.items())
        return f"{self.at} {self.level} {_named(self.worker)}audit {told}"


class Log:
    """The one writer of lines; whoever closes it has everything written."""

    def __init__(
        self,
        form: Format,
        *,
        write: Callable[[bytes], Any],
        clock: Clock | None = None,
        worker: int = 0,
    ) -> None:
        self._worker = worker
        self._json = form == "json"
        self._write = write
        self._wall_ms = (clock or SystemClock()).wall_ms
        self._last_ms, self._last = 0, ""
        self._gathered = bytearray()
        self._due: asyncio.TimerHandle | None = None

    def request(
        self, request_id: str, method: str, route: Route | None, given: Answer, seconds: float
    ) -> None:
        self._told(request_id, method, route.path if route else "-", given.status, seconds, outcome_of(given))

    def failure(
        self, request_id: str, method: str, route: Route | None, given: Answer, seconds: float
    ) -> None:
        """A line only for what failed: one for every request costs as much as a tenth of the answer."""
        if given.status >= 400:
            self.request(request_id, method, route, given, seconds)

    def refused(self, request_id: str, status: int) -> None:
        """A request that could not be read as far as its path."""
        self._told(request_id, "-", "-", status, 0.0, "bad_request")

    def message(self, level: str, message: str) -> None:
        self._put(MessageLine(self._now(), level, message, self._worker))
        self.flush()

    def audit(self, facts: dict[str, Any]) -> None:
        self._put(AuditLine(self._now(), "info", facts, self._worker))
        self.flush()

    def flush(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        gathered, self._gathered = self._gathered, bytearray()
        if gathered:
            with suppress(OSError, ValueError):  # nobody reads it any more: that must not stop the service
                self._write(bytes(gathered))

    def _told(
        self, request_id: str, method: str, route: str, status: int, seconds: float, outcome: str
    ) -> None:
        level = "error" if status >= 500 else "info"
        ms = round(seconds * 1000, 3)
        self._put(
            RequestLine(self._now(), level, request_id, method, route, status, ms, outcome, self._worker)
        )
        if len(self._gathered) > GATHER_BYTES_MAX:
            self.flush()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(GATHER_SECONDS, self.flush)

    def _put(self, line: RequestLine | MessageLine | AuditLine) -> None:
        self._gathered += (_encode(line) if self._json else _one_line(line.text())) + b"\n"

    def _now(self) -> str:
        ms = self._wall_ms()
        if ms != self._last_ms:  # many requests are answered in one millisecond
            self._last_ms, self._last = ms, utc(ms).isoformat(timespec="milliseconds")
        return self._last


class Handler(logging.Handler):
    """Hands the records of `logging` to the log, with trails instead of tracebacks."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if (audited := getattr(record, "audit", None)) is not None:
            self._log.audit(audited)
            return
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {trail(record.exc_info[1])}"
        self._log.message(record.levelname.lower(), message)


def stderr_log(form: Format, worker: int = 0) -> Log:
    """A log on stderr, to which everything that uses `logging` goes as well."""
    log = Log(form, write=_write_stderr, worker=worker)
    logging.basicConfig(handlers=[Handler(log)], level=logging.WARNING, force=True)
    audit.log.setLevel(logging.INFO)
    return log


def take_care(caveat: str) -> None:
    """Say once what may go wrong, in the form of every other line."""
    logging.getLogger("onejob.http").warning("take care: %s", caveat)


def unforeseen(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For the loop: its own words would show what futures and tasks hold."""
    error = context.get("exception")
    told = f": {trail(error)}" if isinstance(error, BaseException) else ""
    logging.getLogger("onejob.http").error("%s%s", context.get("message", "unforeseen"), told)


def outcome_of(given: Answer) -> str:
    """What became of a request, in the words of receipts and codes."""
    if given.status >= 400:
        try:
            return json.decode(given.body, type=_Coded).error.code.lower()
        except DecodeError:
            return "failed"
    if given.status == 202:
        return "replayed" if _REPLAYED in given.headers else "created"
    return "ok"


def trail(error: BaseException) -> str:
    """What went wrong and where, without a word of what was being handled."""
    told: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(told) < TRAIL_CAUSES_MAX:
        places = list(traceback.walk_tb(cause.__traceback__))[-TRAIL_PLACES_MAX:]
        path = " > ".join(f"{frame.f_globals.get('__name__', '?')}:{line}" for frame, line in places)
        told.append(f"{type(cause).__name__} at {path or 'no place'}")
        cause = cause.__cause__ or cause.__context__
    return ", after ".join(told)


class _Code(Struct):
    code: str


class _Coded(Struct):
    error: _Code


def _named(worker: int) -> str:
    return f"worker {worker}: " if worker else ""


def _one_line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode(errors="backslashreplace")


def _write_stderr(data: bytes) -> None:
    for piece in pieces(data):
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()


def pieces(data: bytes) -> Iterator[bytes]:
    """Whole lines, as many as a pipe takes at once: what several processes write to it must not be mixed."""
    start = 0
    while len(data) - start > PIECE_BYTES_MAX:
        end = (
            data.rfind(b"\n", start, start + PIECE_BYTES_MAX) + 1 or data.find(b"\n", start) + 1 or len(data)
        )
        yield data[start:end]
        start = end
    yield data[start:]
