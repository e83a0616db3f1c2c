"""Which job a log line belongs to: the id, attempt, type and tenant of the job whose handler is running.

For the standard library, on a handler of the root logger, so that the lines of every library have it:

    handler.addFilter(JobLogFilter())
    handler.setFormatter(logging.Formatter("%(levelname)s job=%(job_id)s attempt=%(attempt)s %(message)s"))

For structlog, as a processor: `structlog.configure(processors=[add_job_context, …])`.

Neither has the key nor the input.
"""

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

NO_JOB = "-"  # in lines that belong to no job


class JobLogContext(Struct, frozen=True, gc=False):
    job_id: str
    attempt: int
    job_type: str
    tenant: str


_CURRENT: ContextVar[JobLogContext | None] = ContextVar("onejob_job", default=None)


def set_current_job(context: JobLogContext) -> None:
    """Called by the worker, in the task of the attempt; threads of plain functions have a copy."""
    _CURRENT.set(context)


def current_job() -> JobLogContext | None:
    """The job whose handler calls this; None outside of handlers."""
    return _CURRENT.get()


class JobLogFilter(logging.Filter):
    """Adds `job_id`, `attempt`, `job_type` and `tenant` to every record, and lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = _CURRENT.get()
        for name in JobLogContext.__struct_fields__:
            if not hasattr(record, name):  # what the caller gave as `extra` stays
                setattr(record, name, NO_JOB if context is None else getattr(context, name))
        return True


def add_job_context(_: Any, __: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog. What the event or its logger has bound stays."""
    context = _CURRENT.get()
    if context is not None:
        for name, value in asdict(context).items():
            event_dict.setdefault(name, value)
    return event_dict
