"""A FastAPI app that accepts orders and runs them in the background, in one process on one file.

    pip install fastapi uvicorn
    uvicorn examples.fastapi_app:api
    curl -X POST 'localhost:8000/orders/ORD-1?amount=42'
    curl localhost:8000/orders/ORD-1

To run the jobs in another process, leave out `app.background_worker` and start `onejob worker examples.fastapi_app:app`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException

import onejob

STORE = "sqlite:///shop.db"
SCOPE = "charge_customer"
app = onejob.App()


class Order(msgspec.Struct):
    order: str
    amount: int


@app.job(SCOPE, max_attempts=5, timeout=30)
async def charge_customer(order: Order, ctx: onejob.Context) -> dict[str, Any]:
    await ctx.progress({"step": "charging"})
    return {"order": order.order, "paid": order.amount, "payment": ctx.job_id}


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with onejob.open(STORE) as queue, app.background_worker(queue, drain=timedelta(seconds=5)):
        api.state.queue = queue
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/orders/{order}", status_code=202)
async def place(order: str, amount: int) -> dict[str, Any]:
    """Submit an order; however often the request is repeated, the order is charged once."""
    try:
        receipt = await charge_customer.submit(api.state.queue, Order(order, amount), idempotency_key=f"charge-{order}")
    except onejob.IdempotencyConflict as conflict:
        raise HTTPException(409, str(conflict)) from conflict
    return {"job": receipt.job_id, "outcome": receipt.outcome}


@api.get("/orders/{order}")
async def show(order: str) -> dict[str, Any]:
    try:
        history = await api.state.queue.explain(f"charge-{order}", scope=SCOPE)
    except onejob.NotFound as missing:
        raise HTTPException(404, "no such order") from missing
    try:
        job = await api.state.queue.wait(history.job.id, timedelta(seconds=5))
    except TimeoutError:
        return {"state": "pending"}
    return {"state": job.state, "result": await api.state.queue.result(job.id) if job.state == "success" else None}
