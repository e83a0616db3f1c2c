"""What is done for a job before it may run, such as an upload: hooks of the operator's, and the tasks they run in.

The tasks are the server's own: a client that hangs up stops nothing, and finds what became of it when it asks again.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from msgspec import json

from onejob.core.views import Receipt, Reservation
from onejob.errors import OnejobError
from onejob.intake import Submission
from onejob.keeping import Keeping, carried_out, told
from onejob.ledger import Ledger

from .config import ServiceConfig
from .hooks import Hook, called
from .logs import trail

T = TypeVar("T")

TOLD_CHARS_MAX = 300
LAST_WORDS_SECONDS = 2.0
LEAVING = "this server is being stopped"
UPLOADED = b'{"data_uploaded":true}'

log = logging.getLogger("onejob.http")


class NotPrepared(OnejobError):
    """The preparation of a job failed; the same key may try again."""

    retryable = True


class Preparation:
    """What a hook is given: the job it prepares, and whether it should go on."""

    def __init__(
        self, provider: str, input: bytes, labels: Mapping[str, str], user: str, keeping: Keeping
    ) -> None:
        self.provider = provider
        self.input: Mapping[str, Any] = json.decode(input)
        self.labels = labels
        self.user = user
        self._keeping = keeping

    @property
    def job_id(self) -> str:
        """The same in every attempt: name by it what you make elsewhere."""
        return self._keeping.held.job_id

    @property
    def token(self) -> int:
        """Greater in every attempt."""
        return self._keeping.held.token

    @property
    def config(self) -> Any:
        return self.input.get("config")

    @property
    def config_name(self) -> str | None:
        return self.input.get("config_name_to_load")

    @property
    def deadline(self) -> datetime:
        """When the lease ends unless it is renewed once more; it moves while the server is well."""
        return self._keeping.until

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the job was cancelled, the key or its slot was lost, time is up, or the server leaves."""
        return self._keeping.over


class Preparations:
    """The preparations that this server does."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._tasks: set[asyncio.Task[Receipt]] = set()
        self._entering = 0
        self._hooks_at_work = 0  # also those that were told to stop and do not hear
        self._leaving = asyncio.Event()

    @property
    def closed_to_new(self) -> str:
        """Why no further preparation can be done here; empty when one can."""
        if self._leaving.is_set():
            return f"{LEAVING}; repeat with the same key"
        begun = len(self._tasks) + self._entering
        if max(begun, self._hooks_at_work) >= self._config.preparations_max:
            return "too many preparations at once; repeat with the same key in a while"
        return ""

    @contextmanager
    def entering(self) -> Iterator[None]:
        """While the key of one more is being taken, it counts."""
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1

    async def done(
        self,
        ledger: Ledger,
        hook: Hook,
        provider: str,
        submission: Submission,
        held: Reservation,
        *,
        seconds: float,
    ) -> Receipt | None:
        """Prepare the job of a held key; None when that takes longer than the client should wait."""
        if self._leaving.is_set():  # since the key was asked for
            await ledger.fail(held, LEAVING)
            raise NotPrepared(f"{LEAVING}; repeat with the same key")
        work = partial(self._work, ledger, hook, provider, bytes(submission.input))
        task = asyncio.create_task(carried_out(ledger, held, work), name=held.job_id)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        # By the loop's timer and not inside the task: a hook that hears no cancellation would not be waited for.
        longest = self._config.preparation_seconds_max
        overdue = partial(task.cancel, f"it took longer than {longest:g} s")
        timer = asyncio.get_running_loop().call_later(longest, overdue)
        task.add_done_callback(lambda _: timer.cancel())
        await asyncio.wait((task,), timeout=max(0, seconds))
        return _outcome(task) if task.done() else None

    async def unless_leaving(self, wait: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something that is nobody's to hurry; None when the server is told to stop before."""
        waiting, leaving = asyncio.create_task(wait), asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            leaving.cancel()

    async def leave(self, seconds: float) -> None:
        """Give what is being done some time, then stop it, so that the next server need not wait for the leases."""
        self._leaving.set()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        if self._tasks:
            for task in self._tasks:
                task.cancel(LEAVING)
            await asyncio.wait(tuple(self._tasks), timeout=LAST_WORDS_SECONDS)

    def __contains__(self, job_id: object) -> bool:
        return any(task.get_name() == job_id for task in self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    async def _work(self, ledger: Ledger, hook: Hook, provider: str, input: bytes, keeping: Keeping) -> bytes:
        # Of a key that was taken over: the labels are those of the first submission.
        job = await ledger.job(keeping.held.job_id)
        preparation = Preparation(provider, input, job.labels, job.user, keeping)
        self._hooks_at_work += 1
        try:
            given = await called(hook, preparation, self._hook_ended)
        except Exception as error:
            raise NotPrepared(_told(error)) from error
        return b"" if given is False else UPLOADED

    def _hook_ended(self) -> None:
        self._hooks_at_work -= 1

    def _ended(self, task: "asyncio.Task[Receipt]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            log.warning("the preparation of job %s was stopped", task.get_name())
        elif error := task.exception():
            log.warning("the preparation of job %s failed: %s", task.get_name(), trail(error))


def _outcome(task: "asyncio.Task[Receipt]") -> Receipt:
    try:
        return task.result()
    except asyncio.CancelledError as error:
        why: str = str(error) or "it was stopped"
    except NotPrepared as error:
        why = str(error)
    raise NotPrepared(f"the preparation of job {task.get_name()} failed: {why}; repeat with the same key")


def _told(error: Exception) -> str:
    """What a hook raised is told to whoever submitted, on one line and not at any length."""
    text = " ".join(told(error).split()) or type(error).__name__
    return text if len(text) <= TOLD_CHARS_MAX else text[:TOLD_CHARS_MAX] + "…"
