"""FastAPI with SQLAlchemy: the request's key is settled in the session's transaction, with what the endpoint wrote."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import onejob
from onejob.core.errors import Invalid
from onejob.middleware.fastapi import IdempotentRoute, settled_session
from tests.campaigns.killed_payments import POINTS, ForkServer, pay_and_die
from tests.transaction.test_inside import count

PAY = text("INSERT INTO orders VALUES ('paid')")
SLOW_COMMIT = """
    CREATE TABLE IF NOT EXISTS slow_orders (n integer);
    CREATE OR REPLACE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); RETURN NULL; END';
    DROP TRIGGER IF EXISTS slow ON slow_orders;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow_orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep()
"""


@pytest.fixture
async def client(postgres_url: str, queue: onejob.Ledger, db: Any) -> AsyncIterator[httpx.AsyncClient]:
    engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    blocking = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    def get_blocking_session() -> Iterator[Session]:
        with Session(blocking) as session:
            yield session

    settled, settled_blocking = Depends(settled_session(get_session)), Depends(settled_session(get_blocking_session))
    lease = timedelta(seconds=2)
    router = APIRouter(route_class=IdempotentRoute.for_ledger(queue, scope=lambda _: "ann", lease=lease))

    @router.post("/pay", status_code=201)
    async def pay(session: AsyncSession = settled, fault: str = "") -> dict[str, bool]:
        await session.execute(PAY)
        match fault:
            case "exception":
                raise RuntimeError(fault)
            case "404":
                raise HTTPException(404, "no such order")
            case "commit":
                await session.execute(text("INSERT INTO strict_orders VALUES (1), (1)"))
            case "slow commit":
                await session.execute(text("INSERT INTO slow_orders VALUES (1)"))
            case "lease":
                await db.execute("UPDATE record SET token = token + 1, version = version + 1")
        return {"paid": True}

    @router.post("/pay-blocking", status_code=201)
    def pay_blocking(session: Session = settled_blocking) -> dict[str, bool]:
        session.execute(PAY)
        return {"paid": True}

    app = FastAPI()
    app.include_router(router)

    @app.post("/without-route-class")
    async def without(session: AsyncSession = settled) -> None: ...

    await db.execute(
        "CREATE TABLE IF NOT EXISTS strict_orders (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED); DELETE FROM strict_orders"
    )
    await db.execute(SLOW_COMMIT)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client
    await engine.dispose()


async def post(client: httpx.AsyncClient, path: str, key: str | None = "one") -> httpx.Response:
    return await client.post(path, headers={} if key is None else {"idempotency-key": key})


@pytest.mark.parametrize("path", ["/pay", "/pay-blocking"])
async def test_concurrent_duplicates_pay_once(client: httpx.AsyncClient, db: Any, path: str) -> None:
    answers = await asyncio.gather(*(post(client, path) for _ in range(10)))
    # The ledger of this test does not wait for a key in progress.
    assert {answer.status_code for answer in answers} <= {201, 409}
    answer = await post(client, path)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
    assert await count(db, "orders") == 1


@pytest.mark.parametrize("path", ["/pay", "/pay-blocking"])
async def test_a_request_without_a_key_is_committed_before_its_response(
    client: httpx.AsyncClient, db: Any, path: str
) -> None:
    for paid in (1, 2):
        assert (await post(client, path, None)).status_code == 201
        assert await count(db, "orders") == paid


@pytest.mark.parametrize("key", [None, "one"])
async def test_an_exception_rolls_back_and_frees_the_key(client: httpx.AsyncClient, db: Any, key: str | None) -> None:
    assert (await post(client, "/pay?fault=exception", key)).status_code == 500
    assert await count(db, "orders") == 0
    assert (await post(client, "/pay?fault=exception", key)).status_code == 500
    assert await count(db, "orders") == 0


async def test_an_http_exception_rolls_back_and_is_replayed(client: httpx.AsyncClient, db: Any) -> None:
    for replayed in (None, "true"):
        answer = await post(client, "/pay?fault=404")
        assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (404, replayed)
        assert await count(db, "orders") == 0


async def test_a_commit_that_fails_is_no_success(
    client: httpx.AsyncClient, db: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A deferred constraint fails at the commit, when the response is complete."""
    for _ in range(2):
        assert (await post(client, "/pay?fault=commit")).status_code == 503
        assert await count(db, "orders") == 0
    assert "was not committed" in caplog.text


async def test_a_commit_that_lasts_longer_than_the_lease_loses_nothing(client: httpx.AsyncClient, db: Any) -> None:
    """The lease is not renewed any more: a renewal would wait for the transaction, and stop the request."""
    answers = [await post(client, "/pay?fault=slow+commit") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert await count(db, "orders") == 1


async def test_a_request_that_lost_its_key_is_undone(client: httpx.AsyncClient, db: Any) -> None:
    assert (await post(client, "/pay?fault=lease")).status_code == 503
    assert await count(db, "orders") == 0


async def test_a_settled_session_needs_the_route_class(postgres_url: str, client: httpx.AsyncClient) -> None:
    raising = httpx.ASGITransport(client._transport.app)  # type: ignore[attr-defined]  # of an ASGI transport
    async with httpx.AsyncClient(transport=raising, base_url="http://shop") as strict:
        with pytest.raises(Invalid, match="route class"):
            await post(strict, "/without-route-class")


@pytest.fixture(scope="module")
def fork_url(postgres: Any) -> str:
    return str(postgres.database())


@pytest.fixture(scope="module")
def fork_server(fork_url: str) -> Iterator[ForkServer]:
    server = ForkServer(fork_url)
    yield server
    server.close()


@pytest.mark.parametrize("point", POINTS)
async def test_a_payment_whose_process_dies_is_made_once(fork_server: ForkServer, fork_url: str, point: str) -> None:
    async with onejob.open(fork_url, sweep=False):
        db = await asyncpg.connect(fork_url)
    for turn in range(2):
        outcome = await pay_and_die(fork_server, db, point, f"{point}-{turn}".replace(" ", "-"))
        assert outcome == (1, 1, True)
    await db.close()


async def test_settled_after_the_view_the_same_death_pays_twice(fork_server: ForkServer, fork_url: str) -> None:
    """The control: these tests can fail."""
    async with onejob.open(fork_url, sweep=False):
        db = await asyncpg.connect(fork_url)
    outcome = await pay_and_die(fork_server, db, POINTS[-1], "control", is_settled_inside=False)
    assert outcome == (2, 2, True)
    await db.close()
