"""Examining a server from here: does it live, is it ready, does it know us, is it on time."""

from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime

from onejob.clock import SystemClock
from onejob.core.moment import ms_of
from onejob.errors import OnejobError

from .calls import Said, Server
from .findings import Finding, fail, ok, warn

_OFFSET_SECONDS_MAX = 5
_NEAR = ("127.0.0.1", "::1", "localhost")


def of_server(server: Server) -> Iterator[Finding]:
    try:
        said = server.once("GET", "/healthz")
    except OnejobError as error:
        yield fail("server", str(error))
        return
    if said.status != 200:
        yield fail(
            "server", f"/healthz answered {said.status}", "see whether the URL is that of a onejob server"
        )
        return
    yield ok("server", "lives")
    yield _ready(server)
    yield _credential(server)
    yield clock(said)
    if not server.secure and server.host not in _NEAR:
        yield warn("transport", "http: API keys and inputs travel in clear", "put TLS in front, use https")


def _ready(server: Server) -> Finding:
    try:
        said = server.once("GET", "/readyz")
    except OnejobError as error:
        return fail("ready", str(error))
    if said.status == 200:
        return ok("ready", "its engine answers")
    return fail("ready", f"/readyz answered {said.status}", "run `onejob doctor` on its engine, read its log")


def _credential(server: Server) -> Finding:
    try:
        server.ask("GET", "/api/jobs?limit=1", repeat=True)
    except OnejobError as error:
        return fail("credential", str(error))
    return ok("credential", "may read jobs")


def clock(said: Said) -> Finding:
    try:
        theirs = parsedate_to_datetime(said.headers["date"])
    except (KeyError, ValueError):
        return warn("clock", "the server tells no time", "see whether a proxy removes the Date header")
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    seconds = (SystemClock().wall_ms() - ms_of(theirs)) / 1000
    if abs(seconds) <= _OFFSET_SECONDS_MAX:
        return ok("clock", "agrees with the clock here")
    return warn(
        "clock", f"the clock here differs by {seconds:+.0f} s", "set both by NTP; jobs follow the server's"
    )
