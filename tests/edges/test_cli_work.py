"""Results, logs and resolutions on the command line, through both doors."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onejob import sync
from tests.edges.command_line import Command
from tests.edges.process import Process

pytestmark = pytest.mark.usefixtures("bare_surroundings")


class Worker:
    """Works through the server, whichever door the command takes."""

    def __init__(self, url: str) -> None:
        self._server = Process(int(url.rpartition(":")[2]))

    def submit(self, type: str, **more: object) -> str:
        answer = self._server.ask("POST", "/api/jobs", {"type": type, **more})
        return str(answer.json["job"]["id"])

    def start(self, type: str) -> None:
        ask = {"types": [type], "start": True, "leaseSeconds": 60}
        (self.taken,) = self._server.ask("POST", "/api/work/claim", ask).json["jobs"]

    def say(self, verb: str, **more: object) -> None:
        fence = {"token": self.taken["token"], "holder": self.taken["holder"]}
        path = f"/api/jobs/{self.taken['job']['id']}/{verb}"
        assert self._server.ask("POST", path, fence | more).status == 200


@pytest.fixture
def worker(store: tuple[str, str]) -> Worker:
    return Worker(store[0])


def test_a_result_is_printed_as_json(door: Command, worker: Worker) -> None:
    job_id = worker.submit("result")
    missing = door("result", job_id)
    assert missing.code == 5
    assert "pending" in missing.err
    worker.start("result")
    worker.say("finish", result={"b": [1], "a": "\x9b[31m"})
    for words in ((), ("--json",)):
        assert json.loads(door("result", job_id, *words).out)["b"] == [1]
    assert "\x9b" not in door("result", job_id).out


def test_logs_are_printed_and_followed_to_the_end(door: Command, worker: Worker) -> None:
    job_id = worker.submit("logs")
    assert door("logs", job_id).out == ""
    worker.start("logs")
    worker.say("extend", logs=["one", "two\x1b[2J"], offset=0, progress={"done": 1})
    assert door("logs", job_id).out == "one\ntwo?[2J\n"
    assert door("logs", job_id, "--offset", "1").out == "two?[2J\n"
    assert json.loads(door("logs", job_id, "--json").out)["total"] == 2
    assert '{"done":1}' in door("job", job_id).out
    assert json.loads(door("job", job_id, "--json").out)["job"]["progress"] == {"done": 1}

    def end() -> None:
        worker.say("extend", logs=["three"], offset=2)
        worker.say("finish")

    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(end)
        assert door("logs", job_id, "--follow").out.splitlines() == ["one", "two?[2J", "three"]
        ending.result()


def test_a_job_is_waited_for(door: Command, worker: Worker) -> None:
    job_id = worker.submit("wait")
    worker.start("wait")
    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(worker.say, "finish")
        assert "success" in door("job", job_id, "--wait").out
        ending.result()
    assert "success" in door("job", job_id, "--wait").out


def test_a_failed_job_is_run_again_with_a_note(door: Command, worker: Worker, store: tuple[str, str]) -> None:
    job_id = worker.submit("again")
    refused = door("resolve", job_id, "succeeded")
    assert refused.code == 3
    worker.start("again")
    worker.say("finish", error="no", final=True)
    assert "pending" in door("resolve", job_id, "rerun", "--note", "mended").out
    with sync.open(store[1], sweep=False) as ledger:
        assert ledger.job(job_id).state == "pending"
    assert door("resolve", job_id, "perhaps").code == 2
    assert door("cancel", job_id).code == 0  # it would be in the way of the next test
    assert Path("onejob.db").exists() is False
