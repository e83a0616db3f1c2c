"""Drivers of client operations: they perform the steps, blocking the thread or on an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onejob.clock import Clock, SystemClock

from .flow import NoResponse, Operation, Send, ServerResponse, Sleep, StepResult

T = TypeVar("T")


def run_blocking(steps: Operation[T], send: Callable[[Send], ServerResponse | NoResponse], clock: Clock) -> T:
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Send):
                response = send(step)
                result = StepResult(clock.monotonic(), response)
            elif isinstance(step, Sleep):
                SystemClock().sleep(step.seconds)
                result = StepResult(clock.monotonic())
            else:
                result = step.work()
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


async def run_async(
    steps: Operation[T], send: Callable[[Send], Awaitable[ServerResponse | NoResponse]], clock: Clock
) -> T:
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, Send):
                response = await send(step)
                result = StepResult(clock.monotonic(), response)
            elif isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
                result = StepResult(clock.monotonic())
            else:
                result = await asyncio.to_thread(step.work)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()
