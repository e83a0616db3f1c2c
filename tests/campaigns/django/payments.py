"""Payments in examples/django_shop while its process is killed at five points: `python -m tests.campaigns.django`.

A client repeats each request until it has an answer. Then there must be one payment and one job, and an answer from before
the death must be replayed. With the key settled after the view, which is the control, a death between the commit and the
answer must make a second payment: the campaign can tell the difference.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

ROOT = Path(__file__).parents[3]
SHOP = ROOT / "examples" / "django_shop"
# Where the process dies: before the payment, after its INSERT, after the key was settled, after the commit, after the view.
POINTS = ("reserved", "paid", "settled", "committed", "answered")
DONE_POINTS = ("committed", "answered")
LEASE_SECONDS = 1
CONTROL_LEASE_SECONDS = 2  # a request of the control that loses its lease has paid
RETRY_SECONDS = 30.0


class Payment(NamedTuple):
    status: int
    is_replayed: bool
    body: Any
    payments: int
    jobs: int


class Shop:
    def __init__(self, port: int, point_file: Path, database: str) -> None:
        self._port = port
        self._point_file = point_file
        self._database = database

    def pay_while_dying(self, point: str, number: int) -> Payment:
        """Place an order, pay it while the process dies at this point, and say what is in the database then."""
        order = self.request("/orders", f"cart-{point}-{number}", b'{"amount": 42}')[2]["order"]
        jobs_before = self.count("SELECT count(*) FROM onejob.job")
        self._point_file.write_text(point)
        status, replayed, body = self.request(f"/orders/{order}/payment", f"pay-{point}-{number}", b"")
        assert not self._point_file.exists(), f"the process did not die at {point}"
        payments = self.count("SELECT count(*) FROM shop_payment WHERE order_id = %s", order)
        return Payment(status, replayed, body, payments, self.count("SELECT count(*) FROM onejob.job") - jobs_before)

    def count(self, statement: str, *values: Any) -> int:
        with psycopg.connect(self._database) as connection:
            row = connection.execute(statement, values).fetchone()
        assert row is not None
        return int(row[0])

    def request(self, path: str, key: str, body: bytes) -> tuple[int, bool, Any]:
        """Repeat a request until it is answered; a key that is held, or a server that starts, is worth another try."""
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                status, headers, data = self._send(path, key, body)
                if status not in (409, 503):
                    return status, headers.get("Idempotent-Replayed") == "true", json.loads(data)
            except (HTTPException, OSError):
                data = b"no answer"
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was not answered: {data!r}")
            time.sleep(0.05)

    def _send(self, path: str, key: str, body: bytes) -> tuple[int, Any, bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=RETRY_SECONDS)
        try:
            connection.request("POST", path, body, {"Idempotency-Key": f'"{key}"', "X-Customer": "ann"})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()


@contextmanager
def run_shop(folder: Path, database: str, *, settles_after_the_view: bool = False) -> Iterator[Shop]:
    """The shop on gunicorn, which forks its worker after the import and starts another one when it has died."""
    point_file = folder / "point"
    environment = os.environ | {
        "SHOP_DATABASE": database,
        "SHOP_LEASE": str(CONTROL_LEASE_SECONDS if settles_after_the_view else LEASE_SECONDS),
        "SHOP_POINT_FILE": str(point_file),
        "SHOP_SETTLES_AFTER_THE_VIEW": "1" if settles_after_the_view else "",
        "PYTHONPATH": os.pathsep.join([str(SHOP), str(ROOT), str(ROOT / "src")]),
    }
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=SHOP, env=environment, check=True, timeout=120)
    with socket.socket() as listener, (folder / "log").open("ab") as log:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        gunicorn = [sys.executable, "-m", "gunicorn", "tests.campaigns.django.killed_shop:application", "--preload"]
        process = subprocess.Popen(
            [*gunicorn, "--threads", "4", "--bind", f"fd://{listener.fileno()}", "--log-level", "critical"],
            cwd=ROOT,
            env=environment,
            pass_fds=(listener.fileno(),),
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Shop(port, point_file, database)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def find_wrong(point: str, paid: Payment) -> str:
    """What is wrong with a payment that was settled in its transaction; empty: nothing."""
    expected = (201, point in DONE_POINTS, 1, 1)
    found = (paid.status, paid.is_replayed, paid.payments, paid.jobs)
    return "" if found == expected else f"{point}: (status, replayed, payments, jobs) is {found}, not {expected}"
