"""The outbox: written before anything is sent, shared by processes, refused if it is damaged or belongs to others."""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import apsw
import httpx
import pytest

import onejob
from onejob.cli.commands.prove.faulty_proxy import LOSE, PASS, NetworkFault
from onejob.client.flow import RetryPolicy
from onejob.client.operations import ClientReceipt, ClientSubmission
from onejob.client.outbox import LEASE_MS, Outbox
from onejob.client.requests import submit_call
from onejob.clock import FakeClock
from tests.support.command_line import ScriptedServer, problem_response
from tests.support.faulty_proxy import run_faulty_proxy
from tests.support.serve_process import ServeProcess

URL = "http://127.0.0.1:1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


@pytest.fixture
def scope() -> str:
    return f"scope-{uuid4()}"


@pytest.fixture
def outbox_client(server: ServeProcess, quick_retry: RetryPolicy, path: Path) -> Iterator[onejob.Client]:
    with onejob.Client(server.base_url, retry=quick_retry, outbox=path) as client:
        yield client


def pending(client: onejob.Client) -> list[str]:
    assert client.outbox is not None
    return client.outbox.pending()


SUBMIT = """
import sys
import onejob

url, path, scope = sys.argv[1:]
with onejob.Client(url, retry=onejob.RetryPolicy(deadline=1), outbox=path) as client:
    try:
        print(client.submit("charge", {"order": 1}, scope=scope).outcome)
    except onejob.OnejobError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize(("fault", "told"), [(PASS, "created"), (LOSE, "AmbiguousOutcome")])
def test_a_disk_that_is_full_after_the_request_does_not_change_the_outcome(
    server: ServeProcess, path: Path, scope: str, fault: NetworkFault, told: str
) -> None:
    def fill_disk(key: str, attempt: int) -> NetworkFault:
        if child.poll() is not None:
            return PASS
        wal_size = path.with_name(f"{path.name}-wal").stat().st_size
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (wal_size, wal_size))
        return fault

    with run_faulty_proxy(server.port, fill_disk) as proxy:
        command = [sys.executable, "-c", SUBMIT, proxy.url, str(path), scope]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = child.communicate(timeout=120)
        with onejob.Client(proxy.url, outbox=path) as client:
            (resumed,) = client.resume()
            assert isinstance(resumed.receipt, ClientReceipt)
            assert resumed.receipt.outcome == "replayed"
            assert client.resume() == []
    assert out.strip() == told
    assert "resume() may send" in err


LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def lock_in_another_process(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_refusal_that_cannot_be_removed_from_the_outbox_is_ambiguous(
    server: ServeProcess, path: Path, scope: str, quick_retry: RetryPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.client.outbox.BUSY_MS", 100)
    with onejob.Client(server.base_url) as first:
        first.submit("charge", 1, idempotency_key="k", scope=scope)

    def lock_outbox(key: str, attempt: int) -> NetworkFault:
        lockers.append(lock_in_another_process(path))
        return PASS

    lockers: list[subprocess.Popen[str]] = []
    with (
        run_faulty_proxy(server.port, lock_outbox) as proxy,
        onejob.Client(proxy.url, retry=quick_retry, outbox=path) as client,
    ):
        with pytest.raises(onejob.AmbiguousOutcome, match="could not be removed from the outbox") as raised:
            client.submit("charge", 2, idempotency_key="k", scope=scope)
        assert isinstance(raised.value.__cause__, onejob.IdempotencyConflict)
        assert pending(client) == ["k"]
        (locker,) = lockers
        locker.communicate("unlock", timeout=120)
        assert client.resume() == []  # it is removed with the next write
        assert pending(client) == []


def test_the_outbox_is_readable_by_its_owner_only(path: Path) -> None:
    before = os.umask(0o022)
    try:
        outbox = Outbox(path, server=URL)
        outbox.write(submit_call(ClientSubmission(type="t", input={"card": "4111"}), "k"), "t")
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert {"outbox.db", "outbox.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}
    outbox.close()


def test_the_intent_is_on_the_disk_before_the_first_byte_is_sent(
    server: ServeProcess, path: Path, quick_retry: RetryPolicy
) -> None:
    seen: list[int] = []

    def choose(key: str, attempt: int) -> NetworkFault:
        with closing(sqlite3.connect(path)) as db:
            seen.extend(db.execute("SELECT count(*) FROM intent WHERE key = ?", (key,)).fetchone())
        return PASS

    with (
        run_faulty_proxy(server.port, choose) as proxy,
        onejob.Client(proxy.url, retry=quick_retry, outbox=path) as client,
    ):
        client.submit("t", 1)
        assert pending(client) == []
    assert seen == [1]


def test_every_commit_is_synced(path: Path) -> None:
    with closing(Outbox(path, server=URL)) as outbox:
        assert outbox._db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert outbox._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_unanswered_intent_is_resumed_with_the_same_key_and_bytes(
    server: ServeProcess, path: Path, scope: str
) -> None:
    impatient = RetryPolicy(deadline=0.05, attempt_timeout=0.05)
    faults = {"now": LOSE}
    with run_faulty_proxy(server.port, lambda key, attempt: faults["now"]) as proxy:
        with onejob.Client(proxy.url, retry=impatient, outbox=path) as client:
            with pytest.raises(onejob.AmbiguousOutcome) as ambiguous:
                client.submit(scope, {"n": 1})
            assert pending(client) == [ambiguous.value.key]
        faults["now"] = PASS
        with onejob.Client(proxy.url, outbox=path) as client:
            (resumed,) = client.resume()
            assert pending(client) == []
    assert resumed.key == ambiguous.value.key
    assert resumed.error is None
    assert len(set(proxy.attempts_by_key[resumed.key])) == 1
    assert len(server.get(f"/api/jobs?type={scope}").json["jobs"]) == 1


def test_an_unreachable_server_leaves_the_intent_in_the_outbox(path: Path) -> None:
    gone = ScriptedServer()
    gone.close()
    with onejob.Client(gone.url, retry=RetryPolicy(deadline=0.05), outbox=path) as client:
        with pytest.raises(onejob.AmbiguousOutcome, match="resume"):
            client.submit("t", 1, idempotency_key="k")
        assert pending(client) == ["k"]
        # The same submission again is the same row; another body under its key is refused locally.
        with pytest.raises(onejob.AmbiguousOutcome):
            client.submit("t", 1, idempotency_key="k")
        with pytest.raises(onejob.IdempotencyConflict):
            client.submit("t", 2, idempotency_key="k")
        assert pending(client) == ["k"]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (problem_response(429, "QUOTA_EXCEEDED"), 0),
        (problem_response(409, "CONFLICT"), 0),
        (problem_response(401, "UNAUTHORIZED"), 0),
        (problem_response(409, "IN_PROGRESS", "Retry-After: 20", retryable=True), 1),
        (problem_response(503, "SERVICE_UNAVAILABLE", "Retry-After: 20", retryable=True), 1),
    ],
)
def test_only_a_definite_response_ends_an_intent(
    path: Path, answer: bytes, left: int, quick_retry: RetryPolicy
) -> None:
    with closing(ScriptedServer(answer)) as server, onejob.Client(server.url, retry=quick_retry, outbox=path) as client:
        with pytest.raises(onejob.OnejobError):
            client.submit("t", 1, idempotency_key="k")
        assert len(pending(client)) == left


@pytest.mark.parametrize("code", ["QUOTA_EXCEEDED", "UNAUTHORIZED"])
def test_a_resumed_intent_outlives_a_full_quota_and_a_wrong_credential(
    path: Path, code: str, quick_retry: RetryPolicy
) -> None:
    answers = [b"", problem_response(429 if code == "QUOTA_EXCEEDED" else 401, code)]
    with closing(ScriptedServer(*answers)) as server:
        once = RetryPolicy(attempts_max=1)
        with (
            onejob.Client(server.url, retry=once, outbox=path) as client,
            pytest.raises(onejob.AmbiguousOutcome),
        ):
            client.submit("t", 1, idempotency_key="k")
        with onejob.Client(server.url, retry=once, outbox=path) as client:
            (resumed,) = client.resume()
            assert resumed.error is not None
            assert pending(client) == ["k"]


def test_an_intent_is_not_sent_again_after_its_window(path: Path) -> None:
    clock = FakeClock()
    submission = ClientSubmission(type="t", input=1, options={"idempotency_ttl": timedelta(hours=1)})
    with closing(Outbox(path, server=URL, clock=clock)) as outbox:
        outbox.release(outbox.write(submit_call(submission, "k"), "t"))
        clock.advance(3600)
    with onejob.Client(URL, outbox=path, clock=clock) as client:
        (resumed,) = client.resume()
        assert isinstance(resumed.error, onejob.WindowPassed)
        assert pending(client) == ["k"]


def test_setting_the_wall_clock_back_does_not_extend_the_window(path: Path) -> None:
    clock = FakeClock()
    submission = ClientSubmission(type="t", input=1, options={"idempotency_ttl": timedelta(hours=1)})
    with closing(Outbox(path, server=URL, clock=clock)) as outbox:
        outbox.release(outbox.write(submit_call(submission, "k"), "t"))
        clock.advance(4000)
        clock.jump_wall(-3_900_000)
        intent = outbox.claim()
        assert intent is not None
        assert intent.remaining_ms <= 0
        # After a reboot only the wall clock is left, and a time before the first attempt is useless.
        outbox._boot_id = "another"
        outbox.release(intent)
        clock.jump_wall(-86_400_000)
        intent = outbox.claim()
        assert intent is not None
        assert intent.remaining_ms == 0


def test_a_leased_intent_is_not_claimed_until_the_lease_ends(path: Path) -> None:
    clock = FakeClock()
    with (
        closing(Outbox(path, server=URL, clock=clock)) as one,
        closing(Outbox(path, server=URL, clock=clock)) as other,
    ):
        written = one.write(submit_call(ClientSubmission(type="t", input=1), "k"), "t")
        assert other.claim() is None
        clock.advance(LEASE_MS / 1000 + 1)
        claimed = other.claim()
        assert claimed is not None
        assert claimed.body == written.body
        one.settle(written)
        assert other.pending() == []


def test_the_leases_of_a_dead_process_end_at_once(path: Path) -> None:
    program = (
        "import os, sys; from onejob.client.outbox import Outbox; from onejob.client.requests import submit_call;"
        "from onejob.client.operations import ClientSubmission;"
        f"outbox = Outbox(sys.argv[1], server={URL!r}); outbox.write(submit_call(ClientSubmission(type='t'), 'k'), 't');"
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    assert list(path.parent.glob("*.life"))
    with closing(Outbox(path, server=URL)) as outbox:
        assert outbox.claim() is not None
    assert not list(path.parent.glob("*.life"))


def test_an_interruption_releases_the_intent(server: ServeProcess, path: Path) -> None:
    class Interrupting(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            raise KeyboardInterrupt

    http = httpx.Client(transport=Interrupting())
    with onejob.Client(server.base_url, outbox=path, http=http) as client:
        with pytest.raises(KeyboardInterrupt):
            client.submit("t", 1, idempotency_key="interrupted")
        assert client.outbox is not None
        assert client.outbox.claim() is not None


def test_processes_that_create_one_file_at_once_share_it(path: Path) -> None:
    def create(_: int) -> str:
        with closing(Outbox(path, server=URL)) as outbox:
            return outbox.client_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(create, range(16)))) == 1
    assert [file.name for file in path.parent.iterdir() if "outbox.db." in file.name and "-" not in file.name] == []


def test_concurrent_resumes_create_one_job_per_intent(
    server: ServeProcess, path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    with closing(Outbox(path, server=server.base_url)) as outbox:
        for n in range(20):
            outbox.release(outbox.write(submit_call(ClientSubmission(type=scope, input=n), f"{scope}-{n}"), scope))

    def resume(_: int) -> int:
        with onejob.Client(server.base_url, retry=quick_retry, outbox=path) as client:
            return len([one for one in client.resume() if one.error is None])

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(resume, range(4))) == 20
    assert len(server.get(f"/api/jobs?type={scope}&limit=100").json["jobs"]) == 20


def test_sequence_numbers_continue_after_the_file_is_reopened(
    server: ServeProcess, path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    for life in range(3):
        with onejob.Client(server.base_url, retry=quick_retry, outbox=path) as client:
            assert client.submit_next("t", life, scope=scope).assigned_sequence == life + 1


def test_a_new_file_of_a_known_client_continues_at_the_number_of_the_server(
    server: ServeProcess, tmp_path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    name = f"client-{scope}"
    for life in range(2):
        path = tmp_path / f"{life}.db"
        with onejob.Client(server.base_url, retry=quick_retry, outbox=path, client_id=name) as client:
            assert client.submit_next("t", life, scope=scope).assigned_sequence == life + 1


def test_a_restored_backup_uses_no_number_twice(
    server: ServeProcess, path: Path, tmp_path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    def next_number(n: int) -> int:
        with onejob.Client(server.base_url, retry=quick_retry, outbox=path) as client:
            return client.submit_next("t", n, scope=scope).assigned_sequence

    assert next_number(1) == 1
    shutil.copy(path, tmp_path / "saved.db")
    assert next_number(2) == 2
    assert next_number(3) == 3
    for left in tmp_path.glob("outbox.db*"):
        left.unlink()
    shutil.copy(tmp_path / "saved.db", path)
    assert next_number(4) == 4
    assert len(server.get("/api/jobs?type=t&limit=1000").json["jobs"]) >= 4


def test_a_number_in_progress_is_finished_before_the_next_is_used(
    server: ServeProcess, path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    impatient = RetryPolicy(attempts_max=2, pause_first=0.001)
    faults = {"now": PASS}
    with (
        run_faulty_proxy(server.port, lambda key, attempt: faults["now"]) as proxy,
        onejob.Client(proxy.url, retry=impatient, outbox=path) as client,
    ):
        assert client.submit_next("t", 1, scope=scope).assigned_sequence == 1
        faults["now"] = LOSE
        with pytest.raises(onejob.AmbiguousOutcome):
            client.submit_next("t", 2, scope=scope)
        faults["now"] = PASS
        assert client.submit_next("t", 3, scope=scope).assigned_sequence == 3
        assert pending(client) == []


def test_a_number_that_was_refused_is_used_again(outbox_client: onejob.Client, scope: str) -> None:
    assert outbox_client.submit_next("t", 1, scope=scope).assigned_sequence == 1
    with pytest.raises(onejob.Invalid):
        outbox_client.submit_next("\n", 2, scope=scope)
    assert pending(outbox_client) == []
    assert outbox_client.submit_next("t", 3, scope=scope).assigned_sequence == 2


def test_threads_that_share_a_sequence_leave_no_gap(outbox_client: onejob.Client, scope: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        numbers = pool.map(lambda n: outbox_client.submit_next("t", n, scope=scope).assigned_sequence, range(12))
    assert sorted(numbers) == list(range(1, 13))


class TransportDroppingReceipts(httpx.BaseTransport):
    """A real server for which number 1 was used under another key; the first `lost` responses are lost."""

    def __init__(self, lost: int) -> None:
        self._inner = httpx.HTTPTransport()
        self._lost = lost

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        body = json.loads(response.read())
        response.close()
        if request.method == "POST" and self._lost:
            self._lost -= 1
            raise httpx.ReadError("lost")
        if body.get("assignedSequence") == 1:
            problem = {"code": "ALREADY_COMMITTED", "message": "used", "retryable": False, "details": {}}
            return httpx.Response(409, json={"error": problem})
        return httpx.Response(response.status_code, json=body)

    def close(self) -> None:
        self._inner.close()


def test_a_number_used_by_another_process_is_followed_by_the_next(server: ServeProcess, path: Path, scope: str) -> None:
    http = httpx.Client(transport=TransportDroppingReceipts(0))
    with onejob.Client(server.base_url, outbox=path, http=http) as client:
        assert client.submit_next("t", 1, scope=scope).assigned_sequence == 2


def test_a_number_executed_after_a_lost_response_is_never_sent_under_another(
    server: ServeProcess, path: Path, scope: str, quick_retry: RetryPolicy
) -> None:
    http = httpx.Client(transport=TransportDroppingReceipts(1))
    with onejob.Client(server.base_url, outbox=path, http=http, retry=quick_retry) as client:
        with pytest.raises(onejob.WindowPassed):
            client.submit_next("t", 1, scope=scope)
        assert pending(client) == []
        assert client.get_client_state(client.outbox.client_id if client.outbox else "", scope=scope)
    state = server.get("/api/jobs?type=t&limit=1000").json["jobs"]
    assert len([job for job in state if job["scope"] == scope]) == 1


def make_outbox(path: Path) -> None:
    with closing(Outbox(path, server=URL, client_id="first")) as outbox:
        outbox.write(submit_call(ClientSubmission(type="t", input=1), "k"), "t")
        outbox._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def overwrite_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[:16] = b"not a database!!"
    path.write_bytes(bytes(data))


def replace_with_another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE intent (id)")


def set_newer_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")


@pytest.mark.parametrize(
    "harm", [truncate, empty_file, overwrite_header, replace_with_another_database, set_newer_version]
)
def test_a_damaged_or_unrelated_file_is_refused_and_never_recreated(path: Path, harm: object) -> None:
    make_outbox(path)
    assert callable(harm)
    harm(path)
    before = path.read_bytes()
    with pytest.raises(onejob.StoreRefused):
        Outbox(path, server=URL, client_id="first")
    assert path.read_bytes() == before


def test_a_file_of_another_client_or_server_is_refused(path: Path) -> None:
    make_outbox(path)
    with pytest.raises(onejob.StoreRefused, match="belongs to client first"):
        Outbox(path, server=URL, client_id="other")
    with pytest.raises(onejob.StoreRefused, match="second jobs"):
        Outbox(path, server="http://127.0.0.1:2", client_id="first")


def test_an_intent_that_is_not_as_it_was_written_is_refused(path: Path) -> None:
    make_outbox(path)
    with closing(apsw.Connection(str(path))) as db:
        db.execute("UPDATE intent SET body = x'7b7d', held_until = 0")
    with closing(Outbox(path, server=URL)) as outbox, pytest.raises(onejob.StoreRefused, match="damaged"):
        outbox.claim()


def test_a_folder_that_cannot_be_written_stops_the_submission(tmp_path: Path) -> None:
    with pytest.raises(onejob.Unavailable, match="nothing was sent"):
        onejob.Client(URL, outbox=tmp_path / "missing" / "outbox.db")


async def test_the_async_client_stores_its_intent_too(
    server: ServeProcess, path: Path, quick_retry: RetryPolicy, scope: str
) -> None:
    async with onejob.AsyncClient(server.base_url, retry=quick_retry, outbox=path) as client:
        assert (await client.submit(scope, 1)).created
        assert (await client.submit_next(scope, 1, scope=scope)).assigned_sequence == 1
        assert await client.resume() == []
        verdicts = await client.submit_many([onejob.Submission(type=scope, input=n) for n in range(3)])
        assert len({one.job_id for one in verdicts if not isinstance(one, onejob.OnejobError)}) == 3
