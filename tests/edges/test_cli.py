"""The command as scripts and people meet it: exit codes, JSON, text; on an engine and against a server alike."""

import io
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

import onejob
from onejob import sync
from onejob.cli import main, show
from onejob.cli.screen import Screen, clean, span
from onejob.cli.trouble import EXITS, MEANINGS
from onejob.cli.values import length
from onejob.core.states import JobState
from onejob.http.problems import TITLES
from onejob.http.wire import EventOut, KeyOut
from tests.edges.command_line import ONEJOB, Command, service

NOBODY = "01a1e2f5-39f9-73f8-930c-48a088963d1e"
ESCAPE = "\x1b"


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ONEJOB_ENGINE", "ONEJOB_API_KEY", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server and its store: where both doors lead to one place."""
    folder = tmp_path_factory.mktemp("served")
    with service(folder) as url:
        yield url, f"sqlite:///{folder / 'onejob.db'}"


@pytest.fixture(params=["engine", "url"])
def door(request: pytest.FixtureRequest, server: tuple[str, str], run: Command) -> Command:
    url, engine = server
    return run.to("--url", url) if request.param == "url" else run.to("--engine", engine)


def test_every_problem_has_an_exit_code_that_the_help_explains() -> None:
    assert EXITS.keys() == TITLES.keys()
    assert set(EXITS.values()) < MEANINGS.keys()


