"""Bugs that were fixed, each with the case that showed it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock, SystemClock
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.replies import AnyReply
from onejob.engine import ListFacts
from onejob.engines.memory import MemoryEngine
from onejob.engines.sqlite import queries
from onejob.http.app import HttpApp
from onejob.http.problems import to_problem, to_public_problem
from onejob.ids import SystemIds
from onejob.ledger import Ledger
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.settings import load_service_config
from tests.support.app_server import serve_app
from tests.support.ledger_settings import set_settings
from tests.support.sqlite_files import RawConnection


class EngineLosingAnswers(MemoryEngine):
    """Executes every command and loses every reply."""

    async def execute(self, commands: Sequence[Command[Any]], /, **options: Any) -> Sequence[AnyReply]:
        await super().execute(commands, **options)
        raise onejob.Unknown("the answer was lost")


def ledger_on(engine: MemoryEngine) -> Ledger:
    runtime = Runtime(engine, onejob.IdempotencyConfig(), clock=SystemClock(), ids=SystemIds())
    return Ledger(runtime, Caller())


async def test_an_unknown_submission_without_a_key_is_not_retryable() -> None:
    ledger = ledger_on(EngineLosingAnswers())
    with pytest.raises(onejob.MayBeDone) as caught:
        await ledger.submit("t")
    assert to_problem(caught.value).retry_after is None
    with pytest.raises(onejob.Unknown) as known:
        await ledger.submit("t", idempotency_key="k")
    assert to_problem(known.value).retry_after is not None


async def test_a_purge_that_races_submissions_leaves_no_key_without_its_job(url: str) -> None:
    async with onejob.open(url, sweep=False) as queue:

        async def submit() -> None:
            for n in range(150):
                await queue.submit("t", n, idempotency_key=f"k{n}")

        async def purge() -> None:
            for _ in range(10):
                await asyncio.sleep(0.002)
                try:
                    await queue.admin.purge()
                except onejob.Unknown:
                    continue

        await asyncio.gather(submit(), purge())
        for n in range(150):
            assert (await queue.submit("t", n, idempotency_key=f"k{n}")).job is not None


async def test_forgetting_waits_for_remembered_rejections_too(url: str, clock: FakeClock) -> None:
    config = onejob.IdempotencyConfig(rejected_ttl_seconds=1000, committed_ttl_seconds=1)
    async with onejob.open(url, config=config, clock=clock, sweep=False) as queue:
        await set_settings(queue, rejected_ttl_ms=1_000_000)
        held = await queue.check_or_reserve("t", idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        rejected = await queue.reject(held)
        assert await queue.forget("k", scope="t") == rejected.expires_at


async def test_a_relative_store_path_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with onejob.open("sqlite:///jobs.db", sweep=False) as queue:
        first = await queue.submit("t", idempotency_key="k")
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert (await queue.submit("t", idempotency_key="k")).job_id == first.job_id


@pytest.mark.parametrize("kind", [Kind.RECORD, Kind.STREAM, Kind.USAGE, Kind.POLICY])
async def test_listing_a_tenant_scans_its_own_range_only(kind: Kind, tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    async with onejob.open(f"sqlite:///{path}"):
        pass
    sql, values = queries.build_statement(ListFacts(tenant="t", kind=kind), 0)
    with RawConnection(path) as db:
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
    assert "id>? AND id<?" in plan


def test_errors_do_not_reveal_where_the_store_is() -> None:
    error = onejob.StoreRefused("/srv/secret/jobs.db is damaged")
    problem = to_public_problem(error, mismatch_status=409)
    assert "secret" not in problem.message
    assert problem.retry_after is None


def test_variables_of_a_kubernetes_service_named_onejob_are_ignored() -> None:
    environ = {
        "ONEJOB_SERVICE_HOST": "10.0.0.1",
        "ONEJOB_PORT": "tcp://10.0.0.1:80",
        "ONEJOB_PORT_80_TCP": "x",
    }
    assert load_service_config(None, environ).port == 8001


async def test_maintenance_survives_a_bug_and_closing_closes_the_engine() -> None:
    class BrokenEngine(MemoryEngine):
        async def scan(self, query: Any, /) -> Any:
            raise RuntimeError("a bug")

    engine = BrokenEngine()
    config = onejob.IdempotencyConfig(cleanup_interval_seconds=0.001)
    runtime = Runtime(engine, config, clock=SystemClock(), ids=SystemIds())
    runtime.start_maintenance()
    while runtime.stats().maintenance_failures < 2:
        await asyncio.sleep(0.001)
    await runtime.aclose()
    with pytest.raises(onejob.Unavailable):
        await engine.execute([])


@pytest.mark.parametrize("name", ["Upgrade", "upgrade", "UPGRADE"])
async def test_a_request_that_asks_for_another_protocol_keeps_its_body(name: str) -> None:
    body = b'{"type": "t"}'
    head = (
        f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n{name}: h2c\r\n"
        f"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    async with onejob.open("memory://") as ledger, serve_app(HttpApp(ledger)) as client:
        for parts in ((head + body,), (head, body)):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            assert (await reader.readline()).startswith(b"HTTP/1.1 202")
            writer.close()
            await writer.wait_closed()


async def test_a_batch_of_conflicts_compares_only_some_of_them(url: str) -> None:
    async with onejob.open(url) as queue:
        await queue.submit("t", 0, idempotency_key="k")
        others = [onejob.Submission(type="t", input=n, idempotency_key="k") for n in range(1, 31)]
        verdicts = await queue.submit_many(others)
        assert all(isinstance(verdict, onejob.IdempotencyConflict) for verdict in verdicts)
        assert sum(bool(verdict.paths) for verdict in verdicts if isinstance(verdict, onejob.IdempotencyConflict)) == 20


async def test_large_bodies_conflict_without_their_paths(url: str) -> None:
    async with onejob.open(url) as queue:
        await queue.submit("t", "x" * 70_000, idempotency_key="k")
        with pytest.raises(onejob.IdempotencyConflict) as caught:
            await queue.submit("t", "y", idempotency_key="k")
        assert caught.value.paths == ()
