"""Preparation of a job before it may run, such as an upload: the operator's hooks and the tasks that run them.

Hooks are functions that the settings name; they run on the event loop or in a thread of their own. The tasks belong to the
server: a client that disconnects stops nothing, and gets the outcome when it retries the request.
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
from onejob.errors import LeaseExpired, OnejobError
from onejob.http.config import ProviderConfig, ServiceConfig
from onejob.import_path import load_object
from onejob.ledger import Ledger
from onejob.ledger.leases import LeaseRenewal, describe_error, run_under_lease
from onejob.ledger.parse import Submission
from onejob.logs import redacted_traceback
from onejob.runtime.receipts import HeldKey, Receipt

T = TypeVar("T")
# Takes a `Preparation`; async or plain.
Hook = Callable[[Any], Any]

ERROR_CHARS_MAX = 300
CANCEL_GRACE_SECONDS = 2.0
RESUME_SECONDS = 5.0  # between two looks for preparations whose server died
SHUTTING_DOWN = "this server is shutting down"
UPLOADED_RECEIPT = b'{"data_uploaded":true}'

log = logging.getLogger("onejob.http")


def load_hooks(providers: Mapping[str, ProviderConfig]) -> dict[str, Hook]:
    """The hooks of all providers that name one; a hook that cannot be loaded stops the start of the server."""
    named = {name: provider.prepare for name, provider in providers.items() if provider.prepare is not None}
    return {name: _load_hook(f"providers.{name}.prepare", import_path) for name, import_path in named.items()}


def _load_hook(setting: str, import_path: str) -> Hook:
    return checked_hook(f"{setting}: {import_path}", load_object(import_path, what="providers", label=setting))


def checked_hook(label: str, candidate: Any) -> Hook:
    if not callable(candidate):
        raise Invalid("providers", f"{label} is not callable; name a function")
    for function in (candidate, getattr(candidate, "__call__", None)):  # noqa: B004 - the method itself is inspected
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise Invalid("providers", f"{label} has a yield, so calling it runs nothing; return instead")
    hook: Hook = candidate
    return hook


async def call_hook(hook: Hook, argument: Any, on_end: Callable[[], None]) -> Any:
    """Return the result of a hook; `on_end` is called when the hook has ended, perhaps after its caller gave up."""
    if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        try:
            return await _await_hook(hook(argument))
        finally:
            on_end()
    result = await _run_in_thread(hook, argument, on_end)
    if isgenerator(result) or isasyncgen(result):
        raise RuntimeError("a hook returned a generator, which is never run")
    return await _await_hook(result) if isawaitable(result) else result


async def _await_hook(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise _to_runtime_error(error) from error


def _to_runtime_error(error: BaseException) -> RuntimeError:
    """Convert what would end the server: a hook must not stop it, nor the request that waits."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return RuntimeError(f"a hook tried to exit the process ({type(error).__name__})")
    return RuntimeError(f"a hook ended with {type(error).__name__}")


def _run_in_thread(hook: Hook, argument: Any, on_end: Callable[[], None]) -> "asyncio.Future[Any]":
    """Use a daemon thread of its own: the threads of a pool would keep the process from exiting."""
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
        except Exception as raised:  # noqa: BLE001 - passed to the future
            # StopIteration cannot be raised through a future.
            error = RuntimeError(describe_error(raised)) if isinstance(raised, StopIteration) else raised
        except BaseException as raised:  # noqa: BLE001 - passed to the future
            error = _to_runtime_error(raised)
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            loop.call_soon_threadsafe(settle, result, error)

    try:
        Thread(target=run, name="onejob-hook", daemon=True).start()
    except RuntimeError as error:  # no more threads can be started
        settle(None, error)
    return future


class NotPrepared(OnejobError):
    """The preparation of a job failed; a retry with the same key may succeed."""

    retryable = True


class PreparationExpired(NotPrepared):
    """The lease ran out while this process stood still or the store did not answer; another server may prepare the job."""


class Preparation:
    """The argument of a hook: the job it prepares, and whether it should continue."""

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
        """The same in every attempt: use it to name what the hook creates elsewhere."""
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
        """When the lease ends; the server moves it while it renews the lease."""
        return self._renewal.lease_until

    @property
    def cancelled(self) -> bool:
        """True if the hook should stop: job cancelled, key or slot lost, time limit reached, or server shutting down."""
        return self._renewal.is_over