def test_exit_codes_are_the_same_on_an_engine_and_against_a_server(
    door: Command, request: pytest.FixtureRequest
) -> None:
    key = request.node.name
    submit = ("submit", "charge", "--key", key, "--input")
    first, again = door(*submit, '{"a": 1}', "--json"), door(*submit, ' {"a":1.0}', "--json")
    assert (first.code, again.code) == (0, 0)
    assert first.json["jobId"] == again.json["jobId"] == again.json["job"]["id"]
    assert (first.json["idempotency"]["outcome"], again.json["idempotency"]["outcome"]) == (
        "created",
        "replayed",
    )
    expected = {
        (*submit, '{"a": 2}'): 3,
        (*submit, "{"): 2,
        (*submit, '1, "priority": 5'): 2,
        (*submit, "@missing.json"): 2,
        ("submit", "", "--key", "x"): 2,
        ("submit", "t", "--key", ""): 2,
        ("submit", "t", "--key", "k" * 256): 2,
        ("submit", "t", "--ttl", "400d", "--key", key + "x"): 2,
        ("submit", "t", "--priority", "1001"): 2,
        ("job", NOBODY): 5,
        ("job", "nothing"): 2,
        ("job", ""): 2,
        ("cancel", NOBODY): 5,
        ("explain", "nobody", "--scope", "charge"): 5,
        ("explain", key, "--scope", ""): 2,
        ("jobs", "--cursor", "nothing"): 2,
        ("keys", "--cursor", "!"): 2,
    }
    met = {words: door(*words).code for words in expected}
    assert met == expected


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nothing",),
        ("submit",),
        ("explain", "k"),
        ("jobs", "--limit", "0"),
        ("jobs", "--state", "done"),
        ("submit", "t", "--ttl", "24"),
        ("submit", "t", "--run-at", "2030-01-01T00:00:00"),
        ("submit", "t", "--label", "x"),
        ("submit", "t", "--prio", "1"),
        ("jobs", "--engine", "memory://", "--url", "http://127.0.0.1:1"),
        ("jobs", "--engine", "mysql://x"),
        ("jobs", "--engine", "memory://", "--api-key", "k"),
        ("jobs", "--url", "http://127.0.0.1:1", "--tenant", "acme"),
        ("jobs", "--url", "ftp://x"),
        ("jobs", "--url", "http://user@127.0.0.1:1"),
        ("jobs", "--url", "http://127.0.0.1:1", "--api-key", "a\nb"),
        ("submit", "t", "--input", "\udcff"),
        ("apikey", "create", "ci", "--role", "king"),
        ("apikey", "list", "--url", "http://127.0.0.1:1"),
    ],
)
def test_wrong_usage_is_told_with_2_and_touches_nothing(
    run: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert not list(tmp_path.iterdir())


def test_json_is_the_same_on_an_engine_and_against_a_server(run: Command, server: tuple[str, str]) -> None:
    url, engine = run.to("--url", server[0], "--json"), run.to("--engine", server[1], "--json")
    key = "größe/1 %2F?"
    job = url("submit", "t", "--key", key, "--label", "a=b", "--priority", "-3", "--ttl", "90s").json
    assert job["job"]["labels"] == {"a": "b"}
    assert job["job"]["priority"] == -3
    again = url("submit", "t", "--key", key)
    assert again.json == engine("submit", "t", "--key", key).json
    for words in (
        ("job", job["jobId"]),
        ("jobs", "--type", "t"),
        ("jobs", "--state", "pending", "--limit", "1"),
        ("cancel", job["jobId"]),
        ("keys", "--scope", "t"),
        ("explain", key, "--scope", "t"),
    ):
        there, here = (
            url(*words),
            engine(*words),
        )  # a server tells of the hits that only it knows, and stores them
        assert (here.code, here.json) == (0, there.json), words
        assert "requestId" not in here.json
    conflict = ("submit", "t", "--key", key, "--input", "1")
    assert engine(*conflict).json == url(*conflict).json
    assert engine(*conflict).json["error"]["code"] == "CONFLICT"


def test_pages_follow_each_other_by_their_cursor(door: Command) -> None:
    for index in range(3):
        assert door("submit", "paged", "--key", f"p{index}").code == 0
    for command, name in ((("jobs", "--type", "paged"), "jobs"), (("keys", "--scope", "paged"), "keys")):
        seen: list[Any] = []
        cursor: tuple[str, ...] = ()
        while True:
            page = door(*command, "--limit", "2", *cursor, "--json").json
            seen += [one["key"] for one in page[name]]
            if page["next"] is None:
                break
            cursor = ("--cursor", page["next"])
        assert sorted(seen)[:3] == ["p0", "p1", "p2"]
        assert len(seen) == len(set(seen)) or name == "jobs"


def test_people_are_told_what_happened(run: Command) -> None:
    submit = ("submit", "charge", "--key", "k-1", "--input", '{"amount": 42}')
    first = run(*submit)
    made = re.fullmatch(
        r"created job ([0-9a-f-]{36})\n"
        r"  state      pending\n"
        r"  key        k-1 in scope charge\n"
        r"  window     until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(in (1 d|23 h 59 min)\)\n",
        first.out,
    )
    assert made
    assert run(*submit).out.startswith(f"replayed job {made[1]}\n")
    assert run("jobs").out.splitlines()[0].split() == ["JOB", "STATE", "CREATED", "TYPE", "KEY"]
    assert run("jobs").out.splitlines()[1].split() == [
        made[1], "pending", *re.findall(r"\S+", run("jobs").out.splitlines()[1])[2:4], "charge", "k-1",
    ]  # fmt: skip
    assert run("cancel", made[1]).out.startswith(f"job {made[1]} cancelled\n  type       charge\n")
    told = run("explain", "k-1", "--scope", "charge").out.splitlines()
    assert told[0] == "key k-1 committed"
    assert [re.sub(r"^.{22}  | \([^(]*\)$", "", line) for line in told[7:]] == [
        "●  submitted by client:local",
        "●  a duplicate was answered with the same job",
        "●  cancelled by client:local",
        "○  the window ends, then the key may be used anew",
    ]
    assert "k-1" in run("keys").out
    assert run("jobs", "--type", "other").out == "no jobs\n"
    assert run("keys", "--scope", "other").out == "no keys\n"


def test_a_conflict_names_the_path_and_the_next_act(run: Command) -> None:
    run("submit", "t", "--key", "k", "--input", '{"a": 1}')
    conflict = run("submit", "t", "--key", "k", "--input", '{"a": 2}')
    assert conflict.out == ""
    assert conflict.err.startswith("onejob: this key already made job")
    assert "/input/a" in conflict.err
    assert "use a new key" in conflict.err
    told = run("submit", "t", "--key", "k", "--input", '{"a": 2}', "--json").json["error"]
    assert told["details"]["paths"] == ["/input/a"]
    assert not told["retryable"]


def test_a_held_key_is_refused_for_now(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.open("sqlite:///onejob.db", sweep=False) as ledger:
        ledger.check_or_reserve("t", idempotency_key="k")
    monkeypatch.setenv("IDEMPOTENCY_PENDING_WAIT_TIMEOUT", "0")
    held = run("submit", "t", "--key", "k", "--json")
    assert held.code == 6
    assert held.json["error"]["code"] == "IN_PROGRESS"
    assert held.json["error"]["retryable"]
    assert "the hold ends" in run("explain", "k", "--scope", "t").out


def test_an_input_comes_from_the_words_a_file_or_standard_input(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.json").write_bytes(b'{"name": "Gr\xc3\xb6\xc3\x9fe"}\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "Gr\\u00f6\\u00dfe"}')))
    submit = ("submit", "t", "--key", "k", "--json", "--input")
    ids = {run(*submit, given).json["jobId"] for given in ('{"name":"Größe"}', "@input.json", "-")}
    assert len(ids) == 1
    (tmp_path / "large.json").write_bytes(b'"' + b"x" * (1 << 20) + b'"')
    assert run(*submit, "@large.json").code == 2


def test_to_look_makes_no_store(run: Command, tmp_path: Path) -> None:
    for words in (
        ("jobs",),
        ("keys",),
        ("job", NOBODY),
        ("explain", "k", "--scope", "t"),
        ("apikey", "list"),
    ):
        ran = run(*words)
        assert ran.code == 5
        assert "--engine" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_store_that_must_be_mended_is_a_failure_and_not_to_be_repeated(
    run: Command, tmp_path: Path
) -> None:
    (tmp_path / "onejob.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    ran = run("submit", "t", "--json")
    assert ran.code == 1
    assert not ran.json["error"]["retryable"]


def test_the_engine_of_the_surroundings_is_taken_unless_one_is_named(
    run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONEJOB_ENGINE", "sqlite:///around.db")
    assert run("submit", "t").code == 0
    assert run("submit", "t", "--engine", "sqlite:///named.db").code == 0
    assert {path.suffix for path in tmp_path.iterdir() if path.stem in ("around", "named")} >= {".db"}
    assert not (tmp_path / "onejob.db").exists()


def test_tenants_of_one_engine_do_not_meet(run: Command) -> None:
    mine = run("submit", "t", "--key", "k", "--tenant", "acme", "--json").json
    assert run("submit", "t", "--key", "k", "--json").json["jobId"] != mine["jobId"]
    assert run("job", mine["jobId"]).code == 5
    assert run("job", mine["jobId"], "--tenant", "acme").code == 0


def test_an_api_key_is_printed_once_and_can_be_rotated_and_revoked(run: Command) -> None:
    acme = ("--tenant", "acme")
    made = run("apikey", "create", "ci", "--role", "submitter", "--user", "ann", *acme, "--json").json
    secret, key_id = made["secret"], made["apiKey"]["id"]
    assert made["apiKey"]["roles"] == ["submitter"]
    listed = run("apikey", "list", *acme, "--json")
    assert [one["id"] for one in listed.json["apiKeys"]] == [key_id]
    assert secret not in listed.out
    rotated = run("apikey", "rotate", key_id, *acme, "--overlap", "1h")
    assert secret not in rotated.out
    assert "cannot be shown again" in rotated.out
    assert "revoked" in run("apikey", "revoke", key_id, *acme).out
    assert "revoked" in run("apikey", "list", *acme).out
    assert run("apikey", "list").out == "no API keys\n"
    assert run("apikey", "revoke", "0" * 12, *acme).code == 5


def test_every_command_has_help_with_an_example(run: Command) -> None:
    overview = run("--help")
    assert overview.code == 0
    for code, meaning in MEANINGS.items():
        assert f"{code:<4}{meaning}" in overview.out
    commands = ["serve", "submit", "job", "jobs", "cancel", "explain", "keys", "doctor"]
    acts = [("apikey", act) for act in ("create", "list", "rotate", "revoke")]
    for words in [*((name,) for name in commands), *acts]:
        told = run(*words, "--help")
        assert told.code == 0
        assert f"example:\n  onejob {' '.join(words)}" in told.out, words
    assert run("--version").out == f"onejob {version('onejob')}\n"


def test_piped_text_has_no_escape_codes_and_a_terminal_has_colours(run: Command, tmp_path: Path) -> None:
    run("submit", "t", "--key", "k")
    assert ESCAPE not in run("explain", "k", "--scope", "t").out
    words = [*ONEJOB, "explain", "k", "--scope", "t"]
    assert ESCAPE in on_terminal(words, {"TERM": "xterm"})
    assert ESCAPE not in on_terminal(words, {"TERM": "xterm", "NO_COLOR": "1"})


def on_terminal(words: list[str], environ: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    subprocess.run(words, stdout=theirs, stderr=theirs, env=os.environ | environ, check=True)
    os.close(theirs)
    told = b""
    try:
        while chunk := os.read(ours, 65536):
            told += chunk
    except OSError:
        pass  # the other side is closed, and all was read
    finally:
        os.close(ours)
    return told.decode()


def test_a_closed_pipe_leaves_no_traceback(run: Command) -> None:
    run("submit", "t")
    reading, writing = os.pipe()
    os.close(reading)
    closed = subprocess.run([*ONEJOB, "jobs"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (closed.returncode, closed.stderr) == (1, b"")


def test_an_interruption_leaves_no_traceback(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow")
    waiting = subprocess.Popen([*ONEJOB, "submit", "t", "--input", "@slow"], stderr=subprocess.PIPE)
    # It opens only once the command reads from it.
    with open(tmp_path / "slow", "wb"):
        waiting.send_signal(signal.SIGINT)
        _, told = waiting.communicate(timeout=30)
    assert (waiting.returncode, told) == (130, b"")


def test_a_full_disk_behind_standard_output_is_told(run: Command) -> None:
    run("submit", "t")
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*ONEJOB, "jobs"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("onejob: ")
    assert "Traceback" not in ran.stderr


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    assert clean(f"a{ESCAPE}[2Jb\nc\u202ed") == "a?[2Jb?c?d"


def test_marks_are_plain_where_the_terminal_has_no_others() -> None:
    told = "\n".join(show.timeline(Screen(unicode=False, now=NOW), long_story()))
    assert told.isascii()


def test_a_long_story_says_how_much_is_not_kept() -> None:
    lines = show.timeline(Screen(now=NOW), long_story())
    assert len(lines) == 32 + 1 + 1
    assert lines[8].endswith("… 8 more events, not kept")
    assert "○" in lines[-1]


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def long_story() -> KeyOut:
    return KeyOut(
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
        request_id="",
        events=[
            EventOut(NOW - timedelta(minutes=40 - n), "lease lapsed", "system:sweep", "") for n in range(32)
        ],
        events_total=40,
    )


def test_the_last_column_ends_where_the_terminal_does() -> None:
    screen = Screen(width=40)
    lines = show.table(screen, ("A", "B"), [("x" * 10, "y" * 100)])
    assert max(map(len, lines)) == 40
    assert lines[1].endswith("y…")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_661, "1 h 1 min"), (86_400, "1 d"), (90_061, "1 d 1 h")],
)
def test_spans_have_two_units(seconds: int, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)])
def test_lengths_of_time_have_a_unit(text: str, seconds: int) -> None:
    assert length(text) == timedelta(seconds=seconds)


def test_states_are_choices_of_the_parser(run: Command) -> None:
    run("submit", "t")
    for state in JobState:
        assert run("jobs", "--state", state).code == 0


def test_main_returns_its_code_and_never_exits() -> None:
    assert main(["--version"]) == 0
    assert main(["nothing"]) == 2


def test_machine_output_is_json_of_the_wire(run: Command) -> None:
    raw = run("submit", "t", "--json").out
    assert msgspec.json.decode(raw) == json.loads(raw)
    assert raw.endswith("}\n")
