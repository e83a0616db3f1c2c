"""One attempt: its handler runs, and how it ended is said until it is heard or the lease is over."""

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

from onejob.core.attempts import Attempt
from onejob.core.finish import Ends, Finish
from onejob.core.receipt import Finished, Refused, Released
from onejob.core.states import Delivery
from onejob.core.step import Command
from onejob.core.work import LOG_LINES_AT_ONCE_MAX, Extend, Release
from onejob.errors import Invalid
from onejob.working import held, result_json

from .context import Context
from .handlers import Handler, told_of
from .post import Post
from .verdicts import Fatal, Outdone, Retry

# The last part of an attempt's time is for saying that it is over.
_TIME_TO_TELL = 0.05
_MS = 1000

log = logging.getLogger("onejob.worker")


class Why(StrEnum):
    """A handler is told to stop because …"""

    LATE = "its time is over"
    OUTDONE = "the job is not this worker's any more"
    LEAVING = "its worker was told to leave before it ended"


class Run:
    """An attempt while this process works on it."""

    def __init__(
        self,
        handler: Handler,
        attempt: Attempt,
        *,
        post: Post,
        began: float,
        stir: Callable[["Run"], None],
        freed: Callable[["Run"], None],
    ) -> None:
        self.handler = handler
        self.attempt = attempt
        self._post = post
        self._freed = freed  # called when the handler has ended, though that is not said yet
        loop = asyncio.get_running_loop()
        self.context = Context(attempt, loop, lambda: stir(self))
        timeout_ms = attempt.head.timeout_ms
        self._end_max = began + timeout_ms / _MS if timeout_ms else math.inf
        self.heard(began)
        self.settling = False  # nothing is left but to say how it ended
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # of a plain function, which nobody can stop
        self._why: Why | None = None
        self._deadline = began + self._seconds() if self._seconds() else None

    def heard(self, sent: float) -> None:
        """The store has heard a word that was sent then: the lease counts from there, so it never ends later here."""
        self.lease_end = min(sent + self.attempt.lease_ms / _MS, self._end_max)

    async def carry_out(self) -> None:
        """Run the handler, then say how it ended, unless the job is somebody else's by now."""
        alarm = None
        if self._deadline is not None:
            alarm = asyncio.get_running_loop().call_at(self._deadline, self.stop, Why.LATE)
        try:
            word = await self._ended()
        finally:
            self.settling = True
            self._freed(self)
            if alarm is not None:
                alarm.cancel()
        if word is not None:
            await self._say(word)

    def stop(self, why: Why) -> None:
        """Tell the handler to stop; what was said first counts."""
        if self.settling:
            return
        self._why = self._why or why
        self.context.cancel()
        if self.task is not None:
            self.task.cancel()

    def news(self) -> tuple[Extend, Callable[[], None]]:
        """The word that prolongs the lease and tells what is untold; and what to do when it was heard."""
        untold = self.context.untold
        lines = tuple(untold.lines)[:LOG_LINES_AT_ONCE_MAX]
        extend = Extend(
            **held(self.attempt),
            lease_ms=self.attempt.lease_ms,
            progress=untold.progress,
            logs=lines,
            offset=untold.offset,
        )
        return extend, partial(untold.heard, len(lines), untold.progress, list(untold.waiting))

    async def _ended(self) -> Finish | Release | None:
        """How the handler ended, as a command; None where there is nothing left to say."""
        head = self.attempt.head
        try:
            if self.handler.delivery is Delivery.AT_MOST_ONCE and head.attempts > 1:
                raise Fatal("it was started before, and its handler runs at most once")
            arguments = self.handler.arguments(self.attempt.input, self.context)
            value = await self._called(arguments)
            return self._finish(Ends.SUCCESS, result=result_json(value))
        except asyncio.CancelledError:
            return self._stopped()
        except Outdone:
            return None
        except (Fatal, Invalid) as error:
            return self._failed(str(error), final=True)
        except Retry as error:
            after = None if error.after is None else max(round(error.after.total_seconds() * _MS), 1)
            return self._failed(str(error) or "to be tried again", retry_ms=after or 0)
        except Exception as error:  # noqa: BLE001 - it is the handler's, and it is told
            if self._why is not None:
                return self._stopped()
            log.warning("job %s failed: %s", self.attempt.job_id, told_of(error))
            return self._failed(self._post.describe(error))

    async def _called(self, arguments: dict[str, Any]) -> Any:
        if self.handler.is_async:
            return await self.handler.function(**arguments)
        call = partial(contextvars.copy_context().run, self.handler.function, **arguments)
        self.thread = asyncio.get_running_loop().run_in_executor(self._post.threads(), call)
        return await asyncio.shield(self.thread)

    def _stopped(self) -> Finish | Release | None:
        """What to say of a handler that was stopped."""
        if self.task is not None:
            self.task.uncancel()
        match self._why:
            case Why.LATE:
                return self._failed(Why.LATE)
            case Why.LEAVING if self.attempt.head.delivery is Delivery.AT_LEAST_ONCE:
                return Release(**held(self.attempt))
            case Why.LEAVING if self.thread is None:
                return self._failed(Why.LEAVING)
            case Why.LEAVING:
                return None  # a thread cannot be stopped; whether it does its work is not known, so it will be lost
            case None:
                return self._failed("it was cancelled from within")
        return None

    def _failed(self, error: str, *, final: bool = False, retry_ms: int = 0) -> Finish:
        return self._finish(Ends.FAILED, error=error, final=final, retry_ms=retry_ms)

    def _finish(self, ends: Ends, **more: Any) -> Finish:
        post = self._post
        return Finish(
            **held(self.attempt), ends=ends, actor=post.actor, retention_ms=post.retention_ms, **more
        )

    async def _say(self, word: Finish | Release) -> None:
        """Say it, with what is untold before it, again and again while the store is in trouble."""
        reply = await self._post.insist(self._last_words(word), until=self.lease_end)
        match reply:
            case Finished() | Released():
                self._post.count(str(reply.job.state))
            case Refused():
                self._post.count("refused")
                log.info("job %s: %s", self.attempt.job_id, reply.message)
            case _:
                self._post.count("unsaid")
                log.warning("job %s: how it ended could not be said: %s", self.attempt.job_id, reply)
        self.context.untold.give_up()

    def _last_words(self, word: Finish | Release) -> list[Command[Any]]:
        words: list[Command[Any]] = []
        untold = self.context.untold
        if untold:
            lines, offset = tuple(untold.lines), untold.offset
            for start in range(0, max(len(lines), 1), LOG_LINES_AT_ONCE_MAX):
                some = lines[start : start + LOG_LINES_AT_ONCE_MAX]
                words.append(
                    Extend(
                        **held(self.attempt),
                        lease_ms=self.attempt.lease_ms,
                        progress=untold.progress,
                        logs=some,
                        offset=offset + start,
                    )
                )
        return [*words, word]

    def _seconds(self) -> float:
        """How long the handler may take; 0: as long as it likes."""
        own = self.handler.timeout.total_seconds() if self.handler.timeout is not None else 0.0
        stored = self.attempt.head.timeout_ms / _MS * (1 - _TIME_TO_TELL)
        return min(own or stored, stored or own)
