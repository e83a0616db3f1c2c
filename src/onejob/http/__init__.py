"""The HTTP service: an ASGI application that parses requests and presents replies, and its server."""
