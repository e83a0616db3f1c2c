"""Examining a server from here: does it live, is it ready, does it know us, is it on time."""

from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime

from onejob.clock import SystemClock
from onejob.core.moment import to_ms
from onejob.errors import OnejobError

from .calls import ServerClient, ServerReply
from .findings import Finding, fail, ok, warn

_SERVER_OFFSET_SECONDS_MAX = 5
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


def check_server(server: ServerClient) -> Iterator[Finding]:
    try:
        said = server.send_once("GET", "/healthz")
    except OnejobError as error:
        yield fail("server", str(error))
        return
    if said.status != 200:
        yield fail(
            "server", f"/healthz answered {said.status}", "see whether the URL is that of a onejob server"
        )
        return
    yield ok("server", "lives")
    yield _check_readiness(server)
    yield _check_credential(server)
    yield check_server_clock(said)
    if not server.secure and server.host not in _LOOPBACK_HOSTS:
        yield warn("transport", "http: API keys and inputs travel in clear", "put TLS in front, use https")


def _check_readiness(server: ServerClient) -> Finding:
    try:
        said = server.send_once("GET", "/readyz")
    except OnejobError as error:
        return fail("ready", str(error))
    if said.status == 200:
        return ok("ready", "its engine answers")
    return fail("ready", f"/readyz answered {said.status}", "run `onejob doctor` on its engine, read its log")


def _check_credential(server: ServerClient) -> Finding:
    try:
        server.send("GET", "/api/jobs?limit=1", repeat=True)
    except OnejobError as error:
        return fail("credential", str(error))
    return ok("credential", "may read jobs")


def check_server_clock(response: ServerReply) -> Finding:
    try:
        theirs = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return warn("clock", "the server tells no time", "see whether a proxy removes the Date header")
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    seconds = (SystemClock().wall_ms() - to_ms(theirs)) / 1000
    if abs(seconds) <= _SERVER_OFFSET_SECONDS_MAX:
        return ok("clock", "agrees with the clock here")
    return warn(
        "clock", f"the clock here differs by {seconds:+.0f} s", "set both by NTP; jobs follow the server's"
    )
