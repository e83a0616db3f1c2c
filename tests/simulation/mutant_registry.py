"""Where bugs are kept: a name, and a house that has it for as long as the cage is open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .process import Components

Mutant = Callable[[], AbstractContextManager[Components]]
MUTANTS: dict[str, Mutant] = {}


def mutant(make: Callable[[], Iterator[Components]]) -> Mutant:
    MUTANTS[make.__name__] = contextmanager(make)
    return MUTANTS[make.__name__]


def with_components(**parts: Any) -> Components:
    house = Components()
    for name, part in parts.items():
        setattr(house, name, part)
    return house
