"""The middleware in a real server: whatever happens, a request with a key runs once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.middleware.servers import HttpResponse, Server, run_server


@pytest.fixture(scope="module", params=["asgi", "wsgi", "django"])
def app(request: pytest.FixtureRequest) -> str:
    """The same application behind each form of the middleware."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(app: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(app)
    environment = {"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "5"}
    with run_server(folder, f"sqlite:///{folder / 'keys.db'}", app, **environment) as running:
        yield running


async def send_concurrently(server: Server, path: str, key: str, many: int = 20) -> list[HttpResponse]:
    return await asyncio.gather(*(server.ask(path, key) for _ in range(many)))


@pytest.mark.parametrize("name", ["plain", "slow", "empty", "charset", "split/"])
async def test_concurrent_duplicates_run_the_handler_once_and_all_get_its_response(server: Server, name: str) -> None:
    before = server.runs(name.strip("/"))
    answers = await send_concurrently(server, f"/{name}", f"once-{name.strip('/')}")
    assert server.runs(name.strip("/")) == before + 1
    assert len({(answer.status, answer.body) for answer in answers}) == 1
    assert answers[0].status < 300
    assert sum(not answer.replayed for answer in answers) == 1


@pytest.mark.parametrize("name", ["stream", "large"])
async def test_a_response_that_cannot_be_stored_leaves_a_tombstone_and_never_runs_again(
    server: Server, name: str
) -> None:
    before = server.runs(name)
    first = await server.ask(f"/{name}", f"grave-{name}")
    assert first.status == 200
    assert len(first.body) > 30
    again = await server.ask(f"/{name}", f"grave-{name}")
    assert (again.status, again.code) == (410, "RESPONSE_NOT_RETAINED")
    assert again.json["error"]["details"] == {"originalStatus": 200}
    assert "retry-after" not in again.headers
    assert server.runs(name) == before + 1


@pytest.mark.parametrize("name", ["stream", "large"])
async def test_concurrent_duplicates_of_a_response_that_cannot_be_stored_run_once(server: Server, name: str) -> None:
    before = server.runs(name)
    answers = await send_concurrently(server, f"/{name}", f"graves-{name}")
    assert server.runs(name) == before + 1
    assert sorted(answer.status for answer in answers) == [200] + [410] * 19


async def test_concurrent_duplicates_of_an_exception_get_the_first_success(
    server: Server,
) -> None:
    before = server.runs("fails_once")
    answers = await send_concurrently(server, "/fails_once", "rs")
    assert server.runs("fails_once") == before + 2
    assert sorted(answer.status for answer in answers) == [200] * 19 + [500]
    assert len({answer.body for answer in answers if answer.status == 200}) == 1


async def test_an_exception_releases_the_key_at_once(server: Server) -> None:
    assert (await server.ask("/raises", "r")).status == 500
    assert (await server.ask("/raises", "r")).json == {"n": 2}
    assert (await server.ask("/raises", "r")).replayed
    assert server.runs("raises") == 2


async def test_a_client_that_disconnects_does_not_stop_the_handler(server: Server) -> None:
    before = server.runs("slow")
    _, writer = await server.send_request("/slow", "left")
    while server.runs("slow") == before:
        await asyncio.sleep(0.01)
    writer.transport.abort()
    answer = await server.ask("/slow", "left")
    assert (answer.status, answer.replayed) == (200, True)
    assert server.runs("slow") == before + 1


async def test_a_long_handler_renews_its_lease_and_its_duplicate_gets_retry_after(
    tmp_path: Path,
    app: str,
) -> None:
    environment = {"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "0.2"}
    with run_server(tmp_path, f"sqlite:///{tmp_path / 'keys.db'}", app, **environment) as server:
        _, writer = await server.send_request("/hangs", "long")
        while not server.runs("hangs"):
            await asyncio.sleep(0.01)
        for _ in range(15):  # 3 s, beyond the lease of 2.5 s
            answer = await server.ask("/hangs", "long")
            assert (answer.status, answer.code) == (409, "IN_PROGRESS")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["cache-control"] == "no-store"
        assert (await server.ask("/hangs", "long", b"other")).status == 422  # a mismatch beats in-progress
        assert server.runs("hangs") == 1
        server.kill()
        writer.transport.abort()


async def test_after_a_crash_the_request_runs_again_when_the_lease_has_expired(tmp_path: Path, app: str) -> None:
    store = f"sqlite:///{tmp_path / 'keys.db'}"
    with run_server(tmp_path, store, app) as server:
        _, writer = await server.send_request("/hangs", "crash")
        while not server.runs("hangs"):
            await asyncio.sleep(0.01)
        server.kill()
        writer.transport.abort()
    with run_server(tmp_path, store, app) as server:
        answer = await server.ask("/hangs", "crash")  # waits for the lease
        assert answer.json == {"n": 2}
        assert (await server.ask("/hangs", "crash")).replayed
        assert server.runs("hangs") == 2


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_two_processes_on_one_store_run_the_handler_once(
    tmp_path: Path, engine: str, app: str, request: pytest.FixtureRequest
) -> None:
    store = f"sqlite:///{tmp_path / 'keys.db'}"
    if engine == "postgres":
        store = str(request.getfixturevalue("postgres_url"))
    with run_server(tmp_path, store, app) as one, run_server(tmp_path, store, app) as other:
        for name in ("plain", "slow"):
            asked = (server.ask(f"/{name}", f"two-{name}") for server in (one, other) for _ in range(10))
            answers = await asyncio.gather(*asked)
            assert len({(answer.status, answer.body) for answer in answers}) == 1
            assert one.runs(name) == 1


async def test_another_request_with_the_same_key_is_a_conflict_and_the_first_response_stays(server: Server) -> None:
    first = await server.ask("/plain", "m", b'{"a": 1, "b": 2}')
    assert first.status == 201
    for path, body in (
        ("/plain", b'{"a": 1}'),
        ("/plain?x=1", b'{"a":1,"b":2}'),
        ("/empty", b'{"a":1,"b":2}'),
    ):
        answer = await server.ask(path, "m", body)
        assert (answer.status, answer.code) == (422, "CONFLICT")
        assert "retry-after" not in answer.headers
    assert (await server.ask("/plain", "m", b'{"a":1,"b":2}', method="PUT")).status == 422
    # Equal JSON is the same request, whatever its formatting and charset parameter.
    kind = "application/json; charset=utf-8"
    again = await server.ask("/plain", '"m"', b'{"b":2.0,"a":1}', content_type=kind)
    assert (again.replayed, again.body) == (True, first.body)
    assert again.headers["location"] == "/orders/1"
    assert "idempotency-expires" in first.headers
    assert not {"x-private", "set-cookie"} & set(again.headers)


@pytest.mark.parametrize(
    "header",
    ["content_encoding", "content_range", "if_match", "if_none_match", "if_modified_since", "if_unmodified_since"],
)
async def test_another_encoding_or_precondition_is_another_request(server: Server, header: str) -> None:
    first = await server.ask("/plain", header, b"x", **{header: '"v1"'})
    assert first.status == 201
    for changed in ({header: '"v2"'}, {}):
        assert (await server.ask("/plain", header, b"x", **changed)).status == 422
    again = await server.ask("/plain", header, b"x", **{header: '"v1"', "accept": "text/html"})
    assert (again.replayed, again.body) == (True, first.body)


@pytest.mark.parametrize(("body", "other"), [(b'{"a":1,"a":2}', b'{"a":2}'), (b"\xff", b"\xfe"), (b"[NaN]", b"")])
async def test_a_body_that_is_not_valid_json_is_compared_byte_for_byte(
    server: Server, body: bytes, other: bytes
) -> None:
    key = f"odd-{body.hex()}"
    await server.ask("/empty", key, body)
    assert (await server.ask("/empty", key, body)).replayed
    assert (await server.ask("/empty", key, other)).status == 422


@pytest.mark.parametrize("key", ["", '""', '"a', '"a"x', "ü", "a, b", "x" * 256, ":YWJj:", "?1"])
async def test_a_malformed_key_is_refused_and_nothing_runs(server: Server, key: str) -> None:
    before = server.runs("charset")
    answer = await server.ask("/charset", key)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert server.runs("charset") == before


async def test_a_rule_decides_whether_a_key_is_required(server: Server) -> None:
    missing = await server.ask("/needed", None)
    assert (missing.status, missing.code) == (400, "KEY_MISSING")
    before = server.runs("plain")
    for path, key, method in (("/off", "o", "POST"), ("/plain", None, "POST"), ("/plain", "g", "GET")):
        for _ in range(2):
            assert not (await server.ask(path, key, method=method)).replayed
    assert (await server.ask("/plain", "d", method="DELETE")).status == 201  # no rule for it
    assert server.runs("plain") == before + 7


async def test_a_request_without_a_scope_is_refused(server: Server) -> None:
    before = server.runs("plain")
    anonymous = await server.ask("/plain", "s", x_user="")
    assert (anonymous.status, anonymous.code) == (401, "UNAUTHORIZED")
    broken = await server.ask("/plain", "s", x_user="broken")
    assert (broken.status, broken.code) == (500, "INTERNAL_ERROR")
    assert server.runs("plain") == before


async def test_users_do_not_share_keys(server: Server) -> None:
    for user in ("ann", "bob", "x" * 300):
        assert not (await server.ask("/plain", "mine", x_user=user)).replayed
        assert (await server.ask("/plain", "mine", x_user=user)).replayed


@pytest.mark.parametrize(
    ("code", "runs"), [(200, 1), (302, 1), (404, 1), (409, 1), (401, 2), (429, 2), (500, 2), (503, 2)]
)
async def test_the_table_of_verdicts_decides_what_is_stored(server: Server, code: int, runs: int) -> None:
    for _ in range(2):
        assert (await server.ask(f"/status/{code}", f"code-{code}")).status == code
    assert server.runs(f"status{code}") == runs


async def test_a_request_with_a_key_beyond_the_size_limit_does_not_run(server: Server) -> None:
    before = server.runs("charset")
    answer = await server.ask("/charset", "big", b"{}", content_length=str((1 << 20) + 1))
    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
    assert server.runs("charset") == before


async def test_a_background_task_runs_once(server: Server) -> None:
    await send_concurrently(server, "/after", "bg")
    while not server.runs("background"):
        await asyncio.sleep(0.01)
    assert (server.runs("after"), server.runs("background")) == (1, 1)


async def test_different_keys_do_not_wait_for_each_other(server: Server) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.gather(*(server.ask("/slow", f"apart-{n}") for n in range(30)))
    assert loop.time() - before < 15


async def test_of_several_processes_on_a_store_in_memory_only_one_runs_requests(tmp_path: Path, app: str) -> None:
    await check_memory_store_of_several_processes(tmp_path, app, "/plain")


async def test_of_several_fastapi_processes_on_a_store_in_memory_only_one_runs_requests(tmp_path: Path) -> None:
    await check_memory_store_of_several_processes(tmp_path, "fastapi", "/api/orders")


async def check_memory_store_of_several_processes(folder: Path, app: str, path: str) -> None:
    with run_server(folder, "memory://", app, "--workers", "2") as server:
        async with asyncio.timeout(20):
            while "keeps its keys in memory" not in server.log and app == "asgi":  # the second worker has ended
                await asyncio.sleep(0.1)
        answers = [await server.ask(path, "k", b'{"item": "x"}', authorization="ann") for _ in range(30)]
        assert server.runs(path.rpartition("/")[2]) == 1
        assert "runs again; use sqlite:///keys.db" in server.log
        # Where the store is opened by the first request, the second worker refuses requests instead.
        assert {answer.status for answer in answers} <= ({201} if app == "asgi" else {201, 503})


async def test_a_single_process_on_a_store_in_memory_is_warned(tmp_path: Path, app: str) -> None:
    with run_server(tmp_path, "memory://", app) as server:
        assert [(await server.ask("/plain", "k")).status for _ in range(2)] == [201, 201]
        assert server.runs("plain") == 1
        assert "runs again; use sqlite:///keys.db" in server.log
