"""Running jobs: handlers, and the worker that claims jobs, renews their leases and reports how they ended."""

from .app import App
from .context import Context
from .exceptions import AttemptCancelled, Fatal, Retry, StepConflict, StepInterrupted
from .handlers import Handler
from .log_context import JobLogFilter, add_job_context, current_job
from .worker import Worker

__all__ = [
    "App",
    "AttemptCancelled",
    "Context",
    "Fatal",
    "Handler",
    "JobLogFilter",
    "Retry",
    "StepConflict",
    "StepInterrupted",
    "Worker",
    "add_job_context",
    "current_job",
]
