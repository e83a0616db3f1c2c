"""Running jobs: handlers, and the worker that claims, keeps and finishes what they run."""

from .app import App
from .context import Context
from .handlers import Handler
from .verdicts import AttemptCancelled, Fatal, Retry
from .worker import Worker

__all__ = ["App", "AttemptCancelled", "Context", "Fatal", "Handler", "Retry", "Worker"]
