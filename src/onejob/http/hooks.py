"""Hooks: functions of the operator's own, named in the settings, called on the loop or in a thread of their own."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
)
from pathlib import Path
from threading import Thread
from typing import Any

from onejob.core.invalid import Invalid
from onejob.keeping import describe_error

from .config import ProviderConfig

# Takes one argument; async or plain.
Hook = Callable[[Any], Any]


def load_hooks(providers: Mapping[str, ProviderConfig]) -> dict[str, Hook]:
    """The hooks of all providers that have one; one that is not there stops the start."""
    named = {name: one.prepare for name, one in providers.items() if one.prepare is not None}
    here = str(Path.cwd())
    if named and here not in sys.path:
        sys.path.append(here)  # last, so that nothing there can stand in for what is installed
    return {name: _load_hook(f"providers.{name}.prepare", where) for name, where in named.items()}


def _load_hook(setting: str, import_path: str) -> Hook:
    module, colon, path = import_path.partition(":")
    if not (module and colon and path):
        raise Invalid("providers", f"{setting} is {import_path!r}; name it as module:function")
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # a module may raise anything while it is imported
        raise Invalid(
            "providers", f"{setting}: {import_path} cannot be loaded ({describe_error(error)}); mend it"
        ) from error
    return checked_hook(f"{setting}: {import_path}", found)


def checked_hook(label: str, candidate: Any) -> Hook:
    """A hook that can be called, and then does something."""
    if not callable(candidate):
        raise Invalid("providers", f"{label} cannot be called; name a function")
    for function in (candidate, getattr(candidate, "__call__", None)):  # noqa: B004 - it is looked into, not only for
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise Invalid(
                "providers", f"{label} has a yield, so that to call it does nothing; return instead"
            )
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
