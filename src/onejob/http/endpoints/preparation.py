"""What is done for a job before it may run, such as an upload: hooks of the operator's, and the tasks they run in.

The tasks are the server's own: a client that hangs up stops nothing, and finds what became of it when it asks again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, isawaitable, iscoroutinefunction, isgenerator, isgeneratorfunction
from threading import Thread
from typing import Any, TypeVar

from msgspec import json

from onejob.core.errors import Invalid
from onejob.core.views import HeldKey, Receipt
from onejob.errors import OnejobError
from onejob.http.config import ProviderConfig, ServiceConfig
from onejob.http.logs import redacted_traceback
from onejob.import_path import load_object
from onejob.ledger import Ledger
from onejob.ledger.leases import LeaseRenewal, describe_error, run_under_lease
from onejob.ledger.parse import Submission

# Hooks: functions of the operator's own, named in the settings, called on the loop or in a thread of their own.


# Takes one argument; async or plain.
Hook = Callable[[Any], Any]


def load_hooks(providers: Mapping[str, ProviderConfig]) -> dict[str, Hook]:
    """The hooks of all providers that have one; one that is not there stops the start."""
    named = {name: one.prepare for name, one in providers.items() if one.prepare is not None}
    return {name: _load_hook(f"providers.{name}.prepare", import_path) for name, import_path in named.items()}


def _load_hook(setting: str, import_path: str) -> Hook:
    return checked_hook(f"{setting}: {import_path}", load_object(import_path, what="providers", label=setting))


def checked_hook(label: str, candidate: Any) -> Hook:
    """A hook that can be called, and then does something."""
    if not callable(candidate):
        raise Invalid("providers", f"{label} cannot be called; name a function")
    for function in (candidate, getattr(candidate, "__call__", None)):  # noqa: B004 - it is looked into, not only for
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise Invalid("providers", f"{label} has a yield, so that to call it does nothing; return instead")
    hook: Hook = candidate
    return hook


async def call_hook(hook: Hook, argument: Any, on_end: Callable[[], None]) -> Any:
    """What a hook returns. `ended` is called when it really is over, which may be after its caller has gone."""
    if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        try:
            return await _await_hook(hook(argument))
        finally:
            on_end()
    result = await _run_in_thread(hook, argument, on_end)
    if isgenerator(result) or isasyncgen(result):
        raise RuntimeError("a hook returned a generator, which nobody runs")
    return await _await_hook(result) if isawaitable(result) else result


async def _await_hook(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _to_runtime_error(error) from error


def _to_runtime_error(error: BaseException) -> RuntimeError:
    """Whatever ends a hook ends neither the server nor the request that waits for it."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return RuntimeError(f"a hook asked the server to leave ({type(error).__name__})")
    return RuntimeError(f"a hook ended with {type(error).__name__}")


def _run_in_thread(hook: Hook, argument: Any, on_end: Callable[[], None]) -> "asyncio.Future[Any]":
    """A thread of its own, which no exit waits for: those of a pool would keep the server from leaving."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        on_end()
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = hook(argument)
        except Exception as raised:  # noqa: BLE001 - it is handed over
            # StopIteration cannot be raised through a future.
            error = RuntimeError(describe_error(raised)) if isinstance(raised, StopIteration) else raised
        except BaseException as raised:  # noqa: BLE001 - it is handed over
            error = _to_runtime_error(raised)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    try:
        Thread(target=run, name="onejob-hook", daemon=True).start()
    except RuntimeError as error:  # there are too many threads
        settle(None, error)
    return future


T = TypeVar("T")

ERROR_CHARS_MAX = 300
CANCEL_GRACE_SECONDS = 2.0
STOPPING = "this server is being stopped"
UPLOADED_RECEIPT = b'{"data_uploaded":true}'

log = logging.getLogger("onejob.http")


class NotPrepared(OnejobError):
    """The preparation of a job failed; the same key may try again."""

    retryable = True


class Preparation:
    """What a hook is given: the job it prepares, and whether it should go on."""

    def __init__(
        self, provider: str, input: bytes, labels: Mapping[str, str], user: str, renewal: LeaseRenewal
    ) -> None:
        self.provider = provider
        self.input: Mapping[str, Any] = json.decode(input)
        self.labels = labels
        self.user = user
        self._renewal = renewal

    @property
    def job_id(self) -> str:
        """The same in every attempt: name by it what you make elsewhere."""
        return self._renewal.held_key.job_id

    @property
    def token(self) -> int:
        """Greater in every attempt."""
        return self._renewal.held_key.token

    @property
    def config(self) -> Any:
        return self.input.get("config")

    @property
    def config_name(self) -> str | None:
        return self.input.get("config_name_to_load")

    @property
    def deadline(self) -> datetime:
        """When the lease ends unless it is renewed once more; it moves while the server is well."""
        return self._renewal.lease_until

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the job was cancelled, the key or its slot was lost, time is up, or the server leaves."""
        return self._renewal.is_over


