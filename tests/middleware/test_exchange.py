"""What servers and stores do to a request while it is being done."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.middleware import IdempotencyMiddleware, Rule, Verdict
from onejob.middleware.stored_response import StoredResponse, pack_response, unpack_response

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


async def test_a_server_that_cancels_does_not_stop_the_handler_and_its_verdict_is_kept(
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


async def test_a_handler_that_lost_its_key_is_stopped_and_its_answer_is_not_given(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any) -> None:
        raise onejob.LeaseLost("somebody took it over")

    monkeypatch.setattr(onejob.Ledger, "renew", lost)
    handler = Handler()
    sent = await asyncio.wait_for(ask(wrap(handler, queue, lease=timedelta(milliseconds=120))), 10)
    assert sent[0]["status"] == 503
    assert handler.runs == 1


async def test_a_verdict_that_cannot_be_stored_is_retried_later(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue)
    settle = onejob.Ledger.settle_prepared
    troubles = 6

    async def settle_in_trouble(self: Any, *args: Any) -> Any:
        nonlocal troubles
        troubles -= 1
        if troubles >= 0:
            raise onejob.Unavailable("the store is away")
        return await settle(self, *args)

    monkeypatch.setattr(onejob.Ledger, "settle_prepared", settle_in_trouble)
    assert (await ask(app))[0]["status"] == 503
    while (again := await ask(app))[0]["status"] == 409:
        await asyncio.sleep(0.05)
    assert again[1]["body"] == b"done"
    assert handler.runs == 1


async def test_requests_share_a_timer_and_only_those_that_take_long_are_renewed(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = []
    renew = onejob.Ledger.renew

    async def noted(self: Any, held: onejob.HeldKey) -> Any:
        renewed.append(held.holder)
        return await renew(self, held)

    monkeypatch.setattr(onejob.Ledger, "renew", noted)
    slow, quick = Handler(), Handler()
    quick.go.set()
    late = timedelta(milliseconds=300)
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


async def test_a_stop_while_an_answer_is_being_kept_does_not_give_the_key_up(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = onejob.Ledger.settle_prepared
    told: list[Verdict] = []
    keeping = asyncio.Event()

    async def slowly(self: Any, held: Any, verdict: Verdict, *args: Any) -> Any:
        told.append(verdict)
        keeping.set()
        done = asyncio.create_task(settle(self, held, verdict, *args))
        await asyncio.sleep(3600)
        return await done

    monkeypatch.setattr(onejob.Ledger, "settle_prepared", slowly)
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue)
    first = asyncio.create_task(ask(app))
    await keeping.wait()
    for task in tuple(app._layer.tasks):
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert told == [Verdict.COMMIT]
    assert (await ask(app))[1]["body"] == b"done"
    assert handler.runs == 1


async def test_ways_to_answer_past_the_messages_are_not_offered(queue: onejob.Ledger) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Send) -> None:
        seen.append(set(scope["extensions"]))
        await Handler.__call__(handler, scope, receive, send)

    handler = Handler()
    handler.go.set()
    await ask(wrap(app, queue), extensions={"http.response.pathsend": {}, "tls": {}})
    assert seen == [{"tls"}]


async def test_an_application_that_never_ends_its_answer_leaves_the_key_to_be_tried_again(
    queue: onejob.Ledger,
) -> None:
    async def app(scope: Any, receive: Any, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})

    once = wrap(app, queue)
    assert await ask(once) == []
    assert await ask(once) == []


async def test_the_table_of_verdicts_can_be_changed(queue: onejob.Ledger) -> None:
    handler = Handler()
    handler.go.set()
    app = wrap(handler, queue, verdicts={200: Verdict.FAIL})
    await ask(app)
    await ask(app)
    assert handler.runs == 2
    with pytest.raises(onejob.Invalid):
        wrap(handler, queue, verdicts={200: Verdict.REJECT})


async def test_what_would_be_unsafe_is_refused_when_it_is_said(queue: onejob.Ledger) -> None:
    with pytest.raises(TypeError):
        IdempotencyMiddleware(Handler(), queue)  # type: ignore[call-arg]  # scope is what is missing
    for where in ("GET /**", "POST", "/orders", "POST orders"):
        with pytest.raises(onejob.Invalid):
            Rule(where)
    with pytest.raises(onejob.Invalid):
        Rule("POST /orders", window=timedelta(milliseconds=500))
    with pytest.raises(onejob.Invalid):
        wrap(Handler(), queue, lease=timedelta(0))
    with pytest.raises(onejob.Invalid):
        wrap(Handler(), queue, headers=["Set-Cookie"])


@pytest.mark.parametrize(
    ("where", "path", "covered"),
    [
        ("POST /orders", "/orders", True),
        ("POST /orders", "/orders/1", False),
        ("PUT|post /orders/*", "/orders/1", True),
        ("POST /orders/*", "/orders/1/2", False),
        ("POST /**", "/orders/1/2", True),
        ("POST /a.c", "/abc", False),
        ("PUT /orders", "/orders", False),
    ],
)
def test_a_rule_covers_methods_and_paths(where: str, path: str, covered: bool) -> None:
    assert Rule(where).covers("POST", path) is covered


def test_what_is_kept_is_read_again_and_what_is_newer_is_told() -> None:
    kept = StoredResponse(201, ((b"location", b"/1"),), b"\x00\xff")
    assert unpack_response(pack_response(kept)) == kept
    assert unpack_response(pack_response(StoredResponse(200, (), b"x" * (1 << 20)))) == StoredResponse(200)
    for strange in (b"", b"\x02", b"\x01\xc1", b"{}"):
        with pytest.raises(onejob.Outdated):
            unpack_response(strange)
