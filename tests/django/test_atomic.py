"""`@once(atomic=True)`: what a view writes and the answer to its key are one commit."""

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from django.conf import settings
from django.db import connections, transaction
from django.http import Http404, JsonResponse, StreamingHttpResponse
from django.test import Client, override_settings
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.views import APIView

import onejob
from onejob.django import get_ledger, in_transaction, once
from onejob.django.ledger import close_layer
from onejob.middleware.blocking import BlockingRequest
from tests.django import tasks_of_tests as tasks
from tests.django.conftest import owner
from tests.support.django_project import use_database
from tests.support.postgres_server import Server

Serve = Callable[[Any], None]


@pytest.fixture(scope="module")
def database(postgres: Server) -> str:
    return postgres.database()


@pytest.fixture
def shop(database: str) -> Iterator[Client]:
    use_database("ledger", database)
    write("DROP TABLE IF EXISTS payment")
    write("CREATE TABLE payment (amount int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with override_settings(ONEJOB={"DATABASE": "ledger", "SCOPE": owner, "LEASE": 2}):
        get_ledger().admin.purge()
        yield Client(raise_request_exception=False)
    close_layer()
    connections["ledger"].close()


def write(statement: str) -> None:
    with connections["ledger"].cursor() as cursor:
        cursor.execute(statement)


def payments() -> int:
    with connections["ledger"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM payment")
        return int(cursor.fetchone()[0])


def pay(client: Client, key: str = "k") -> Any:
    return client.post("/pay", {"amount": 7}, content_type="application/json", HTTP_IDEMPOTENCY_KEY=key)


def paying(then: Callable[[], Any], **options: Any) -> Any:
    """A view that writes a payment and then does this."""

    @once(atomic=True, **options)
    def view(request: Any) -> Any:
        write("INSERT INTO payment VALUES (7)")
        return then()

    return view


def test_the_payment_the_job_and_the_answer_are_one_commit(shop: Client, serve: Serve) -> None:
    serve(paying(lambda: JsonResponse({"job": in_transaction().submit("invoice", 7).job_id}, status=201)))
    first, again = pay(shop), pay(shop)
    assert (first.status_code, again["Idempotent-Replayed"], again.content) == (201, "true", first.content)
    assert first["Idempotency-Expires"] == again["Idempotency-Expires"]
    assert payments() == 1
    assert [job.id for job in get_ledger().jobs()] == [first.json()["job"]]


def test_threads_write_once(shop: Client, serve: Serve) -> None:
    serve(paying(lambda: JsonResponse({})))
    answers: list[Any] = []

    def ask() -> None:
        answers.append(pay(Client()).status_code)
        connections["ledger"].close()

    threads = [Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [200] * 20
    assert payments() == 1


def raise_error(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("then", "status", "is_stored"),
    [
        (lambda: raise_error(RuntimeError("x")), 500, False),
        (lambda: JsonResponse({}, status=503), 503, False),
        (lambda: raise_error(Http404("gone")), 404, True),
        (lambda: raise_error(onejob.Unavailable("x")), 500, False),
    ],
)
def test_a_view_that_fails_leaves_no_payment(
    shop: Client, serve: Serve, then: Callable[[], Any], status: int, is_stored: bool
) -> None:
    serve(paying(then))
    for expected in (False, is_stored):
        answer = pay(shop)
        assert (answer.status_code, "Idempotent-Replayed" in answer) == (status, expected)
    assert payments() == 0


def test_a_commit_that_fails_releases_the_key(shop: Client, serve: Serve) -> None:
    write("INSERT INTO payment VALUES (7)")  # the second one violates a deferred constraint, at the commit
    serve(paying(lambda: JsonResponse({})))
    assert pay(shop).status_code == 500
    write("DELETE FROM payment")
    answer = pay(shop)
    assert (answer.status_code, "Idempotent-Replayed" in answer, payments()) == (200, False, 1)


def test_a_view_whose_lease_was_taken_over_is_rolled_back(
    shop: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = BlockingRequest.settle_elsewhere

    def settle_late(self: BlockingRequest, settle_inside: Any) -> Any:
        get_ledger().run(self._held.fail())  # the key is free: another holder may take it
        return settle(self, settle_inside)

    monkeypatch.setattr(BlockingRequest, "settle_elsewhere", settle_late)
    serve(paying(lambda: JsonResponse({})))
    answer = pay(shop)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert payments() == 0
    monkeypatch.undo()
    assert (pay(shop).status_code, payments()) == (200, 1)


def test_an_outer_transaction_that_rolls_back_undoes_both(shop: Client, serve: Serve) -> None:
    view = paying(lambda: JsonResponse({}))

    def outer(request: Any) -> Any:
        with transaction.atomic(using="ledger"):
            view(request)
            raise RuntimeError("after the view")

    serve(outer)
    with override_settings(MIDDLEWARE=[]):
        assert pay(Client(raise_request_exception=False)).status_code == 500
    assert payments() == 0
    serve(view)
    answer = pay(shop)  # waits for the lease
    assert (answer.status_code, "Idempotent-Replayed" in answer, payments()) == (200, False, 1)


class RestPayments(APIView):
    authentication_classes = ()
    permission_classes = ()

    @once(atomic=True)
    def post(self, request: Any) -> Any:
        write("INSERT INTO payment VALUES (7)")
        if request.data["amount"] != 7:
            raise ValidationError({"amount": "it is always 7"})
        return Response({"amount": 7}, status=201)


def test_rest_framework_pays_once_and_an_invalid_request_pays_nothing(shop: Client) -> None:
    from django.urls import path

    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": [path("pay", RestPayments.as_view())]})):
        wrong = [
            shop.post("/pay", {"amount": 8}, content_type="application/json", HTTP_IDEMPOTENCY_KEY="w")
            for _ in range(2)
        ]
        assert [answer.status_code for answer in wrong] == [400, 400]
        assert wrong[1]["Idempotent-Replayed"] == "true"
        assert payments() == 0
        assert [pay(shop).status_code for _ in range(2)] == [201, 201]
        assert payments() == 1


def test_a_task_that_is_enqueued_in_a_transaction_is_part_of_it(shop: Client) -> None:
    with transaction.atomic(using="ledger"):
        rolled_back = tasks.add.enqueue(1)
        transaction.set_rollback(True, using="ledger")
    with transaction.atomic(using="ledger"):
        committed = tasks.add.enqueue(2)
    assert [job.id for job in get_ledger().jobs()] == [committed.id]
    assert rolled_back.id != committed.id


def test_a_ledger_elsewhere_cannot_be_part_of_a_transaction(client: Client, serve: Serve) -> None:
    runs: list[int] = []

    @once(atomic=True)
    def view(request: Any) -> Any:
        runs.append(1)
        return JsonResponse({})

    serve(view)
    assert pay(client).status_code == 500
    assert runs == []


@once
def pay_plainly(request: Any) -> Any:
    write("INSERT INTO payment VALUES (7)")
    return JsonResponse({"paid": True}, status=201)


class PayPlainly(APIView):
    @once
    def post(self, request: Any) -> Any:
        write("INSERT INTO payment VALUES (7)")
        return Response({"paid": True}, status=201)


@pytest.mark.parametrize("view", [pay_plainly, PayPlainly.as_view()])
def test_a_view_in_a_transaction_is_settled_after_the_commit(
    shop: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch, view: Any
) -> None:
    monkeypatch.setitem(connections.settings["ledger"], "ATOMIC_REQUESTS", True)
    serve(view)
    with override_settings(ONEJOB=settings.ONEJOB | {"RULES": ["POST /elsewhere"]}):
        write("INSERT INTO payment VALUES (7)")
        assert pay(shop).status_code == 500  # the second one violates a deferred constraint, at the commit
        write("DELETE FROM payment")
        answers = pay(shop), pay(shop)
        assert [(one.status_code, "Idempotent-Replayed" in one) for one in answers] == [(201, False), (201, True)]
    assert payments() == 1


def test_a_view_in_a_transaction_needs_the_middleware(
    shop: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(connections.settings["ledger"], "ATOMIC_REQUESTS", True)
    serve(pay_plainly)
    with override_settings(MIDDLEWARE=[]):
        assert [pay(shop).status_code for _ in range(2)] == [500, 500]
    assert "put onejob.django.IdempotencyMiddleware into MIDDLEWARE" in caplog.text
    assert payments() == 0


@once
def pay_and_break(request: Any) -> Any:
    def broken() -> Iterator[bytes]:
        yield b"0"
        raise RuntimeError("x")

    write("INSERT INTO payment VALUES (7)")
    return StreamingHttpResponse(broken(), headers={"Content-Length": "2"})


def test_a_stream_that_breaks_in_a_transaction_rolls_it_back(
    shop: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["ledger"], "ATOMIC_REQUESTS", True)
    serve(pay_and_break)
    with override_settings(ONEJOB=settings.ONEJOB | {"RULES": ["POST /elsewhere"]}):
        assert pay(shop).status_code == 500
    assert payments() == 0
