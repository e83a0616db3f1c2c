"""The interface for people: text, help, colours, pipes and terminals."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

import onejob
from onejob.cli import render
from onejob.cli.arguments import parse_duration
from onejob.cli.commands import explain
from onejob.cli.exit_codes import EXIT_CODE_MEANINGS
from onejob.cli.render import Screen, format_duration, sanitize
from onejob.resources.jobs import EventView
from onejob.resources.keys import KeyConflictView, KeyHistory
from tests.support.command_line import ONEJOB, CommandRunner

NOBODY = "01a1e2f5-39f9-73f8-930c-48a088963d1e"
ESCAPE = "\x1b"


pytestmark = pytest.mark.usefixtures("clean_environment")


def test_text_output_says_what_happened(on_engine: CommandRunner) -> None:
    submit = ("submit", "charge", "--key", "k-1", "--input", '{"amount": 42}')
    first = on_engine(*submit)
    made = re.fullmatch(
        r"created job ([0-9a-f-]{36})\n"
        r"  state      pending\n"
        r"  key        k-1 in scope charge\n"
        r"  window     until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(in (1 d|23 h 59 min)\)\n",
        first.out,
    )
    assert made
    assert on_engine(*submit).out.startswith(f"replayed job {made[1]}\n")
    assert on_engine("jobs").out.splitlines()[0].split() == ["JOB", "STATE", "CREATED", "TYPE", "KEY"]
    assert on_engine("jobs").out.splitlines()[1].split() == [
        made[1], "pending", *re.findall(r"\S+", on_engine("jobs").out.splitlines()[1])[2:4], "charge", "k-1",
    ]  # fmt: skip
    assert on_engine("cancel", made[1]).out.startswith(f"job {made[1]} cancelled\n  type       charge\n")
    lines = on_engine("explain", "k-1", "--scope", "charge").out.splitlines()
    assert lines[0] == "key k-1 committed"
    assert [re.sub(r"^.{22}  | \([^(]*\)$", "", line) for line in lines[7:]] == [
        "●  submitted by client:local",
        "●  until then, a duplicate was answered with the same job",
        "●  cancelled by client:local",
        "○  the window ends, then the key may be used again",
    ]
    assert "k-1" in on_engine("keys").out
    assert on_engine("jobs", "--type", "other").out == "no jobs\n"
    assert on_engine("keys", "--scope", "other").out == "no keys\n"


def test_a_conflict_names_the_path_and_what_to_do(on_engine: CommandRunner) -> None:
    on_engine("submit", "t", "--key", "k", "--input", '{"a": 1}')
    conflict = on_engine("submit", "t", "--key", "k", "--input", '{"a": 2}')
    assert conflict.out == ""
    assert conflict.err.startswith("onejob: this key already made job")
    assert "/input/a" in conflict.err
    assert "use a new key" in conflict.err
    error = on_engine("submit", "t", "--key", "k", "--input", '{"a": 2}', "--json").json["error"]
    assert error["details"]["paths"] == ["/input/a"]
    assert not error["retryable"]


def test_every_command_has_help_with_an_example(run: CommandRunner) -> None:
    overview = run("--help")
    assert overview.code == 0
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"{code:<4}{meaning}" in overview.out
    commands = ["serve", "submit", "job", "jobs", "cancel", "explain", "keys", "doctor"]
    acts = [("apikey", act) for act in ("create", "list", "rotate", "revoke")]
    for words in [*((name,) for name in commands), *acts]:
        shown = run(*words, "--help")
        assert shown.code == 0
        assert f"example:\n  onejob {' '.join(words)}" in shown.out, words
    assert run("--version").out == f"onejob {version('onejob')}\n"


def test_piped_text_has_no_escape_codes_and_a_terminal_has_colours(run: CommandRunner, tmp_path: Path) -> None:
    run("submit", "t", "--key", "k")
    assert ESCAPE not in run("explain", "k", "--scope", "t").out
    words = [*ONEJOB, "explain", "k", "--scope", "t"]
    assert ESCAPE in run_on_terminal(words, {"TERM": "xterm"})
    assert ESCAPE not in run_on_terminal(words, {"TERM": "xterm", "NO_COLOR": "1"})


def run_on_terminal(words: list[str], environ: dict[str, str]) -> str:
    terminal, device = pty.openpty()
    subprocess.run(words, stdout=device, stderr=device, env=os.environ | environ, check=True)
    os.close(device)
    output = b""
    try:
        while chunk := os.read(terminal, 65536):
            output += chunk
    except OSError:
        pass  # the other end is closed, and everything was read
    finally:
        os.close(terminal)
    return output.decode()


def test_a_closed_pipe_leaves_no_traceback(run: CommandRunner) -> None:
    run("submit", "t")
    reading, writing = os.pipe()
    os.close(reading)
    closed = subprocess.run([*ONEJOB, "jobs"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (closed.returncode, closed.stderr) == (1, b"")


def test_an_interruption_leaves_no_traceback(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow")
    # A shell lets its background jobs ignore SIGINT, and the command would inherit that from a test run in the background.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = subprocess.Popen([*ONEJOB, "submit", "t", "--input", "@slow"], stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, handler)
    with open(tmp_path / "slow", "wb", buffering=0) as slow:
        slow.write(b" ")
        # Python loses a signal that comes between its last look for signals and a read that then blocks.
        while count_unread_bytes(slow) or not is_sleeping(waiting.pid):
            assert waiting.poll() is None
            time.sleep(0.005)
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=120)
    assert (waiting.returncode, errors) == (130, b"")


def count_unread_bytes(pipe: IO[bytes]) -> int:
    (unread,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(unread)


def is_sleeping(pid: int) -> bool:
    """True if the process waits in a system call."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_full_disk_behind_standard_output_is_reported(run: CommandRunner) -> None:
    run("submit", "t")
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*ONEJOB, "jobs"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("onejob: ")
    assert "Traceback" not in ran.stderr


