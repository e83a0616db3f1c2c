"""`@once` on views, on methods of class-based views, and on views of REST framework."""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpResponse, JsonResponse
from django.template.response import SimpleTemplateResponse
from django.test import AsyncClient, Client, override_settings
from django.views import View
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view
from rest_framework.exceptions import NotFound, Throttled
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from onejob.django import once

pytestmark = pytest.mark.usefixtures("project")

Serve = Callable[[Any], None]
runs: list[str] = []


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


def pay(client: Client, key: str | None = "k", body: Any = None, **headers: str) -> Any:
    named = {"HTTP_IDEMPOTENCY_KEY": key} if key is not None else {}
    return client.post("/pay", body or {"amount": 7}, content_type="application/json", **named, **headers)


def run(response: Any = None) -> Any:
    runs.append("ran")
    return response or JsonResponse({"n": len(runs)}, status=201)


@once
def plain(request: Any) -> Any:
    return run()


class PlainView(View):
    @once(key="required")
    def post(self, request: Any) -> Any:
        return run()

    @once
    def get(self, request: Any) -> Any:
        return run()


class Tokens(BaseAuthentication):
    """The user is known inside of the view only."""

    def authenticate(self, request: Any) -> Any:
        name = request.META.get("HTTP_AUTHORIZATION")
        return None if name is None else (type("User", (), {"username": name, "is_authenticated": True})(), None)

    def authenticate_header(self, request: Any) -> str:
        return "Token"


class ReadsBody(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        return bool(request.data)


class RestView(APIView):
    authentication_classes = (Tokens,)
    permission_classes = (IsAuthenticated, ReadsBody)

    @once
    def post(self, request: Any) -> Any:
        return run(Response({"n": len(runs), "amount": request.data["amount"]}, status=status.HTTP_201_CREATED))


class RestSet(ViewSet):
    permission_classes = ()

    @once
    def create(self, request: Any) -> Any:
        return run(Response({"n": len(runs)}))


@api_view(["POST"])
@once
def rest_function(request: Any) -> Any:
    return run(Response({"n": len(runs)}))


@pytest.mark.parametrize("middleware", [[], ["onejob.django.IdempotencyMiddleware"]])
@pytest.mark.parametrize(
    "view",
    [plain, PlainView.as_view(), RestSet.as_view({"post": "create"}), rest_function],
    ids=["function", "view", "viewset", "rest function"],
)
def test_a_view_runs_once_with_and_without_the_middleware(
    client: Client, serve: Serve, view: Any, middleware: list[str]
) -> None:
    serve(view)
    with override_settings(MIDDLEWARE=middleware, ROOT_URLCONF=type("Urls", (), {"urlpatterns": urls_for(view)})):
        first, again = pay(client), pay(client)
        assert first.content == again.content
        assert (first.status_code, again["Idempotent-Replayed"]) == (again.status_code, "true")
        assert "Idempotency-Expires" in first
        assert again["Content-Type"] == first["Content-Type"]
        assert pay(client, body={"amount": 8}).status_code == 422
        assert pay(client, HTTP_X_USER="bob").status_code == first.status_code
    assert len(runs) == 2


def urls_for(view: Any) -> list[Any]:
    from django.urls import path

    return [path("pay", view)]


def test_threads_run_a_view_once(serve: Serve) -> None:
    serve(plain)
    answers: list[Any] = []
    threads = [Thread(target=lambda: answers.append(pay(Client()))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 20
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, b'{"n": 1}')}
    assert len(runs) == 1


def test_a_safe_method_runs_every_time_and_a_required_key_is_required(client: Client, serve: Serve) -> None:
    serve(PlainView.as_view())
    for _ in range(2):
        assert client.get("/pay", HTTP_IDEMPOTENCY_KEY="k").status_code == 201
    missing = pay(client, None)
    assert (missing.status_code, missing.json()["error"]["code"]) == (400, "KEY_MISSING")
    assert len(runs) == 2


def test_rest_framework_authenticates_before_the_key_and_may_read_the_body(client: Client) -> None:
    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": urls_for(RestView.as_view())})):
        first = pay(client, HTTP_AUTHORIZATION="ann")
        assert (first.status_code, first.json()) == (201, {"n": 0, "amount": 7})
        again = pay(client, HTTP_AUTHORIZATION="ann")
        assert (again["Idempotent-Replayed"], again.content) == ("true", first.content)
        assert pay(client).status_code == 401
        assert "Idempotent-Replayed" not in pay(client, HTTP_AUTHORIZATION="bob")
    assert len(runs) == 2


def test_a_form_that_was_parsed_before_its_key_needs_the_middleware(caplog: pytest.LogCaptureFixture) -> None:
    urls = type("Urls", (), {"urlpatterns": urls_for(RestView.as_view())})
    form = {"path": "/pay", "data": {"amount": 7}, "HTTP_IDEMPOTENCY_KEY": "k", "HTTP_AUTHORIZATION": "ann"}
    with override_settings(MIDDLEWARE=[], ROOT_URLCONF=urls):
        assert Client().post(**form).status_code == 500
    assert runs == []
    assert "put IdempotencyMiddleware into MIDDLEWARE" in caplog.text
    with override_settings(ROOT_URLCONF=urls):
        assert [Client().post(**form).status_code for _ in range(2)] == [201, 201]
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("error", "expected", "count"),
    [(Http404("gone"), 404, 1), (NotFound(), 404, 1), (Throttled(), 429, 2), (RuntimeError("x"), 500, 2)],
)
@pytest.mark.parametrize("kind", ["plain", "rest"])
def test_exceptions_are_answers_by_their_status(
    client: Client, serve: Serve, kind: str, error: Exception, expected: int, count: int
) -> None:
    if kind == "plain" and not isinstance(error, Http404 | RuntimeError):
        return  # only REST framework knows it

    def fail(request: Any) -> Any:
        run()
        raise error

    view = once(fail) if kind == "plain" else api_view(["POST"])(once(fail))
    serve(view)
    for _ in range(2):
        assert pay(client).status_code == expected
    assert len(runs) == count


def test_a_template_is_rendered_before_it_is_stored(client: Client, serve: Serve) -> None:
    @once
    def view(request: Any) -> Any:
        run()
        return SimpleTemplateResponse("admin/onejob/missing.html")

    serve(view)
    for _ in range(2):
        assert pay(client).status_code == 500  # rendering failed: the key is free again
    assert len(runs) == 2


def test_a_coroutine_is_refused() -> None:
    async def view(request: Any) -> Any:
        return HttpResponse()

    with pytest.raises(ImproperlyConfigured, match="leave it to the middleware"):
        once(view)


async def test_a_coroutine_runs_once_behind_the_middleware(serve: Serve) -> None:
    async def view(request: Any) -> Any:
        await asyncio.sleep(0.05)
        return run()

    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": urls_for(view)})):
        client = AsyncClient()
        asked = (
            client.post("/pay", {"amount": 7}, content_type="application/json", headers={"Idempotency-Key": "k"})
            for _ in range(5)
        )
        answers = await asyncio.gather(*asked)
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, b'{"n": 1}')}
    assert len(runs) == 1
