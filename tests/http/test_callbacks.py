"""Callbacks over a real network: signed, delivered at least once, retried, and only to public addresses."""

import asyncio
import base64
import hashlib
import hmac
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

import onejob
from onejob.clock import FakeClock
from onejob.core.callback import callback_job_id
from onejob.core.identity import format_job_id, parse_job_id
from onejob.http import callbacks
from onejob.http.app import HttpApp
from onejob.http.callbacks import CALLBACKS_PER_TENANT_MAX, CallbackSender, PostFailed, Resolver, is_public, post
from onejob.http.config import ServiceConfig
from onejob.http.request import LOCAL, Credential, Scope
from onejob.ledger.service import ServiceLedger
from onejob.runtime.callers import Caller
from onejob.webhooks import WebhookSecret, load_secrets, sign, signed_headers
from tests.support.app_server import Client, serve_app
from tests.support.command_line import CommandRunner

CALLBACKS_ALLOWED = ServiceConfig(callbacks="any")


class Receiver:
    """The server of a submitter: stores requests, and answers with these statuses, then with the last one."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        self.received.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        if status:
            writer.write(f"HTTP/1.1 {status} X\r\nLocation: {self.url}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()


@asynccontextmanager
async def run_receiver(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ends?from=us"
    async with server:
        yield receiver


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue, config=CALLBACKS_ALLOWED)) as client:
        yield client


@pytest.fixture
async def secret(queue: onejob.Ledger) -> str:
    return await WebhookSecret(queue._runtime, queue._caller).rotate()


def make_sender(queue: onejob.Ledger, *, allow_private: bool = True) -> CallbackSender:
    return CallbackSender(queue._runtime.gate, queue._runtime.ids, allow_private=allow_private)


def callback_job_of(job_id: str) -> str:
    return format_job_id(callback_job_id(parse_job_id(job_id)))


async def submit_with_callback(client: Client, url: str, **more: Any) -> str:
    answer = await client.post("/api/jobs", {"type": "t", "callback": {"url": url}} | more)
    assert answer.status == 202, answer
    return str(answer.body["job"]["id"])


async def test_the_end_of_a_job_is_delivered_once_and_signed(queue: onejob.Ledger, client: Client, secret: str) -> None:
    async with run_receiver(204) as receiver:
        job_id = await submit_with_callback(client, receiver.url)
        assert await make_sender(queue).deliver_ready() == 0
        await queue.cancel(job_id)
        assert await make_sender(queue).deliver_ready() == 1
        assert await make_sender(queue).deliver_ready() == 0
    ((headers, body),) = receiver.received
    told = json.decode(body)
    assert (told["job"]["id"], told["job"]["state"]) == (job_id, "cancelled")
    assert told["delivery"] == headers["onejob-delivery"] == callback_job_of(job_id)
    mark = headers["onejob-signature"]
    assert onejob.verify_webhook(secret, mark, body)
    assert not onejob.verify_webhook("other", mark, body)
    assert not onejob.verify_webhook(secret, mark, body + b" ")
    assert (await queue.job(callback_job_of(job_id))).state == "success"


async def test_the_documented_signature_check_works(queue: onejob.Ledger, client: Client, secret: str) -> None:
    async with run_receiver(200) as receiver:
        await queue.cancel(await submit_with_callback(client, receiver.url))
        await make_sender(queue).deliver_ready()
    ((headers, body),) = receiver.received
    parts = dict(part.split("=") for part in headers["onejob-signature"].split(","))
    signed = parts["t"].encode() + b"." + body
    assert hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() == parts["v1"]


async def test_a_signature_follows_standard_webhooks(queue: onejob.Ledger, client: Client, secret: str) -> None:
    async with run_receiver(200) as receiver:
        job_id = await submit_with_callback(client, receiver.url)
        await queue.cancel(job_id)
        await make_sender(queue).deliver_ready()
    ((headers, body),) = receiver.received
    id, at = headers["webhook-id"], headers["webhook-timestamp"]
    assert id == callback_job_of(job_id)
    assert abs(int(at) - time.time()) < 60
    assert secret.startswith("whsec_")
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    assert 24 <= len(key) <= 64
    digest = hmac.digest(key, f"{id}.{at}.".encode() + body, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert onejob.verify_webhook(secret, headers, body)
    assert onejob.verify_webhook(secret, {name.title(): value for name, value in headers.items()}, body)
    assert not onejob.verify_webhook(secret, headers, body + b" ")
    assert not onejob.verify_webhook("whsec_" + base64.b64encode(bytes(32)).decode(), headers, body)


def test_standard_headers_are_checked_strictly() -> None:
    # The vector of the specification.
    secret, body = "whsec_plJ3nmyCDGBKInavdOK15jsl", b'{"event_type":"ping","data":{"success":true}}'
    headers = signed_headers([secret, "of an earlier version"], body, delivery="msg_loFOjxBNrRLzqYUf", at=1_731_705_121)
    assert headers["webhook-signature"].split(" ")[0] == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="
    for known in (secret, "of an earlier version"):
        assert onejob.verify_webhook(known, headers, body, now=1_731_705_121)
        assert not onejob.verify_webhook(known, headers, body, now=1_731_705_121 + 301)
    for name, value in (
        ("webhook-id", "msg_other"),
        ("webhook-id", ""),
        ("webhook-timestamp", "1731705122"),
        ("webhook-timestamp", "x"),
        ("webhook-signature", ""),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "\N{SNOWMAN}"),
    ):
        assert not onejob.verify_webhook(secret, headers | {name: value}, body, now=1_731_705_121)
    assert not onejob.verify_webhook(secret, {}, body)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirection_is_followed(queue: onejob.Ledger, client: Client, secret: str, status: int) -> None:
    async with run_receiver(status) as receiver:  # its Location is itself
        await queue.cancel(job_id := await submit_with_callback(client, receiver.url))
        await make_sender(queue).deliver_ready()
    assert len(receiver.received) == 1
    told = await queue.job(callback_job_of(job_id))
    assert (told.state, told.error) == ("scheduled", f"answered {status}")


async def test_neither_secret_nor_address_is_logged(
    queue: onejob.Ledger, client: Client, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_receiver(500) as receiver:
        await queue.cancel(await submit_with_callback(client, receiver.url + "&word=from-a-path"))
        await make_sender(queue).deliver_ready()
        ((headers, _),) = receiver.received
    assert secret not in caplog.text
    assert headers["onejob-signature"].partition("v1=")[2] not in caplog.text
    assert "from-a-path" not in caplog.text


async def test_several_processes_deliver_it_once(queue: onejob.Ledger, client: Client, secret: str) -> None:
    async with run_receiver(200) as receiver:
        jobs = [await submit_with_callback(client, receiver.url) for _ in range(10)]
        for job_id in jobs:
            await queue.cancel(job_id)
        told = await asyncio.gather(*(make_sender(queue).deliver_ready() for _ in range(5)))
        assert sum(told) == 10
    assert len(receiver.received) == 10


async def test_a_failure_is_tried_again_with_the_same_delivery(
    queue: onejob.Ledger, client: Client, secret: str, clock: FakeClock
) -> None:
    async with run_receiver(500, 302, 0, 200) as receiver:
        job_id = await submit_with_callback(client, receiver.url)
        await queue.cancel(job_id)
        for error in ("answered 500", "answered 302", "the response is not HTTP"):
            assert await make_sender(queue).deliver_ready() == 1
            assert (await queue.job(callback_job_of(job_id))).error == error
            assert await make_sender(queue).deliver_ready() == 0  # the pause before the retry is not over
            clock.advance(3600)
        assert await make_sender(queue).deliver_ready() == 1
    assert len({headers["onejob-delivery"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 4  # a redirection is not followed
    assert (await queue.job(callback_job_of(job_id))).state == "success"


async def test_a_delivery_interrupted_by_a_crash_is_retried_by_another(
    queue: onejob.Ledger, client: Client, secret: str, clock: FakeClock
) -> None:
    async with run_receiver(200) as receiver:
        job_id = await submit_with_callback(client, receiver.url)
        await queue.cancel(job_id)
        dying = make_sender(queue)
        dying._deliver = _hang  # type: ignore[method-assign]  # as if the process were killed
        task = asyncio.create_task(dying.deliver_ready())
        async with asyncio.timeout(15):
            while (await queue.job(callback_job_of(job_id))).state != "running":
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        clock.advance(61)
        await queue.admin.sweep()
        assert await make_sender(queue).deliver_ready() == 1
    assert len(receiver.received) == 1


async def _hang(callback_job: object, callback: object) -> None:
    await asyncio.Event().wait()


async def test_addresses_that_are_not_public_are_refused(queue: onejob.Ledger, client: Client, secret: str) -> None:
    async with run_receiver(200) as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        hosts = (
            "127.0.0.1",
            "localhost",
            "[::1]",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "169.254.169.254",
            "10.0.0.1",
        )
        for host in hosts:
            await queue.cancel(job_id := await submit_with_callback(client, f"http://{host}:{port}/"))
            assert await make_sender(queue, allow_private=False).deliver_ready() == 1
            error = (await queue.job(callback_job_of(job_id))).error
            assert error is not None
            assert "no public address" in error
    assert receiver.received == []


async def test_only_the_ports_of_the_web_are_called_unless_any_address_may_be(
    queue: onejob.Ledger, client: Client
) -> None:
    async with serve_app(HttpApp(queue, config=ServiceConfig(callbacks="public"))) as public:
        for url, status in (
            ("https://a.example/", 202),
            ("http://a.example:80/", 202),
            ("https://a.example:443/", 202),
            ("http://a.example:443/", 202),
            ("http://a.example:22/", 400),
            ("https://a.example:8443/", 400),
        ):
            answer = await public.post("/api/jobs", {"type": "t", "callback": {"url": url}})
            assert answer.status == status, url
            (verdict,) = (
                await public.post("/api/jobs/batch", {"jobs": [{"type": "t", "callback": {"url": url}}]})
            ).body["verdicts"]
            assert verdict["status"] == status, url
    assert (await client.post("/api/jobs", {"type": "t", "callback": {"url": "http://a.example:22/"}})).status == 202


async def test_a_port_that_is_not_allowed_is_not_called_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_receiver(200) as receiver:
        monkeypatch.setattr(callbacks, "is_public", lambda address: True)
        with pytest.raises(PostFailed, match="the port is not 80 or 443"):
            await post(receiver.url, b"{}", {}, resolve=partial(Resolver().resolve, "default"), allow_private=False)
        assert (
            await post(receiver.url, b"{}", {}, resolve=partial(Resolver().resolve, "default"), allow_private=True)
            == 200
        )
    assert len(receiver.received) == 1


async def test_a_connection_that_does_not_stand_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()  # the TLS handshake waits
        finally:
            writer.transport.abort()
            closed.set()

    closed = asyncio.Event()
    assert callbacks.CONNECT_SECONDS_MAX == 5
    monkeypatch.setattr(callbacks, "CONNECT_SECONDS_MAX", 0.2)
    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PostFailed, match=r"no connection within 0\.2 s"):
            await post(
                f"https://127.0.0.1:{port}/",
                b"{}",
                {},
                resolve=partial(Resolver().resolve, "default"),
                allow_private=True,
            )
        await closed.wait()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::808:808", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("fec0::1", False),
        ("0.0.0.0", False),
        ("255.255.255.255", False),
    ],
)
def test_what_a_public_address_is(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_a_tenant_without_a_secret_gets_one(queue: onejob.Ledger, client: Client) -> None:
    async with run_receiver(200) as receiver:
        for _ in range(3):
            await queue.cancel(await submit_with_callback(client, receiver.url))
        assert await make_sender(queue).deliver_ready() == 3
        (secret,) = await load_secrets(queue._runtime.gate, "default")
        known = await WebhookSecret(queue._runtime, queue._caller).rotate()
        await queue.cancel(await submit_with_callback(client, receiver.url))
        assert await make_sender(queue).deliver_ready() == 1
    for headers, body in receiver.received:
        assert onejob.verify_webhook(secret, headers["onejob-signature"], body)
    headers, body = receiver.received[-1]
    assert onejob.verify_webhook(known, headers["onejob-signature"], body)


async def test_secrets_that_are_rotated_at_once_all_sign(queue: onejob.Ledger) -> None:
    """As well as the one before, which receivers know."""
    secrets = WebhookSecret(queue._runtime, queue._caller)
    known = await secrets.rotate()
    new = await asyncio.gather(secrets.rotate(), secrets.rotate())
    assert set(await load_secrets(queue._runtime.gate, "default")) == {known, *new}


async def test_callbacks_of_one_tenant_that_hang_do_not_delay_those_of_another(
    queue: onejob.Ledger, client: Client
) -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    async def authenticate(scope: Scope) -> Credential:
        return replace(LOCAL, caller=Caller(tenant="other"))

    other = ServiceLedger.of(queue).for_caller(Caller(tenant="other"))
    async with (
        await asyncio.start_server(hang, "127.0.0.1", 0) as hanging,
        run_receiver(200) as receiver,
        serve_app(HttpApp(queue, config=CALLBACKS_ALLOWED, authenticate=authenticate)) as other_client,
    ):
        url = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/"
        for _ in range(CALLBACKS_PER_TENANT_MAX * 3):
            await queue.cancel(await submit_with_callback(client, url))
        running = asyncio.create_task(make_sender(queue).run())
        async with asyncio.timeout(10):
            while len(accepted) < CALLBACKS_PER_TENANT_MAX:
                await asyncio.sleep(0.01)
            await other.cancel(await submit_with_callback(other_client, receiver.url))
            while not receiver.received:
                await asyncio.sleep(0.01)
        assert len(accepted) == CALLBACKS_PER_TENANT_MAX
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for writer in accepted:
            writer.close()


async def test_names_that_never_resolve_occupy_only_the_threads_of_their_tenant(
    queue: onejob.Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    looked_up: list[str] = []
    resolve = socket.getaddrinfo

    def hang(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            looked_up.append(host)
            released.wait(60)
            raise OSError("no answer")
        return resolve(host, *args, **options)

    monkeypatch.setattr(callbacks, "POST_SECONDS_MAX", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        for n in range(CALLBACKS_PER_TENANT_MAX * 3):
            await queue.cancel(await submit_with_callback(client, f"http://h{n}.example/"))
        sender = make_sender(queue)
        assert await sender.deliver_ready() == CALLBACKS_PER_TENANT_MAX, "the rest waits for its threads"
        assert len(looked_up) == CALLBACKS_PER_TENANT_MAX
    finally:
        released.set()
    async with asyncio.timeout(10):
        while await sender.deliver_ready() == 0:
            await asyncio.sleep(0.01)


async def test_callbacks_are_refused_unless_the_service_allows_them(queue: onejob.Ledger, client: Client) -> None:
    body = {"type": "t", "callback": {"url": "https://a.example/"}}
    async with serve_app(HttpApp(queue)) as closed:
        answer = await closed.post("/api/jobs", body)
        assert (answer.status, answer.body["error"]["details"]) == (400, {"what": "callback"})
        (verdict,) = (await closed.post("/api/jobs/batch", {"jobs": [body]})).body["verdicts"]
        assert verdict["status"] == 400
    for wrong in ({"url": "ftp://x/"}, {"url": "http://a:b@x/"}, {}, {"url": 1}, "https://a.example/"):
        assert (await client.post("/api/jobs", body | {"callback": wrong})).status == 400, wrong
    (verdict,) = (await client.post("/api/jobs/batch", {"jobs": [body]})).body["verdicts"]
    assert verdict["status"] == 202


async def test_a_repeated_submission_makes_no_second_callback(
    queue: onejob.Ledger, client: Client, secret: str
) -> None:
    async with run_receiver(200) as receiver:
        header = b"idempotency-key: k"
        body = {"type": "t", "callback": {"url": receiver.url}}
        first = await client.post("/api/jobs", body, header)
        again = await client.post("/api/jobs", body | {"callback": {"url": receiver.url + "&other"}}, header)
        assert first.body["job"]["id"] == again.body["job"]["id"]
        await queue.cancel(first.body["job"]["id"])
        assert await make_sender(queue).deliver_ready() == 1
    assert len(receiver.received) == 1


async def test_clients_can_neither_submit_nor_claim_callback_jobs(client: Client) -> None:
    assert (await client.post("/api/jobs", {"type": "onejob.callback"})).status == 400
    assert (await client.post("/api/work/claim", {"types": ["onejob.callback"]})).status == 400


def test_a_signature_is_checked_strictly() -> None:
    mark = sign(["new", "old"], b"body", 1000)
    assert onejob.verify_webhook("new", mark, b"body", now=1000)
    assert onejob.verify_webhook("old", mark, b"body", now=1299)
    assert not onejob.verify_webhook("old", mark, b"body", now=1301)
    assert not onejob.verify_webhook("old", mark, b"body", now=699)
    for wrong in (
        "",
        "t=1",
        mark.replace("t=1000", "t=1001"),
        f"t=5,{mark}",
        "t=x,v1=y",
        "\N{SNOWMAN}",
        mark * 99,
    ):
        assert not onejob.verify_webhook("old", wrong, b"body", now=1000)


@pytest.mark.usefixtures("clean_environment")
def test_the_secret_is_made_and_rotated_on_the_command_line(run: CommandRunner, durable_url: str) -> None:
    options = ("--json", "--engine", durable_url)
    assert run("webhook-secret", "rotate", *options).code != 0
    first = run("webhook-secret", "create", *options)
    assert first.code == 0, first.err
    assert run("webhook-secret", "create", *options).code == 2
    second = run("webhook-secret", "rotate", *options)
    assert len({json.decode(one.out)["secret"] for one in (first, second)}) == 2
