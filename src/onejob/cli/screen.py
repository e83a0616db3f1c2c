"""Where answers are written: JSON for machines, text for people, colours only on a terminal."""

import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, json

from onejob.clock import SystemClock
from onejob.core.actor import FORBIDDEN_CHARACTERS
from onejob.core.moment import to_utc

_ANSI_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
_ASCII_SYMBOLS: Final = {"●": "*", "○": "o", "│": "|", "…": "..."}
_SYMBOLS = re.compile("|".join(_ASCII_SYMBOLS))
_WIDTH_UNLIMITED: Final = 10_000  # a pipe has no width
_DURATION_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Screen(Struct, frozen=True):
    """What the reader can see: colours, marks beyond ASCII, so many columns; and the time it is."""

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
    """A length of time in its two largest units: 23 h 59 min."""
    seconds = round(length.total_seconds())
    parts: list[str] = []
    for size, unit in _DURATION_UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def sanitize(text: object) -> str:
    """What others wrote, without anything that could move the cursor or forge a line."""
    return FORBIDDEN_CHARACTERS.sub("?", str(text))


def to_json(answer: Any) -> str:
    """The JSON of an answer: the body that the service sends, without the id of the request."""
    if isinstance(answer, msgspec.Raw):  # as it was stored
        return json.format(bytes(answer), indent=2).decode()
    plain = json.decode(json.encode(answer))
    plain.pop("requestId", None)
    return json.format(json.encode(plain), indent=2).decode()


def write(text: str) -> None:
    """Onto standard output, at once, so that a closed pipe or a full disk is met here and nowhere later."""
    if sys.stdout is None:
        return
    _escape_unencodable(sys.stdout)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_error(text: str, *, without_prefix: bool = False) -> None:
    if sys.stderr is not None:
        _escape_unencodable(sys.stderr)
        sys.stderr.write(f"{'' if without_prefix else 'onejob: '}{sanitize(text)}\n")


def _escape_unencodable(stream: Any) -> None:
    # A key may have letters that the terminal's encoding lacks: they are spelled rather than failed upon.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
