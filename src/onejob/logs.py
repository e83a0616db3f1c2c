"""The log on stderr, as text or JSON: requests, messages of `logging`, audit records.

Of a path only its pattern is logged, of an exception only its type and place: neither contains keys, payloads or
credentials. Request lines are buffered for a moment, since a system call for each would cost more than the line.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, json

from . import audit
from .clock import Clock, SystemClock
from .core.timestamps import to_utc

FLUSH_SECONDS = 0.1
BUFFER_BYTES_MAX = 65_536
PIPE_WRITE_BYTES_MAX = 4096
TRACEBACK_FRAMES_MAX = 12
TRACEBACK_CAUSES_MAX = 4

LogFormat = Literal["text", "json"]

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

    def to_text(self) -> str:
        return (
            f"{self.at} {self.level} {_worker_prefix(self.worker)}{self.status} {self.method} {self.route} {self.outcome} "
            f"{self.ms:.1f}ms {self.request_id}"
        )


class MessageLine(Struct, frozen=True, omit_defaults=True):
    at: str
    level: str
    message: str
    worker: int = 0

    def to_text(self) -> str:
        return f"{self.at} {self.level} {_worker_prefix(self.worker)}{self.message}"


class AuditLine(Struct, frozen=True, omit_defaults=True):
    at: str
    level: str
    audit: dict[str, Any]  # action, tenant, actor, and the object
    worker: int = 0

    def to_text(self) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in self.audit.items())
        return f"{self.at} {self.level} {_worker_prefix(self.worker)}audit {fields}"


class Log:
    """Formats and writes all lines. Flush it before the process exits."""

    def __init__(
        self, log_format: LogFormat, *, write: Callable[[bytes], Any], clock: Clock | None = None, worker: int = 0
    ) -> None:
        self._worker = worker
        self._json = log_format == "json"
        self._write = write
        self._wall_ms = (clock or SystemClock()).wall_ms
        self._last_ms, self._last_timestamp = 0, ""
        self._buffer = bytearray()
        self._flush_timer: asyncio.TimerHandle | None = None

    def write_request(
        self, request_id: str, method: str, route: str, status: int, seconds: float, outcome: str
    ) -> None:
        level = "error" if status >= 500 else "info"
        ms = round(seconds * 1000, 3)
        self._append(
            RequestLine(self._timestamp(), level, request_id, method, route, status, ms, outcome, self._worker)
        )
        if len(self._buffer) > BUFFER_BYTES_MAX:
            self.flush()
        elif self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def write_refusal(self, request_id: str, status: int) -> None:
        """A request that was refused before its path was read."""
        self.write_request(request_id, "-", "-", status, 0.0, "bad_request")

    def write_message(self, level: str, message: str) -> None:
        self._append(MessageLine(self._timestamp(), level, message, self._worker))
        self.flush()

    def write_audit(self, facts: dict[str, Any]) -> None:
        self._append(AuditLine(self._timestamp(), "info", facts, self._worker))
        self.flush()

    def flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        lines, self._buffer = self._buffer, bytearray()
        if lines:
            with suppress(OSError, ValueError):  # a closed stderr must not stop the service
                self._write(bytes(lines))

    def _append(self, line: RequestLine | MessageLine | AuditLine) -> None:
        self._buffer += (_encode(line) if self._json else _one_line(line.to_text())) + b"\n"

    def _timestamp(self) -> str:
        ms = self._wall_ms()
        if ms != self._last_ms:  # many requests are answered in one millisecond
            self._last_ms, self._last_timestamp = ms, to_utc(ms).isoformat(timespec="milliseconds")
        return self._last_timestamp


class LogHandler(logging.Handler):
    """Writes the records of `logging` to the log, with redacted tracebacks."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if (audited := getattr(record, "audit", None)) is not None:
            self._log.write_audit(audited)
            return
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {redacted_traceback(record.exc_info[1])}"
        self._log.write_message(record.levelname.lower(), message)


def open_stderr_log(log_format: LogFormat, worker: int = 0) -> Log:
    """A log on stderr, which also becomes the handler of `logging`."""
    log = Log(log_format, write=_write_stderr, worker=worker)
    logging.basicConfig(handlers=[LogHandler(log)], level=logging.WARNING, force=True)
    audit.audit_log.setLevel(logging.INFO)
    return log


def log_durability_warning(warning: str) -> None:
    logging.getLogger("onejob.http").warning("durability warning: %s", warning)


def log_security_warning(warning: str) -> None:
    logging.getLogger("onejob.http").warning("security warning: %s", warning)


def log_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler for the event loop, whose default would log what futures and tasks contain."""
    error = context.get("exception")
    trace = f": {redacted_traceback(error)}" if isinstance(error, BaseException) else ""
    logging.getLogger("onejob.http").error("%s%s", context.get("message", "unhandled error in the event loop"), trace)


def redacted_traceback(error: BaseException) -> str:
    """The types and places of an exception and its causes, without their messages, which may quote payloads."""
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < TRACEBACK_CAUSES_MAX:
        frames = list(traceback.walk_tb(cause.__traceback__))[-TRACEBACK_FRAMES_MAX:]
        path = " > ".join(f"{frame.f_globals.get('__name__', '?')}:{line}" for frame, line in frames)
        causes.append(f"{type(cause).__name__} at {path or 'unknown place'}")
        cause = cause.__cause__ or cause.__context__
    return ", after ".join(causes)


def _worker_prefix(worker: int) -> str:
    return f"worker {worker}: " if worker else ""


def _one_line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode(errors="backslashreplace")


def _write_stderr(data: bytes) -> None:
    for part in split_for_pipe(data):
        sys.stderr.buffer.write(part)
        sys.stderr.buffer.flush()


def split_for_pipe(data: bytes) -> Iterator[bytes]:
    """Whole lines, as many as a pipe takes atomically: lines of several processes must not be mixed."""
    start = 0
    while len(data) - start > PIPE_WRITE_BYTES_MAX:
        end = data.rfind(b"\n", start, start + PIPE_WRITE_BYTES_MAX) + 1 or data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end
    yield data[start:]
