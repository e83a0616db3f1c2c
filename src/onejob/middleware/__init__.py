"""Idempotency keys without jobs: for any ASGI or WSGI application, FastAPI routes (`.fastapi`) and plain functions."""

from onejob.core.reserve import Verdict

from .asgi import IdempotencyMiddleware
from .function import ResultNotRetained, idempotent
from .rules import HEADERS, VERDICTS, Need, Rule
from .wsgi import WsgiIdempotencyMiddleware

__all__ = [
    "HEADERS", "VERDICTS", "IdempotencyMiddleware", "Need", "ResultNotRetained", "Rule", "Verdict",
    "WsgiIdempotencyMiddleware", "idempotent",
]  # fmt: skip
