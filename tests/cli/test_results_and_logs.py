"""Results, logs and resolutions, on an engine and against a server."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onejob import sync
from tests.support.command_line import CommandRunner
from tests.support.serve_process import ServeProcess

pytestmark = pytest.mark.usefixtures("clean_environment")


class Worker:
    """A worker that uses the HTTP API, also when the command works on the engine."""

    def __init__(self, url: str) -> None:
        self._server = ServeProcess(int(url.rpartition(":")[2]))

    def submit(self, type: str, **more: object) -> str:
        answer = self._server.ask("POST", "/api/jobs", {"type": type, **more})
        return str(answer.json["job"]["id"])

    def start(self, type: str) -> None:
        ask = {"types": [type], "start": True, "leaseSeconds": 60}
        (self.claimed,) = self._server.ask("POST", "/api/work/claim", ask).json["jobs"]

    def post_verb(self, verb: str, **more: object) -> None:
        fence = {"token": self.claimed["token"], "holder": self.claimed["holder"]}
        path = f"/api/jobs/{self.claimed['job']['id']}/{verb}"
        assert self._server.ask("POST", path, fence | more).status == 200


@pytest.fixture
def worker(server_and_engine: tuple[str, str]) -> Worker:
    return Worker(server_and_engine[0])


def test_a_result_is_printed_as_json(backend: CommandRunner, worker: Worker) -> None:
    job_id = worker.submit("result")
    missing = backend("result", job_id)
    assert missing.code == 5
    assert "pending" in missing.err
    worker.start("result")
    worker.post_verb("finish", result={"b": [1], "a": "\x9b[31m"})
    for words in ((), ("--json",)):
        assert json.loads(backend("result", job_id, *words).out)["b"] == [1]
    assert "\x9b" not in backend("result", job_id).out


def test_logs_are_printed_and_followed_to_the_end(backend: CommandRunner, worker: Worker) -> None:
    job_id = worker.submit("logs")
    assert backend("logs", job_id).out == ""
    worker.start("logs")
    worker.post_verb("extend", logs=["one", "two\x1b[2J"], offset=0, progress={"done": 1})
    assert backend("logs", job_id).out == "one\ntwo?[2J\n"
    assert backend("logs", job_id, "--offset", "1").out == "two?[2J\n"
    assert json.loads(backend("logs", job_id, "--json").out)["total"] == 2
    assert '{"done":1}' in backend("job", job_id).out
    assert json.loads(backend("job", job_id, "--json").out)["job"]["progress"] == {"done": 1}

    def end() -> None:
        worker.post_verb("extend", logs=["three"], offset=2)
        worker.post_verb("finish")

    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(end)
        assert backend("logs", job_id, "--follow").out.splitlines() == ["one", "two?[2J", "three"]
        ending.result()


def test_a_job_is_waited_for(backend: CommandRunner, worker: Worker) -> None:
    job_id = worker.submit("wait")
    worker.start("wait")
    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(worker.post_verb, "finish")
        assert "success" in backend("job", job_id, "--wait").out
        ending.result()
    assert "success" in backend("job", job_id, "--wait").out


def test_a_failed_job_is_run_again_with_a_note(
    backend: CommandRunner, worker: Worker, server_and_engine: tuple[str, str]
) -> None:
    job_id = worker.submit("again")
    refused = backend("resolve", job_id, "succeeded")
    assert refused.code == 3
    worker.start("again")
    worker.post_verb("finish", error="no", final=True)
    assert "pending" in backend("resolve", job_id, "rerun", "--note", "mended").out
    with sync.open(server_and_engine[1], sweep=False) as ledger:
        assert ledger.job(job_id).state == "pending"
    assert backend("resolve", job_id, "perhaps").code == 2
    assert backend("cancel", job_id).code == 0  # so that the next test does not claim it
    assert Path("onejob.db").exists() is False


def test_operators_see_the_input_and_the_messages_of_exceptions(backend: CommandRunner, worker: Worker) -> None:
    job_id = worker.submit("payload", input={"card": "\x9b4711"}, maxAttempts=1)
    for words in ((), ("--json",)):
        assert json.loads(backend("job", job_id, "--input", *words).out)["card"].endswith("4711")
    assert "\x9b" not in backend("job", job_id, "--input").out
    assert "failures" not in json.loads(backend("job", job_id, "--json").out)
    worker.start("payload")
    worker.post_verb("finish", error="ValueError at x.py:1", message="card 4711\nis \x1b[31mno good")
    shown = backend("job", job_id).out
    assert "attempt 1 failed\n    card 4711\n    is ?[31mno good" in shown
    (failure,) = json.loads(backend("job", job_id, "--json").out)["failures"]
    assert failure["detail"] == "card 4711\nis \x1b[31mno good"


def test_a_resolution_or_a_cancellation_with_the_same_key_is_the_same_answer(
    backend: CommandRunner, worker: Worker
) -> None:
    job_id = worker.submit("verbs")
    worker.start("verbs")
    worker.post_verb("finish", error="no", final=True)
    rerun = ("resolve", job_id, "rerun", "--idempotency-key", "mended-1")
    assert [backend(*rerun).code for _ in range(2)] == [0, 0]
    assert backend("resolve", job_id, "rerun").code == 3  # another invocation is another decision
    cancel = ("cancel", job_id, "--idempotency-key", "mended-2")
    assert [backend(*cancel).code for _ in range(2)] == [0, 0]
    assert backend("cancel", job_id, "--idempotency-key", "mended-1").code == 3
    assert backend("cancel", job_id, "--idempotency-key", "").code == 2
