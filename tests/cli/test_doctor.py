"""The doctor: healthy stores and servers pass, each problem is named with what to do about it."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onejob.cli.commands import doctor
from onejob.cli.commands.doctor import sqlite as doctor_sqlite
from onejob.cli.commands.doctor.findings import CheckStatus
from onejob.client.flow import ServerResponse
from tests.crash.other_process import submit_in_other_process
from tests.support.command_line import CommandRunner, ScriptedServer, http_response, run_service
from tests.support.sqlite_files import RawConnection

STORE = "onejob.db"


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONEJOB_ENGINE", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(capsys)


@pytest.fixture
def store(run: CommandRunner, tmp_path: Path) -> Path:
    assert run("submit", "t").code == 0
    return tmp_path / STORE


def findings(run: CommandRunner, *words: str) -> tuple[int, dict[str, Any]]:
    ran = run("doctor", *words, "--json")
    assert ran.json["healthy"] == (ran.code == 0)
    return ran.code, {one["check"]: one for one in ran.json["findings"]}


@pytest.mark.usefixtures("store")
def test_a_healthy_store_is_called_healthy(run: CommandRunner) -> None:
    code, found = findings(run)
    assert code == 0
    assert list(found) == [
        "folder", "file system", "disk", "fsync", "permissions", "sqlite", "schema", "content", "commits",
        "journal mode", "journal", "engine", "settings", "durability", "clock",
    ]  # fmt: skip
    assert {one["verdict"] for one in found.values()} <= {"ok", "warn"}
    assert found["journal mode"]["found"] == "WAL, synchronous=FULL"
    lines = run("doctor").out.splitlines()
    assert lines[0] == "examined sqlite:///onejob.db"
    assert len(lines) == 1 + len(found)


@pytest.mark.usefixtures("store")
def test_settings_of_this_shell_that_the_ledger_contradicts_are_named(
    run: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(run)[1]["settings"]["found"] == "key_owner tenant, window 1d, committed_ttl 5m, rejected_ttl 1m"
    assert run("settings", "set", "window=2h").code == 0
    monkeypatch.setenv("ONEJOB_WINDOW", "3h")
    code, found = findings(run)
    assert (code, found["settings"]["verdict"]) == (1, "fail")
    assert found["settings"]["found"].startswith("window is 3h here, and 2h in the ledger")


def test_no_store_is_a_warning_and_none_is_created(run: CommandRunner, tmp_path: Path) -> None:
    code, found = findings(run)
    assert code == 0
    assert found["store"]["verdict"] == "warn"
    assert "onejob serve" in found["store"]["act"]
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_a_failure(run: CommandRunner) -> None:
    code, found = findings(run, "--engine", "sqlite:///nowhere/onejob.db")
    assert code == 1
    assert found["folder"]["verdict"] == "fail"


@pytest.mark.parametrize(("mode", "verdict"), [(0o600, "ok"), (0o640, "warn"), (0o644, "warn"), (0o666, "fail")])
def test_only_the_owner_reads_and_writes(run: CommandRunner, store: Path, mode: int, verdict: str) -> None:
    store.chmod(mode)
    code, found = findings(run)
    assert found["permissions"]["verdict"] == verdict
    assert (code == 1) == (verdict == "fail")
    if verdict != "ok":
        assert f"chmod 600 {STORE}" in found["permissions"]["act"]


def test_a_world_writable_folder_is_a_failure(run: CommandRunner, store: Path) -> None:
    store.parent.chmod(0o777)
    assert findings(run)[1]["folder"]["verdict"] == "fail"
    store.parent.chmod(0o700)


def test_a_damaged_file_is_a_failure(run: CommandRunner, store: Path) -> None:
    store.write_bytes(b"not a database" * 1000)
    code, found = findings(run)
    assert code == 1
    assert "restore it from a backup" in found["store"]["found"]
    assert "engine" not in found


def test_a_file_whose_submissions_would_be_refused_as_damaged_is_a_failure(run: CommandRunner, store: Path) -> None:
    """Each page in turn: opening the store and looking up a job needs few of them."""
    data = store.read_bytes()
    page = 4096
    for number in range(len(data) // page):
        at = number * page + 200
        store.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        code, found = findings(run)
        assert code == 1, f"page {number + 1}"
        assert "engine" not in found
        assert any("restore" in str(one) for one in found.values() if one["verdict"] == "fail")
    store.write_bytes(data)
    assert findings(run)[0] == 0


@pytest.mark.parametrize("content", [b"", b"half"])
def test_an_emptied_or_truncated_file_is_a_failure(run: CommandRunner, store: Path, content: bytes) -> None:
    data = store.read_bytes()
    store.write_bytes(content and data[: len(data) // 2])
    code, found = findings(run)
    assert code == 1
    assert "estore it" in found["store"]["found"]


def test_an_index_that_lacks_a_row_is_a_failure(run: CommandRunner, store: Path) -> None:
    with RawConnection(str(store)) as db:
        db.execute("PRAGMA writable_schema = ON")
        sql = db.execute("SELECT sql FROM sqlite_master WHERE name = 'job_tenant'").get
        db.execute("UPDATE sqlite_master SET sql = ? || ' WHERE id IS NULL' WHERE name = 'job_tenant'", (sql,))
    with RawConnection(str(store)) as db:
        db.execute("REINDEX job_tenant")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'job_tenant'", (sql,))
    code, found = findings(run)
    assert code == 1
    assert "job_tenant" in found["content"]["found"]
    assert "engine" not in found


@pytest.mark.parametrize("cut", ["a byte", "a commit", "half", "all"])
def test_a_journal_that_was_cut_off_is_a_failure(run: CommandRunner, store: Path, cut: str) -> None:
    ends = [one.journal for one in submit_in_other_process(store, "a", "b", "c", "d", end="kill")]
    journal = Path(f"{store}-wal")
    data = journal.read_bytes()
    assert findings_after_copy(run, store) == 0
    size = {"a byte": ends[-1] - 1, "a commit": ends[-2], "half": len(data) // 2, "all": 0}[cut]
    journal.write_bytes(data[:size])
    for _ in range(2):  # an examination changes nothing
        code, found = findings(run)
        assert code == 1
        assert "acknowledged commits" in found["commits"]["found"]
        assert "restore" in found["commits"]["act"]
        assert journal.stat().st_size == size
    journal.write_bytes(data)
    assert findings(run)[0] == 0


def test_another_ledger_in_the_place_of_the_store_is_a_failure(run: CommandRunner, store: Path) -> None:
    assert run("submit", "t", "--engine", "sqlite:///other.db").code == 0
    shutil.copy("other.db", store)
    noted = Path(f"{store}-turn").read_bytes()
    for _ in range(2):
        code, found = findings(run)
        assert code == 1
        assert "holds another ledger" in found["commits"]["found"]
        assert "--accept-loss" in found["commits"]["act"]
    assert Path(f"{store}-turn").read_bytes() == noted


def findings_after_copy(run: CommandRunner, store: Path) -> int:
    """The exit code for a copy of a store, since an examination that finds nothing ends the journal."""
    for suffix in ("", "-wal", "-turn"):
        shutil.copy(f"{store}{suffix}", f"{store}.copy{suffix}")
    return findings(run, "--engine", f"sqlite:///{STORE}.copy")[0]


def test_another_programs_database_is_a_failure_and_stays_untouched(run: CommandRunner, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STORE) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    (tmp_path / STORE).chmod(0o600)
    before = (tmp_path / STORE).read_bytes()
    code, found = findings(run)
    assert code == 1
    assert "another program" in found["schema"]["found"]
    assert (tmp_path / STORE).read_bytes() == before


def test_a_newer_schema_is_a_failure(run: CommandRunner, store: Path) -> None:
    with RawConnection(str(store)) as db:
        db.pragma("user_version", 999)
    code, found = findings(run)
    assert code == 1
    assert found["schema"]["act"] == "upgrade this program"


def test_a_journal_mode_that_another_program_set_is_a_warning(run: CommandRunner, store: Path) -> None:
    with RawConnection(str(store)) as db:
        db.pragma("journal_mode", "DELETE")
    code, found = findings(run)
    assert code == 0
    assert found["journal mode"]["verdict"] == "warn"


def test_a_file_that_another_program_wrote_is_a_failure(run: CommandRunner, store: Path) -> None:
    with sqlite3.connect(store) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    code, found = findings(run)
    assert code == 1
    assert any("another program" in str(finding) for finding in found.values())


def test_a_memory_engine_is_a_warning(run: CommandRunner) -> None:
    code, found = findings(run, "--engine", "memory://")
    assert code == 0
    assert found["durability"]["verdict"] == "warn"


def test_an_unknown_engine_is_a_failure(run: CommandRunner) -> None:
    assert findings(run, "--engine", "mysql://x")[0] == 1


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(0.001, CheckStatus.WARN), (0.3, CheckStatus.OK), (8.0, CheckStatus.OK), (90.0, CheckStatus.WARN)],
)
def test_a_sync_that_is_too_fast_or_too_slow_is_a_warning(ms: float, verdict: CheckStatus) -> None:
    assert doctor_sqlite.fsync_finding(ms).verdict is verdict


@pytest.mark.parametrize(
    ("ms", "verdict"), [(0, CheckStatus.OK), (-1_500, CheckStatus.OK), (86_400_000, CheckStatus.WARN)]
)
def test_a_clock_that_was_set_is_a_warning(ms: int, verdict: CheckStatus) -> None:
    assert doctor.check_engine_clock(ms).verdict is verdict


@pytest.mark.parametrize(
    ("free", "verdict"), [(1 << 20, CheckStatus.FAIL), (1 << 28, CheckStatus.WARN), (1 << 40, CheckStatus.OK)]
)
def test_low_disk_space_is_a_warning(free: int, verdict: CheckStatus) -> None:
    assert doctor_sqlite.check_free_space(free).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("nfs4", CheckStatus.FAIL), ("tmpfs", CheckStatus.WARN), ("ext4", CheckStatus.OK), ("", CheckStatus.OK)],
)
def test_a_store_belongs_on_a_local_disk(kind: str, verdict: CheckStatus) -> None:
    assert doctor_sqlite.check_file_system(kind).verdict is verdict


def test_the_type_of_a_mount_is_read_from_the_kernel() -> None:
    assert doctor_sqlite.mount_type(Path("/proc")) in ("proc", "")


@pytest.fixture
def unrelated_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer(http_response(404, "<html>"))
    yield server
    server.close()


def test_an_unrelated_or_unreachable_server_is_a_failure(run: CommandRunner, unrelated_server: ScriptedServer) -> None:
    code, found = findings(run, "--url", unrelated_server.url)
    assert (code, list(found)) == (1, ["server"])
    assert "404" in found["server"]["found"]
    code, found = findings(run, "--url", unrelated_server.url)
    assert "cannot be reached" in found["server"]["found"]


def test_a_server_whose_engine_is_unavailable_is_not_ready(run: CommandRunner) -> None:
    jobs = http_response(200, {"requestId": "r", "jobs": [], "next": None})
    server = ScriptedServer(http_response(200, {}, "Date: Thu, 01 Jan 2026 00:00:00 GMT"), http_response(503, {}), jobs)
    code, found = findings(run, "--url", server.url)
    server.close()
    assert code == 1
    assert {name: one["verdict"] for name, one in found.items()} == {
        "server": "ok", "ready": "fail", "credential": "ok", "clock": "warn",
    }  # fmt: skip


@pytest.mark.parametrize("date", [None, "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT"])
def test_a_server_without_a_date_is_a_warning(date: str | None) -> None:
    headers = {} if date is None else {"date": date}
    assert doctor.check_server_clock(ServerResponse(200, headers, b"")).verdict is CheckStatus.WARN


def test_production_requires_authentication_and_a_durable_store(run: CommandRunner, store: Path) -> None:
    with run_service(store.parent) as url:
        code, found = findings(run, "--production", "--url", url)
        assert code == 1
        assert found["authentication"]["verdict"] == "fail"
        assert "auth = true" in found["authentication"]["act"]
        assert {found[name]["verdict"] for name in ("durability", "metrics", "lost jobs")} == {"ok"}
        assert findings(run, "--url", url)[0] == 0
        assert run("doctor", "--production", "--engine", "memory://").code == 1
        assert run("doctor", "--engine", "memory://").code == 0


def test_production_is_content_with_a_server_that_keeps_the_list(
    run: CommandRunner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = run("apikey", "create", "prober", "--role", "admin", "--json").json["secret"]
    weak = run("apikey", "create", "shop", "--json").json["secret"]
    monkeypatch.setenv("ONEJOB_AUTH", "true")
    with run_service(store.parent) as url:
        code, found = findings(run, "--production", "--url", url, "--api-key", key)
        assert code == 0
        assert {one["verdict"] for one in found.values()} == {"ok"}
        assert findings(run, "--production", "--url", url, "--api-key", weak)[1]["metrics"]["verdict"] == "warn"
    code, found = findings(run, "--production", "--url", url, "--api-key", key)
    assert (code, found["server"]["verdict"], found["production"]["verdict"]) == (1, "fail", "fail")
