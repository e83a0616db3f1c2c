"""How many functions a request passes, on record in files/walks: a walk that grows is seen here (house rule: nothing that is
off is on the path).

Each walk is one request after warm-up calls, with every function of onejob in all threads of the process; lambdas and
comprehensions are left out, and a resumed coroutine counts as a call. A test fails if there are more functions or files than on
record; fewer, or others, are welcome. `make golden` records the walks again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob import App
from onejob.core.credentials import Role
from onejob.engines.sqlite import SqliteEngine
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys
from tests.golden.conftest import FILES, RENEW
from tests.golden.walk import SETTLE_SECONDS, Walk, WalkRecorder, files_of, in_every, on_record, recording, walk
from tests.support.app_server import serve_app
from tests.support.managers import running_manager

# The longest walks allowed, as functions and files.
TARGETS = {
    "submit-sqlite-new": (95, 14),
    "submit-sqlite-duplicate": (65, 12),
    "post-api-key-sqlite-new": (170, 28),
    "post-api-key-sqlite-duplicate": (100, 22),
    "post-gate-manager-sqlite": (200, 34),
}
INPUT = {"n": 1}

Submit = Callable[[], Awaitable[object]]


@pytest.fixture
def recorder() -> Any:
    with recording() as found:
        yield found


@pytest.mark.parametrize("kind", ["new", "duplicate"])
async def test_submit_on_sqlite(kind: str, tmp_path: Path, recorder: WalkRecorder) -> None:
    async with onejob.open(f"sqlite:///{tmp_path / 'jobs.db'}", sweep=False) as queue:
        check(f"submit-sqlite-{kind}", await walk_of_submissions(recorder, kind, partial(submit_to, queue)))


async def test_submit_on_a_bucket(tmp_path: Path, recorder: WalkRecorder) -> None:
    url = f"file://{tmp_path / 'bucket'}?replica={tmp_path / 'replica'}"
    async with onejob.open(url, sweep=False) as queue:
        check("submit-bucket-new", await walk_of_submissions(recorder, "new", partial(submit_to, queue)))


@pytest.mark.parametrize("kind", ["new", "duplicate"])
async def test_post_with_an_api_key_on_sqlite(kind: str, tmp_path: Path, recorder: WalkRecorder) -> None:
    async with posting(f"sqlite:///{tmp_path / 'jobs.db'}", auth=True) as post:
        check(f"post-api-key-sqlite-{kind}", await walk_of_submissions(recorder, kind, post))


@pytest.mark.parametrize("kind", ["new", "duplicate"])
async def test_post_with_an_api_key_on_postgres(kind: str, postgres_url: str, recorder: WalkRecorder) -> None:
    async with posting(postgres_url, auth=True) as post:
        check(f"post-api-key-postgres-{kind}", await walk_of_submissions(recorder, kind, post))


async def test_post_without_authentication(tmp_path: Path, recorder: WalkRecorder) -> None:
    async with posting(f"sqlite:///{tmp_path / 'jobs.db'}", auth=False) as post:
        check("post-no-auth-sqlite-new", await walk_of_submissions(recorder, "new", post))


async def test_post_through_a_gate_and_a_manager(tmp_path: Path, recorder: WalkRecorder) -> None:
    engine = await SqliteEngine.open(str(tmp_path / "jobs.db"))
    async with running_manager(engine) as url, posting(url, auth=False) as post:
        check("post-gate-manager-sqlite", await walk_of_submissions(recorder, "new", post))


async def test_a_worker_runs_a_job(tmp_path: Path, recorder: WalkRecorder) -> None:
    app, has_run = App(), asyncio.Event()

    @app.job("mail")
    async def mail(n: Any) -> None:
        has_run.set()

    async def run_one() -> None:
        """The submission is not recorded, and the job is due when that has ended."""
        has_run.clear()
        with recorder.paused():
            await queue.submit("mail", INPUT, run_at=datetime.now(UTC) + timedelta(seconds=0.1))
            await asyncio.sleep(0.05)
        await asyncio.wait_for(has_run.wait(), 60)
        await asyncio.sleep(0.1)

    async with onejob.open(f"sqlite:///{tmp_path / 'jobs.db'}", sweep=False) as queue, app.background_worker(queue):
        check("worker-sqlite", await walk(recorder, run_one, warm_ups=3))


def check(name: str, walks: list[Walk]) -> None:
    """Fail if the request passes more functions or files than are on record, and list those that are new."""
    path = FILES / "walks" / f"{name}.txt"
    if RENEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(on_record(walks).text(), encoding="utf-8")
    head, *recorded = path.read_text(encoding="utf-8").splitlines()
    print(f"{name}: {head}; target: {TARGETS.get(name, 'none')}")
    now = in_every(walks)
    if name in TARGETS:
        functions_max, files_max = TARGETS[name]
        assert len(now) <= functions_max, f"{name} passes {len(now)} functions, at most {functions_max}"
        assert len(files_of(now)) <= files_max, f"{name} passes {len(files_of(now))} files, at most {files_max}"
    new = "\n".join(sorted(now - set(recorded)))
    grown = len(now) - len(recorded), len(files_of(now)) - len(files_of(recorded))
    assert max(grown) <= 0, (
        f"{name} has grown by {grown} functions and files; if that is intended: make golden. New:\n{new}"
    )


async def walk_of_submissions(
    recorder: WalkRecorder, kind: str, submit: Callable[[str], Awaitable[object]]
) -> list[Walk]:
    """A duplicate is the first repetition of a key."""
    numbers = count()

    async def request() -> None:
        key = f"{kind}-{next(numbers)}"
        if kind == "duplicate":
            with recorder.paused():
                await submit(key)
                await asyncio.sleep(SETTLE_SECONDS)
        await submit(key)

    return await walk(recorder, request)


async def submit_to(queue: onejob.Ledger, key: str) -> None:
    await queue.submit("mail", INPUT, idempotency_key=key)


@asynccontextmanager
async def posting(url: str, *, auth: bool) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """A function that posts a job over one connection to a server in this process."""
    async with onejob.open(url, sweep=False) as queue:
        app = HttpApp(queue, config=ServiceConfig(auth=auth))
        headers = []
        if auth:
            key = await ApiKeys(queue).create("test", roles=(Role.SUBMITTER,))
            headers.append(f"authorization: Bearer {key.text}")
        async with serve_app(app) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            try:
                yield lambda key: post_job(reader, writer, [*headers, f"idempotency-key: {key}"])
            finally:
                writer.close()
                await writer.wait_closed()


async def post_job(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: list[str]) -> None:
    body = json.dumps({"type": "mail", "input": INPUT}).encode()
    lines = ["POST /api/jobs HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers]
    writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode("latin-1").lower()
    assert head.split()[1] in ("200", "201", "202"), head
    length = next(line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length"))
    await reader.readexactly(int(length))
