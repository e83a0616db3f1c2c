"""What users, operators and other programs see of onejob, on record: a change of it is seen in a diff, never by accident.

`make golden` writes the files again. Read the diff before it is committed: whatever changed there, somebody relies on.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

FILES = Path(__file__).parent / "files"
RENEW = bool(os.environ.get("RENEW_GOLDEN"))

GoldenCheck = Callable[[str, str], None]


@pytest.fixture
def golden() -> GoldenCheck:
    """Compare a text with the file of that name on record."""
    return check_golden


def check_golden(name: str, text: str) -> None:
    path = FILES / name
    if RENEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    on_record = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == on_record, f"{name} is not what is on record; if that is intended: make golden"
