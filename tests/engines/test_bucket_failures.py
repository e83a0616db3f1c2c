"""How requests to an object store fail, and which failures are certain: every other one may have been executed.

Where the client library can be made to fail for real, a server on loopback does it; the rest is a table of its texts.
"""

import asyncio
import socket
from contextlib import suppress
from itertools import product
from typing import Final
from urllib.parse import urlsplit

import pytest
from obstore.exceptions import BaseError, GenericError, JoinError, NotSupportedError

import onejob
from onejob.engines.bucket.objects import HttpDates, NothingSent, ObstoreObjects, RequestFailed, SlowDown, _to_failure
from onejob.engines.bucket.url import open_store, parse_bucket_url
from onejob.errors import MayBeDone, Unknown
from tests.support.postgres_server import free_port
from tests.support.scripted_server import Handler, read_message, reset, running_scripted_server
from tests.support.seaweedfs import SeaweedServer

NAME: Final = "log/0000000000000001"
# What a server may write, for a reader that searches in texts: whole details of a request that was never sent, and more.
MISLEADING: Final = b"""<Error><Code>SlowDown</Code>NoSuchBucket 404 Not Found, 400 Bad Request, kind: Connect,

Debug source:
Generic {
    inner: Http(
        HttpError {
            kind: Connect,
            source: reqwest::Error {
                kind: Request,
                source: hyper_util::client::legacy::Error(
                    Connect,
                    inner: Status {
                        status: 404,
</Error>"""
CERTAIN: Final = {400, 401, 403, 404, 405, 501}
SLOW_DOWN: Final = {429, 503}


def open_objects(endpoint: str, *, seconds: int = 10) -> ObstoreObjects:
    url = parse_bucket_url(f"s3://jobs/p?endpoint={endpoint}&access_key_id=any&secret_access_key=any&allow_http=true")
    return ObstoreObjects(open_store(url, seconds), HttpDates(endpoint))


async def failure_of_create(endpoint: str, *, seconds: int = 10) -> type[Exception]:
    with pytest.raises(RequestFailed) as failure:
        await open_objects(endpoint, seconds=seconds).create(NAME, b"entry")
    return failure.type


def answer(text: bytes, *, end_with_reset: bool = False) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        writer.write(text)
        await writer.drain()
        if end_with_reset:
            await asyncio.sleep(0.05)  # what was written arrives first
            reset(writer)

    return handle


def response(status: str, body: bytes = b"", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status.encode(), len(body), headers, body)


async def reset_after_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_message(reader)
    reset(writer)


async def reset_after_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    reset(writer)


async def reset_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def close_after_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_message(reader)


async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def reset_second_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await answer(response("409 Conflict"))(reader, writer)
    await reset_after_request(reader, writer)


