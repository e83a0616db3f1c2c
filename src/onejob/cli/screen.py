"""Where answers are written: JSON for machines, text for people, colours only on a terminal."""

import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, json

from onejob.clock import SystemClock
from onejob.core.actor import UNFIT
from onejob.core.moment import utc

_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
_PLAIN: Final = {"●": "*", "○": "o", "│": "|", "…": "..."}
_MARKS = re.compile("|".join(_PLAIN))
_WIDE: Final = 10_000  # a pipe has no width
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Screen(Struct, frozen=True):
    """What the reader can see: colours, marks beyond ASCII, so many columns; and the time it is."""

    color: bool = False
    unicode: bool = True
    width: int = _WIDE
    now: datetime = datetime.max.replace(tzinfo=UTC)

    @classmethod
    def of_stdout(cls, *, color: bool) -> "Screen":
        terminal = sys.stdout is not None and sys.stdout.isatty()
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
        width = shutil.get_terminal_size().columns if terminal else _WIDE
        return cls(color and terminal, encoding == "utf8", width, utc(SystemClock().wall_ms()))

    def paint(self, style: str, text: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.color and style and text else text

    def mark(self, text: str) -> str:
        return text if self.unicode else _MARKS.sub(lambda found: _PLAIN[found[0]], text)

    def time(self, moment: datetime) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S}Z"

    def time_ago(self, moment: datetime) -> str:
        return f"{self.time(moment)} ({self.ago(moment)})"

    def ago(self, moment: datetime) -> str:
        past = self.now - moment
        if abs(past) < timedelta(seconds=1):
            return "now"
        return f"{span(past)} ago" if past > timedelta(0) else f"in {span(-past)}"

    def clip(self, text: str, width: int) -> str:
        if len(text) <= width:
            return text
        dots = self.mark("…")
        return text[: max(1, width - len(dots))] + dots


def span(length: timedelta) -> str:
    """A length of time in its two largest units: 23 h 59 min."""
    seconds = round(length.total_seconds())
    parts: list[str] = []
    for size, unit in _SPANS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def clean(text: object) -> str:
    """What others wrote, without anything that could move the cursor or forge a line."""
    return UNFIT.sub("?", str(text))


def machine(answer: Any) -> str:
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
    _fitting(sys.stdout)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str, *, bare: bool = False) -> None:
    if sys.stderr is not None:
        _fitting(sys.stderr)
        sys.stderr.write(f"{'' if bare else 'onejob: '}{clean(text)}\n")


def _fitting(stream: Any) -> None:
    # A key may have letters that the terminal's encoding lacks: they are spelled rather than failed upon.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
