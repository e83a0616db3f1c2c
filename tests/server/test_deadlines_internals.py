"""What a deadline of a connection counts from, on a clock that the test moves."""

import asyncio
from typing import Any

from onejob.server.connection import Connection, ConnectionContext, ConnectionLimits
from onejob.server.exchange import RefusedRequest

LIMITS = ConnectionLimits(16_384, head_seconds_max=10.0, body_seconds_max=30.0, idle_seconds_max=60.0)


class MovableLoop:
    """The loop of a connection, without timers."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Any, *args: Any) -> None:
        """The test looks at the deadline itself."""


class SilentTransport(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def test_the_time_of_the_first_head_begins_with_the_connection() -> None:
    loop = MovableLoop()
    connection = Connection(ConnectionContext(_answer_nothing, LIMITS, _render_nothing))
    connection.loop = loop  # type: ignore[assignment]
    connection.connection_made(SilentTransport())
    loop.now += 7
    connection.data_received(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    assert connection._deadline == 110.0
    loop.now += 2
    connection.data_received(b"x")
    assert connection._deadline == 110.0


async def _answer_nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request is complete")


def _render_nothing(refusal: RefusedRequest) -> bytes:
    raise AssertionError(f"nothing is refused: {refusal}")
