"""CORS: pages of other sites may call the service only if their origin is configured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob.core.errors import Invalid
from onejob.http.origins import checked_origins
from tests.support.raw_http import HttpResponse, Server, run_server

ALLOWED_ORIGIN = "https://app.example"
ADMITTED = {"idempotency-key", "authorization", "content-type", "x-api-key"}
EXPOSED = {"idempotent-replayed", "idempotency-expires", "location", "retry-after", "x-request-id"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    settings = f'{shared_settings}cors_origins = ["{ALLOWED_ORIGIN}", "http://localhost:3000"]'
    with run_server(tmp_path_factory.mktemp("cors"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def server_without_origins(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    """A server without configured origins."""
    with run_server(tmp_path_factory.mktemp("plain"), shared_settings) as running:
        yield running


def preflight(server: Server, origin: str, path: str = "/api/jobs") -> HttpResponse:
    return server.ask("OPTIONS", path, origin=origin, access_control_request_method="POST")


def cors_headers(reply: HttpResponse) -> set[str]:
    return {name for name in reply.headers if name.startswith("access-control-")}


def header_values(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")}


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/x/cancel", "/api/keys/k", "/healthz"])
def test_a_preflight_from_a_configured_origin_is_granted_for_every_path(server: Server, path: str) -> None:
    reply = preflight(server, ALLOWED_ORIGIN, path)
    assert (reply.status, reply.content) == (204, b"")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "content-length" not in reply.headers
    assert "transfer-encoding" not in reply.headers
    assert reply.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert header_values(reply.headers["access-control-allow-headers"]) >= ADMITTED
    assert header_values(reply.headers["access-control-allow-methods"]) >= {"get", "post", "delete"}
    assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in reply.headers


def test_an_answer_shows_our_headers_to_the_page(server: Server) -> None:
    for _ in range(2):
        reply = server.submit("k", origin=ALLOWED_ORIGIN)
        assert reply.status == 202
        assert reply.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
        assert header_values(reply.headers["access-control-expose-headers"]) >= EXPOSED
        assert reply.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in reply.headers


def test_a_problem_is_shown_to_the_page_too(server: Server) -> None:
    reply = server.ask("GET", "/nowhere", origin=ALLOWED_ORIGIN)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (404, ALLOWED_ORIGIN)


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.evil",
        "https://evil.example",
        "http://app.example",
        "https://app.example:8443",
        "null",
    ],
)
def test_another_origin_gets_no_cors_headers(server: Server, origin: str) -> None:
    asked = preflight(server, origin)
    assert asked.status == 405
    assert not cors_headers(asked)
    assert asked.headers["vary"] == "Origin"
    sent = server.submit(f"key-{origin}", origin=origin)
    assert sent.status == 401
    assert not cors_headers(sent)
    assert server.submit(f"key-{origin}").body["idempotency"]["outcome"] == "created"


def test_who_names_no_origin_is_answered_as_ever(server: Server) -> None:
    reply = server.ask("GET", "/api/jobs")
    assert reply.status == 200
    assert not cors_headers(reply)
    assert reply.headers["vary"] == "Origin"


def test_all_origins_may_be_admitted_but_never_with_credentials(tmp_path: Path, settings: str) -> None:
    with run_server(tmp_path, f'{settings}cors_origins = ["*"]') as server:
        for reply in (
            preflight(server, "https://any.example"),
            server.submit("k", origin="https://any.example"),
        ):
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers


def test_without_configuration_nothing_is_said_and_pages_of_other_sites_are_refused(
    server_without_origins: Server,
) -> None:
    assert preflight(server_without_origins, ALLOWED_ORIGIN).status == 405
    response = server_without_origins.ask("GET", "/healthz", origin=ALLOWED_ORIGIN)
    assert not cors_headers(response)
    assert "vary" not in response.headers
    refused = server_without_origins.submit("own", origin=ALLOWED_ORIGIN, content_type="text/plain")
    assert (refused.status, refused.code) == (401, "UNAUTHORIZED")
    own = server_without_origins.submit("own", origin="http://localhost")
    assert own.body["idempotency"]["outcome"] == "created"


def test_without_authentication_a_name_that_only_leads_here_is_refused(server_without_origins: Server) -> None:
    def status(host: bytes) -> int:
        data = b"GET /api/jobs HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host
        (reply,) = server_without_origins.send_raw(data)
        return reply.status

    for host in (b"localhost", b"LOCALHOST:8001", b"127.0.0.1", b"127.0.0.1:80", b"[::1]:8001", b""):
        assert status(host) == 200
    for host in (
        b"evil.example",
        b"evil.example:8001",
        b"127.0.0.1.evil.example",
        b"localhost.evil.example",
    ):
        assert status(host) == 401


FORM_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


@pytest.mark.parametrize("content_type", FORM_TYPES)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_another_site_sends_without_asking_first_is_refused(
    server_without_origins: Server, site: str, content_type: str
) -> None:
    key = f"{site}-{content_type[:4]}"
    reply = server_without_origins.submit(key, sec_fetch_site=site, content_type=content_type)
    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert reply.headers["accept"] == "application/json"
    untyped = server_without_origins.submit(key, sec_fetch_site=site)
    assert untyped.status == 415, "a page may send bytes without a type"
    cancel = server_without_origins.ask("POST", "/api/jobs/x/cancel", sec_fetch_site=site, content_type=content_type)
    assert cancel.status == 415
    assert server_without_origins.submit(key).body["idempotency"]["outcome"] == "created"


def test_an_allowed_origin_sends_json(server: Server) -> None:
    allowed = {"origin": ALLOWED_ORIGIN, "sec_fetch_site": "cross-site"}
    for content_type in FORM_TYPES:
        assert server.submit("typed", content_type=content_type, **allowed).status == 415
    assert server.submit("typed", content_type="application/json; charset=utf-8", **allowed).status == 202


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "application/json", "x"])
def test_whoever_is_not_a_page_of_another_site_may_send_any_type(
    server_without_origins: Server, content_type: str
) -> None:
    for headers in (
        {},  # `curl -d`
        {"sec_fetch_site": "same-origin", "origin": "http://localhost"},
        {"sec_fetch_site": "none"},
    ):
        assert server_without_origins.submit("plain", content_type=content_type, **headers).status == 202


def test_a_page_of_another_site_may_link_here(server_without_origins: Server) -> None:
    assert server_without_origins.ask("GET", "/docs", sec_fetch_site="cross-site").status == 200


@pytest.mark.parametrize(
    "origin", ["", "app.example", "https://app.example/", "https://*.example", "null", "ftp://app.example"]
)
def test_an_origin_that_no_browser_sends_stops_the_start(origin: str) -> None:
    with pytest.raises(Invalid, match="cors_origins"):
        checked_origins((origin,))
    assert checked_origins(("HTTPS://App.example", "*")) == {b"https://app.example", b"*"}
