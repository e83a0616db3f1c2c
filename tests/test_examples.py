"""The examples run, and do what they say."""

import asyncio
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

ROOT = Path(__file__).parents[1]


def test_the_plain_script_charges_once_however_often_it_runs(tmp_path: Path) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, str(ROOT / "examples" / "plain_script.py")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for _ in range(2)
    ]
    assert [line.split()[:3] for line in outputs[0].splitlines()] == [
        ["ORD-1", "created", "success"],
        ["ORD-2", "created", "success"],
        ["ORD-1", "replayed", "success"],
    ]
    assert outputs[1] == outputs[0].replace("created", "replayed")


def test_the_demo_makes_one_job_and_one_result_for_each_order() -> None:
    command = [sys.executable, str(ROOT / "examples" / "lossy_network.py"), "20"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    figures = {line[:30].strip(): int(line[30:]) for line in told.splitlines()}
    assert figures["jobs created"] == figures["results"] == figures["orders charged exactly once"] == 20
    assert figures["requests sent"] >= 20


async def test_the_fastapi_app_runs_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    fastapi_app: Any = import_module("examples.fastapi_app")

    async def ask(method: str, path: str, query: str = "") -> tuple[int, Any]:
        """One request, straight to the application."""
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [],
            "state": {},
        }
        async with asyncio.timeout(20):
            await fastapi_app.api(scope, receive, send)
        return said[0]["status"], json.loads(b"".join(one.get("body", b"") for one in said[1:]))

    async with fastapi_app.lifespan(fastapi_app.api):
        first = await ask("POST", "/orders/ORD-1", "amount=42")
        again = await ask("POST", "/orders/ORD-1", "amount=42")
        assert (first[0], first[1]["outcome"], again[1]["outcome"]) == (202, "created", "replayed")
        assert first[1]["job"] == again[1]["job"]
        assert (await ask("POST", "/orders/ORD-1", "amount=43"))[0] == 409
        assert (await ask("GET", "/orders/none"))[0] == 404
        told = await ask("GET", "/orders/ORD-1")
        assert told[1]["result"] == {"order": "ORD-1", "paid": 42, "payment": first[1]["job"]}


async def test_the_shop_pays_and_packs_an_order_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", postgres_url)
    monkeypatch.syspath_prepend(str(ROOT))
    shop: Any = import_module("examples.fastapi_sqlalchemy_shop.shop")
    db = await asyncpg.connect(postgres_url)
    await db.execute("DROP TABLE IF EXISTS orders, payments")
    transport = httpx.ASGITransport(shop.app)
    client = httpx.AsyncClient(transport=transport, base_url="http://shop", headers={"x-customer": "ann"})
    async with shop.lifespan(shop.app), client:
        placed = await client.post("/orders", json={"item": "tea"}, headers={"idempotency-key": "o1"})
        path = f"/orders/{placed.json()['order']}/payment"
        answers = [await client.post(path, json={"cents": 5}, headers={"idempotency-key": "p1"}) for _ in range(3)]
        other = await client.post(path, json={"cents": 5}, headers={"idempotency-key": "p2"})
        while not await db.fetchval("SELECT bool_and(is_packed) FROM orders"):
            await asyncio.sleep(0.02)
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true", "true"]
    assert other.status_code == 409
    assert await db.fetch("SELECT order_id, cents FROM payments") == [(placed.json()["order"], 5)]
    assert await db.fetchval("SELECT state FROM job WHERE type = 'pack'") == "success"
    await db.execute("DROP TABLE orders, payments")
    await db.close()
