"""Applications that count their runs in a file, for a server in its own process."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.routing import APIRouter
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from onejob.middleware import IdempotencyMiddleware, Need, Rule
from onejob.middleware.fastapi import IdempotentRoute

FOLDER = Path(os.environ.get("COUNTED_FOLDER", "."))
STORE = os.environ.get("COUNTED_STORE", "memory://")
LARGE = 10 << 20


def count_run(name: str) -> int:
    """Append a line to a file that processes share; returns how many runs it has now."""
    with (FOLDER / "runs").open("a") as runs:
        runs.write(f"{name}\n")
    return (FOLDER / "runs").read_text().split().count(name)


async def plain(request: Request) -> Response:
    n = count_run("plain")
    headers = {"location": "/orders/1", "x-private": "1", "set-cookie": "session=1"}
    return JSONResponse({"n": n, "body": (await request.body()).decode()}, 201, headers)


async def slow(request: Request) -> Response:
    n = count_run("slow")
    await asyncio.sleep(1)
    return JSONResponse({"n": n})


async def hangs(request: Request) -> Response:
    if count_run("hangs") == 1:
        await asyncio.sleep(60)
    return JSONResponse({"n": 2})


async def raises(request: Request) -> Response:
    if count_run("raises") == 1:
        raise RuntimeError("the first time")
    return JSONResponse({"n": 2})


async def fails_once(request: Request) -> Response:
    n = count_run("fails_once")
    await asyncio.sleep(0.2)
    if n == 1:
        raise RuntimeError("the first time")
    return JSONResponse({"n": n})


async def stream(request: Request) -> Response:
    count_run("stream")

    async def parts() -> Any:
        for n in range(5):
            yield b"part %d\n" % n
            await asyncio.sleep(0.01)

    return StreamingResponse(parts())


async def empty(request: Request) -> Response:
    count_run("empty")
    return Response(status_code=204)


async def large(request: Request) -> Response:
    count_run("large")
    return Response(b"x" * LARGE)


async def charset(request: Request) -> Response:
    n = count_run("charset")
    return Response(b'{"n": %d}' % n, media_type="application/json; charset=utf-8")


async def status(request: Request) -> Response:
    code = int(request.path_params["code"])
    return JSONResponse({"n": count_run(f"status{code}")}, code)


async def after(request: Request) -> Response:
    count_run("after")
    return JSONResponse({}, background=BackgroundTask(count_run, "background"))


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()


async def split(scope: Any, receive: Any, send: Any) -> None:
    """A response with Content-Length, sent byte by byte; the last message has no body."""
    n = count_run("split")
    body = b'{"n": %d, "text": "1234"}' % n
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for byte in body:
        await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
    await send({"type": "http.response.body"})


NAMES = (plain, slow, hangs, raises, fails_once, stream, empty, large, charset, after)
METHODS = ["GET", "POST", "PUT", "DELETE"]

starlette = Starlette(
    routes=[
        *(Route(f"/{handler.__name__}", handler, methods=METHODS) for handler in NAMES),
        Route("/needed", plain, methods=METHODS),
        Route("/off", plain, methods=METHODS),
        Route("/status/{code}", status, methods=METHODS),
        WebSocketRoute("/echo", echo),
    ]
)
starlette.mount("/split", split)


def user(scope: Any) -> str | None:
    """The user in a header; a real application authenticates it."""
    name = dict(scope["headers"]).get(b"x-user", b"ann").decode()
    if name == "broken":
        raise LookupError(name)
    return name or None


app = IdempotencyMiddleware(
    starlette,
    STORE,
    scope=user,
    rules=(
        Rule("POST /needed", Need.REQUIRED),
        Rule("POST /off", Need.OFF),
        Rule("POST|PUT /**"),
    ),
    lease=timedelta(seconds=2.5),
)


class Order(BaseModel):
    item: str


async def authenticate(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    if not authorization:
        raise HTTPException(401, "who are you?")
    request.state.user = authorization


router = APIRouter(
    route_class=IdempotentRoute.for_ledger(STORE, scope=lambda request: request.state.user, key=Need.REQUIRED),
    dependencies=[Depends(authenticate)],
)


@router.post("/orders", status_code=201)
async def make(order: Order) -> dict[str, Any]:
    n = count_run("orders")
    await asyncio.sleep(0.2)
    if order.item == "none":
        raise HTTPException(404, "there is no such item")
    if order.item == "broken":
        raise RuntimeError("the item broke")
    return {"item": order.item, "n": n}


@router.post("/plainly")
def make_sync(order: Order) -> dict[str, Any]:
    return {"n": count_run("plainly")}


@router.get("/orders")
async def orders() -> dict[str, Any]:
    return {"n": count_run("listed")}


fastapi_app = FastAPI()
fastapi_app.include_router(router, prefix="/api")
