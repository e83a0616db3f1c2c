"""A claimed job, as whoever runs it holds it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, json

from .facts import Job
from .invalid import Invalid
from .moment import to_utc
from .views import JobView
from .work import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOG_CHARS_MAX,
    LOG_LINES_AT_ONCE_MAX,
    PROGRESS_BYTES_MAX,
    progress_bytes_max,
)

HOLDER_BYTES_MAX = 64
NOTE_CHARS_MAX = 500
DELAY_MS_MAX = 365 * 24 * 3600 * 1000
TOKEN_MAX = 2**63 - 1
_ELLIPSIS = "…"


class Fence(Struct, frozen=True, kw_only=True):
    """What a holder must name in every word about a job, for one who has not the attempt at hand."""

    job_id: bytes
    token: int
    holder: bytes
    lease_ms: int = LEASE_MS_DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.token <= TOKEN_MAX:
            raise Invalid("token", "a token is the number that came with the job; send it as it was received")
        checked_holder(self.holder)


class Attempt(Struct, frozen=True):
    """Yours until the lease ends: start it, extend it while you work, then finish it, or release it."""

    job_row: Job
    input: bytes  # JSON; empty for whoever named only the fence
    lease_ms: int

    def __repr__(self) -> str:
        return f"<Attempt {self.job.id} {self.job_row.type} token={self.token}>"

    @property
    def job(self) -> JobView:
        return JobView(self.job_row)

    @property
    def job_id(self) -> str:
        """The key to hand to whatever is called on the way: it is the same in every attempt."""
        return self.job.id

    @property
    def token(self) -> int:
        return self.job_row.token

    @property
    def holder(self) -> bytes:
        return self.job_row.holder

    @property
    def lease_until(self) -> datetime:
        return to_utc(self.job_row.lease_until)

    @property
    def deadline(self) -> datetime | None:
        """When the time of this attempt is over; None: there is no limit, or it has not been started."""
        head = self.job_row
        return to_utc(head.started_at + head.timeout_ms) if head.timeout_ms and head.started_at else None

    @property
    def value(self) -> Any:
        """The input, decoded."""
        return json.decode(self.input)


def checked_lease(lease_ms: int) -> int:
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise Invalid("lease", "a lease lasts from 100 milliseconds to 24 hours")
    return lease_ms


def checked_holder(holder: bytes) -> bytes:
    if not 1 <= len(holder) <= HOLDER_BYTES_MAX:
        raise Invalid("holder", f"a holder has 1 to {HOLDER_BYTES_MAX} bytes; choose another")
    return holder


def checked_delay(delay_ms: int) -> int:
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise Invalid("delay", "a delay is not negative, and a year at most; choose another")
    return delay_ms


def checked_offset(offset: int) -> int:
    if not 0 <= offset <= TOKEN_MAX:
        raise Invalid("offset", "offset is how many log lines were sent before these")
    return offset


def checked_note(note: str) -> str:
    if len(note) > NOTE_CHARS_MAX:
        raise Invalid("note", f"a note has at most {NOTE_CHARS_MAX} characters; shorten it")
    return note


def checked_progress(progress: object, job: Job | None = None) -> str:
    """As it is stored: JSON, and short. With the head at hand, no longer than it has room for."""
    data = json.encode(progress)
    room = PROGRESS_BYTES_MAX if job is None else progress_bytes_max(job)
    if len(data) > room:
        raise Invalid("progress", f"progress of this job has at most {room} bytes as JSON; say less")
    return data.decode()


def checked_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """As they are stored: a line that is too long is cut."""
    if len(lines) > LOG_LINES_AT_ONCE_MAX:
        raise Invalid("logs", f"at most {LOG_LINES_AT_ONCE_MAX} lines are told at once; tell the others next")
    return tuple(map(truncated_line, lines))


def truncated_line(line: str) -> str:
    return line if len(line) <= LOG_CHARS_MAX else line[: LOG_CHARS_MAX - 1] + _ELLIPSIS
