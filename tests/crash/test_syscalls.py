"""A process is killed at every call that changes, syncs or opens a file of the store."""

import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from . import strace

CHANGES = ("pwrite64", "fdatasync", "ftruncate", "unlink")
CALLS = (*CHANGES, "openat", "fsync")
WRITE_SHARDS = 16
SHARDS = [("pwrite64", n, WRITE_SHARDS) for n in range(WRITE_SHARDS)] + [
    *(("fdatasync", n, 3) for n in range(3)),
    *((call, 0, 1) for call in CALLS[2:]),
]


def test_these_are_all_the_calls_there_are_and_one_thread_makes_every_change(tmp_path: Path) -> None:
    strace.skip_unless_traceable()
    for part in ("first_run", "second_run"):
        status, trace = strace.run_traced(tmp_path, part, inject="", at=0.0 if part == "first_run" else 10.0)
        assert status == 0
        calls = [line.split(None, 1) for line in trace.splitlines() if "(" in line and "+++" not in line]
        seen = Counter((thread, rest.partition("(")[0]) for thread, rest in calls)
        print(part, dict(seen))
        assert {call for _, call in seen} <= set(CALLS)
        assert {call for _, call in seen} >= set(CHANGES)
        # So the n-th call of that thread is a fixed moment, whatever other threads do.
        assert len({thread for thread, call in seen if call in CHANGES}) == 1


@pytest.mark.parametrize(("call", "shard", "shards"), SHARDS)
def test_a_process_killed_at_any_call_loses_no_answer_and_leaves_nothing_half_done(
    call: str, shard: int, shards: int, tmp_path: Path
) -> None:
    strace.skip_unless_traceable()
    crashed = crash_everywhere(tmp_path, "first_run", call, range(shard + 1, 10_000, shards))
    assert crashed
    confirmed = strace.recover_all(crashed, at=20)
    print(f"{call}: {len(crashed)} crash points, {confirmed} answers confirmed")


@pytest.mark.parametrize("call", CALLS)
def test_a_process_killed_while_it_opens_an_old_file_loses_no_answer(call: str, tmp_path: Path) -> None:
    strace.skip_unless_traceable()
    old = tmp_path / "old"
    old.mkdir()
    assert strace.run_traced(old, inject="")[0] == 0
    crashed = crash_everywhere(tmp_path, "second_run", call, range(1, 10_000), origin=old, at=10)
    assert crashed
    confirmed = strace.recover_all(crashed, at=30)
    print(f"{call}: {len(crashed)} crash points, {confirmed} answers confirmed")


@pytest.mark.parametrize(("first", "call"), [(40, "pwrite64"), (111, "pwrite64"), (203, "pwrite64"), (20, "fdatasync")])
def test_a_process_killed_while_it_recovers_from_a_crash_loses_no_answer(first: int, call: str, tmp_path: Path) -> None:
    strace.skip_unless_traceable()
    killed = tmp_path / "killed"
    killed.mkdir()
    assert strace.run_traced(killed, inject=f"{call}:signal=KILL:when={first}")[0] == -signal.SIGKILL
    crashed = [
        folder
        for again, numbers in (
            ("pwrite64", (1, 9, 10, 12, 30)),
            ("fdatasync", (1, 2, 4)),
            ("ftruncate", (1,)),
            ("fsync", (1,)),
        )
        for folder in crash_everywhere(tmp_path, "second_run", again, numbers, origin=killed, at=20)
    ]
    confirmed = strace.recover_all(crashed, at=40)
    print(f"{call} {first}: {len(crashed)} second crashes, {confirmed} answers confirmed")
    assert len(crashed) >= 6


def crash_everywhere(
    base: Path,
    part: str,
    call: str,
    numbers: "range | tuple[int, ...]",
    *,
    origin: Path | None = None,
    at: float = 0,
) -> list[Path]:
    """Run once for each number and be killed at that call, until a run ends by itself."""
    crashed = []
    for number in numbers:
        folder = base / f"{call}-{number}"
        if origin is None:
            folder.mkdir()
        else:
            shutil.copytree(origin, folder)
        status, trace = strace.run_traced(folder, part, inject=f"{call}:signal=KILL:when={number}", at=at)
        if status == 0:
            shutil.rmtree(folder)
            break
        assert status == -signal.SIGKILL, trace[-500:]
        crashed.append(folder)
    return crashed
