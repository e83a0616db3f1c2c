"""The command `migrate`: bring the tables of a store forward."""

import asyncio

from msgspec import Struct

from onejob.engines import migrate, redact_password

from .screen import Screen, sanitize


class MigrationOut(Struct, frozen=True, rename="camel"):
    engine: str
    before: int
    schema: int


def run_migrate(url: str) -> MigrationOut:
    before, after = asyncio.run(migrate(url))
    return MigrationOut(redact_password(url), before, after)


def render_migration(_: Screen, answer: MigrationOut) -> str:
    if answer.before == answer.schema:
        return f"{sanitize(answer.engine)} has schema {answer.schema}, which is the newest"
    return f"{sanitize(answer.engine)} was brought from schema {answer.before} to {answer.schema}"
