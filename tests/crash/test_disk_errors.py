"""The disk fails a call: once, for a while, or for good. Nobody is told anything wrong, nothing is half done."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from . import strace, verification
from .traced_program import GAVE_UP

# Of each kind of call every so many-th is tried, from a random one on; CRASH_STRIDE=1 tries all of them.
STRIDES = {"fdatasync": 4, "pwrite64": 25, "ftruncate": 2, "openat": 3, "fsync": 1}
STRIDE = int(os.environ.get("CRASH_STRIDE", "0"))
SPELL = 12
PATIENCE = 40

# To SQLite a failed sync is a failed sync, but a write without room is not a failed write.
FAULTS = [
    ("fdatasync", "EIO"),
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("ftruncate", "EIO"),
    ("fsync", "EIO"),
]


@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_a_call_that_fails_once_is_made_good_in_the_same_process(call: str, error: str, tmp_path: Path) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}", must_end=0)


@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_a_disk_that_fails_for_a_while_is_used_again_by_the_same_process(call: str, error: str, tmp_path: Path) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}..{{1}}", must_end=0)


@pytest.mark.parametrize(("call", "error"), [*FAULTS, ("openat", "EROFS"), ("openat", "EMFILE")])
def test_what_a_disk_that_went_on_failing_had_done_is_known_after_a_restart(
    call: str, error: str, tmp_path: Path
) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}+", must_end=GAVE_UP)


def test_nobody_is_told_not_done_about_what_was_done_before_the_disk_died(tmp_path: Path) -> None:
    """A commit whose sync fails may be done, even if the file cannot be opened any more to repeat it."""
    strace.skip_unless_traceable()
    healthy = tmp_path / "healthy"
    healthy.mkdir()
    _, trace = strace.run_traced(healthy, inject="")
    threads = Counter(line.split()[0] for line in trace.splitlines() if " openat(" in line)
    openings = max(threads.values())
    dead = f"openat:error=EIO:when={openings + 1}+"
    fail_every_call(tmp_path, "fdatasync", f"fdatasync:error=EIO:when={{0}}+ {dead}", must_end=GAVE_UP)


def fail_every_call(base: Path, call: str, inject: str, *, must_end: int) -> None:
    """Live once for each number and be lied to at that call, until a life has no such call any more."""
    strace.skip_unless_traceable()
    met: list[Path] = []
    errors: Counter[str] = Counter()
    stride = STRIDE or STRIDES[call]
    first = random.randint(1, stride)
    for number in range(first, 10_000, stride):
        folder = base / f"{number}"
        folder.mkdir()
        patience = 1 if must_end else PATIENCE
        faults = inject.format(number, number + SPELL)
        status, trace = strace.run_traced(folder, inject=faults, patience=patience)
        if "(INJECTED)" not in trace:
            break
        # Every new attempt to open has a thread of its own, with a count of its own, so there the fault stays.
        assert status in (0, must_end) or never_opened(folder / "acks"), trace[-2000:]
        errors.update(error_kinds(folder / "acks"))
        met.append(folder)
    held = strace.recover_all(met, at=200)
    print(
        f"{inject}: from {first} by {stride}, {len(met)} lives, {held} answers held, callers were told {dict(errors)}"
    )
    assert met


def never_opened(acks: Path) -> bool:
    return all(line.startswith("- !") for line in acks.read_text().splitlines())


def error_kinds(acks: Path) -> "Counter[str]":
    """The errors that were told; each must say the next act."""
    failures = [line.split(" ", 2)[1:] for line in acks.read_text().splitlines() if " !" in line]
    for kind, text in failures:
        assert kind in ("!Unavailable", "!Unknown"), text
        assert "repeat" in text
    verification.read_answers(acks)
    return Counter(kind for kind, _ in failures)
