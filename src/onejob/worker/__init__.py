"""Running jobs: handlers, and the worker that claims jobs, renews their leases and reports how they ended."""

from .app import App
from .context import AttemptCancelled, Context, Fatal, Retry
from .handlers import Handler
from .worker import Worker

__all__ = ["App", "AttemptCancelled", "Context", "Fatal", "Handler", "Retry", "Worker"]
