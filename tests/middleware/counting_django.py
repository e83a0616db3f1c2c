"""The application of counting_apps in Django, behind its middleware."""

import time
from collections.abc import Iterator
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from tests.middleware.counting_apps import LARGE, STORE, count_run

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="tests",
    USE_TZ=True,
    INSTALLED_APPS=["onejob.django"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "onejob.django.IdempotencyMiddleware"],
    LOGGING_CONFIG=None,
    ONEJOB={
        "LEDGER": STORE,
        "SCOPE": f"{__name__}.user",
        "RULES": [("POST /needed", "required"), ("POST /off", "off"), "POST|PUT /**"],
        "LEASE": 2.5,
    },
)
django.setup()


def plain(request: Any) -> Any:
    headers = {"location": "/orders/1", "x-private": "1", "set-cookie": "session=1"}
    content = {"n": count_run("plain"), "body": request.body.decode()}
    return JsonResponse(content, status=201, headers=headers)


def slow(request: Any) -> Any:
    n = count_run("slow")
    time.sleep(1)
    return JsonResponse({"n": n})


def hangs(request: Any) -> Any:
    if count_run("hangs") == 1:
        time.sleep(60)
    return JsonResponse({"n": 2})


def raises(request: Any) -> Any:
    if count_run("raises") == 1:
        raise RuntimeError("the first time")
    return JsonResponse({"n": 2})


def fails_once(request: Any) -> Any:
    n = count_run("fails_once")
    time.sleep(0.2)
    if n == 1:
        raise RuntimeError("the first time")
    return JsonResponse({"n": n})


def parts() -> Iterator[bytes]:
    for n in range(5):
        yield b"part %d\n" % n
        time.sleep(0.01)


def stream(request: Any) -> Any:
    count_run("stream")
    return StreamingHttpResponse(parts())


def empty(request: Any) -> Any:
    count_run("empty")
    return HttpResponse(status=204)


def large(request: Any) -> Any:
    count_run("large")
    return HttpResponse(b"x" * LARGE)


def charset(request: Any) -> Any:
    return HttpResponse(b'{"n": %d}' % count_run("charset"), content_type="application/json; charset=utf-8")


class ClosingResponse(JsonResponse):
    def close(self) -> None:
        super().close()
        count_run("background")


def after(request: Any) -> Any:
    count_run("after")
    return ClosingResponse({})


def split(request: Any) -> Any:
    body = b'{"n": %d, "text": "1234"}' % count_run("split")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return StreamingHttpResponse((bytes([byte]) for byte in body), headers=headers)


def status(request: Any, code: int) -> Any:
    return JsonResponse({"n": count_run(f"status{code}")}, status=code)


def user(request: Any) -> str | None:
    """The user in a header; a real application authenticates it."""
    name = str(request.headers.get("x-user", "ann"))
    if name == "broken":
        raise LookupError(name)
    return name or None


urlpatterns = [
    *(path(view.__name__, view) for view in (plain, slow, hangs, raises, fails_once, stream, empty, large, charset)),
    path("after", after),
    path("needed", plain),
    path("off", plain),
    path("split/", split),
    path("status/<int:code>", status),
]

app = get_wsgi_application()
