"""What only WSGI has: bodies of unknown length, `write`, `file_wrapper`, threads that are interrupted, and forks."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.middleware import WsgiIdempotencyMiddleware
from onejob.middleware.blocking import BlockingRequest
from onejob.middleware.layer import HeldRequest
from tests.middleware.doors import Sent, call_wsgi

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger() -> Iterator[onejob.sync.SyncLedger]:
    with onejob.sync.open("memory://", config=onejob.IdempotencyConfig(pending_wait_timeout=0)) as opened:
        yield opened


class Pushing:
    """An application that pushes its response by `write`."""

    def __init__(self, *parts: bytes, length: bool) -> None:
        self.runs = 0
        self._parts = parts
        self._headers = [("Content-Length", str(sum(map(len, parts))))] if length else []

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.runs += 1
        write = start_response("200 OK", self._headers)
        for part in self._parts[:-1]:
            write(part)
        return [self._parts[-1]]


def wrap(app: Any, ledger: onejob.sync.SyncLedger, **options: Any) -> WsgiIdempotencyMiddleware:
    return WsgiIdempotencyMiddleware(app, ledger, scope=lambda _: "ann", **options)


def ask(app: Any, body: bytes = b"", key: str = "k", **environ: Any) -> Sent:
    return call_wsgi(app, body, HTTP_IDEMPOTENCY_KEY=key, **environ)


@pytest.mark.parametrize(("length", "again"), [(True, 200), (False, 410)])
def test_a_response_that_is_pushed_is_stored_if_its_length_is_known(
    ledger: onejob.sync.SyncLedger, length: bool, again: int
) -> None:
    app = Pushing(b"one", b"two", b"three", length=length)
    once = wrap(app, ledger)
    first = ask(once)
    assert (first[0]["status"], first[1]["body"]) == (200, b"onetwothree")
    assert ask(once)[0]["status"] == again
    assert app.runs == 1


def test_the_body_is_handed_on_and_the_server_sends_no_files_by_itself(ledger: onejob.sync.SyncLedger) -> None:
    seen: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        seen.append((environ["wsgi.input"].read(), environ["CONTENT_LENGTH"], "wsgi.file_wrapper" in environ))
        start_response("200 OK", [])
        return []

    files: dict[str, Any] = {"wsgi.file_wrapper": object}
    ask(wrap(app, ledger), b"body", **files)
    assert seen == [(b"body", "4", False)]


@pytest.mark.parametrize(
    ("environ", "status", "code"),
    [
        ({"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}, 411, "BAD_REQUEST"),
        ({"CONTENT_LENGTH": "9"}, 400, "BAD_REQUEST"),
        ({"CONTENT_LENGTH": "²"}, 400, "BAD_REQUEST"),
        ({"CONTENT_LENGTH": "-1"}, 400, "BAD_REQUEST"),
        ({"CONTENT_LENGTH": "9" * 5000}, 413, "PAYLOAD_TOO_LARGE"),
        ({"CONTENT_LENGTH": "101"}, 413, "PAYLOAD_TOO_LARGE"),
        ({"HTTP_IDEMPOTENCY_KEY": "a,b"}, 400, "VALIDATION_ERROR"),  # two headers
        ({"HTTP_IDEMPOTENCY_KEY": '"a","b"'}, 400, "VALIDATION_ERROR"),
    ],
)
def test_a_request_whose_body_or_key_is_not_certain_does_not_run(
    ledger: onejob.sync.SyncLedger, environ: dict[str, str], status: int, code: str
) -> None:
    app = Pushing(b"x", length=True)
    sent = call_wsgi(wrap(app, ledger, body_bytes_max=100), b"body", **({"HTTP_IDEMPOTENCY_KEY": "k"} | environ))
    assert (sent[0]["status"], app.runs) == (status, 0)
    assert f'"code":"{code}"'.encode() in sent[1]["body"]


def test_a_chunked_body_is_read_to_its_end_where_the_server_marks_it(ledger: onejob.sync.SyncLedger) -> None:
    app = Pushing(b"x", length=True)
    once = wrap(app, ledger, body_bytes_max=100)
    chunked: dict[str, Any] = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    assert ask(once, b"a", **chunked)[0]["status"] == 200
    assert ask(once, **(chunked | {"wsgi.input": BytesIO(b"b")}))[0]["status"] == 422
    assert ask(once, b"a" * 101, key="large", **chunked)[0]["status"] == 413
    assert app.runs == 1


def test_an_application_that_does_not_start_its_response_releases_the_key(ledger: onejob.sync.SyncLedger) -> None:
    once = wrap(lambda environ, start_response: [b"x"], ledger)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="start_response"):
            ask(once)


def test_the_headers_of_an_error_replace_those_before(ledger: onejob.sync.SyncLedger) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("X-A", "1")])
        try:
            raise LookupError("late")
        except LookupError:
            start_response("404 Not Found", [("Location", "/x")], sys.exc_info())
        return [b"no"]

    once = wrap(app, ledger)
    for _ in range(2):
        sent = ask(once)
        assert (sent[0]["status"], sent[1]["body"]) == (404, b"no")
        assert (b"location", b"/x") in sent[0]["headers"]


def test_a_thread_that_is_interrupted_while_it_waits_for_its_key_leaves_it_free(
    ledger: onejob.sync.SyncLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As gunicorn interrupts its worker, by SystemExit from a signal handler."""
    acquire, fail = BlockingRequest.acquire, HeldRequest.fail
    interrupted, released = threading.Event(), threading.Event()

    async def acquire_slowly(self: Any, *args: Any) -> Any:
        acquired = await acquire(self, *args)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not interrupted.is_set():
            await asyncio.sleep(0.01)
        return acquired

    async def fail_and_tell(self: Any) -> None:
        await fail(self)
        released.set()

    def interrupt(*_: Any) -> None:
        interrupted.set()
        raise SystemExit(1)

    app = Pushing(b"x", length=True)
    before = signal.signal(signal.SIGUSR1, interrupt)
    monkeypatch.setattr(BlockingRequest, "acquire", acquire_slowly)
    monkeypatch.setattr(HeldRequest, "fail", fail_and_tell)
    try:
        with pytest.raises(SystemExit):
            ask(wrap(app, ledger))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert released.wait(60)
    monkeypatch.undo()
    assert app.runs == 0
    assert ask(wrap(app, ledger))[0]["status"] == 200


