"""A seeded event loop on virtual time: nothing here is real but the order, and the seed decides that.

A loop that only skips the waiting finds nothing, for it runs everything in one order. So each ready callback
may be put off for a while, as a busy machine would. That is the only freedom taken: a late callback is legal
for every primitive of asyncio.
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

STEP_SECONDS = 1e-6  # running takes time, so that nobody spins for ever in one instant
STEPS_MAX = 1_000_000
_TASKS_PRUNED_FROM = 512


class Deadlock(Exception):
    """Nobody will ever do anything again, or they go on for ever: somebody waits for nothing."""


class Owner:
    """Whatever may pause or die: its callbacks wait for its return, or never run again."""

    def __init__(self) -> None:
        self.dead = False
        self.paused_until = 0.0
        self.context = copy_context()
        self.context.run(OWNER.set, self)


OWNER: ContextVar[Owner] = ContextVar("owner")


class ScheduledCallback(asyncio.TimerHandle):
    """A callback in line. One class for all of them, and lighter than asyncio's own."""

    __slots__ = ("arguments", "context", "function")

    def __init__(self, when: float, work: Callable[..., object], words: tuple[Any, ...], home: Context | None) -> None:
        self._when = when
        self._cancelled = False
        self.function = work
        self.arguments = words
        self.context = home if home is not None else copy_context()

    def cancel(self) -> None:
        self._cancelled = True
        self.function, self.arguments = _no_op, ()


class VirtualLoop(asyncio.BaseEventLoop):
    """One step is one callback run."""

    def __init__(self, chance: Random, *, jitter: float, delay_max: float) -> None:
        super().__init__()
        self.jitter = jitter
        self.steps = 0
        self.halted = False
        self.errors: list[str] = []
        self._delay_max = delay_max
        self._random = chance.random
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
        turn = ScheduledCallback(self._now, callback, args, context)
        if self._random() < self.jitter:
            self._schedule(self._now + self._delay_max * self._random() ** 3, turn)
        else:
            self._ready_queue.append(turn)
        return turn

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
        turn = ScheduledCallback(when, callback, args, context)
        self._schedule(when, turn)
        return turn

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "walk", context=context)
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
        """Run until main is done; None when it was halted before."""
        task = self.create_task(main)
        events._set_running_loop(self)
        try:
            self._run_callbacks(task)
            return task.result() if task.done() else None
        finally:
            self._close_tasks()
            events._set_running_loop(None)
            self.close()

    def _schedule(self, when: float, turn: ScheduledCallback) -> None:
        self._count += 1
        heappush(self._timers, (when, self._count, turn))

    def _run_callbacks(self, main: "asyncio.Task[T]") -> None:
        soon, later, owner_of = self._ready_queue, self._timers, OWNER
        while not self.halted and not main.done():
            if later and (not soon or later[0][0] <= self._now):
                when, _, turn = heappop(later)
                if when > self._now:
                    self._now = when
            elif soon:
                turn = soon.popleft()
            else:
                raise Deadlock("nobody will ever do anything again")
            if turn._cancelled:
                continue
            owner = turn.context.get(owner_of)
            if owner is not None:
                if owner.dead:
                    continue
                if owner.paused_until > self._now:
                    self._schedule(owner.paused_until, turn)
                    continue
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Deadlock("it goes on and on")
            self._now += STEP_SECONDS
            try:
                turn.context.run(turn.function, *turn.arguments)
            except Exception as error:  # noqa: BLE001 - as asyncio does, and the walk has failed
                self.call_exception_handler({"message": f"callback {turn.function!r}", "exception": error})

    def _close_tasks(self) -> None:
        """End what is left of everybody, the dead included, without a word to anyone."""
        for task in self._tasks:
            if task.done() and getattr(task, "_log_traceback", False):
                self.errors.append(f"a task failed unseen: {task.exception()!r}")
        self._is_closing = True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # known to asyncio alone
                task.get_coro().close()
        self._tasks.clear()
        self._ready_queue.clear()
        self._timers.clear()


def _no_op() -> None:
    pass
