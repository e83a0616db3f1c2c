"""Lost leases and failing stores while a request runs, through every door; options, rules and stored responses."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.ledger.service import ServiceLedger
from onejob.middleware import IdempotencyMiddleware, Rule, Verdict, WsgiIdempotencyMiddleware
from onejob.middleware.stored_response import StoredResponse, pack_response, unpack_response
from tests.middleware.doors import DOORS, Door, ScriptedApp, open_door


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with open_door(request.param) as opened:
        yield opened


@pytest.mark.usefixtures("frequent_renewals")
async def test_a_handler_that_lost_its_lease_does_not_send_its_response(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = ScriptedApp(waits=True)

    async def raise_lease_lost(*_: Any) -> None:
        asyncio.get_running_loop().call_later(0.2, handler.go.set)  # under ASGI it is cancelled before
        raise onejob.LeaseLost("taken over")

    monkeypatch.setattr(onejob.Ledger, "renew", raise_lease_lost)
    sent = await asyncio.wait_for(door.ask(door.wrap(handler, lease=timedelta(seconds=3))), 60)
    assert sent[0]["status"] == 503
    assert handler.runs == 1


async def test_a_duplicate_of_a_running_request_is_in_progress(door: Door) -> None:
    handler = ScriptedApp(200, [(b"content-length", b"4")], b"done", waits=True)
    app = door.wrap(handler)
    first = asyncio.create_task(door.ask(app))
    while not handler.begun.is_set():
        await asyncio.sleep(0.01)
    assert (await door.ask(app))[0]["status"] == 409
    handler.go.set()
    assert (await first)[0]["status"] == 200
    assert (await door.ask(app))[1]["body"] == b"done"
    assert handler.runs == 1


async def test_a_verdict_that_cannot_be_stored_is_retried_later(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = ScriptedApp(200, [(b"content-length", b"4")], b"done")
    app = door.wrap(handler)
    settle = ServiceLedger.settle_prepared
    failures_left = 6

    async def settle_with_failures(self: Any, *args: Any) -> Any:
        nonlocal failures_left
        failures_left -= 1
        if failures_left >= 0:
            raise onejob.Unavailable("the store is unavailable")
        return await settle(self, *args)

    monkeypatch.setattr(ServiceLedger, "settle_prepared", settle_with_failures)
    assert (await door.ask(app))[0]["status"] == 503
    while (again := await door.ask(app))[0]["status"] == 409:
        await asyncio.sleep(0.05)
    assert again[1]["body"] == b"done"
    assert handler.runs == 1


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_claim_whose_answers_were_lost_is_given_back_to_its_holder(door: Door, lost: int) -> None:
    handler = ScriptedApp()
    app = door.wrap(handler)
    for _ in range(lost):
        door.engine.fail_after(100)
        assert (await door.ask(app))[0]["status"] == 503
        door.engine.clear_faults()
    first, other = await asyncio.gather(door.ask(app), door.ask(app))
    assert sorted((first[0]["status"], other[0]["status"])) in ([200, 200], [200, 409])
    assert (await door.ask(app))[0]["status"] == 200
    assert handler.runs == 1


async def test_an_incomplete_response_releases_the_key(door: Door) -> None:
    handler = ScriptedApp(200, [(b"content-length", b"2")], b"a", breaks=True)
    app = door.wrap(handler)
    for _ in range(2):
        try:
            sent = await door.ask(app)
        except ConnectionError:
            sent = []
        assert not sent or sent[0]["status"] == 500  # Django answers exceptions itself
    assert handler.runs == 2


async def test_the_table_of_verdicts_can_be_changed(door: Door) -> None:
    handler = ScriptedApp()
    app = door.wrap(handler, verdicts={200: Verdict.FAIL})
    await door.ask(app)
    await door.ask(app)
    assert handler.runs == 2
    with pytest.raises(onejob.Invalid):
        door.wrap(handler, verdicts={200: Verdict.REJECT})


async def test_unsafe_options_are_refused_at_construction(door: Door) -> None:
    for kind in (IdempotencyMiddleware, WsgiIdempotencyMiddleware):
        with pytest.raises(TypeError):
            kind(ScriptedApp(), "memory://")  # type: ignore[call-arg, arg-type]  # scope is missing
    for where in ("GET /**", "POST", "/orders", "POST orders"):
        with pytest.raises(onejob.Invalid):
            Rule(where)
    with pytest.raises(onejob.Invalid):
        Rule("POST /orders", window=timedelta(milliseconds=500))
    with pytest.raises(onejob.Invalid):
        door.wrap(ScriptedApp(), lease=timedelta(0))
    with pytest.raises(onejob.Invalid):
        door.wrap(ScriptedApp(), headers=["Set-Cookie"])


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


def test_a_stored_response_is_read_back_and_a_newer_format_is_refused() -> None:
    stored = StoredResponse(201, ((b"location", b"/1"),), b"\x00\xff")
    assert unpack_response(pack_response(stored)) == stored
    assert unpack_response(pack_response(StoredResponse(200, (), b"x" * (1 << 20)))) == StoredResponse(200)
    for receipt in (b"", b"\x02", b"\x01\xc1", b"{}"):
        with pytest.raises(onejob.Outdated):
            unpack_response(receipt)
