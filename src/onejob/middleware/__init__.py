"""Idempotency keys without jobs: for any ASGI application, FastAPI routes (`.fastapi`) and plain functions."""

from onejob.core.reserve import Verdict

from .asgi import IdempotencyMiddleware
from .function import ResultNotRetained, idempotent
from .layer import HEADERS
from .rules import VERDICTS, Need, Rule

__all__ = ["HEADERS", "VERDICTS", "IdempotencyMiddleware", "Need", "ResultNotRetained", "Rule", "Verdict", "idempotent"]
