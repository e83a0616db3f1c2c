"""`onejob.App`: the registry of handlers by job type, and the workers that run them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Unpack

from onejob.core.facts import JOB_ID_BYTES
from onejob.core.identity import checked_name
from onejob.core.states import Delivery
from onejob.errors import Invalid
from onejob.import_path import load_object
from onejob.ledger import Ledger
from onejob.ledger.parse import ATTEMPTS_DEFAULT, JobOptions, Submission, build_submit, with_prepared_input
from onejob.runtime.callers import Caller

from .handlers import Handler, build_handler, describe_exception
from .scheduler import Schedule, checked_catch_up
from .timetable import build_timetable
from .worker import Worker, WorkerOptions


class App:
    """`describe` turns an exception into the error that everybody sees; by default its type and place.

    The message of an exception may repeat the input. It is stored apart, for operators only, if `keep_messages`.
    """

    def __init__(
        self, *, describe: Callable[[BaseException], str] = describe_exception, keep_messages: bool = True
    ) -> None:
        self.handlers: dict[str, Handler] = {}
        self.schedules: dict[str, Schedule] = {}
        self.describe = describe
        self.keep_messages = keep_messages

    def job(
        self,
        type: str,
        *,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        max_attempts: int = ATTEMPTS_DEFAULT,
        timeout: timedelta | float | None = None,
    ) -> Callable[[Callable[..., Any]], Handler]:
        """Register a function as the handler of a type; async functions run on the loop, plain ones in threads."""

        def register(function: Callable[..., Any]) -> Handler:
            if type in self.handlers:
                raise Invalid("job", f"{type} already has a handler; register this one under another type")
            handler = build_handler(type, function, delivery=delivery, max_attempts=max_attempts, timeout=timeout)
            self.handlers[type] = handler
            return handler

        return register

    def every(
        self,
        every: str | timedelta,
        type: str | Handler,
        input: Any = None,
        *,
        zone: str | None = None,
        name: str | None = None,
        catch_up: int = 1,
        **options: Unpack[JobOptions],
    ) -> None:
        """Submit a job at every tick of a cron expression (in a time zone; UTC without one) or of an interval, once.

        Every worker of this app submits the ticks, and each tick becomes one job, however many workers there are. After an
        outage or a pause, up to `catch_up` missed ticks are submitted. The name, by default the type, identifies the schedule.
        """
        handler = type if isinstance(type, Handler) else self.handlers.get(type)
        type_name = type.type if isinstance(type, Handler) else type
        name = checked_name("schedule", type_name if name is None else name)
        if name in self.schedules:
            raise Invalid("schedule", f"there is a schedule {name!r} already; give this one another name=")
        if options.get("run_at") is not None:
            raise Invalid("run_at", "a schedule says when its jobs run; leave run_at out")
        defaults: JobOptions = {} if handler is None else handler.submission_options()
        submission = with_prepared_input(Submission(type=type_name, input=input, **(defaults | options)))
        build_submit(submission, Caller(), bytes(JOB_ID_BYTES))  # refuses a wrong option here, not at the first tick
        self.schedules[name] = Schedule(
            name=name,
            timetable=build_timetable(every, zone),
            catch_up=checked_catch_up(catch_up),
            submission=submission,
        )

    def handlers_for(self, types: Sequence[str] | None) -> dict[str, Handler]:
        """The handlers of these types; of all types for None."""
        unknown = [type for type in types or () if type not in self.handlers]
        if unknown or not self.handlers:
            raise Invalid("types", f"no handler for {', '.join(unknown) or 'any type'}; register one with @app.job")
        return {type: self.handlers[type] for type in types or self.handlers}

    def worker(self, queue: Ledger, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker on this ledger: await its `run`. The options are those of `Worker`."""
        return Worker(self, queue, **options)

    @asynccontextmanager
    async def background_worker(self, queue: Ledger, **options: Unpack[WorkerOptions]) -> AsyncIterator[Worker]:
        """Run a worker during the `async with` block, and shut it down gracefully at its end."""
        worker = self.worker(queue, **options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running


def load_app(import_path: str) -> App:
    """Import the app `module:name`; modules in the current directory are found too."""
    loaded = load_object(import_path, what="app", label="the app")
    if not isinstance(loaded, App):
        raise Invalid("app", f"{import_path} is not a onejob.App; name one")
    return loaded