LEAVES_A_DOUBT: Final[dict[str, Handler]] = {
    "reset after the request": reset_after_request,
    "reset after its head": reset_after_head,
    "closed after the request": close_after_request,
    "reset in the status line": answer(b"HTTP/1.1 200 O", end_with_reset=True),
    "success without an ETag": answer(response("200 OK")),
    "success without content": answer(response("204 No Content")),
    "no answer after 100": answer(response("100 Continue")),
    "half of a 500": answer(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\nonly a part"),
    "half of a 404": answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nonly a part"),
    "reset in a 404": answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\na part", end_with_reset=True),
    "not HTTP": answer(b"not HTTP at all\r\n\r\n"),
    "a malformed header": answer(b"HTTP/1.1 200 OK\r\n\x00: no header\r\n\r\n"),
    "too many headers": answer(b"HTTP/1.1 200 OK\r\n" + b"many: headers\r\n" * 500 + b"\r\n"),
    "a redirect to nowhere": answer(response("307 Temporary Redirect")),
    "a redirect": answer(response("307 Temporary Redirect", headers=b"Location: http://127.0.0.1:1/\r\n")),
    "a permanent redirect": answer(response("301 Moved Permanently", headers=b"Location: http://127.0.0.1:1/\r\n")),
}


@pytest.mark.parametrize("handler", LEAVES_A_DOUBT.values(), ids=LEAVES_A_DOUBT)
async def test_a_failure_after_which_a_put_may_be_executed(handler: Handler) -> None:
    async with running_scripted_server(handler) as server:
        assert await failure_of_create(server.endpoint) is RequestFailed


async def test_a_reset_before_the_request_is_certain_only_if_it_ends_the_connect() -> None:
    async with running_scripted_server(reset_at_once) as server:
        for _ in range(20):
            assert await failure_of_create(server.endpoint) in (NothingSent, RequestFailed)


async def test_a_reset_of_a_connection_that_was_used_before_leaves_a_doubt() -> None:
    async with running_scripted_server(reset_second_request) as server:
        objects = open_objects(server.endpoint)
        assert not await objects.create(NAME, b"entry")
        with pytest.raises(RequestFailed) as failure:
            await objects.create(NAME, b"entry")
        assert failure.type is RequestFailed


async def test_a_silent_server_leaves_a_doubt() -> None:
    async with running_scripted_server(keep_silent) as server:
        secure = server.endpoint.replace("http:", "https:")
        ends = (failure_of_create(endpoint, seconds=1) for endpoint in (server.endpoint, secure))
        assert await asyncio.gather(*ends) == [RequestFailed, RequestFailed]


@pytest.mark.parametrize("status", [200, 206, 303, *range(400, 432), 451, *range(500, 512), 599])
async def test_the_status_alone_tells_which_answer_is_certain(status: int) -> None:
    async with running_scripted_server(answer(response(f"{status} Words", MISLEADING))) as server:
        objects = open_objects(server.endpoint)
        if status in (409, 412):
            assert not await objects.create(NAME, b"entry")
            return
        assert await failure_of_create(server.endpoint) is _expected(status)


def _expected(status: int) -> type[Exception]:
    return NothingSent if status in CERTAIN else SlowDown if status in SLOW_DOWN else RequestFailed


@pytest.mark.parametrize("code", ["NoSuchBucket", "ContainerNotFound"])
async def test_a_missing_bucket_is_no_missing_object_and_a_name_is_no_code(code: str) -> None:
    async with running_scripted_server(answer(response("404 Not Found", f"<Code>{code}</Code>".encode()))) as server:
        with pytest.raises(NothingSent):
            await open_objects(server.endpoint).get(NAME)
        with pytest.raises(NothingSent):
            async for _ in open_objects(server.endpoint).list("log"):
                pass
    async with running_scripted_server(answer(response("404 Not Found", b"<Code>NoSuchKey</Code>"))) as server:
        assert await open_objects(server.endpoint).get(f"tasks/{code}") is None


async def test_a_refused_connection_an_unknown_host_and_a_failed_handshake_have_done_nothing() -> None:
    async with running_scripted_server(reset_at_once) as resetting, running_scripted_server(talk_plainly) as plain:
        for endpoint in (
            f"http://127.0.0.1:{free_port()}",
            f"http://{'x' * 64}.invalid:{plain.port}",  # longer than a name can be, so that nobody is asked for it
            resetting.endpoint.replace("http:", "https:"),
            plain.endpoint.replace("http:", "https:"),
        ):
            assert await failure_of_create(endpoint) is NothingSent, endpoint


async def talk_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(response("400 Bad Request"))
    await writer.drain()


async def test_a_connection_that_is_not_accepted_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.engines.bucket.url._CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = []
        for _ in range(4):  # until the queue of the server is full
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            with suppress(BlockingIOError):
                waiting[-1].connect(server.getsockname())
        assert await failure_of_create(f"http://127.0.0.1:{server.getsockname()[1]}") is NothingSent
        for connection in waiting:
            connection.close()


HTTP_KINDS: Final = ("Connect", "Request", "Timeout", "Interrupted", "Decode", "Unknown")
REQWEST_KINDS: Final = ("Builder", "Request", "Redirect", "Status", "Body", "Decode", "Upgrade")
CLIENT_KINDS: Final = (
    "Canceled", "ChannelClosed", "Connect", "UserUnsupportedRequestMethod", "UserUnsupportedVersion", "UserAbsoluteUriRequired",
    "SendRequest",
)  # fmt: skip
CAUSES: Final = (
    *(
        f'Os {{\n    code: 1,\n    kind: {kind},\n    message: "kind: Connect,"\n}}'
        for kind in (
            "NotFound", "PermissionDenied", "ConnectionRefused", "ConnectionReset", "HostUnreachable", "NetworkUnreachable",
            "ConnectionAborted", "NotConnected", "AddrInUse", "AddrNotAvailable", "NetworkDown", "BrokenPipe", "AlreadyExists",
            "WouldBlock", "InvalidInput", "InvalidData", "TimedOut", "WriteZero", "Interrupted", "Unsupported", "UnexpectedEof",
            "OutOfMemory", "QuotaExceeded", "StorageFull", "ResourceBusy", "Other", "Uncategorized",
        )
    ),
    *(
        f"hyper::Error(\n    {kind},\n)"
        for kind in (
            *(f"Parse(\n        {part},\n    )" for part in ("Version", "VersionH2", "TooLarge", "Status", "Internal")),
            *(f"User(\n        {part},\n    )" for part in ("BodyWriteAborted", "DispatchGone")),
            "IncompleteMessage", "UnexpectedMessage", "Canceled", "ChannelClosed", "Io", "HeaderTimeout", "Body", "BodyWrite",
            "Shutdown", "Http2",
        )
    ),
    "TimedOut",
)  # fmt: skip


def _details(inner: str) -> str:
    lines = "\n            ".join(inner.split("\n"))
    return f"""Generic S3 error: Error performing PUT http://127.0.0.1:1/jobs/p/{NAME} in 1ms - HTTP error: error sending request

Debug source:
Generic {{
    store: "S3",
    source: RetryError(
        RetryErrorImpl {{
            method: PUT,
            uri: Some(
                http://127.0.0.1:1/jobs/p/{NAME},
            ),
            retries: 0,
            max_retries: 0,
            elapsed: 1ms,
            retry_timeout: 180s,
            inner: {lines},
        }},
    ),
}}"""


def _http_error(kind: str, reqwest_kind: str, source: str) -> str:
    return (
        f"Http(\n    HttpError {{\n        kind: {kind},\n        source: reqwest::Error {{\n            kind: {reqwest_kind},\n"
        f"            source: {source},\n        }},\n    }},\n)"
    )


def test_of_all_texts_of_the_client_only_a_failed_connect_is_certain() -> None:
    certain = 0
    for kind, reqwest_kind, client_kind, cause in product(HTTP_KINDS, REQWEST_KINDS, CLIENT_KINDS, CAUSES):
        source = f"hyper_util::client::legacy::Error(\n    {client_kind},\n    {cause},\n)"
        failure = _to_failure(GenericError(_details(_http_error(kind, reqwest_kind, source))))
        is_connect = kind in ("Connect", "Timeout") and reqwest_kind == "Request" and client_kind == "Connect"
        assert type(failure) is (NothingSent if is_connect else RequestFailed), (kind, reqwest_kind, client_kind, cause)
        certain += is_connect
    assert certain == 2 * len(CAUSES)
    for kind, reqwest_kind, cause in product(HTTP_KINDS, REQWEST_KINDS, CAUSES):
        failure = _to_failure(GenericError(_details(_http_error(kind, reqwest_kind, cause))))
        assert type(failure) is RequestFailed, (kind, reqwest_kind, cause)


def test_of_all_texts_with_a_status_only_refusals_are_certain() -> None:
    for status in range(100, 1000):
        failure = _to_failure(
            GenericError(_details(f'Status {{\n    status: {status},\n    body: Some(\n        "x",\n    ),\n}}'))
        )
        assert type(failure) is _expected(status), status
        failure = _to_failure(GenericError(_details(f'Response {{\n    status: {status},\n    body: "x",\n}}')))
        assert type(failure) is RequestFailed, status


@pytest.mark.parametrize(
    "error",
    [
        GenericError(""),
        GenericError("Generic S3 error: kind: Connect, 404 Not Found"),
        GenericError("words\n\nDebug source:\n"),
        GenericError("words\n\nDebug source:\ninner: Status {"),
        GenericError("words\n\nDebug source:\nGeneric {\n    source: Metadata {\n        source: MissingEtag,\n    },\n}"),
        GenericError(_details("BareRedirect")),
        GenericError(_details("Http(\n    HttpError {\n        kind: Connect,")),
        # Two requests: the first may have been executed.
        GenericError(_details("Status {\n    status: 404,\n}") + "\n    inner: Status {\n        status: 404,"),
        GenericError(_details("Status {\n    status: 404,\n}").replace("Debug source:", "Source:")),
        JoinError("task panicked"),
        NotSupportedError("Operation not supported"),
        OSError("Connection refused"),
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError(),
        ValueError("invalid"),
    ],
    ids=repr,
)  # fmt: skip
def test_whatever_the_client_says_otherwise_leaves_a_doubt(error: Exception) -> None:
    assert type(_to_failure(error)) is RequestFailed


def test_the_failures_of_the_client_are_all_known() -> None:
    """A class that a new version of the client raises is a reason to look at the table."""
    import obstore.exceptions as classes

    names = {name for name, value in vars(classes).items() if isinstance(value, type) and issubclass(value, BaseError)}
    assert names == {
        "AlreadyExistsError", "BaseError", "GenericError", "InvalidPathError", "JoinError", "NotFoundError", "NotModifiedError",
        "NotSupportedError", "PermissionDeniedError", "PreconditionError", "UnauthenticatedError", "UnknownConfigurationKeyError",
    }  # fmt: skip


class Outage:
    """Forwards to a store. After it has executed the put of an entry, it resets the connection, and is away."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = parts.hostname, parts.port
        self.armed = False
        self.began = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store_reader, store_writer = await asyncio.open_connection(*self._target)
        try:
            while True:
                request = await read_message(reader)
                if self.began.is_set():
                    reset(writer)
                    return
                store_writer.write(request)
                # The answer to a HEAD has no body, whatever length it tells.
                whole = (
                    store_reader.readuntil(b"\r\n\r\n") if request.startswith(b"HEAD") else read_message(store_reader)
                )
                response = await whole
                if self.armed and request.startswith(b"PUT") and b"/log/" in request.partition(b"\r\n")[0]:
                    self.began.set()
                    reset(writer)
                    return
                writer.write(response)
        finally:
            store_writer.close()


@pytest.mark.parametrize("key", ["k", None])
async def test_a_put_that_is_executed_and_reset_before_an_outage_may_be_done(
    seaweedfs: SeaweedServer, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """It was answered with `nothing was done`: the reset was taken for a connection that was never made."""
    monkeypatch.setattr("onejob.engines.bucket._REFUSED_SECONDS", 0.1)
    outage = Outage(seaweedfs.endpoint)
    async with (
        running_scripted_server(outage.handle) as server,
        onejob.open(seaweedfs.url().replace(seaweedfs.endpoint, server.endpoint), sweep=False) as ledger,
    ):
        await ledger.usage()  # it is open
        monkeypatch.setattr("onejob.engines.bucket.ANSWER_SECONDS", 1.0)
        outage.armed = True
        asked = asyncio.ensure_future(ledger.submit("charge", {"order": 1}, idempotency_key=key))
        await outage.began.wait()
        server.refuse_connections()
        with pytest.raises(Unknown) as failure:
            await asked
        # Without a key nobody can retry safely, and the caller is told so.
        assert failure.type is (Unknown if key else MayBeDone)
        outage.armed = False
        outage.began.clear()
        monkeypatch.setattr("onejob.engines.bucket.ANSWER_SECONDS", 15.0)
        await server.start()
        (job,) = await ledger.jobs()
        if key:
            assert (await ledger.submit("charge", {"order": 1}, idempotency_key=key)).job_id == job.id
            assert len(await ledger.jobs()) == 1
