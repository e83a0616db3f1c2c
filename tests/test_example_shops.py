"""The shops in examples run as their README says: an order, a payment sent many times at once, a worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.postgres_server import Server, free_port

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
# The commands of each README: tables, server, worker; and the table of payments.
SHOPS = {
    "django_shop": (["manage.py", "migrate", "-v", "0"], "shop.wsgi", ["manage.py", "onejob_worker"], "shop_payment"),
    "flask_shop": (
        ["-m", "flask", "--app", "shop:flask", "create-tables"],
        "shop:flask",
        ["-m", "onejob.cli", "worker", "shop:jobs", "--engine", "{database}?schema=onejob"],
        "payments",
    ),
}


@contextmanager
def run(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([PYTHON, *command], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def send(port: int, path: str, key: str, body: Any = None) -> tuple[int, Any]:
    """One request; while the server starts, it is sent again."""
    headers = {"Idempotency-Key": f'"{key}"', "X-Customer": "ann", "Content-Type": "application/json"}
    for _ in range(300):
        connection = HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("POST", path, "" if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read()
            return response.status, json.loads(data) if response.status < 300 else data
        except ConnectionRefusedError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise TimeoutError("the shop does not start")


@pytest.mark.parametrize("name", SHOPS)
def test_a_shop_charges_once_and_sends_the_invoice(name: str, postgres: Server) -> None:
    tables, app, worker, payments = SHOPS[name]
    database, port, folder = postgres.database(), free_port(), ROOT / "examples" / name
    environment = os.environ | {"SHOP_DATABASE": database, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}"}
    subprocess.run([PYTHON, *tables], cwd=folder, env=environment, check=True, timeout=120)
    server = ["-m", "gunicorn", "--threads", "8", "--bind", f"127.0.0.1:{port}", "--log-level", "critical", app]
    with run(server, folder, environment), ThreadPoolExecutor(8) as pool:
        order = send(port, "/orders", "cart", {"amount": 42})[1]["order"]
        answers = list(pool.map(lambda _: send(port, f"/orders/{order}/payment", "pay"), range(20)))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][0] in (200, 201)
        assert send(port, "/orders/999/payment", "none-such")[0] == 404
        with run([part.format(database=database) for part in worker], folder, environment):
            assert wait_for_result(database, answers[0][1]["job"]) == 1
    with psycopg.connect(database) as connection:
        assert connection.execute(f"SELECT count(*), min(amount) FROM {payments}").fetchone() == (1, 42)


def wait_for_result(database: str, job: str) -> int:
    """The number of jobs that have ended, once there is one."""
    with psycopg.connect(database, autocommit=True) as connection:
        for _ in range(600):
            row = connection.execute("SELECT count(*) FROM onejob.job WHERE state = 'success'").fetchone()
            if row is not None and row[0]:
                return int(row[0])
            time.sleep(0.05)
    raise TimeoutError(f"job {job} has not ended")
