"""Corked writes are flushed at the end of a loop iteration: completely, in order, and before the close."""

import asyncio

import pytest

from onejob.server.connection import CORKED_BYTES_MAX, CorkedTransport, CorkedWrites


class RecordingTransport(asyncio.Transport):
    def __init__(self, name: str, calls: list[str]) -> None:
        super().__init__()
        self._name = name
        self._calls = calls
        self.broken = False
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            raise RuntimeError("the handle is closed")
        self._calls.append(f"{self._name} {len(data)}")

    def write_eof(self) -> None:
        self._calls.append(f"{self._name} eof")

    def close(self) -> None:
        self._calls.append(f"{self._name} closed")

    def abort(self) -> None:
        self._calls.append(f"{self._name} aborted")


@pytest.fixture
def recorded_calls() -> list[str]:
    return []


@pytest.fixture
def corked_pair(recorded_calls: list[str]) -> tuple[CorkedTransport, CorkedTransport]:
    corked_writes = CorkedWrites()
    return CorkedTransport(RecordingTransport("a", recorded_calls), corked_writes), CorkedTransport(
        RecordingTransport("b", recorded_calls), corked_writes
    )


async def test_writes_of_one_loop_iteration_are_flushed_together(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str]
) -> None:
    a, b = corked_pair
    for size in (1, 2):
        a.write(b"x" * size)
        b.write(b"y" * size)
    assert recorded_calls == []
    await asyncio.sleep(0)
    assert recorded_calls == ["a 3", "b 3"]


async def test_a_broken_connection_delays_no_other_write(recorded_calls: list[str]) -> None:
    corked_writes = CorkedWrites()
    broken, healthy = RecordingTransport("broken", recorded_calls), RecordingTransport("whole", recorded_calls)
    broken.broken = True
    one, other = CorkedTransport(broken, corked_writes), CorkedTransport(healthy, corked_writes)
    for _ in range(2):
        one.write(b"x")
        other.write(b"y")
        await asyncio.sleep(0)
    assert recorded_calls == ["broken aborted", "whole 1", "broken aborted", "whole 1"]


async def test_nothing_is_written_to_a_connection_that_closes(recorded_calls: list[str]) -> None:
    below = RecordingTransport("a", recorded_calls)
    closing = CorkedTransport(below, CorkedWrites())
    closing.write(b"x")
    below.closing = True
    await asyncio.sleep(0)
    assert recorded_calls == []


async def test_later_writes_are_flushed_in_a_later_loop_iteration(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str]
) -> None:
    for _ in range(2):
        corked_pair[0].write(b"x")
        await asyncio.sleep(0)
    assert recorded_calls == ["a 1", "a 1"]


@pytest.mark.parametrize(("end", "word"), [("close", "closed"), ("write_eof", "eof")])
async def test_eof_is_sent_after_the_last_write(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str], end: str, word: str
) -> None:
    corked_pair[0].write(b"last")
    getattr(corked_pair[0], end)()
    await asyncio.sleep(0)
    assert recorded_calls == ["a 4", f"a {word}"]


async def test_after_the_end_nothing_is_written(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str]
) -> None:
    corked_pair[0].write_eof()
    corked_pair[0].write(b"100 Continue")
    await asyncio.sleep(0)
    assert recorded_calls == ["a eof"]


async def test_an_aborted_connection_gets_no_write(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str]
) -> None:
    corked_pair[0].write(b"lost")
    corked_pair[0].abort()
    await asyncio.sleep(0)
    assert recorded_calls == ["a aborted"]


async def test_large_writes_are_not_corked(
    corked_pair: tuple[CorkedTransport, CorkedTransport], recorded_calls: list[str]
) -> None:
    corked_pair[0].write(b"x" * (CORKED_BYTES_MAX + 1))
    assert recorded_calls == [f"a {CORKED_BYTES_MAX + 1}"]
    await asyncio.sleep(0)
    assert recorded_calls == [f"a {CORKED_BYTES_MAX + 1}"]
