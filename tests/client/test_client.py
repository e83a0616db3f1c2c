"""The clients against a real server: methods and exceptions of the ledger, and always a key."""

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import pytest
from msgspec import Raw

import onejob
from onejob.cli.commands.prove.faulty_proxy import DROP, ECHO, LOSE, PASS, NetworkFault
from onejob.client.flow import RetryPolicy
from onejob.client.operations import ClientOperations
from onejob.client.requests import derived_key
from onejob.core.key import IdempotencyKey
from onejob.ledger.admin import Admin
from tests.support.command_line import ScriptedServer, http_response, problem_response
from tests.support.faulty_proxy import run_faulty_proxy
from tests.support.serve_process import ServeProcess

ORDER = {"order_id": "ORD-1", "amount": 42, "customer": {"id": 7}}


def test_a_duplicate_gets_the_same_job(client: onejob.Client) -> None:
    first = client.submit("charge", ORDER, idempotency_key="dup-1")
    again = client.submit("charge", dict(reversed(ORDER.items())), idempotency_key="dup-1")
    assert (first.outcome, again.outcome) == ("created", "replayed")
    assert first.job_id == again.job_id
    assert first.job is not None
    assert first.job.state == "pending"
    assert first.attempts == 1
    assert first.expires_at is not None


async def test_the_async_client_returns_the_same_results(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    async with onejob.AsyncClient(server.base_url, retry=quick_retry) as client:
        first = await client.submit("charge", ORDER, idempotency_key="async-1")
        assert (await client.submit("charge", ORDER, idempotency_key="async-1")).job_id == first.job_id
        assert (await client.job(first.job_id)).id == first.job_id
        assert (await client.cancel(first.job_id)).state == "cancelled"
        assert (await client.wait(first.job_id, timeout=1)).has_ended
        assert (await client.explain("async-1", scope="charge")).hits == 1
        assert await client.forget("async-1", scope="charge")
        with pytest.raises(onejob.NotFound):
            await client.explain("never", scope="charge")
        many = await client.submit_many([onejob.Submission(type="t", input=1)])
        assert not isinstance(many[0], onejob.OnejobError)
        assert (await client.get_client_state("c", scope="s")).last_committed_sequence == 0
        page = await client.jobs(limit=1)
        assert (len(page), [job.id for job in page]) == (1, [page[0].id])
        keys = await client.keys(limit=1)
        assert (len(keys), [history.key for history in keys]) == (1, [keys[0].key])
        assert (await client.keys(limit=1)).keys


def test_both_clients_have_the_methods_of_the_ledger() -> None:
    over_http = {
        "submit", "submit_many", "submit_sequence", "get_client_state", "job", "jobs", "cancel", "explain", "keys",
        "forget", "wait", "result", "result_json", "log_lines", "input", "failures", "reserve_job_slot",
        "reserve_job_slot_or_raise", "consume_reservation", "release_reservation", "renew_reservation", "reservations",
        "usage", "quota", "set_quota", "tenant_quota", "set_tenant_quota",
    }  # fmt: skip
    for kind in (onejob.Client, onejob.AsyncClient):
        assert over_http <= {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    in_library = {name for kind in (onejob.Ledger, Admin) for name, _ in inspect.getmembers(kind, inspect.isfunction)}
    assert over_http <= in_library

    def shape(kind: type, name: str) -> list[str]:
        return list(inspect.signature(getattr(kind, name)).parameters)

    for name in over_http | {"resume", "submit_next"}:
        assert shape(onejob.Client, name) == shape(onejob.AsyncClient, name)


def test_a_method_has_the_signature_and_docstring_of_its_operation() -> None:
    expected = "(self, job_id: str, timeout: datetime.timedelta | float | None = None) -> onejob.resources.jobs.JobView"
    for method in (onejob.Client.wait, onejob.AsyncClient.wait):
        assert str(inspect.signature(method)) == expected
        assert (method.__name__, method.__doc__) == ("wait", ClientOperations.wait.__doc__)
    assert inspect.iscoroutinefunction(onejob.AsyncClient.wait)
    assert not inspect.iscoroutinefunction(onejob.Client.wait)


def test_without_a_key_one_is_generated_for_each_submission(client: onejob.Client) -> None:
    keys = {client.submit("t", 1).key for _ in range(5)}
    assert len(keys) == 5
    parsed = [IdempotencyKey.parse(key) for key in keys]
    assert {one.sequence for one in parsed} == {1, 2, 3, 4, 5}
    assert len({one.client_id for one in parsed}) == 1


def test_threads_of_one_client_never_share_a_key(client: onejob.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda n: client.submit("t", n), range(40)))
    assert len({receipt.key for receipt in receipts}) == 40
    assert len({receipt.job_id for receipt in receipts}) == 40
    assert all(receipt.created for receipt in receipts)


def test_a_key_is_derived_from_named_members_in_any_order(client: onejob.Client) -> None:
    first = client.submit("derive", ORDER, key_from=("order_id", "/customer/id"))
    later = ORDER | {"amount": 43}
    with pytest.raises(onejob.IdempotencyConflict) as conflict:
        client.submit("derive", later, key_from=("/customer/id", "order_id"))
    assert conflict.value.key == first.key
    assert conflict.value.paths == ("/input/amount",)
    assert client.submit("derive", ORDER | {"order_id": "ORD-2"}, key_from="order_id").created


def test_a_derived_key_needs_its_members_and_depends_on_the_type() -> None:
    for names in ((), ("missing",), ("/customer/name",), ("/order_id/x",)):
        with pytest.raises(onejob.Invalid, match="name"):
            derived_key("t", ORDER, names)
    assert derived_key("t", ORDER, ["order_id"]) != derived_key("u", ORDER, ["order_id"])
    assert derived_key("t", {"n": 1}, ["n"]) == derived_key("t", Raw(b'{"n": 1.0, "at": "now"}'), ["n"])
    assert derived_key("t", {"n": 1}, ["n"]) != derived_key("t", {"n": "1"}, ["n"])


def test_the_given_key_is_sent_on_every_attempt(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    def choose(key: str, attempt: int) -> NetworkFault:
        return [DROP, LOSE, LOSE, PASS][attempt]

    with run_faulty_proxy(server.port, choose) as proxy, onejob.Client(proxy.url, retry=quick_retry) as client:
        receipt = client.submit("t", {"b": 1, "a": 2}, idempotency_key="given-Ω")
    assert receipt.key == "given-Ω"
    assert receipt.attempts == 4
    assert receipt.replayed
    assert list(proxy.attempts_by_key) == ["given-Ω"]
    assert len(set(proxy.attempts_by_key["given-Ω"])) == 1


def test_the_input_is_frozen_before_the_first_attempt(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    changing: dict[str, int] = {"n": 0}

    def choose(key: str, attempt: int) -> NetworkFault:
        changing["n"] += 1
        return LOSE if attempt < 2 else PASS

    with run_faulty_proxy(server.port, choose) as proxy, onejob.Client(proxy.url, retry=quick_retry) as client:
        receipt = client.submit("t", changing, idempotency_key="frozen")
    assert len(set(proxy.attempts_by_key["frozen"])) == 1
    assert receipt.replayed


def test_a_deadline_is_an_ambiguous_outcome_with_the_key(server: ServeProcess) -> None:
    retry = RetryPolicy(deadline=0.2, attempt_timeout=0.1, pause_first=0.01)
    with (
        run_faulty_proxy(server.port, lambda key, attempt: LOSE) as proxy,
        onejob.Client(proxy.url, retry=retry) as client,
    ):
        with pytest.raises(onejob.AmbiguousOutcome) as ambiguous:
            client.submit("t", 1)
        key = ambiguous.value.key
    with onejob.Client(server.base_url) as client:
        assert client.submit("t", 1, idempotency_key=key).replayed


def test_an_unreachable_server_is_unavailable_and_did_nothing(quick_retry: RetryPolicy) -> None:
    gone = ScriptedServer()
    gone.close()
    retry = RetryPolicy(deadline=0.1, pause_first=0.01)
    with (
        onejob.Client(gone.url, retry=retry) as client,
        pytest.raises(onejob.Unavailable, match="nothing was done"),
    ):
        client.submit("t", 1)


def test_no_attempt_is_made_after_the_window(server: ServeProcess) -> None:
    retry = RetryPolicy(deadline=60, attempt_timeout=0.2, pause_first=0.4)
    with (
        run_faulty_proxy(server.port, lambda key, attempt: LOSE) as proxy,
        onejob.Client(proxy.url, retry=retry) as client,
        pytest.raises(onejob.WindowPassed),
    ):
        client.submit("t", 1, idempotency_key="short", idempotency_ttl=timedelta(seconds=1))
    assert server.get("/api/jobs?type=t&limit=1000").body.count(b'"key":"short"') == 1


def test_no_attempt_is_made_after_the_window_that_the_client_was_told_of(server: ServeProcess) -> None:
    retry = RetryPolicy(deadline=60, attempt_timeout=0.2, pause_first=0.4)
    with (
        run_faulty_proxy(server.port, lambda key, attempt: LOSE) as proxy,
        onejob.Client(proxy.url, retry=retry, window=timedelta(seconds=1)) as client,
        pytest.raises(onejob.WindowPassed),
    ):
        client.submit("t", 1)


def submitted(key: str, *, window_seconds: float) -> bytes:
    """The response to a new submission whose key expires so many seconds after its Date."""
    date = datetime(2026, 1, 1, tzinfo=UTC)
    expires = (date + timedelta(seconds=window_seconds)).isoformat()
    job: dict[str, Any] = dict.fromkeys(("key", "runAt", "startedAt", "endedAt", "progress", "error"))
    job |= {"id": str(uuid4()), "type": "t", "state": "pending", "scope": "t", "actor": "a", "user": "u"}
    job |= {"delivery": "at_least_once", "priority": 0, "attempts": 0, "labels": {}}
    job |= dict.fromkeys(("createdAt", "changedAt"), date.isoformat())
    body = {"job": job, "idempotency": {"key": key, "scope": "t", "outcome": "created", "expiresAt": expires}}
    headers = (f"Date: {format_datetime(date, usegmt=True)}", f"Idempotency-Expires: {expires}")
    return http_response(202, body, *headers)


PERSISTENT = RetryPolicy(deadline=30, attempt_timeout=5, pause_first=0.05, pause_max=0.05)


def test_no_attempt_is_made_after_the_window_that_an_earlier_response_told() -> None:
    answers = [submitted("first", window_seconds=3.2), *[b""] * 400]
    with closing(ScriptedServer(*answers)) as server, onejob.Client(server.url, retry=PERSISTENT) as client:
        client.submit("t", 1, idempotency_key="first")
        begin = monotonic()
        with pytest.raises(onejob.WindowPassed):
            client.submit("t", 1, idempotency_key="second")
        assert server.received_at[-1] - begin < 3.2
        assert len(server.requests) > 2


async def test_no_attempt_is_made_after_the_window_that_a_lost_response_told() -> None:
    answers = [submitted("k", window_seconds=1.4)[:-3]] * 200
    with closing(ScriptedServer(*answers)) as server:
        async with onejob.AsyncClient(server.url, retry=PERSISTENT) as client:
            begin = monotonic()
            with pytest.raises(onejob.WindowPassed):
                await client.submit("t", 1, idempotency_key="k")
            assert server.received_at[-1] - begin < 1.4


def test_no_attempt_is_made_after_the_window_that_the_caller_stated(tmp_path: Path) -> None:
    short = timedelta(seconds=0.4)
    with closing(ScriptedServer(*[b""] * 200)) as server:
        begin = monotonic()
        with onejob.Client(server.url, retry=PERSISTENT, window=short) as client, pytest.raises(onejob.WindowPassed):
            client.submit("t", 1, idempotency_key="k")
        with onejob.Client(server.url, outbox=tmp_path / "o.db", retry=PERSISTENT, window=short) as client:
            with pytest.raises(onejob.WindowPassed):
                client.submit("t", 1, idempotency_key="k")
            sleep(0.1)  # the last pause would have ended after the window
            sent = len(server.requests)
            assert [type(one.error) for one in client.resume()] == [onejob.WindowPassed]
            assert len(server.requests) == sent
        assert monotonic() - begin < 25
    with pytest.raises(onejob.Invalid, match="window"):
        onejob.Client(server.url, window=timedelta(0))


def test_a_window_that_the_submission_states_is_its_own() -> None:
    answers = [submitted("first", window_seconds=1.1), b"", submitted("second", window_seconds=60)]
    retry = RetryPolicy(deadline=30, attempt_timeout=5, pause_first=0.3, pause_max=0.3)
    with closing(ScriptedServer(*answers)) as server, onejob.Client(server.url, retry=retry) as client:
        client.submit("t", 1, idempotency_key="first")
        receipt = client.submit("t", 1, idempotency_key="second", idempotency_ttl=timedelta(seconds=60))
        assert receipt.attempts == 2


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([problem_response(401, "UNAUTHORIZED")], onejob.NotAllowed),
        ([problem_response(429, "QUOTA_EXCEEDED")], onejob.SubmissionRefused),
        ([problem_response(422, "CONFLICT")], onejob.IdempotencyConflict),
        ([b"", problem_response(401, "UNAUTHORIZED")], onejob.AmbiguousOutcome),
        ([b"", problem_response(429, "QUOTA_EXCEEDED")], onejob.AmbiguousOutcome),
        ([b"", problem_response(422, "REJECTED")], onejob.SubmissionRejected),
        ([http_response(302, "", "Location: http://127.0.0.1:1/")], onejob.ServerFailed),
        ([http_response(404, "<html>")], onejob.ServerFailed),
    ],
)
def test_the_response_decides_the_exception(
    answers: list[bytes], kind: type[Exception], quick_retry: RetryPolicy
) -> None:
    with closing(ScriptedServer(*answers)) as server, onejob.Client(server.url, retry=quick_retry) as client:
        with pytest.raises(kind):
            client.submit("t", 1, idempotency_key="k")
        assert len(server.requests) == len(answers)
        assert len(set(server.requests)) == 1


def test_a_key_in_progress_is_waited_for_with_the_same_key(quick_retry: RetryPolicy) -> None:
    busy = problem_response(409, "IN_PROGRESS", "Retry-After: 0", retryable=True)
    body = {"idempotency": {"key": "k", "scope": "t", "outcome": "replayed"}, "jobId": "foreign", "job": None}
    with (
        closing(ScriptedServer(busy, busy, http_response(202, body))) as server,
        onejob.Client(server.url, retry=quick_retry) as client,
    ):
        assert client.submit("t", 1, idempotency_key="k").job_id == "foreign"
        assert len(set(server.requests)) == 1


def test_a_refusal_of_another_call_is_discarded(server: ServeProcess, quick_retry: RetryPolicy) -> None:
    with onejob.Client(server.base_url) as before:
        before.submit("t", "first", idempotency_key="echoed")

    with (
        run_faulty_proxy(server.port, lambda key, attempt: ECHO) as proxy,
        onejob.Client(proxy.url, retry=quick_retry) as client,
    ):
        for n in range(5):
            with pytest.raises(onejob.IdempotencyConflict):
                client.submit("t", "other", idempotency_key="echoed")
            assert client.submit("t", n, idempotency_key=f"innocent-{n}").attempts > 1


def test_a_batch_has_a_verdict_for_each_submission(client: onejob.Client) -> None:
    client.submit("many", 0, idempotency_key="many-conflict")
    verdicts = client.submit_many(
        [
            onejob.Submission(type="many", input=1, idempotency_key="many-1"),
            onejob.Submission(type="many", input=2, idempotency_key="many-conflict"),
            onejob.Submission(type="many", input=float("nan")),
            onejob.Submission(type="many", input=1, idempotency_key="many-1"),
            onejob.Submission(type="many", input=3),
        ]
    )
    kinds = [type(verdict).__name__ for verdict in verdicts]
    assert kinds == ["ClientReceipt", "IdempotencyConflict", "Invalid", "ClientReceipt", "ClientReceipt"]
    first, same = verdicts[0], verdicts[3]
    assert not isinstance(first, onejob.OnejobError)
    assert not isinstance(same, onejob.OnejobError)
    assert (first.job_id, same.outcome) == (same.job_id, "replayed")


def test_batch_items_without_a_verdict_are_sent_alone_with_the_same_bytes(quick_retry: RetryPolicy) -> None:
    away = {"code": "SERVICE_UNAVAILABLE", "message": "", "retryable": True, "details": {}}
    batch = {"verdicts": [{"status": 503, "error": away}]}
    one = {"idempotency": {"key": "k", "scope": "t", "outcome": "created"}, "jobId": "j", "job": None}
    with closing(ScriptedServer(http_response(200, batch), http_response(202, one))) as server:
        with onejob.Client(server.url, retry=quick_retry) as client:
            (verdict,) = client.submit_many([onejob.Submission(type="t", input=1, idempotency_key="k")])
        assert not isinstance(verdict, onejob.OnejobError)
        alone = server.requests[1].partition(b"\r\n\r\n")[2]
        assert server.requests[0].endswith(b'{"jobs":[' + alone + b"]}")


def test_a_sequence_number_is_executed_once(client: onejob.Client) -> None:
    key = "seq-client:1:0123456789abcdef"
    first = client.submit_sequence("seq-client", 1, key, "t", 1, scope="numbers")
    again = client.submit_sequence("seq-client", 1, key, "t", 1, scope="numbers")
    assert (first.committed, again.committed) == (True, False)
    assert first.jobs[0].id == again.jobs[0].id
    assert client.get_client_state("seq-client", scope="numbers").last_committed_sequence == 1
    with pytest.raises(onejob.SubmissionRefused, match=r"2|next"):
        client.submit_sequence("seq-client", 3, "seq-client:3:0123456789abcdef", "t", 1, scope="numbers")


def test_an_input_that_is_not_exact_in_json_is_refused_before_anything_is_sent(client: onejob.Client) -> None:
    for bad in (float("inf"), "\ud800", object(), Raw(b'{"a": 1, "a": 2}')):
        with pytest.raises(onejob.Invalid):
            client.submit("t", bad, idempotency_key="k")


def test_without_httpx_only_the_clients_fail_and_name_the_extra() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "import onejob, onejob.cli.backend\n"
        "onejob.RetryPolicy()\n"
        "try:\n    onejob.Client\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed == "onejob.Client needs httpx; install onejob[client]\n"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8001", "ftp://x", "http://", "http://x?y=1", "http://x:port"])
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(onejob.Invalid):
        onejob.Client(url)
