"""`onejob serve` as a real process, over a real socket."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ONEJOB = [sys.executable, "-m", "onejob.cli"]
BODY = {"type": "charge", "input": {"amount": 42}}


class HttpResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class ServeProcess:
    def __init__(self, folder: Path, url: str) -> None:
        self.process = subprocess.Popen(
            [*ONEJOB, "serve", "--port", "0", "--engine", url], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r" at http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found
        self.port = int(found[1])

    def post(self, body: object, *headers: tuple[str, str]) -> HttpResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/api/jobs", data, headers)

    def ask(self, method: str, path: str, data: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path)
            for name, value in (*headers, ("Content-Length", str(len(data)))):
                connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            return HttpResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, json.load(response))
        finally:
            connection.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, shared_url: str) -> Iterator[ServeProcess]:
    running = ServeProcess(tmp_path_factory.mktemp("service"), shared_url)
    yield running
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) in (0, -signal.SIGTERM)
    assert running.process.stdout is not None
    running.process.stdout.close()


def key_header(value: str) -> tuple[str, str]:
    return ("Idempotency-Key", value)


def test_a_repeated_request_gets_the_same_job_and_says_so(service: ServeProcess) -> None:
    first, again = service.post(BODY, key_header("a-1")), service.post(BODY, key_header('"a-1"'))
    assert (first.status, again.status) == (202, 202)
    assert first.body["job"]["id"] == again.body["job"]["id"]
    assert first.body["requestId"] != again.body["requestId"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert first.headers["location"] == f"/api/jobs/{first.body['job']['id']}"
    shown = service.ask("GET", first.headers["location"])
    assert shown.body["job"]["key"] == "a-1"
    assert first.headers["cache-control"] == "no-store"


def test_another_body_is_a_conflict_that_names_the_path(service: ServeProcess) -> None:
    service.post(BODY, key_header("c-1"))
    answer = service.post({"type": "charge", "input": {"amount": 43}}, key_header("c-1"))
    assert answer.status == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert "retry-after" not in answer.headers
    assert answer.body["error"]["code"] == "CONFLICT"
    assert answer.body["error"]["details"]["paths"] == ["/input/amount"]


def test_concurrent_requests_with_one_key_make_one_job(service: ServeProcess) -> None:
    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda _: service.post(BODY, key_header("race")), range(200)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body["job"]["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    "header",
    [
        *("", '""', '"a', 'a"b', '"a" x', "a, b", '"a\\n"', "ä", ":YWJj:;", "k" * 256, '"' + "k" * 256 + '"'),
        *(":YWJj:", "::", ":YQ==:", "?1", "?0", '"a";b=ä', '"a";;;', '"a";', '"a";b=', '"a";B=1', '"a";b="c'),
    ],
)
def test_a_malformed_key_is_refused_and_never_taken_for_absent(service: ServeProcess, header: str) -> None:
    answer = service.post(BODY, key_header(header))
    assert answer.status == 400
    assert answer.body["error"]["code"] == "VALIDATION_ERROR"
    assert ("empty" in answer.body["detail"]) == (header in ("", '""'))


@pytest.mark.parametrize(
    ("header", "key"),
    [
        *((one, one) for one in ("42", "-1.5", "token", "*t/o:k", "?2", "?", "?10", ":", ":a", ":a:b:", "a:YWJj:")),
        *(('":YWJj:"', ":YWJj:"), ('"?1"', "?1"), ('"a";b="c";d', "a"), ('"a" ; b="c;d"; e=?1', "a")),
    ],
)
def test_numbers_tokens_and_strings_are_keys(service: ServeProcess, header: str, key: str) -> None:
    answer = service.post(BODY, key_header(header))
    assert (answer.status, answer.body["idempotency"]["key"]) == (202, key)


def test_two_key_headers_are_refused_even_if_equal(service: ServeProcess) -> None:
    assert service.post(BODY, key_header("x"), key_header("x")).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"input": 1}',
        b'{"type": 7}',
        b'{"type": ""}',
        b'{"type": "t", "actor": "user:1"}',
        b'{"type": "t", "type": "u"}',
        b'{"type": "t", "input": {"a": 1, "a": 2}}',
        b'{"type": "t", "input": NaN}',
        b'{"type": "t", "input": 1e400}',
        b'{"type": "t", "input": "\\ud800"}',
        b'{"type": "t", "input": "\xff"}',
        b'{"type": "t", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type": "t", "runAt": "yesterday"}',
        b'{"type": "t", "runAt": "2030-01-01T00:00:00"}',
        b'{"type": "t", "idempotencyTtlSeconds": 0}',
        b'{"type": "t", "idempotencyTtlSeconds": 1e300}',
        b'{"type": "t", "timeoutSeconds": -1}',
        b'{"type": "t", "priority": 1.5}',
        b'{"type": "t", "labels": {"a": 1}}',
    ],
)
def test_bad_input_gets_a_4xx_and_burns_no_key(service: ServeProcess, body: bytes) -> None:
    name = f"bad-{hash(body)}"
    answer = service.post(body, key_header(name))
    assert answer.status == 400
    assert not answer.body["error"]["retryable"]
    assert service.post(BODY, key_header(name)).body["idempotency"]["outcome"] == "created"


def test_a_body_beyond_the_limit_is_413(service: ServeProcess) -> None:
    answer = service.post(b'{"type": "t", "input": "' + b"x" * (1 << 20) + b'"}')
    assert (answer.status, answer.body["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


def test_unknown_paths_jobs_and_methods_are_reported(service: ServeProcess) -> None:
    assert service.ask("GET", "/nowhere").status == 404
    assert service.ask("GET", "/api/jobs/not-an-id").status == 400
    assert service.ask("GET", "/api/jobs/01a1e2f5-39f9-73f8-930c-48a088963d1e").status == 404
    assert service.ask("PUT", "/api/jobs").status == 405
    assert service.ask("GET", "/healthz").body["status"] == "ok"


def test_it_binds_to_loopback_only(tmp_path: Path) -> None:
    refused = subprocess.run(
        [*ONEJOB, "serve", "--host", "0.0.0.0"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "127.0.0.1" in refused.stderr
