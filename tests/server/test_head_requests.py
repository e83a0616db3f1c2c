"""HEAD requests, and malformed request heads."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

import onejob
from onejob.http.app import HttpApp
from onejob.ledger.base import runtime_of
from tests.support.app_server import serve_app
from tests.support.raw_http import Server, receive_all, run_server

UNKNOWN_ID = "01a1e2f5-39f9-73f8-930c-48a088963d1e"
VARYING_HEADERS = ("x-request-id", "content-length", "date")  # they differ between any two responses


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_settings: str) -> Iterator[Server]:
    settings = f"{shared_settings}head_seconds_max = 0.2\n"
    with run_server(tmp_path_factory.mktemp("heads"), settings) as running:
        yield running


def stable_headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in VARYING_HEADERS}


def refusal_counts(server: Server) -> dict[str, float]:
    text = server.ask("GET", "/metrics").content.decode()
    return {
        sample.labels["status"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "onejob_http_refusals_total"
    }


async def test_every_get_path_answers_head(queue: onejob.Ledger) -> None:
    app = HttpApp(queue)
    job_id = (await queue.submit("t", idempotency_key="k")).job_id
    (attempt,) = await queue.claim("t", start=True)
    await queue.finish(attempt, {"done": True})
    paths = {route.path for route in app.routes.all if route.method == "GET" and not route.path.startswith("/assets/")}
    async with serve_app(app) as client:
        for path in paths:
            target = path.replace("{id}", job_id).replace("{key}", "k?scope=t").replace("{user}", "ann")
            target = target.replace("{client_id}/state", "c/state?scope=t").replace("/api/search", "/api/search?q=k")
            got, head = await client.open_stream(target), await client.open_stream(target, method="HEAD")
            assert (
                (head.status, stable_headers(head.headers))
                == (got.status, stable_headers(got.headers))
                == (
                    200,
                    stable_headers(head.headers),
                )
            ), path
            assert ("content-length" in head.headers) == ("content-length" in got.headers)
        assert not runtime_of(queue).job_watcher.watcher_count, "a HEAD request starts no stream"


def test_a_head_response_has_no_body_and_the_connection_goes_on(server: Server) -> None:
    job = server.submit("headed").body["job"]
    with server.connect() as connection:
        ask = f"HEAD /api/jobs/{job['id']} HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{ask}\r\n{ask}Connection: close\r\n\r\n".encode())
        answers = receive_all(connection)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answers.endswith(b"\r\n\r\n")
    assert b"{" not in answers
    assert b"content-length: 0" not in answers


@pytest.mark.parametrize(
    ("path", "status"), [(f"/api/jobs/{UNKNOWN_ID}", 404), ("/nowhere", 404), ("/api/jobs/x", 400)]
)
def test_the_head_response_of_a_problem_has_its_status(server: Server, path: str, status: int) -> None:
    with server.connect() as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = receive_all(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/problem+json" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_post_only_paths_refuse_head(server: Server) -> None:
    response = server.ask("DELETE", "/api/jobs")
    assert response.status == 405
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert server.ask("GET", "/api/jobs/batch").headers["allow"] == "POST"
    ask = b"HEAD /api/jobs/batch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert server.send_raw(ask)[0].status == 405


@pytest.mark.parametrize("second", [b"Host: localhost", b"host: elsewhere", b"HOST:"])
def test_two_hosts_are_refused(server: Server, second: bytes) -> None:
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + second + b"\r\n\r\n"
    (response,) = server.send_raw(asked)
    assert (response.status, response.code) == (400, "BAD_REQUEST")
    assert "two Host headers" in response.body["detail"]


def test_one_host_for_each_request_of_a_connection_is_fine(server: Server) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    response = server.send_raw(one + b"\r\n" + one + b"Connection: close\r\n\r\n")
    assert [reply.status for reply in response] == [200, 200]


def test_what_a_connection_refuses_is_counted(server: Server) -> None:
    before = refusal_counts(server)
    assert before.keys() == {"400", "408", "417", "431", "503"}
    server.send_raw(b"what is this\r\n\r\n")
    server.send_raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    server.send_raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: c\r\n\r\n")
    server.send_raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
    with server.connect() as connection:  # its body never comes
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert receive_all(connection).startswith(b"HTTP/1.1 408 ")
    after = refusal_counts(server)
    counted = {status: after[status] - before[status] for status in after}
    assert counted == {"400": 2, "408": 1, "417": 1, "431": 1, "503": 0}
