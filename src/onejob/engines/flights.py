"""Who waits for a question on its way, and which answers may be given to others than who asked."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from onejob.core.receipt import AnyReply, Created, Replayed
from onejob.core.step import Command
from onejob.core.submission import Submit


class InFlightCaller(NamedTuple):
    """A caller of a flight; the first of them is the one that asked."""

    submit: Submit
    reply: "asyncio.Future[AnyReply]"
    arrived_at: float


class Completion:
    """Where an answer lands: it is noted, then given to whoever asked.

    One object instead of a function with its cells: there is one for every question on its way, and each is looked at
    whenever garbage is collected.
    """

    __slots__ = ("command", "on_reply", "reply", "sent_at")

    def __init__(
        self,
        on_reply: Callable[[Any, AnyReply | Exception, float], None],
        command: Command[Any],
        reply: "asyncio.Future[AnyReply]",
        sent_at: float,
    ) -> None:
        self.on_reply = on_reply
        self.command = command
        self.reply = reply
        self.sent_at = sent_at

    def __call__(self, result: AnyReply | Exception) -> None:
        self.on_reply(self.command, result, self.sent_at)
        if self.reply.done():
            return
        if isinstance(result, Exception):
            self.reply.set_exception(result)
        else:
            self.reply.set_result(result)


def shareable_reply(
    result: AnyReply | Exception, leader: InFlightCaller, follower: InFlightCaller
) -> Created | Replayed | None:
    """What a follower may be told: created and replayed, nothing else."""
    if not isinstance(result, (Created, Replayed)):
        return None
    # The same candidate is the same submission: it hears "created", however it joined.
    if result.job is not None and follower.submit.job_id == result.job.id:
        return Created(result.job, result.expires_at, result.at)
    if isinstance(result, Replayed) or follower.submit.job_id == leader.submit.job_id:
        return result
    return Replayed(result.job, result.expires_at, result.at)


def is_replay_without_job(result: AnyReply | Exception) -> TypeGuard[Replayed]:
    """Whether it is the settled answer of a key without a job."""
    return isinstance(result, Replayed) and result.job is None and not result.external_id