def test_text_from_elsewhere_cannot_move_the_cursor() -> None:
    assert sanitize(f"a{ESCAPE}[2Jb\nc\u202ed") == "a?[2Jb?c?d"


def test_symbols_are_ascii_on_a_terminal_without_unicode() -> None:
    text = "\n".join(explain.timeline_lines(Screen(unicode=False, now=NOW), long_history()))
    assert text.isascii()


def test_a_long_history_says_how_much_is_not_kept() -> None:
    lines = explain.timeline_lines(Screen(now=NOW), long_history())
    assert len(lines) == 32 + 1 + 1
    assert lines[8].endswith("… 8 more events, not kept")
    assert "○" in lines[-1]


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def long_history() -> KeyHistory:
    return KeyHistory(
        key="k",
        scope="t",
        status=onejob.IdempotencyStatus.COMMITTED,
        actor="client:local",
        user="local",
        first_seen=NOW - timedelta(hours=1),
        expires_at=NOW + timedelta(hours=23),
        held_until=None,
        hits=0,
        conflicts=0,
        last_hit_at=None,
        job=None,
        events=[EventView(NOW - timedelta(minutes=40 - n), "lease lapsed", "system:sweep", "") for n in range(32)],
        events_total=40,
        recent_conflicts=[],
    )


def test_the_timeline_of_a_key_has_its_conflicts_with_actor_and_paths() -> None:
    conflict = KeyConflictView(NOW - timedelta(minutes=1), "user:7", ["/input/amount", "/input/\x1b[31m"])
    lines = explain.timeline_lines(Screen(now=NOW), replace(long_history(), recent_conflicts=[conflict]))
    (line,) = [line for line in lines if "conflict" in line]
    assert "another body under the key: /input/amount, /input/" in line
    assert " by user:7" in line
    assert "\x1b" not in line


def test_the_last_column_ends_where_the_terminal_does() -> None:
    screen = Screen(width=40)
    lines = render.table_lines(screen, ("A", "B"), [("x" * 10, "y" * 100)])
    assert max(map(len, lines)) == 40
    assert lines[1].endswith("y…")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_661, "1 h 1 min"), (86_400, "1 d"), (90_061, "1 d 1 h")],
)
def test_durations_are_printed_in_two_units(seconds: int, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)])
def test_durations_are_parsed_with_their_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
