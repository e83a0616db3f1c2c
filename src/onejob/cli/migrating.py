"""The command `migrate`: bring the tables of a store forward."""

import asyncio

from msgspec import Struct

from onejob.engines import migrate, public

from .screen import Screen, clean


class Migrated(Struct, frozen=True, rename="camel"):
    engine: str
    before: int
    schema: int


def perform(url: str) -> Migrated:
    before, after = asyncio.run(migrate(url))
    return Migrated(public(url), before, after)


def show(_: Screen, answer: Migrated) -> str:
    if answer.before == answer.schema:
        return f"{clean(answer.engine)} has schema {answer.schema}, which is the newest"
    return f"{clean(answer.engine)} was brought from schema {answer.before} to {answer.schema}"
