"""The baseline of HTTP: an ASGI application that reads the body and sends a constant response of our size."""

import socket

import uvicorn

BODY = b"x" * 526
HEADERS = [
    (b"content-type", b"application/json"),
    (b"location", b"/api/jobs/01a1e2f5-39f9-73f8-930c-48a088963d1e"),
    (b"idempotency-expires", b"2026-11-17T06:04:44.410000+00:00"),
    (b"cache-control", b"no-store"),
    (b"x-request-id", b"6ce612b4ba933402"),
    (b"content-length", b"%d" % len(BODY)),
]


async def empty(scope, receive, send):  # type: ignore[no-untyped-def]  # the baseline
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(empty, lifespan="off", log_config=None, access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listener])
