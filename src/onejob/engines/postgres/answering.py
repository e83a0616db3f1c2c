"""Answering one call on a connection that may be lost, over and over, and beside commands that may be faulty."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from onejob.core.fold import to_defect
from onejob.core.receipt import AnyReply
from onejob.core.step import Command, Footprint
from onejob.errors import Unavailable, Unknown

from .attempt import CallState
from .link import Connector
from .trouble import is_command_error, is_connection_loss, is_outcome_unknown, to_engine_error

T = TypeVar("T")

RECONNECT_SECONDS = 10.0

BatchFunction = Callable[
    [Any, Sequence[Command[Any]], Sequence[Footprint], CallState], Awaitable[list[AnyReply]]
]


async def execute_isolating_failures(
    connector: Connector, execute: BatchFunction, commands: Sequence[Command[Any]], call: CallState
) -> list[AnyReply]:
    """If a command breaks its batch, each is executed alone and only that one fails."""
    try:
        footprints = [command.footprint for command in commands]
        return await run_with_reconnect(
            connector, lambda connection: execute(connection, commands, footprints, call), call
        )
    except (Unavailable, Unknown):
        raise
    except Exception as error:
        if not is_command_error(error):
            raise to_engine_error(connector.display_url, error) from error
        if len(commands) == 1:
            return [to_defect(commands[0], error)]
    return await _execute_one_by_one(connector, execute, commands, call)


async def run_with_reconnect(connector: Connector, work: Callable[[Any], Awaitable[T]], call: CallState) -> T:
    """Do it; after a loss of the connection do it again on a new one, unless it may be done already."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECONNECT_SECONDS
    while True:
        connection = connector.connection or await connector.ensure_connected(until)
        call.committing = False
        try:
            return await work(connection)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if call.committing and is_outcome_unknown(error):
                connector.terminate()
                raise Unknown(
                    f"{connector.display_url} was lost during a commit ({error}); repeat it"
                ) from error
            if not is_connection_loss(error):
                raise
            connector.terminate()
            if loop.time() >= until:
                raise to_engine_error(connector.display_url, error) from error


async def _execute_one_by_one(
    connector: Connector, execute: BatchFunction, commands: Sequence[Command[Any]], call: CallState
) -> list[AnyReply]:
    replies: list[AnyReply] = []
    for command in commands:
        try:
            replies += await execute_isolating_failures(connector, execute, [command], call)
        except Unavailable as error:
            if not call.has_committed:
                raise
            raise Unknown(f"the store failed in the middle of a batch ({error}); repeat it") from error
    return replies
