"""A shop: an order, its payment and the job that packs it are one commit. See README.md."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import onejob
from onejob.middleware.fastapi import IdempotentRoute, settled_session
from onejob.transaction import InTransaction

DATABASE = os.environ.get("SHOP_DATABASE", "postgresql://localhost/shop")
engine = create_async_engine(DATABASE.replace("postgresql:", "postgresql+asyncpg:"))
in_transaction = InTransaction()
jobs = onejob.App()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    is_paid: Mapped[bool] = mapped_column(default=False)
    is_packed: Mapped[bool] = mapped_column(default=False)


class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    cents: Mapped[int]


class NewOrder(BaseModel):
    item: str


class NewPayment(BaseModel):
    cents: int


async def get_session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session


# The key of a request is settled in this session's transaction. An endpoint does not commit.
SettledSession = Annotated[AsyncSession, Depends(settled_session(get_session, in_transaction))]


def customer(request: Request) -> str | None:
    """Whose keys they are; an application takes this from its authentication."""
    return request.headers.get("x-customer")


Route = IdempotentRoute.for_ledger(DATABASE, scope=customer, key="required")
router = APIRouter(route_class=Route)


@router.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: SettledSession) -> dict[str, int]:
    order = Order(item=new.item)
    session.add(order)
    await session.flush()
    return {"order": order.id}


@router.post("/orders/{order_id}/payment", status_code=201)
async def pay(order_id: int, new: NewPayment, session: SettledSession) -> dict[str, str]:
    order = await session.get(Order, order_id, with_for_update=True)
    if order is None or order.is_paid:
        raise HTTPException(409, "there is no such order, or it is paid")
    order.is_paid = True
    session.add(Payment(order_id=order_id, cents=new.cents))
    receipt = await in_transaction.asession(session).submit("pack", order_id, idempotency_key=f"pack-{order_id}")
    return {"job": receipt.job_id}


@jobs.job("pack")
async def pack(order_id: int, ctx: onejob.Context) -> None:
    async with AsyncSession(engine) as session, session.begin():
        order = await session.get(Order, order_id)
        assert order is not None
        order.is_packed = True
        await ctx.finish_inside(session, {"packed": order.item})  # the last statement: both commit, or neither


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with onejob.open(DATABASE) as queue, jobs.background_worker(queue):
        yield
    await Route.layer.aclose()
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
app.include_router(router)
