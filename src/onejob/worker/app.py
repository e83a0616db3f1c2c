"""`onejob.App`: handlers by the type of their jobs, and workers that run them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from onejob.core.states import Delivery
from onejob.errors import Invalid
from onejob.ledger import Ledger
from onejob.ledger.parse import ATTEMPTS_DEFAULT

from .handlers import Handler, build_handler, describe_exception
from .worker import Worker


class App:
    """`describe` gives the words that are kept of a failure; by default its kind and place, never its message."""

    def __init__(self, *, describe: Callable[[BaseException], str] = describe_exception) -> None:
        self.handlers: dict[str, Handler] = {}
        self.describe = describe

    def job(
        self,
        type: str,
        *,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        max_attempts: int = ATTEMPTS_DEFAULT,
        timeout: timedelta | float | None = None,
    ) -> Callable[[Callable[..., Any]], Handler]:
        """Let a function run the jobs of a type; async ones on the loop, plain ones in threads."""

        def taken(function: Callable[..., Any]) -> Handler:
            if type in self.handlers:
                raise Invalid("job", f"{type} has a handler already; give the other another type")
            handler = build_handler(type, function, delivery=delivery, max_attempts=max_attempts, timeout=timeout)
            self.handlers[type] = handler
            return handler

        return taken

    def handlers_for(self, types: Sequence[str] | None) -> dict[str, Handler]:
        """The handlers of these types, or all."""
        unknown = [type for type in types or () if type not in self.handlers]
        if unknown or not self.handlers:
            raise Invalid(
                "types",
                f"there is no handler for {', '.join(unknown) or 'anything'}; write one with @app.job",
            )
        return {type: self.handlers[type] for type in types or self.handlers}

    def worker(self, queue: Ledger, **options: Any) -> Worker:
        """A worker on a ledger: await its `run`. Options are those of `Worker`."""
        return Worker(self, queue, **options)

    @asynccontextmanager
    async def background_worker(self, queue: Ledger, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs beside what is inside, and leaves in order after it."""
        worker = self.worker(queue, **options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running


# An app by its name, as the command line says it.


def load_app(import_path: str) -> App:
    """The app that `module:name` means; modules are also found where the command is given."""
    module, colon, path = import_path.partition(":")
    if not (module and colon and path):
        raise Invalid("app", f"{import_path!r} names no app; write it as module:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that nothing there can stand in for what is installed
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # a module may raise anything while it is imported
        raise Invalid("app", f"{import_path} cannot be loaded ({error}); mend it") from error
    if not isinstance(found, App):
        raise Invalid("app", f"{import_path} is no onejob.App; name one")
    return found