class Preparations:
    """The preparations that this server does."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._tasks: set[asyncio.Task[Receipt]] = set()
        self._starting = 0
        self._running_hooks = 0  # also those that were told to stop and do not hear
        self._stopping = asyncio.Event()

    @property
    def refusal_reason(self) -> str:
        """Why no further preparation can be done here; empty when one can."""
        if self._stopping.is_set():
            return f"{STOPPING}; repeat with the same key"
        begun = len(self._tasks) + self._starting
        if max(begun, self._running_hooks) >= self._config.preparations_max:
            return "too many preparations at once; repeat with the same key in a while"
        return ""

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While the key of one more is being taken, it counts."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    async def prepare(
        self,
        ledger: Ledger,
        hook: Hook,
        provider: str,
        submission: Submission,
        held_key: HeldKey,
        *,
        seconds: float,
    ) -> Receipt | None:
        """Prepare the job of a held key; None when that takes longer than the client should wait."""
        if self._stopping.is_set():  # since the key was asked for
            await ledger.fail(held_key, STOPPING)
            raise NotPrepared(f"{STOPPING}; repeat with the same key")
        work = partial(self._run_hook, ledger, hook, provider, bytes(submission.input))
        task = asyncio.create_task(run_under_lease(ledger, held_key, work), name=held_key.job_id)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        # By the loop's timer and not inside the task: a hook that hears no cancellation would not be waited for.
        longest = self._config.preparation_seconds_max
        overdue = partial(task.cancel, f"it took longer than {longest:g} s")
        timer = asyncio.get_running_loop().call_later(longest, overdue)
        task.add_done_callback(lambda _: timer.cancel())
        await asyncio.wait((task,), timeout=max(0, seconds))
        return _task_result(task) if task.done() else None

    async def wait_unless_stopping(self, wait: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something that is nobody's to hurry; None when the server is told to stop before."""
        waiting, leaving = asyncio.create_task(wait), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            leaving.cancel()

    async def shut_down(self, seconds: float) -> None:
        """Give what is being done some time, then stop it, so that the next server need not wait for the leases."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        if self._tasks:
            for task in self._tasks:
                task.cancel(STOPPING)
            await asyncio.wait(tuple(self._tasks), timeout=CANCEL_GRACE_SECONDS)

    def __contains__(self, job_id: object) -> bool:
        return any(task.get_name() == job_id for task in self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    async def _run_hook(self, ledger: Ledger, hook: Hook, provider: str, input: bytes, renewal: LeaseRenewal) -> bytes:
        # Of a key that was taken over: the labels are those of the first submission.
        job = await ledger.job(renewal.held_key.job_id)
        preparation = Preparation(provider, input, job.labels, job.user, renewal)
        self._running_hooks += 1
        try:
            given = await call_hook(hook, preparation, self._on_hook_end)
        except Exception as error:
            raise NotPrepared(_describe_error(error)) from error
        return b"" if given is False else UPLOADED_RECEIPT

    def _on_hook_end(self) -> None:
        self._running_hooks -= 1

    def _on_task_end(self, task: "asyncio.Task[Receipt]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            log.warning("the preparation of job %s was stopped", task.get_name())
        elif error := task.exception():
            log.warning("the preparation of job %s failed: %s", task.get_name(), redacted_traceback(error))


def _task_result(task: "asyncio.Task[Receipt]") -> Receipt:
    try:
        return task.result()
    except asyncio.CancelledError as error:
        why: str = str(error) or "it was stopped"
    except NotPrepared as error:
        why = str(error)
    raise NotPrepared(f"the preparation of job {task.get_name()} failed: {why}; repeat with the same key")


def _describe_error(error: Exception) -> str:
    """What a hook raised is told to whoever submitted, on one line and not at any length."""
    text = " ".join(describe_error(error).split()) or type(error).__name__
    return text if len(text) <= ERROR_CHARS_MAX else text[:ERROR_CHARS_MAX] + "…"
