"""What is written leaves at the end of the turn: all of it, in order, and before the connection closes."""

import asyncio

import pytest

from onejob.http.server.corked import CORKED_BYTES_MAX, CorkedTransport, CorkedWrites


class Below(asyncio.Transport):
    def __init__(self, name: str, told: list[str]) -> None:
        super().__init__()
        self._name = name
        self._told = told
        self.broken = False
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            raise RuntimeError("the handle is closed")
        self._told.append(f"{self._name} {len(data)}")

    def write_eof(self) -> None:
        self._told.append(f"{self._name} eof")

    def close(self) -> None:
        self._told.append(f"{self._name} closed")

    def abort(self) -> None:
        self._told.append(f"{self._name} aborted")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def pair(told: list[str]) -> tuple[CorkedTransport, CorkedTransport]:
    departures = CorkedWrites()
    return CorkedTransport(Below("a", told), departures), CorkedTransport(Below("b", told), departures)


async def test_answers_of_one_turn_leave_together(
    pair: tuple[CorkedTransport, CorkedTransport], told: list[str]
) -> None:
    a, b = pair
    for size in (1, 2):
        a.write(b"x" * size)
        b.write(b"y" * size)
    assert told == []
    await asyncio.sleep(0)
    assert told == ["a 3", "b 3"]


async def test_a_broken_connection_keeps_no_answer_from_the_others(told: list[str]) -> None:
    departures = CorkedWrites()
    broken, whole = Below("broken", told), Below("whole", told)
    broken.broken = True
    one, other = CorkedTransport(broken, departures), CorkedTransport(whole, departures)
    for _ in range(2):
        one.write(b"x")
        other.write(b"y")
        await asyncio.sleep(0)
    assert told == ["broken aborted", "whole 1", "broken aborted", "whole 1"]


async def test_nothing_is_written_to_a_connection_that_closes(told: list[str]) -> None:
    below = Below("a", told)
    closing = CorkedTransport(below, CorkedWrites())
    closing.write(b"x")
    below.closing = True
    await asyncio.sleep(0)
    assert told == []


async def test_what_is_written_later_leaves_in_a_later_turn(
    pair: tuple[CorkedTransport, CorkedTransport], told: list[str]
) -> None:
    for _ in range(2):
        pair[0].write(b"x")
        await asyncio.sleep(0)
    assert told == ["a 1", "a 1"]


@pytest.mark.parametrize(("end", "word"), [("close", "closed"), ("write_eof", "eof")])
async def test_nothing_is_said_after_the_end(
    pair: tuple[CorkedTransport, CorkedTransport], told: list[str], end: str, word: str
) -> None:
    pair[0].write(b"last")
    getattr(pair[0], end)()
    await asyncio.sleep(0)
    assert told == ["a 4", f"a {word}"]


async def test_after_the_end_nothing_is_written(pair: tuple[CorkedTransport, CorkedTransport], told: list[str]) -> None:
    pair[0].write_eof()
    pair[0].write(b"100 Continue")
    await asyncio.sleep(0)
    assert told == ["a eof"]


async def test_whoever_is_cut_off_is_told_no_more(
    pair: tuple[CorkedTransport, CorkedTransport], told: list[str]
) -> None:
    pair[0].write(b"lost")
    pair[0].abort()
    await asyncio.sleep(0)
    assert told == ["a aborted"]


async def test_much_is_not_held_back(pair: tuple[CorkedTransport, CorkedTransport], told: list[str]) -> None:
    pair[0].write(b"x" * (CORKED_BYTES_MAX + 1))
    assert told == [f"a {CORKED_BYTES_MAX + 1}"]
    await asyncio.sleep(0)
    assert told == [f"a {CORKED_BYTES_MAX + 1}"]
