"""Parsers of argument values: durations, times, labels and the JSON input of a job."""

import re
import sys
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Raw

from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX, canonical_json

_DURATION = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_duration(text: str) -> timedelta:
    """Parse 90s, 30m, 24h or 7d."""
    if match := _DURATION.fullmatch(text.strip()):
        return timedelta(**{_DURATION_UNITS[match[2]]: int(match[1])})
    raise ArgumentTypeError(f"{text!r} is no duration; write 90s, 30m, 24h or 7d")


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time with its zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is no time with a zone; write 2030-01-31T12:00:00Z")
    return moment


def parse_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is no label; write name=value")
    return name, value


def read_job_input(text: str) -> Raw:
    """The JSON of an input: the text itself, a file (`@file`), or standard input (`-`)."""
    if text in ("-", "@-"):
        if sys.stdin is None:
            raise Invalid("input", "standard input is closed; give the input as JSON or @file")
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    elif text.startswith("@"):
        data = _read_file(Path(text[1:]))
    else:
        data = text.encode()
    # Checked before it is put into a request body: text that is no JSON value could add members to that body.
    canonical_json(data)
    return Raw(data)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid("input", f"{path} cannot be read ({error.strerror}); name a file of JSON") from error
