"""The application of counting_apps in Flask, behind the WSGI middleware."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from flask import Flask, Response, jsonify, request

from onejob.middleware import Need, Rule, WsgiIdempotencyMiddleware
from tests.middleware.counting_apps import LARGE, METHODS, STORE, count_run

flask = Flask(__name__)


def plain() -> Response:
    response = jsonify(n=count_run("plain"), body=request.get_data().decode())
    response.status_code = 201
    response.headers.update({"location": "/orders/1", "x-private": "1", "set-cookie": "session=1"})
    response.autocorrect_location_header = False
    return response


def slow() -> Response:
    n = count_run("slow")
    time.sleep(1)
    return jsonify(n=n)


def hangs() -> Response:
    if count_run("hangs") == 1:
        time.sleep(60)
    return jsonify(n=2)


def raises() -> Response:
    if count_run("raises") == 1:
        raise RuntimeError("the first time")
    return jsonify(n=2)


def fails_once() -> Response:
    n = count_run("fails_once")
    time.sleep(0.2)
    if n == 1:
        raise RuntimeError("the first time")
    return jsonify(n=n)


def parts() -> Iterator[bytes]:
    for n in range(5):
        yield b"part %d\n" % n
        time.sleep(0.01)


def stream() -> Response:
    count_run("stream")
    return Response(parts())


def empty() -> Response:
    count_run("empty")
    return Response(status=204)


def large() -> Response:
    count_run("large")
    return Response(b"x" * LARGE)


def charset() -> Response:
    return Response(b'{"n": %d}' % count_run("charset"), content_type="application/json; charset=utf-8")


def after() -> Response:
    count_run("after")
    response = jsonify({})
    response.call_on_close(lambda: count_run("background"))
    return response


def split() -> Response:
    body = b'{"n": %d, "text": "1234"}' % count_run("split")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Response((bytes([byte]) for byte in body), headers=headers)


for handler in (plain, slow, hangs, raises, fails_once, stream, empty, large, charset, after):
    flask.add_url_rule(f"/{handler.__name__}", handler.__name__, handler, methods=METHODS)
flask.add_url_rule("/needed", "needed", plain, methods=METHODS)
flask.add_url_rule("/off", "off", plain, methods=METHODS)
flask.add_url_rule("/split/", "split", split, methods=METHODS)


@flask.route("/status/<int:code>", methods=METHODS)
def status(code: int) -> tuple[Response, int]:
    return jsonify(n=count_run(f"status{code}")), code


def user(environ: dict[str, Any]) -> str | None:
    """The user in a header; a real application authenticates it."""
    name = str(environ.get("HTTP_X_USER", "ann"))
    if name == "broken":
        raise LookupError(name)
    return name or None


RULES = (
    Rule("POST /needed", Need.REQUIRED),
    Rule("POST /off", Need.OFF),
    Rule("POST|PUT /**"),
)

app = WsgiIdempotencyMiddleware(flask.wsgi_app, STORE, scope=user, rules=RULES, lease=timedelta(seconds=2.5))
