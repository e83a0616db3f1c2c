"""Running jobs: handlers, and the worker that claims, keeps and finishes what they run."""

from .app import App
from .context import AttemptCancelled, Context, Fatal, Retry
from .handlers import Handler
from .worker import Worker

__all__ = ["App", "AttemptCancelled", "Context", "Fatal", "Handler", "Retry", "Worker"]
