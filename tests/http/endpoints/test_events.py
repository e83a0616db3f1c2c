"""Watching a job over HTTP: its history, then each change, until it has ended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

import onejob
from onejob.core.credentials import Permission
from onejob.core.identity import parse_job_id
from onejob.core.lookup import LookUpJob
from onejob.http import streaming
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.endpoints import events
from onejob.http.request import Request
from onejob.http.responses import Response
from onejob.http.routing import Route
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from onejob.runtime.watch import JobWatcher
from tests.support.app_server import Client, EventStream, ServerSentEvent, serve_app

CREATED = ServerSentEvent(0, "submitted", None)
MISSING_JOB_ID = "01a1e2f5-39f9-73f8-930c-48a088963d1e"


@pytest.fixture
async def client(queue: onejob.Ledger) -> AsyncIterator[Client]:
    async with serve_app(HttpApp(queue)) as client:
        yield client


def ids_and_events(frames: list[ServerSentEvent]) -> list[tuple[int | str | None, str]]:
    return [(frame.id, frame.event) for frame in frames if frame.event]


async def open_events(client: Client, job_id: str, *headers: bytes, query: str = "") -> EventStream:
    return await client.open_stream(f"/api/jobs/{job_id}/events{query}", *headers)


async def wait_until_unwatched(watcher: JobWatcher) -> None:
    async with asyncio.timeout(15):
        while watcher.watcher_count or watcher._task is not None:
            await asyncio.sleep(0.01)


async def test_the_stream_of_an_ended_job_ends(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    await queue.cancel(job_id)
    answer = await open_events(client, job_id)
    frames = await answer.read_all()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert ids_and_events(frames) == [(0, "submitted"), (1, "cancelled"), (None, "end")]
    assert frames[-1].data == {"state": "cancelled"}
    assert frames[-2].data["actor"] == "client:local"
    await wait_until_unwatched(runtime_of(queue).job_watcher)


async def test_events_are_sent_as_they_happen(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    answer = await open_events(client, job_id)
    assert ids_and_events([await anext(answer), await anext(answer)]) == [(0, "submitted")]
    await queue.forget("k", scope="t")
    assert (await anext(answer)).event == "key forgotten"
    await queue.cancel(job_id)
    assert ids_and_events(await answer.read_all()) == [(2, "cancelled"), (None, "end")]


async def test_events_of_another_process_are_sent(client: Client, queue: onejob.Ledger, url: str) -> None:
    if url == "memory://":
        return  # memory has one process only
    job_id = (await queue.submit("t")).job_id
    answer = await open_events(client, job_id)
    await anext(answer)
    async with onejob.open(url, sweep=False) as other:
        await other.cancel(job_id)
    assert ids_and_events(await answer.read_all()) == [(0, "submitted"), (1, "cancelled"), (None, "end")]


@pytest.mark.parametrize(
    ("query", "header"), [("?cursor=0", b""), ("?cursor=0", b"last-event-id: 1"), ("", b"last-event-id: 1")]
)
async def test_a_client_resumes_after_its_last_event_id(
    queue: onejob.Ledger, client: Client, query: str, header: bytes
) -> None:
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    for _ in range(2):
        await queue.forget("k", scope="t")
    await queue.cancel(job_id)
    answer = await open_events(client, job_id, *([header] if header else []), query=query)
    missed = [(1, "key forgotten"), (2, "key forgotten"), (3, "cancelled"), (None, "end")]
    assert ids_and_events(await answer.read_all()) == missed[1 if header else 0 :]


async def test_a_browser_that_has_received_the_end_gets_204(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    await queue.cancel(job_id)
    answer = await client.get(f"/api/jobs/{job_id}/events", b"last-event-id: 1")
    assert (answer.status, answer.body) == (204, None)
    assert "content-length" not in answer.headers
    frames = await (await open_events(client, job_id, query="?cursor=1")).read_all()
    assert ids_and_events(frames) == [(None, "end")]
    await wait_until_unwatched(runtime_of(queue).job_watcher)


async def test_deleted_events_are_reported_as_a_gap(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    for _ in range(49):
        await queue.forget("k", scope="t")
    first_stream = await open_events(client, job_id)
    frames = [await anext(first_stream) for _ in range(34)][1:]
    assert [frame.id for frame in frames] == [*range(8), 25, *range(26, 50)]
    assert frames[8].event == "gap"
    assert frames[8].data == {"missing": 18}
    await queue.cancel(job_id)
    assert ids_and_events(await first_stream.read_all()) == [(50, "cancelled"), (None, "end")]
    second_stream = await open_events(client, job_id, query="?cursor=20")
    frames = (await second_stream.read_all())[1:]
    assert frames[0] == ServerSentEvent(26, "gap", {"missing": 6})


async def test_a_slow_watcher_skips_deleted_events(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", idempotency_key="k")
    async with runtime_of(queue).job_watcher.watch("default", parse_job_id(made.job_id)) as watched:
        for last in (20, 40, 60):
            for _ in range(20):
                await queue.forget("k", scope="t")
            while watched.last_event_index < last:
                assert await watched.wait_for_change(watched.version, 10)
        assert [index for index, _ in watched.events_after(5)] == [6, 7, *range(37, 61)]


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5.2", "", "%00", "9" * 400, "%D9%A1"])
async def test_an_invalid_cursor_is_refused(queue: onejob.Ledger, client: Client, cursor: str) -> None:
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    await queue.forget("k", scope="t")
    for answer in (
        await client.get(f"/api/jobs/{job_id}/events?cursor={cursor}".encode()),
        await client.get(f"/api/jobs/{job_id}/events", b"last-event-id: " + cursor.encode()),
    ):
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


async def test_a_cursor_beyond_the_last_event_is_not_found(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    answer = await client.get(f"/api/jobs/{job_id}/events?cursor=1")
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_a_missing_job_and_another_tenants_job_are_not_found(queue: onejob.Ledger, client: Client) -> None:
    other = queue.acting_as(tenant="other", user="u", actor=onejob.Actor.user("u"))
    theirs = (await other.submit("t")).job_id
    for job_id in (MISSING_JOB_ID, theirs):
        answer = await client.get(f"/api/jobs/{job_id}/events")
        assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert (await client.get("/api/jobs/x/events")).status == 400
    assert (await client.get(f"/api/jobs/{theirs}/events?x=1")).status == 400
    await wait_until_unwatched(runtime_of(queue).job_watcher)


async def test_a_client_that_disconnects_frees_its_watcher(queue: onejob.Ledger, client: Client) -> None:
    job_id = (await queue.submit("t")).job_id
    answers = [await open_events(client, job_id) for _ in range(20)]
    assert runtime_of(queue).job_watcher.watcher_count == 20
    for answer in answers[1:]:
        answer.disconnect()
    async with asyncio.timeout(15):
        while runtime_of(queue).job_watcher.watcher_count > 1:
            await asyncio.sleep(0.01)
    assert runtime_of(queue).job_watcher._task is not None
    answers[0].disconnect()
    await wait_until_unwatched(runtime_of(queue).job_watcher)
    assert not runtime_of(queue).job_watcher._jobs


async def test_watchers_are_limited_and_one_tenant_gets_half(queue: onejob.Ledger) -> None:
    watcher = queue._runtime.job_watcher = JobWatcher(queue._gate, watchers_max=4)
    async with serve_app(HttpApp(queue)) as client:
        job_id = (await queue.submit("t")).job_id
        first, second = [await open_events(client, job_id) for _ in range(2)]
        full = await client.get(f"/api/jobs/{job_id}/events")
        assert (full.status, full.code) == (429, "RATE_LIMITED")
        assert int(full.headers["retry-after"]) > 0
        other = queue.acting_as(tenant="other", user="u", actor=onejob.Actor.user("u"))
        theirs = parse_job_id((await other.submit("t")).job_id)
        async with watcher.watch("other", theirs), watcher.watch("other", theirs):
            assert watcher.watcher_count == 4
        for answer in (first, second):
            answer.disconnect()
        await wait_until_unwatched(watcher)
        assert (await open_events(client, job_id)).status == 200


async def test_a_silent_job_is_pinged(queue: onejob.Ledger, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PING_SECONDS", 0.01)
    job_id = (await queue.submit("t")).job_id
    answer = await open_events(client, job_id, query="?cursor=0")
    assert [await anext(answer) for _ in range(4)] == [ServerSentEvent()] * 4


async def test_a_stream_ends_after_its_time_limit(
    queue: onejob.Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WATCH_SECONDS_MAX", 0.1)
    monkeypatch.setattr(events, "PING_SECONDS", 0.05)
    job_id = (await queue.submit("t")).job_id
    assert ids_and_events(await (await open_events(client, job_id)).read_all()) == [(0, "submitted")]
    await wait_until_unwatched(runtime_of(queue).job_watcher)


async def test_a_purged_job_ends_the_stream(queue: onejob.Ledger, client: Client) -> None:
    answer = await open_events(client, (await queue.submit("t")).job_id)
    await anext(answer)
    await queue.admin.purge()
    assert (await answer.read_all())[-1] == ServerSentEvent(None, "end", {"state": None})


async def test_all_watched_jobs_are_read_in_one_batch_and_none_without_watchers(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_sizes: list[int] = []
    execute = queue._gate.execute

    async def counted(commands):  # type: ignore[no-untyped-def]  # has the gate's signature
        if all(isinstance(command, LookUpJob) for command in commands):
            batch_sizes.append(len(commands))
        return await execute(commands)

    monkeypatch.setattr(queue._gate, "execute", counted)
    ids = [parse_job_id((await queue.submit("t", n)).job_id) for n in range(3)]
    watcher = runtime_of(queue).job_watcher
    async with (
        watcher.watch("default", ids[0]),
        watcher.watch("default", ids[0]),
        watcher.watch("default", ids[1]),
        watcher.watch("default", ids[2]) as last,
    ):
        assert batch_sizes == [1] * 4
        version = last.version
        await queue.cancel((await queue.jobs(limit=1))[0].id)
        assert await last.wait_for_change(version, 10)
        assert batch_sizes[4:] == [3] * len(batch_sizes[4:])
    batches = len(batch_sizes)
    await asyncio.sleep(0.25)
    assert len(batch_sizes) == batches
    assert watcher._task is None


async def test_store_errors_are_retried(queue: onejob.Ledger, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = (await queue.submit("t")).job_id
    answer = await open_events(client, job_id, query="?cursor=0")
    await anext(answer)
    execute, failures = queue._gate.execute, 2

    async def fail_twice(commands):  # type: ignore[no-untyped-def]  # has the gate's signature
        nonlocal failures
        if failures and isinstance(commands[0], LookUpJob):
            failures -= 1
            raise onejob.Unavailable("the store is unreachable")
        return await execute(commands)

    monkeypatch.setattr(queue._gate, "execute", fail_twice)
    await queue.cancel(job_id)
    assert ids_and_events(await answer.read_all()) == [(1, "cancelled"), (None, "end")]
    assert failures == 0


async def test_closing_the_job_watcher_ends_its_streams_without_an_end_event(
    queue: onejob.Ledger, client: Client
) -> None:
    job_id = (await queue.submit("t")).job_id
    answer = await open_events(client, job_id)
    await anext(answer)
    runtime_of(queue).job_watcher.close()
    assert ids_and_events(await answer.read_all()) == [(0, "submitted")]
    await wait_until_unwatched(runtime_of(queue).job_watcher)
    second_stream = await open_events(client, job_id)
    assert ids_and_events(await second_stream.read_all()) == []


async def test_a_server_that_shuts_down_ends_its_streams(queue: onejob.Ledger, client: Client) -> None:
    answer = await open_events(client, (await queue.submit("t")).job_id)
    await anext(answer)
    client.server.stop()
    assert ids_and_events(await answer.read_all()) == [(0, "submitted")]
    await wait_until_unwatched(runtime_of(queue).job_watcher)


async def test_a_client_that_does_not_read_is_disconnected(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "CHUNK_SECONDS_MAX", 0.1)
    closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            closed.set()

    async def endless(request: Request) -> Response:
        return Response(200, b"", (), pieces())

    route = Route("GET", "/endless", endless, Permission.READ, "Never end")
    async with serve_app(HttpApp(queue, extra_routes=(route,))) as client:
        await client.open_stream("/endless")
        async with asyncio.timeout(10):
            await closed.wait()


async def test_a_rejected_preparation_ends_the_stream(queue: onejob.Ledger, client: Client) -> None:
    held = await queue.check_or_reserve("t", idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    answer = await open_events(client, held.job_id)
    await queue.reject(held, b"no")
    assert ids_and_events(await answer.read_all()) == [(0, "submitted"), (1, "failed"), (None, "end")]


@pytest.mark.parametrize("ping", [True, False])
async def test_a_revoked_credential_ends_its_streams(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch, ping: bool
) -> None:
    monkeypatch.setattr(events, "PING_SECONDS", 0.05 if ping else 60.0)
    keys = ApiKeys(queue)
    made = await keys.create("watcher", roles=["submitter"])
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    async with serve_app(HttpApp(queue, config=ServiceConfig(auth=True))) as client:
        answer = await open_events(client, job_id, b"authorization: Bearer " + made.text.encode())
        assert ids_and_events([await anext(answer), await anext(answer)]) == [(0, "submitted")]
        await keys.revoke(made.key.id)
        if not ping:  # without pings the next event triggers the check, and is not sent
            await queue.cancel(job_id)
        assert ids_and_events(await answer.read_all()) == []
        again = await open_events(client, job_id, b"authorization: Bearer " + made.text.encode())
        assert again.status == 401
        await wait_until_unwatched(runtime_of(queue).job_watcher)
