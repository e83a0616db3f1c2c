"""A system call fails once, for a while, or forever: every reply stays true, and nothing is stored by half."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from . import strace, verification
from .traced_program import GAVE_UP

# Every n-th call of a kind fails in a run of its own, from a random one on; CRASH_STRIDE=1 covers all calls.
STRIDES = {"fdatasync": 4, "pwrite64": 25, "ftruncate": 2, "openat": 3, "fsync": 1}
STRIDE = int(os.environ.get("CRASH_STRIDE", "0"))
FAILURES = 12
RETRIES = 40

# SQLite treats every failed sync the same, but a write error and a full disk differently.
FAULTS = [
    ("fdatasync", "EIO"),
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("ftruncate", "EIO"),
    ("fsync", "EIO"),
]


@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_after_a_call_that_fails_once_the_same_process_recovers(call: str, error: str, tmp_path: Path) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}", must_end=0)


@pytest.mark.parametrize(("call", "error"), FAULTS)
def test_a_disk_that_fails_for_a_while_is_used_again_by_the_same_process(call: str, error: str, tmp_path: Path) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}..{{1}}", must_end=0)


@pytest.mark.parametrize(("call", "error"), [*FAULTS, ("openat", "EROFS"), ("openat", "EMFILE")])
def test_after_a_disk_that_keeps_failing_a_restart_has_every_answer(call: str, error: str, tmp_path: Path) -> None:
    fail_every_call(tmp_path, call, f"{call}:error={error}:when={{0}}+", must_end=GAVE_UP)


def test_no_caller_gets_unavailable_for_what_was_committed_before_the_disk_died(tmp_path: Path) -> None:
    """A commit whose sync fails may have happened, even if the file can no longer be opened to repeat it."""
    strace.skip_unless_traceable()
    healthy = tmp_path / "healthy"
    healthy.mkdir()
    _, trace = strace.run_traced(healthy, inject="")
    threads = Counter(line.split()[0] for line in trace.splitlines() if " openat(" in line)
    openings = max(threads.values())
    open_fails = f"openat:error=EIO:when={openings + 1}+"
    fail_every_call(tmp_path, "fdatasync", f"fdatasync:error=EIO:when={{0}}+ {open_fails}", must_end=GAVE_UP)


def fail_every_call(base: Path, call: str, inject: str, *, must_end: int) -> None:
    """Run once for each number with a failure at that call, until a run has no such call."""
    strace.skip_unless_traceable()
    folders: list[Path] = []
    errors: Counter[str] = Counter()
    stride = STRIDE or STRIDES[call]
    first = random.randint(1, stride)
    for number in range(first, 10_000, stride):
        folder = base / f"{number}"
        folder.mkdir()
        retries = 1 if must_end else RETRIES
        faults = inject.format(number, number + FAILURES)
        status, trace = strace.run_traced(folder, inject=faults, retries=retries)
        if "(INJECTED)" not in trace:
            break
        # strace counts calls per thread and every attempt to open has its own thread, so that the fault repeats.
        assert status in (0, must_end) or never_opened(folder / "acks"), trace[-2000:]
        errors.update(error_kinds(folder / "acks"))
        folders.append(folder)
    confirmed = strace.recover_all(folders, at=200)
    print(
        f"{inject}: from {first} by {stride}, {len(folders)} runs, {confirmed} answers confirmed, errors {dict(errors)}"
    )
    assert folders


def never_opened(acks: Path) -> bool:
    return all(line.startswith("- !") for line in acks.read_text().splitlines())


def error_kinds(acks: Path) -> "Counter[str]":
    """The reported errors; each must name the next act."""
    failures = [line.split(" ", 2)[1:] for line in acks.read_text().splitlines() if " !" in line]
    for kind, text in failures:
        assert kind in ("!Unavailable", "!Unknown"), text
        assert "retry" in text
    verification.read_answers(acks)
    return Counter(kind for kind, _ in failures)
