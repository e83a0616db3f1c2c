"""A seeded event loop in virtual time: the seed decides the order of all callbacks.

A loop that only skips waiting would find nothing, because it runs everything in one order. So each ready callback may be
delayed for a while, as on a busy machine. That is the only liberty taken: every primitive of asyncio allows a late callback.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEP_SECONDS = 1e-6  # every callback takes time, so that no loop spins forever in one instant
STEPS_MAX = 1_000_000
_TASKS_PRUNED_FROM = 512


class Deadlock(Exception):
    """No callback is left although the main task waits, or the callbacks never end."""


class Owner:
    """A process that may pause or die: its callbacks run later, or never again."""

    def __init__(self) -> None:
        self.dead = False
        self.paused_until = 0.0
        self.context = copy_context()
        self.context.run(OWNER.set, self)


OWNER: ContextVar[Owner] = ContextVar("owner")


class ScheduledCallback(asyncio.TimerHandle):
    """A scheduled callback; one class for handles and timers, lighter than those of asyncio."""

    __slots__ = ("arguments", "context", "function")

    def __init__(
        self, when: float, function: Callable[..., object], arguments: tuple[Any, ...], context: Context | None
    ) -> None:
        self._when = when
        self._cancelled = False
        self.function = function
        self.arguments = arguments
        self.context = context if context is not None else copy_context()

    def cancel(self) -> None:
        self._cancelled = True
        self.function, self.arguments = _no_op, ()


class VirtualLoop(asyncio.BaseEventLoop):
    """A step is one callback."""

    def __init__(self, rng: Random, *, jitter: float, delay_max: float) -> None:
        super().__init__()
        self.jitter = jitter
        self.steps = 0
        self.halted = False
        self.errors: list[str] = []
        self._delay_max = delay_max
        self._random = rng.random
        self._now = 0.0
        self._count = 0
        self._ready_queue: deque[ScheduledCallback] = deque()
        self._timers: list[tuple[float, int, ScheduledCallback]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._is_closing = False

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        scheduled = ScheduledCallback(self._now, callback, args, context)
        if self._random() < self.jitter:
            self._schedule(self._now + self._delay_max * self._random() ** 3, scheduled)
        else:
            self._ready_queue.append(scheduled)
        return scheduled

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        scheduled = ScheduledCallback(when, callback, args, context)
        self._schedule(when, scheduled)
        return scheduled

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "simulation", context=context)
        self._tasks.append(task)
        if len(self._tasks) > _TASKS_PRUNED_FROM:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closing:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def halt(self) -> None:
        self.halted = True

    def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Run until `main` is done; None if the loop was halted before."""
        task = self.create_task(main)
        events._set_running_loop(self)
        try:
            self._run_callbacks(task)
            return task.result() if task.done() else None
        finally:
            self._close_tasks()
            events._set_running_loop(None)
            self.close()

    def _schedule(self, when: float, scheduled: ScheduledCallback) -> None:
        self._count += 1
        heappush(self._timers, (when, self._count, scheduled))

    def _run_callbacks(self, main: "asyncio.Task[T]") -> None:
        ready, timers, owner_variable = self._ready_queue, self._timers, OWNER
        while not self.halted and not main.done():
            if timers and (not ready or timers[0][0] <= self._now):
                when, _, scheduled = heappop(timers)
                if when > self._now:
                    self._now = when
            elif ready:
                scheduled = ready.popleft()
            else:
                raise Deadlock("no callback is left")
            if scheduled._cancelled:
                continue
            owner = scheduled.context.get(owner_variable)
            if owner is not None:
                if owner.dead:
                    continue
                if owner.paused_until > self._now:
                    self._schedule(owner.paused_until, scheduled)
                    continue
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Deadlock("too many steps")
            self._now += STEP_SECONDS
            try:
                scheduled.context.run(scheduled.function, *scheduled.arguments)
            except Exception as error:  # noqa: BLE001 - as asyncio does; the simulation has failed
                self.call_exception_handler({"message": f"callback {scheduled.function!r}", "exception": error})

    def _close_tasks(self) -> None:
        """Close all unfinished tasks, also those of dead owners, without running their callbacks."""
        for task in self._tasks:
            if task.done() and getattr(task, "_log_traceback", False):
                self.errors.append(f"a task failed and its exception was never retrieved: {task.exception()!r}")
        self._is_closing = True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # private to asyncio
                task.get_coro().close()
        self._tasks.clear()
        self._ready_queue.clear()
        self._timers.clear()


def _no_op() -> None:
    pass
