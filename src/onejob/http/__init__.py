"""The HTTP edge: bare ASGI, parse and present; no rule lives here."""
