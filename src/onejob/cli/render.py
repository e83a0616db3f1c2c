"""Prints responses: JSON for programs, text for people, with colours only on a terminal."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, json

from onejob.clock import SystemClock
from onejob.core.identity import FORBIDDEN_CHARACTERS
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.timestamps import to_utc
from onejob.resources.jobs import JobView

_ANSI_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
ERASE_LINE: Final = "\r\x1b[K"
_ASCII_SYMBOLS: Final = {"●": "*", "○": "o", "│": "|", "…": "..."}
_SYMBOLS = re.compile("|".join(_ASCII_SYMBOLS))
_WIDTH_UNLIMITED: Final = 10_000  # for a pipe
_DURATION_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_ESCAPES: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
STATE_STYLES: dict[str, str] = {
    JobState.RUNNING: "blue",
    JobState.SUCCESS: "green",
    JobState.FAILED: "red",
    JobState.LOST: "red",
    JobState.CANCELLED: "dim",
    IdempotencyStatus.COMMITTED: "green",
    IdempotencyStatus.REJECTED: "red",
}


class Screen(Struct, frozen=True):
    """What the output device shows: colours, Unicode, its width; and the current time."""

    color: bool = False
    unicode: bool = True
    width: int = _WIDTH_UNLIMITED
    now: datetime = datetime.max.replace(tzinfo=UTC)

    @classmethod
    def from_stdout(cls, *, color: bool) -> "Screen":
        terminal = sys.stdout is not None and sys.stdout.isatty()
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
        width = shutil.get_terminal_size().columns if terminal else _WIDTH_UNLIMITED
        return cls(color and terminal, encoding == "utf8", width, to_utc(SystemClock().wall_ms()))

    def paint(self, style: str, text: str) -> str:
        return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m" if self.color and style and text else text

    def to_charset(self, text: str) -> str:
        return text if self.unicode else _SYMBOLS.sub(lambda found: _ASCII_SYMBOLS[found[0]], text)

    def time(self, moment: datetime) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S}Z"

    def time_ago(self, moment: datetime) -> str:
        return f"{self.time(moment)} ({self.ago(moment)})"

    def ago(self, moment: datetime) -> str:
        past = self.now - moment
        if abs(past) < timedelta(seconds=1):
            return "now"
        return f"{format_duration(past)} ago" if past > timedelta(0) else f"in {format_duration(-past)}"

    def clip(self, text: str, width: int) -> str:
        if len(text) <= width:
            return text
        dots = self.to_charset("…")
        return text[: max(1, width - len(dots))] + dots


def format_duration(length: timedelta) -> str:
    """A duration in its two largest units: 23 h 59 min."""
    seconds = round(length.total_seconds())
    parts: list[str] = []
    for size, unit in _DURATION_UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def sanitize(text: object) -> str:
    """Text from elsewhere, without characters that could move the cursor or forge a line."""
    return FORBIDDEN_CHARACTERS.sub("?", str(text))


def to_json(response: Any) -> str:
    """The JSON of a response body, without the id of the request."""
    if isinstance(response, msgspec.Raw):  # a result, as it is stored
        return json.format(bytes(response), indent=2).decode()
    plain = json.decode(json.encode(response))
    plain.pop("requestId", None)
    return json.format(json.encode(plain), indent=2).decode()


def write(text: str) -> None:
    """Write to standard output and flush, so that a closed pipe or a full disk is detected here."""
    if sys.stdout is None:
        return
    _escape_unencodable(sys.stdout)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_error(text: str, *, without_prefix: bool = False) -> None:
    if sys.stderr is not None:
        _escape_unencodable(sys.stderr)
        sys.stderr.write(f"{'' if without_prefix else 'onejob: '}{sanitize(text)}\n")


class StatusLine:
    """A line on standard error that is written again and again, and only on a terminal."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr is not None and sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self.is_shown:
            sys.stderr.write(ERASE_LINE + text)
            sys.stderr.flush()

    def clear(self) -> None:
        self.show("")


def annotate(level: str, text: str) -> None:
    """Write an annotation of GitHub Actions; to standard error, because standard output may be JSON."""
    print_error(f"::{level}::" + "".join(_ESCAPES.get(letter, letter) for letter in text), without_prefix=True)


def _escape_unencodable(stream: Any) -> None:
    # Characters that the encoding of the terminal lacks are written as escapes.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def table_lines(screen: Screen, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as their cells; the last one is clipped at the width of the screen."""
    rows = [heads, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    room = max(8, screen.width - sum(widths[:-1]) - 2 * (len(heads) - 1))
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        cells.append(screen.clip(row[-1], room))
        if row is heads:
            lines.append(screen.paint("dim", "  ".join(cells)).rstrip())
        else:
            painted = [screen.paint(STATE_STYLES.get(cell.strip(), ""), cell) for cell in cells]
            lines.append("  ".join(painted).rstrip())
    return lines


def field_lines(screen: Screen, rows: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each name and value; empty values are left out."""
    return [f"  {screen.paint('dim', name.ljust(9))}  {value}" for name, value in rows if value]


def paint_state(screen: Screen, state: str) -> str:
    return screen.paint(STATE_STYLES.get(state, "yellow"), state)


def job_line(screen: Screen, job: JobView) -> str:
    return f"{job.id} {paint_state(screen, job.state)} ({sanitize(job.type)})"


def key_in_scope(key: str, scope: str) -> str:
    return f"{sanitize(key)} in scope {sanitize(scope)}"
