"""onejob for Django: the setting `ONEJOB`, a middleware, `@once` for views and REST framework, admin pages, a worker.

INSTALLED_APPS = [..., "onejob.django"]
MIDDLEWARE = [..., "onejob.django.IdempotencyMiddleware"]  # after the authentication
ONEJOB = {"LEDGER": "postgresql://…"}
"""

from .ledger import get_ledger, in_transaction
from .middleware import DjangoIdempotencyMiddleware as IdempotencyMiddleware
from .once import once

__all__ = ["IdempotencyMiddleware", "get_ledger", "in_transaction", "once"]