class Preparations:
    """The preparations that run in this server."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._tasks: set[asyncio.Task[Receipt]] = set()
        self._starting = 0
        self._running_hooks = 0  # includes those that were cancelled and have not ended
        self._stopping = asyncio.Event()
        self._resuming: asyncio.Task[None] | None = None

    @property
    def refusal_reason(self) -> str:
        """Why no further preparation can start; empty if one can."""
        if self._stopping.is_set():
            return f"{SHUTTING_DOWN}; retry with the same key"
        started = len(self._tasks) + self._starting
        if max(started, self._running_hooks) >= self._config.preparations_max:
            return "too many preparations at once; retry later with the same key"
        return ""

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Count a preparation while its key is being acquired."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    async def prepare(
        self, ledger: Ledger, hook: Hook, provider: str, submission: Submission, held_key: HeldKey, *, seconds: float
    ) -> Receipt | None:
        """Prepare the job of a held key; None if that takes longer than `seconds`, and then it continues."""
        task = await self.start(ledger, hook, provider, bytes(submission.input), held_key)
        await asyncio.wait((task,), timeout=max(0, seconds))
        return _task_result(task) if task.done() else None

    async def start(
        self, ledger: Ledger, hook: Hook, provider: str, input: bytes, held_key: HeldKey
    ) -> "asyncio.Task[Receipt]":
        """Start preparing the job of a held key."""
        if self._stopping.is_set():  # since the key was requested
            await ledger.fail(held_key, SHUTTING_DOWN)
            raise NotPrepared(f"{SHUTTING_DOWN}; retry with the same key")
        work = partial(self._run_hook, ledger, hook, provider, input)
        task = asyncio.create_task(run_under_lease(ledger, held_key, work), name=held_key.job_id)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        # By a timer of the loop and not inside the task, because a hook may ignore its cancellation.
        seconds_max = self._config.preparation_seconds_max
        on_timeout = partial(task.cancel, f"it took longer than {seconds_max:g} s")
        timer = asyncio.get_running_loop().call_later(seconds_max, on_timeout)
        task.add_done_callback(lambda _: timer.cancel())
        return task

    def start_resuming(self, resume: Callable[[], Awaitable[None]]) -> None:
        """Look for abandoned preparations now and then, until the server shuts down."""
        self._resuming = asyncio.create_task(self._resume_periodically(resume))

    async def _resume_periodically(self, resume: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            try:
                await resume()
            except OnejobError as error:
                log.warning("resuming abandoned preparations failed, will retry: %s", error)
            except Exception as error:  # noqa: BLE001 - it is logged, and the next turn may succeed
                log.error("resuming abandoned preparations failed, will retry: %s", redacted_traceback(error))
            await asyncio.sleep(RESUME_SECONDS)

    async def wait_unless_stopping(self, wait: Coroutine[Any, Any, T]) -> T | None:
        """Await a coroutine; None if the server shuts down first."""
        waiting, stopping = asyncio.create_task(wait), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            stopping.cancel()

    async def shut_down(self, seconds: float) -> None:
        """Wait for running preparations, then cancel them, so that another server need not wait for their leases."""
        self._stopping.set()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        if self._tasks:
            for task in self._tasks:
                task.cancel(SHUTTING_DOWN)
            await asyncio.wait(tuple(self._tasks), timeout=CANCEL_GRACE_SECONDS)

    def __contains__(self, job_id: object) -> bool:
        return any(task.get_name() == job_id for task in self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    async def _run_hook(self, ledger: Ledger, hook: Hook, provider: str, input: bytes, renewal: LeaseRenewal) -> bytes:
        # The job is read because a key that was taken over has the labels of its first submission.
        job = await ledger.job(renewal.held_key.job_id)
        preparation = Preparation(provider, input, job.labels, job.user, renewal)
        self._running_hooks += 1
        try:
            result = await call_hook(hook, preparation, self._on_hook_end)
        except Exception as error:
            raise NotPrepared(_describe_error(error)) from error
        return b"" if result is False else UPLOADED_RECEIPT

    def _on_hook_end(self) -> None:
        self._running_hooks -= 1

    def _on_task_end(self, task: "asyncio.Task[Receipt]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            log.warning("preparation of job %s was cancelled", task.get_name())
        elif error := task.exception():
            log.warning("preparation of job %s failed: %s", task.get_name(), redacted_traceback(error))


def _task_result(task: "asyncio.Task[Receipt]") -> Receipt:
    try:
        return task.result()
    except asyncio.CancelledError as error:
        reason: str = str(error) or "it was cancelled"
    except NotPrepared as error:
        reason = str(error)
    except LeaseExpired as error:
        reason = "the store did not answer before the lease was over"
        raise PreparationExpired(_failure_message(task, reason)) from error
    raise NotPrepared(_failure_message(task, reason))


def _failure_message(task: "asyncio.Task[Receipt]", reason: str) -> str:
    return f"the preparation of job {task.get_name()} failed: {reason}; retry with the same key"


def _describe_error(error: Exception) -> str:
    """The error of a hook for the submitter, on one line and cut to a limit."""
    text = " ".join(describe_error(error).split()) or type(error).__name__
    return text if len(text) <= ERROR_CHARS_MAX else text[:ERROR_CHARS_MAX] + "…"
