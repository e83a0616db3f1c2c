"""A Starlette application behind our middleware, a peer's or none: `python -m bench.middleware_side NAME STORE`."""

import socket
import sys
from importlib import import_module
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onejob.middleware import IdempotencyMiddleware


async def make(request: Request) -> Response:
    body = await request.json()
    return JSONResponse({"id": "ord_1", "amount": body["input"]["amount"], "note": "x" * 200}, 201)


def wrap(name: str, store: str) -> Any:
    app = Starlette(routes=[Route("/api/jobs", make, methods=["POST"])])
    if name == "onejob":
        return IdempotencyMiddleware(app, store, scope=lambda scope: "bench")
    if name == "asgi-idempotency-header":
        peer = import_module("idempotency_header_middleware")
        backends = import_module("idempotency_header_middleware.backends")
        redis = import_module("redis.asyncio").Redis(unix_socket_path=store)
        return peer.IdempotencyHeaderMiddleware(app, backends.RedisBackend(redis))
    return app


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(wrap(*sys.argv[1:]), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