def test_a_ledger_that_was_closed_or_opened_before_a_fork_is_503(ledger: onejob.sync.SyncLedger) -> None:
    app = Pushing(b"x", length=True)
    once = wrap(app, ledger)
    assert ask(once)[0]["status"] == 200
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if ask(once, key="other")[0]["status"] == 503 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.close()
    assert ask(once, key="third")[0]["status"] == 503
    gc.collect()  # a coroutine that was never awaited would be found here
    assert app.runs == 1


def test_every_process_opens_the_store_by_itself_after_a_fork(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def app(environ: Any, start_response: Any) -> list[bytes]:
        with runs.open("a") as file:
            file.write("x")
        start_response("200 OK", [("Content-Length", "1")])
        return [b"x"]

    once = WsgiIdempotencyMiddleware(app, f"sqlite:///{tmp_path / 'keys.db'}", scope=lambda _: "ann")
    assert ask(once)[0]["status"] == 200
    children = [os.fork() for _ in range(3) if os.getpid() == MAIN]
    if os.getpid() != MAIN:
        status = 1
        try:
            replayed = ask(once)
            status = 0 if (b"idempotent-replayed", b"true") in replayed[0]["headers"] else 2
        finally:
            os._exit(status)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert ask(once)[0]["status"] == 200
    assert runs.read_text() == "x"
    once.close()


MAIN = os.getpid()


PROGRAM = """
import sys
from onejob.middleware import WsgiIdempotencyMiddleware
from tests.middleware.doors import call_wsgi

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

call_wsgi(WsgiIdempotencyMiddleware(app, sys.argv[1], scope=lambda _: "ann"), b"", HTTP_IDEMPOTENCY_KEY="k")
"""


def test_a_process_that_ends_closes_its_store_silently(durable_url: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, durable_url], cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
