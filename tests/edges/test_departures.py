"""What is written leaves at the end of the turn: all of it, in order, and before the connection closes."""

import asyncio

import pytest

from onejob.http.departures import HELD_BYTES_MAX, Departing, Departures


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
def pair(told: list[str]) -> tuple[Departing, Departing]:
    departures = Departures()
    return Departing(Below("a", told), departures), Departing(Below("b", told), departures)


async def test_answers_of_one_turn_leave_together(pair: tuple[Departing, Departing], told: list[str]) -> None:
    a, b = pair
    for size in (1, 2):
        a.write(b"x" * size)
        b.write(b"y" * size)
    assert told == []
    await asyncio.sleep(0)
    assert told == ["a 3", "b 3"]


async def test_a_broken_connection_keeps_no_answer_from_the_others(told: list[str]) -> None:
    departures = Departures()
    broken, whole = Below("broken", told), Below("whole", told)
    broken.broken = True
    one, other = Departing(broken, departures), Departing(whole, departures)
    for _ in range(2):
        one.write(b"x")
        other.write(b"y")
        await asyncio.sleep(0)
    assert told == ["broken aborted", "whole 1", "broken aborted", "whole 1"]


async def test_nothing_is_written_to_a_connection_that_closes(told: list[str]) -> None:
    below = Below("a", told)
    closing = Departing(below, Departures())
    closing.write(b"x")
    below.closing = True
    await asyncio.sleep(0)
    assert told == []


async def test_what_is_written_later_leaves_in_a_later_turn(
    pair: tuple[Departing, Departing], told: list[str]
) -> None:
    for _ in range(2):
        pair[0].write(b"x")
        await asyncio.sleep(0)
    assert told == ["a 1", "a 1"]


@pytest.mark.parametrize(("end", "word"), [("close", "closed"), ("write_eof", "eof")])
async def test_nothing_is_said_after_the_end(
    pair: tuple[Departing, Departing], told: list[str], end: str, word: str
) -> None:
    pair[0].write(b"last")
    getattr(pair[0], end)()
    await asyncio.sleep(0)
    assert told == ["a 4", f"a {word}"]


async def test_after_the_end_nothing_is_written(pair: tuple[Departing, Departing], told: list[str]) -> None:
    pair[0].write_eof()
    pair[0].write(b"100 Continue")
    await asyncio.sleep(0)
    assert told == ["a eof"]


async def test_whoever_is_cut_off_is_told_no_more(pair: tuple[Departing, Departing], told: list[str]) -> None:
    pair[0].write(b"lost")
    pair[0].abort()
    await asyncio.sleep(0)
    assert told == ["a aborted"]


async def test_much_is_not_held_back(pair: tuple[Departing, Departing], told: list[str]) -> None:
    pair[0].write(b"x" * (HELD_BYTES_MAX + 1))
    assert told == [f"a {HELD_BYTES_MAX + 1}"]
    await asyncio.sleep(0)
    assert told == [f"a {HELD_BYTES_MAX + 1}"]
