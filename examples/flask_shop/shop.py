"""A shop in Flask: an order table, a payment that happens once, and the job that sends its invoice."""

import os
from typing import Any

import psycopg
from flask import Flask, Response, abort, jsonify, request

import onejob
from onejob.middleware import Need, Rule
from onejob.middleware.flask import FlaskIdempotency
from onejob.transaction import InTransaction

DATABASE = os.environ.get("SHOP_DATABASE", "postgresql://localhost/shop")
LEDGER = f"{DATABASE}?schema=onejob"  # in the same database, apart from the tables of the shop
TABLES = """
CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, amount int NOT NULL);
CREATE TABLE IF NOT EXISTS payments (id serial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, amount int NOT NULL);
"""

flask = Flask(__name__)
# This example believes a header; a shop authenticates its customers.
idempotency = FlaskIdempotency(
    flask, LEDGER, scope=lambda request: request.headers.get("X-Customer"), rules=[Rule("POST /**", Need.REQUIRED)]
)
in_transaction = InTransaction(schema="onejob")
jobs = onejob.App()


@flask.cli.command("create-tables")
def create_tables() -> None:
    with psycopg.connect(DATABASE) as connection:
        connection.execute(TABLES)


@flask.post("/orders")
def place() -> Response:
    with psycopg.connect(DATABASE) as connection:
        row = connection.execute(
            "INSERT INTO orders (amount) VALUES (%s) RETURNING id", [request.json["amount"]]
        ).fetchone()
        return idempotency.settle_inside(in_transaction.psycopg(connection), jsonify(order=row[0]))


@flask.post("/orders/<int:order>/payment")
def pay(order: int) -> Response:
    """The payment, the job and the answer are one commit, at the end of the `with`."""
    with psycopg.connect(DATABASE) as connection:
        row = connection.execute(
            "INSERT INTO payments (order_id, amount) SELECT id, amount FROM orders WHERE id = %s RETURNING id", [order]
        ).fetchone() or abort(404)
        commands = in_transaction.psycopg(connection)
        receipt = commands.submit("send_invoice", {"payment": row[0]}, idempotency_key=f"invoice-{row[0]}")
        return idempotency.settle_inside(commands, jsonify(payment=row[0], job=receipt.job_id))


@jobs.job("send_invoice")
def send_invoice(input: dict[str, int]) -> dict[str, Any]:
    with psycopg.connect(DATABASE) as connection:
        row = connection.execute("SELECT amount FROM payments WHERE id = %s", [input["payment"]]).fetchone()
    return {"sent": f"invoice for {row[0]}"}
