"""The registry of mutants: a name, and a context manager that applies the bug."""

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
    components = Components()
    for name, part in parts.items():
        setattr(components, name, part)
    return components
