"""Where bugs are kept: a name, and a house that has it for as long as the cage is open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .house import Parts

Bug = Callable[[], AbstractContextManager[Parts]]
CAGE: dict[str, Bug] = {}


def bug(make: Callable[[], Iterator[Parts]]) -> Bug:
    CAGE[make.__name__] = contextmanager(make)
    return CAGE[make.__name__]


def with_parts(**parts: Any) -> Parts:
    house = Parts()
    for name, part in parts.items():
        setattr(house, name, part)
    return house
