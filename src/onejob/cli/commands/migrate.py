"""Upgrade the schema of a store to this version, or create it."""

import asyncio
from argparse import ArgumentParser, Namespace

from msgspec import Struct

from onejob.cli.arguments import add_engine_arguments
from onejob.cli.backend import engine_url
from onejob.cli.command import CommandResult
from onejob.cli.render import Screen, sanitize
from onejob.engines import migrate, redact_password
from onejob.settings import CliSettings

EXAMPLE = "onejob migrate --engine postgresql://owner@db.example/onejob"


class MigrationOut(Struct, frozen=True, rename="camel"):
    engine: str
    before: int
    schema: int


def add_arguments(command: ArgumentParser) -> None:
    add_engine_arguments(command, tenant=False)


def run(options: Namespace) -> CommandResult:
    url = engine_url(options, CliSettings.from_env())
    before, after = asyncio.run(migrate(url))
    return CommandResult(MigrationOut(redact_password(url), before, after), render)


def render(_: Screen, response: MigrationOut) -> str:
    if response.before == response.schema:
        return f"{sanitize(response.engine)} has schema {response.schema}, which is the newest"
    return f"{sanitize(response.engine)} was upgraded from schema {response.before} to {response.schema}"
