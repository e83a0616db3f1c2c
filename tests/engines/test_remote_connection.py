"""A connection to a manager: an answer is never that to another request."""

import asyncio

import pytest

from onejob.engines.remote.connection import NoAnswer, NotSent, WireConnection
from onejob.manager.ledger import WireResponse
from onejob.manager.server import encode_response

FIRST, SECOND = (encode_response(WireResponse(200, b"R" + body), is_last=False) for body in (b"1", b"2"))
CUT = len(SECOND) // 2


class OpenTransport(asyncio.Transport):
    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


async def ask(connection: WireConnection) -> bytes:
    return await asyncio.wait_for(connection.request("/x", [], b""), 5)


async def asked(*, then: bytes) -> tuple[WireConnection, asyncio.Task[bytes]]:
    """A connection and a request on it, to which these bytes came."""
    connection = WireConnection("manager", 5.0)
    connection.connection_made(OpenTransport())
    request = asyncio.create_task(ask(connection))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    connection.data_received(then)
    return connection, request


@pytest.mark.parametrize("behind", [SECOND, SECOND[:CUT], SECOND[:1]])
async def test_an_answer_with_another_one_behind_it_counts_as_none(behind: bytes) -> None:
    connection, request = await asked(then=FIRST + behind)
    with pytest.raises(NoAnswer, match="no question"):
        await request
    with pytest.raises(NotSent):
        await ask(connection)


async def test_what_follows_an_answer_does_not_begin_the_next_one() -> None:
    connection, request = await asked(then=FIRST)
    connection.data_received(SECOND[:CUT])  # before the first request has noticed its answer
    assert await request == b"1"
    with pytest.raises(NotSent, match="no question"):
        await ask(connection)


async def test_what_comes_while_nothing_was_asked_does_not_begin_the_next_answer() -> None:
    connection, request = await asked(then=FIRST)
    assert await request == b"1"
    connection.data_received(SECOND[:CUT])
    with pytest.raises(NotSent, match="no question"):
        await ask(connection)
