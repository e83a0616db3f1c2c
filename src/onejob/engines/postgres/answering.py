"""Answering one call on a connection that may be lost, over and over, and beside commands that may be faulty."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from onejob.core.fold import defect_of
from onejob.core.receipt import AnyReply
from onejob.core.step import Command, Footprint
from onejob.errors import Unavailable, Unknown

from .attempt import Attempt
from .link import Link
from .trouble import ends_in_doubt, is_culprit, is_loss, trouble_of

T = TypeVar("T")

RECONNECT_SECONDS = 10.0

Work = Callable[[Any, Sequence[Command[Any]], Sequence[Footprint], Attempt], Awaitable[list[AnyReply]]]


async def answered(
    link: Link, work: Work, commands: Sequence[Command[Any]], attempt: Attempt
) -> list[AnyReply]:
    """If a command breaks its batch, each is executed alone and only that one fails."""
    try:
        footprints = [command.footprint for command in commands]
        return await on_link(
            link, lambda connection: work(connection, commands, footprints, attempt), attempt
        )
    except (Unavailable, Unknown):
        raise
    except Exception as error:
        if not is_culprit(error):
            raise trouble_of(link.shown, error) from error
        if len(commands) == 1:
            return [defect_of(commands[0], error)]
    return await _one_by_one(link, work, commands, attempt)


async def on_link(link: Link, work: Callable[[Any], Awaitable[T]], attempt: Attempt) -> T:
    """Do it; after a loss of the connection do it again on a new one, unless it may be done already."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECONNECT_SECONDS
    while True:
        connection = link.connection or await link.ready(until)
        attempt.committing = False
        try:
            return await work(connection)
        except (Unavailable, Unknown):
            raise
        except Exception as error:
            if attempt.committing and ends_in_doubt(error):
                link.drop()
                raise Unknown(f"{link.shown} was lost during a commit ({error}); repeat it") from error
            if not is_loss(error):
                raise
            link.drop()
            if loop.time() >= until:
                raise trouble_of(link.shown, error) from error


async def _one_by_one(
    link: Link, work: Work, commands: Sequence[Command[Any]], attempt: Attempt
) -> list[AnyReply]:
    replies: list[AnyReply] = []
    for command in commands:
        try:
            replies += await answered(link, work, [command], attempt)
        except Unavailable as error:
            if not attempt.done:
                raise
            raise Unknown(f"the store failed in the middle of a batch ({error}); repeat it") from error
    return replies
