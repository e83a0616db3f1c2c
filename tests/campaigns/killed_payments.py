"""A payment view in FastAPI with SQLAlchemy whose process kills itself at a chosen point, and a campaign of such deaths.

    python -m tests.campaigns.killed_payments --kills 20

A program that has imported everything forks one process for each request, so that a death costs a few milliseconds.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

POINTS = ("before the key", "after the key", "after the payment", "before the commit", "after the commit")
LEASE = timedelta(milliseconds=500)
CONTROL_LEASE = timedelta(seconds=2)  # a request of the control that loses its lease has paid
BUSY = (409, 503)  # the key is held, or a slow machine has lost the short lease: send the request again
_TABLE = "CREATE TABLE IF NOT EXISTS payments (key text)"


class PaymentOutcome(NamedTuple):
    payments: int
    jobs: int
    is_replayed: bool


def build_app(url: str, death: str, *, is_settled_inside: bool) -> Any:
    """The view; with the control the key is settled after the view, in a commit of its own."""
    from fastapi import APIRouter, Depends, FastAPI, Request
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.pool import NullPool

    from onejob.middleware import fastapi as middleware
    from onejob.transaction import InTransaction

    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    in_transaction = InTransaction()

    def die_at(point: str) -> None:
        if point == death:
            os.kill(os.getpid(), signal.SIGKILL)

    async def get_session() -> AsyncIterator[AsyncSession]:
        die_at("before the key")
        async with AsyncSession(engine) as session:
            commit = session.commit

            async def dying_commit() -> None:
                die_at("before the commit")
                await commit()
                die_at("after the commit")

            session.commit = dying_commit  # type: ignore[method-assign]  # to die around it
            yield session

    lease = LEASE if is_settled_inside else CONTROL_LEASE
    dependency = middleware.settled_session(get_session, in_transaction) if is_settled_inside else get_session
    route = middleware.IdempotentRoute.for_ledger(url, scope=lambda _: "ann", lease=lease)
    router = APIRouter(route_class=route)

    @router.post("/payments", status_code=201)
    async def pay(request: Request, session: AsyncSession = Depends(dependency)) -> dict[str, str]:  # noqa: B008
        die_at("after the key")
        key = request.headers["idempotency-key"]
        await session.execute(text("INSERT INTO payments VALUES (:key)"), {"key": key})
        receipt = await in_transaction.asession(session).submit("receipt", {"key": key})
        die_at("after the payment")
        if not is_settled_inside:
            await session.commit()
        return {"job": receipt.job_id}

    app = FastAPI()
    app.include_router(router)
    return app


async def request(app: Any, key: str) -> tuple[int, dict[str, str]]:
    """One request, as a server hands it to the application."""
    headers = [(b"host", b"x"), (b"idempotency-key", key.encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/payments", "raw_path": b"/payments", "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[Any] = []
    given = iter([{"type": "http.request", "body": b"{}", "more_body": False}])

    async def receive() -> Any:
        if (message := next(given, None)) is not None:
            return message
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], fields


def serve_forks() -> None:
    """Read requests from standard input, run each in a fork, and print what it answered, or that it died."""
    for name in ("asyncpg", "fastapi", "sqlalchemy.ext.asyncio", "onejob.transaction", "onejob.middleware.fastapi"):
        import_module(name)
    for line in sys.stdin:
        url, death, key, is_settled_inside = json.loads(line)
        reader, writer = os.pipe()
        if not (child := os.fork()):
            app = build_app(url, death, is_settled_inside=is_settled_inside)
            status, headers = asyncio.run(request(app, key))
            os.write(writer, json.dumps([status, headers.get("idempotent-replayed") == "true"]).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as answer:
            print(answer.read().decode() or "null", flush=True)


class ForkServer:
    def __init__(self, url: str) -> None:
        self._url = url
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.killed_payments", "--serve-forks"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def ask(self, death: str, key: str, *, is_settled_inside: bool) -> tuple[int, bool] | None:
        """The status and whether it was replayed; None if the process died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([self._url, death, key, is_settled_inside]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer and tuple(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def pay_and_die(
    server: ForkServer, db: Any, point: str, key: str, *, is_settled_inside: bool = True
) -> PaymentOutcome:
    """A request whose process dies at the point, then its retries until one is answered, then one more."""
    await db.execute(_TABLE)
    jobs_before = await db.fetchval("SELECT count(*) FROM job")
    while (answer := server.ask(point, key, is_settled_inside=is_settled_inside)) is not None:
        assert answer[0] in BUSY, f"it was not killed {point}: {answer}"
    while answer is None or answer[0] in BUSY:
        if point not in (POINTS[0], POINTS[-1]):
            time.sleep(LEASE.total_seconds())  # noqa: ASYNC251 - nothing else runs here
        answer = server.ask("", key, is_settled_inside=is_settled_inside)
    assert answer[0] == 201, answer
    while (repeated := server.ask("", key, is_settled_inside=is_settled_inside)) is not None and repeated[0] in BUSY:
        pass
    payments = await db.fetchval("SELECT count(*) FROM payments WHERE key = $1", key)
    jobs = await db.fetchval("SELECT count(*) FROM job") - jobs_before
    return PaymentOutcome(payments, jobs, repeated == (201, True))


async def run_campaign(url: str, kills: int) -> bool:
    import asyncpg

    import onejob

    async with onejob.open(url):
        pass
    server, db = ForkServer(url), await asyncpg.connect(url)
    right = True
    for is_settled_inside in (True, False):
        print("settled inside the transaction:" if is_settled_inside else "control, settled after the view:")
        for point in POINTS:
            keys = (f"{point} {n} {is_settled_inside}".replace(" ", "-") for n in range(kills))
            outcomes = [await pay_and_die(server, db, point, key, is_settled_inside=is_settled_inside) for key in keys]
            once = outcomes.count(PaymentOutcome(1, 1, is_replayed=True))
            twice = sum(outcome.payments > 1 for outcome in outcomes)
            print(f"  killed {kills} times {point}: {once} paid once, {twice} paid twice", flush=True)
            right = right and (once if is_settled_inside or point != POINTS[-1] else twice) == kills
    server.close()
    await db.close()
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="at each of the five points; default: %(default)s")
    parser.add_argument("--serve-forks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_forks:
        serve_forks()
        return 0
    from tests.support.postgres_server import Server

    server = Server()
    try:
        server.init()
        server.start()
        return 0 if asyncio.run(run_campaign(server.database(), options.kills)) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
