"""A session of the command line, written down: what was typed, what was printed, and the exit code.

What differs from run to run is replaced by a name with a number: the first id that is printed is <id-1> from then on, and
a line of a script may say <id-1> to mean it. A session begins on 2032-05-20 at 12:00:00 and takes less than a minute:
times are recorded, except their seconds.
"""

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from onejob.cli import main

START = datetime(2032, 5, 20, 12, tzinfo=UTC)
_VARIABLES = re.compile("(ONEJOB|GITHUB|GITLAB|JENKINS|CI)(_|$)")
_NUMBERED = re.compile(
    r"(?P<secret>ojg?_[\w.-]{20,}|whsec_[\w+/]{20,}=*)"
    r"|\b(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{12})\b"
)
_SECONDS = re.compile(r"(203[23]-\d\d-\d\d[T ]\d\d:\d\d):\d\d(?:\.\d+)?(Z| UTC)|20320520T\d{6}\.\d{3}Z")
_NOW = re.compile(r"\b(in \d+ s|\d+ s ago)(?=\))")
_ALMOST = re.compile(r"\bin (\d+) (d|h|min) (?:23 h|59 min|\d+ s)(?=\))")
_SERIES = re.compile(r"\[\s*(?:\d+,\s*){20,}\d+\s*\]")
_NEXT_UNIT = {"24 h": "1 d", "60 min": "1 h"}


class Masker:
    """Replaces what differs from run to run, and knows what it has replaced."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {version("onejob"): "<version>"}

    def name(self, value: str, name: str) -> None:
        self._names[value] = name

    def mask(self, text: str) -> str:
        text = _NUMBERED.sub(self._number, text)
        for value in sorted(self._names, key=len, reverse=True):
            text = text.replace(value, self._names[value])
        text = _SECONDS.sub(lambda found: f"{found[1]}:ss{found[2]}" if found[1] else "<time>", text)
        text = _SERIES.sub(_series_in_a_line, text)
        return _ALMOST.sub(_without_the_seconds_since, _NOW.sub("now", text))

    def unmask(self, text: str) -> str:
        for value, name in self._names.items():
            text = text.replace(name, value)
        return text

    def _number(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        known = sum(name.startswith(f"<{kind}-") for name in self._names.values())
        return self._names.setdefault(found[0], f"<{kind}-{known + 1}>")


def _series_in_a_line(found: re.Match[str]) -> str:
    numbers = re.findall(r"\d+", found[0])
    return f"[<{len(numbers)} numbers, together {sum(map(int, numbers))}>]"


def _without_the_seconds_since(found: re.Match[str]) -> str:
    """What ends in a day does so too when it is printed a second later."""
    rounded = f"{int(found[1]) + 1} {found[2]}"
    return f"in {_NEXT_UNIT.get(rounded, rounded)}"


class CommandLineSession:
    """Runs lines in this process, and keeps the record."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.masker = Masker()
        self._capfd = capfd
        self._record: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._record)

    def run(self, script: str) -> None:
        """Each line is the words of one command."""
        for line in filter(None, map(str.strip, script.splitlines())):
            self._capfd.readouterr()
            code = main(shlex.split(self.masker.unmask(line)))
            out, err = self._capfd.readouterr()
            assert "Traceback" not in err
            self._record += [f"$ onejob {line}", *self._printed(out, err), f"[exit {code}]", ""]

    def show(self, script: str) -> None:
        """Each line once for people and once for programs."""
        for line in filter(None, map(str.strip, script.splitlines())):
            self.run(f"{line}\n{line} --json")

    def _printed(self, out: str, err: str) -> Iterator[str]:
        """Standard output, and standard error with a mark."""
        yield from self.masker.mask(out).splitlines()
        for line in portable_error(self.masker.mask(err)).splitlines():
            yield f"! {line}".rstrip()


def portable_error(text: str) -> str:
    """As every version of argparse could print it: the usage is in the help texts, and choices have no quotes."""
    if text.startswith("usage: "):
        text = re.sub(r"(?s)\Ausage: .*?(?=^onejob[\w -]*: error: )", "", text, flags=re.MULTILINE)
    return re.sub(r"\(choose from .*\)", lambda found: found[0].replace("'", ""), text)


def clean_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(logging.getLogger("onejob"), "handlers", [])  # of other tests of this process
    for name in [name for name in os.environ if _VARIABLES.match(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def shift_wall_clock(monkeypatch: pytest.MonkeyPatch) -> int:
    """From now on it is START in this process; by how many seconds that is off."""
    time_ns = time.time_ns
    seconds = int(START.timestamp()) - time_ns() // 1_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: time_ns() + seconds * 1_000_000_000)
    return seconds
