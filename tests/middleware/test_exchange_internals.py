"""What only ASGI has: cancellation, lifespan, extensions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import SystemClock
from onejob.engines.memory import MemoryEngine
from onejob.ledger.service import ServiceLedger
from onejob.middleware import IdempotencyMiddleware, Verdict
from onejob.testing import FaultyEngine, open_ledger

Send = Callable[[Any], Any]


@pytest.fixture
async def queue() -> AsyncIterator[onejob.Ledger]:
    async with onejob.open("memory://", config=onejob.IdempotencyConfig(pending_wait_timeout=0)) as ledger:
        yield ledger


class Handler:
    def __init__(self) -> None:
        self.runs = 0
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        self.runs += 1
        self.begun.set()
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def ask(app: Any, *headers: tuple[bytes, bytes], extensions: Any = None, key: bytes = b"k") -> list[Any]:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
    scope["headers"] = [(b"idempotency-key", key), *headers]
    scope["extensions"] = extensions or {}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def wrap(app: Any, queue: onejob.Ledger, **options: Any) -> IdempotencyMiddleware:
    return IdempotencyMiddleware(app, queue, scope=lambda _: "ann", **options)


async def test_a_server_that_cancels_does_not_stop_the_handler_and_its_verdict_is_stored(
    queue: onejob.Ledger,
) -> None:
    handler = Handler()
    app = wrap(handler, queue)
    first = asyncio.create_task(ask(app))
    await handler.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await ask(app))[0]["status"] == 409
    handler.go.set()
    while (again := await ask(app))[0]["status"] == 409:
        await asyncio.sleep(0.01)
    assert (again[0]["status"], again[1]["body"]) == (200, b"done")
    assert handler.runs == 1


async def test_a_handler_stops_when_its_lease_is_over_although_the_store_does_not_answer() -> None:
    """So it has stopped before another process can run the request again."""
    engine = MemoryEngine()
    hanging = FaultyEngine(engine)
    cut_off, healthy = open_ledger(hanging, clock=SystemClock()), open_ledger(engine, clock=SystemClock())
    order: list[str] = []

    async def endless(scope: Any, receive: Any, send: Send) -> None:
        hanging.delay(2)
        order.append("first began")
        try:
            await asyncio.sleep(60)
        finally:
            order.append("first stopped")

    async def quick(scope: Any, receive: Any, send: Send) -> None:
        order.append("second began")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    waiting = asyncio.create_task(ask(wrap(endless, cut_off, lease=timedelta(seconds=2))))
    other = wrap(quick, healthy)
    await asyncio.sleep(0.05)
    while (answer := await ask(other))[0]["status"] == 409:
        await asyncio.sleep(0.002)
        for _ in range(20):  # after a stall of the machine all timers are due at once: that of the lease acts first
            await asyncio.sleep(0)
    assert (answer[0]["status"], order) == (200, ["first began", "first stopped", "second began"])
    assert (await waiting)[0]["status"] == 503
    await cut_off.aclose()
    await healthy.aclose()


async def test_a_claim_that_is_answered_after_its_lease_runs_nothing() -> None:
    engine = FaultyEngine(MemoryEngine())
    queue = open_ledger(engine, clock=SystemClock())
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue, lease=timedelta(milliseconds=50))
    engine.delay_after(0.1)
    assert ((await ask(app))[0]["status"], handler.runs) == (503, 0)
    assert ((await ask(wrap(handler, queue)))[0]["status"], handler.runs) == (200, 1)
    await queue.aclose()


@pytest.mark.usefixtures("frequent_renewals")
async def test_requests_share_a_timer_and_only_long_ones_are_renewed(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = []
    renew = onejob.Ledger.renew

    async def record_renewal(self: Any, held: onejob.HeldKey) -> Any:
        renewed.append(held.holder)
        return await renew(self, held)

    monkeypatch.setattr(onejob.Ledger, "renew", record_renewal)
    slow, quick = Handler(), Handler()
    quick.go.set()
    late = timedelta(seconds=3)
    app = wrap(slow, queue, lease=late)
    waiting = [asyncio.create_task(ask(app, key=b"k%d" % n)) for n in range(3)]
    await slow.begun.wait()
    assert len(app._layer.renewal_timer._not_yet_due) == 3
    await ask(wrap(quick, queue, lease=late), key=b"quick")
    while len(set(renewed)) < 3 or len(renewed) < 6:
        await asyncio.sleep(0.01)
    slow.go.set()
    answers = await asyncio.gather(*waiting)
    assert [sent[0]["status"] for sent in answers] == [200] * 3
    assert len(set(renewed)) == 3
    assert (app._layer.renewal_timer._not_yet_due, app._layer.renewal_timer._tasks) == ({}, {})


async def test_a_cancellation_during_the_commit_does_not_release_the_key(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = ServiceLedger.settle_prepared
    verdicts: list[Verdict] = []
    committing = asyncio.Event()

    async def settle_slowly(self: Any, held: Any, verdict: Verdict, *args: Any) -> Any:
        verdicts.append(verdict)
        committing.set()
        done = asyncio.create_task(settle(self, held, verdict, *args))
        await asyncio.sleep(3600)
        return await done

    monkeypatch.setattr(ServiceLedger, "settle_prepared", settle_slowly)
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue)
    first = asyncio.create_task(ask(app))
    await committing.wait()
    for task in tuple(app._layer.tasks):
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert verdicts == [Verdict.COMMIT]
    assert (await ask(app))[1]["body"] == b"done"
    assert handler.runs == 1


async def test_hits_are_stored_before_the_server_hears_that_the_shutdown_is_complete(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'keys.db'}"
    handler = Handler()
    handler.go.set()
    hits: list[int] = []

    async def app(scope: Any, receive: Any, send: Send) -> None:
        if scope["type"] == "http":
            await handler(scope, receive, send)
            return
        for kind in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{kind}"
            await send({"type": f"lifespan.{kind}.complete"})

    layered = IdempotencyMiddleware(app, store, scope=lambda _: "ann")
    events: asyncio.Queue[Any] = asyncio.Queue()
    started = asyncio.Event()

    async def send(message: Any) -> None:
        started.set()
        if message["type"] == "lifespan.shutdown.complete":
            async with onejob.open(store, sweep=False) as other:
                hits.extend(history.hits for history in await other.keys())

    lifespan = asyncio.create_task(layered({"type": "lifespan"}, events.get, send))
    events.put_nowait({"type": "lifespan.startup"})
    await started.wait()
    for _ in range(3):
        await ask(layered)
    events.put_nowait({"type": "lifespan.shutdown"})
    await lifespan
    assert hits == [2]


async def test_response_extensions_are_hidden_from_the_application(queue: onejob.Ledger) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Send) -> None:
        seen.append(set(scope["extensions"]))
        await Handler.__call__(handler, scope, receive, send)

    handler = Handler()
    handler.go.set()
    await ask(wrap(app, queue), extensions={"http.response.pathsend": {}, "tls": {}})
    assert seen == [{"tls"}]


async def test_headers_from_a_generator_are_sent_and_replayed(queue: onejob.Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Send) -> None:
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": (header for header in headers)})
        await send({"type": "http.response.body", "body": b"do", "more_body": True})
        await send({"type": "http.response.body", "body": b"ne"})

    layered = wrap(app, queue)
    for _ in range(2):
        start, body = await ask(layered)
        assert (b"content-type", b"text/plain") in start["headers"]
        assert body["body"] == b"done"


async def test_a_claim_that_was_cancelled_is_given_back_to_its_holder(queue: onejob.Ledger) -> None:
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue)
    left = asyncio.create_task(ask(app))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert handler.runs == 0
    assert (await ask(app))[0]["status"] == 200
    assert handler.runs == 1
