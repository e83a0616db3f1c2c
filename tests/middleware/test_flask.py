"""Flask: the login first, then the key."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from flask import Flask, Response, abort, g, jsonify, request, send_file

from onejob.middleware import Need, Rule
from onejob.middleware.flask import FlaskIdempotency
from onejob.transaction import InTransaction
from tests.support.postgres_server import Server


class Shop:
    def __init__(self, store: str, folder: Path) -> None:
        self.runs = 0
        self.app = Flask(__name__)
        self._folder = folder
        self.app.before_request(self.login)
        rules = [Rule("POST /needed", Need.REQUIRED), Rule("POST /**")]
        self.idempotency = FlaskIdempotency(None, store, scope=lambda _: str(g.user), rules=rules)
        self.idempotency.init_app(self.app)
        for view in (self.pay, self.needed, self.form, self.file, self.gone, self.broken, self.propagates):
            self.app.post(f"/{view.__name__}")(view)
        self.client = self.app.test_client()

    def login(self) -> None:
        g.user = request.headers.get("Authorization") or abort(401)
        if "parse" in request.args:
            _ = request.form

    def ask(self, path: str, key: str | None = "k", user: str = "ann", **options: Any) -> Any:
        headers = ({} if key is None else {"Idempotency-Key": key}) | {"Authorization": user}
        return self.client.post(path, headers={name: value for name, value in headers.items() if value}, **options)

    def count(self) -> int:
        self.runs += 1
        return self.runs

    def pay(self) -> Any:
        return jsonify(n=self.count(), amount=request.get_json()["amount"]), 201

    def needed(self) -> Any:
        return jsonify(n=self.count())

    def form(self) -> Any:
        return jsonify(n=self.count(), amount=request.form["amount"])

    def file(self) -> Any:
        self.count()
        path = self._folder / "file.txt"
        path.write_text("text")
        return send_file(path)

    def gone(self) -> Any:
        self.count()
        abort(404)

    def broken(self) -> Any:
        self.count()
        raise RuntimeError("broken")

    def propagates(self) -> Any:
        self.count()
        return Response(iter([b"a", b"b"]))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(f"sqlite:///{tmp_path / 'keys.db'}", tmp_path)
    yield made
    made.idempotency.close()


def test_a_view_runs_once_for_each_user_and_the_login_is_first(shop: Shop) -> None:
    first, again = (shop.ask("/pay", json={"amount": 7}) for _ in range(2))
    assert (first.status_code, again.headers["Idempotent-Replayed"], again.data) == (201, "true", first.data)
    assert shop.ask("/pay", json={"amount": 8}).status_code == 422
    assert shop.ask("/pay", user="", json={"amount": 7}).status_code == 401
    assert "Idempotent-Replayed" not in shop.ask("/pay", user="bob", json={"amount": 7}).headers
    assert shop.ask("/needed", None).get_json()["error"]["code"] == "KEY_MISSING"
    assert shop.runs == 2


def test_a_form_is_read_after_the_key_and_one_that_was_read_before_is_refused(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert shop.ask("/form", data={"amount": "7"}).get_json() == {"n": 1, "amount": "7"}
    assert shop.ask("/form", data={"amount": "8"}).status_code == 422
    assert shop.ask("/form?parse", "other", data={"amount": "7"}).status_code == 500
    assert "call get_data() first" in caplog.text
    assert shop.runs == 1


@pytest.mark.parametrize(("path", "status", "runs"), [("/gone", 404, 1), ("/broken", 500, 2), ("/file", 200, 1)])
def test_errors_and_files_are_answers_by_their_status(shop: Shop, path: str, status: int, runs: int) -> None:
    bodies = []
    for _ in range(2):
        answer = shop.ask(path)
        assert answer.status_code == status
        bodies.append(answer.data)
        answer.close()
    assert bodies[0] == bodies[1]
    assert shop.runs == runs


def test_an_exception_that_flask_does_not_answer_releases_the_key(shop: Shop) -> None:
    shop.app.config["PROPAGATE_EXCEPTIONS"] = True
    for _ in range(2):
        with pytest.raises(RuntimeError):
            shop.ask("/broken")
    assert shop.runs == 2


def test_a_stream_is_settled_when_it_begins(shop: Shop) -> None:
    assert shop.ask("/propagates").data == b"ab"
    assert shop.ask("/propagates").status_code == 410
    assert shop.runs == 1


def test_a_large_body_is_refused(shop: Shop) -> None:
    assert shop.ask("/form", data=b"x" * ((1 << 20) + 1)).status_code == 413
    assert shop.runs == 0


@pytest.mark.parametrize("fails", ["after", "at the commit", "not"])
def test_a_key_that_is_settled_in_a_transaction_is_as_true_as_its_commit(postgres: Server, fails: str) -> None:
    database = postgres.database()
    app = Flask(__name__)
    idempotency = FlaskIdempotency(app, f"{database}?schema=onejob", scope=lambda _: "ann")
    in_transaction = InTransaction(schema="onejob")
    failures = [fails]
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE payment (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    @app.post("/pay")
    def pay() -> Any:
        fails = failures.pop() if failures else "not"
        with closing(psycopg.connect(database)) as connection, connection.transaction():
            connection.execute("INSERT INTO payment VALUES (1)")
            if fails == "at the commit":
                connection.execute("INSERT INTO payment VALUES (1)")
            response = idempotency.settle_inside(in_transaction.psycopg(connection), jsonify(paid=True))
            if fails == "after":
                raise RuntimeError("after the key was settled")
        return response

    client = app.test_client()
    answers = [client.post("/pay", headers={"Idempotency-Key": "k"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200 if fails == "not" else 500, 200, 200]
    assert ["Idempotent-Replayed" in answer.headers for answer in answers] == [False, fails == "not", True]
    assert "Idempotency-Expires" in answers[1].headers
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM payment").fetchone() == (1,)
    idempotency.close()
