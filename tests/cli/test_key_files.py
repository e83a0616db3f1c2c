"""Files of keys: what is exported can be imported elsewhere, twice, from any line, and nothing known is overwritten."""

import asyncio
import io
import re
import shlex
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from msgspec import json
from msgspec.structs import replace

import onejob
from onejob.cli import main
from onejob.cli.key_files import (
    ImportOptions,
    KeyFormat,
    KeyLine,
    LineOutcome,
    LineResult,
    export_keys,
    import_keys,
    read_lines,
    write_lines,
)
from onejob.clock import FakeClock, SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import Actor
from onejob.core.timestamps import to_utc
from onejob.engines.memory import MemoryEngine
from onejob.ids import SystemIds
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.testing import FaultyEngine
from tests.support.command_line import CommandRunner
from tests.support.ledger_settings import set_settings

DAY = ImportOptions(window_ms=86_400_000)
STORED, KNOWN, CONFLICT = LineOutcome.STORED, LineOutcome.KNOWN, LineOutcome.CONFLICT


async def import_all(queue: onejob.Ledger, *lines: KeyLine, options: ImportOptions = DAY) -> list[LineResult]:
    results: list[LineResult] = []
    await import_keys(queue, enumerate(lines, start=1), options, results.append)
    return results


def outcomes(results: list[LineResult]) -> list[LineOutcome]:
    return [one.outcome for one in results]


@pytest.mark.parametrize("format", KeyFormat)
async def test_a_ledger_answers_the_keys_of_another(queue: onejob.Ledger, clock: FakeClock, format: KeyFormat) -> None:
    ids = {}
    for n in range(5):
        key = f'k{n}, "quoted"\u00e9'
        ids[key] = (await queue.submit("t", {"n": n}, idempotency_key=key)).job_id
    file = io.StringIO()
    write_lines([line async for line in export_keys(queue)], file, format)
    async with onejob.open("memory://", clock=clock, sweep=False) as other:
        for outcome in (STORED, KNOWN, KNOWN):
            results: list[LineResult] = []
            await import_keys(other, read_lines(io.StringIO(file.getvalue()), format), DAY, results.append)
            assert outcomes(results) == [outcome] * 5
        for n, (key, job_id) in enumerate(ids.items()):
            receipt = await other.submit("t", {"n": n}, idempotency_key=key)
            assert (receipt.outcome, receipt.job_id) == (onejob.Outcome.REPLAYED, job_id)
            with pytest.raises(onejob.IdempotencyConflict, match=job_id):
                await other.submit("t", {"n": "another"}, idempotency_key=key)
            assert (await other.dry_run("t", {"n": "another"}, idempotency_key=key)).outcome == "conflict"
        assert not await other.jobs()


async def test_a_key_that_nobody_holds_is_imported_and_a_held_one_is_not(queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    lines = [KeyLine(scope="t", idempotency_key="k", job_id=id) for id in ("job-xyz789", held.job_id)]
    assert outcomes(await import_all(queue, *lines)) == [CONFLICT, CONFLICT]
    await queue.fail(held)
    assert outcomes(await import_all(queue, *lines)) == [STORED, CONFLICT]
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == "job-xyz789"
    assert [job.state for job in await queue.jobs()] == ["cancelled"]


async def test_nothing_that_is_known_is_overwritten(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", {"n": 1}, idempotency_key="k")
    (known,) = [line async for line in export_keys(queue)]
    results = await import_all(
        queue,
        known,
        replace(known, job_id="another"),
        replace(known, fingerprint="ff" * 33),
        replace(known, fingerprint=""),
        replace(known, expires_at="2099-01-01T00:00:00Z"),
    )
    assert outcomes(results) == [KNOWN, CONFLICT, CONFLICT, KNOWN, LineOutcome.INVALID]
    assert "names another job" in results[1].reason
    assert "fingerprint differs" in results[2].reason
    assert [line async for line in export_keys(queue)] == [known]
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == made.job_id


async def test_of_two_lines_with_one_key_the_first_counts(queue: onejob.Ledger) -> None:
    line = KeyLine(idempotency_key="k", scope="t", job_id="one")
    results = await import_all(queue, line, line, replace(line, job_id="two"))
    assert outcomes(results) == [STORED, KNOWN, CONFLICT]
    assert (await queue.submit("t", {"any": "body"}, idempotency_key="k")).job_id == "one"


async def test_a_key_without_a_scope_is_found_by_every_type(queue: onejob.Ledger) -> None:
    await import_all(queue, KeyLine(idempotency_key="k", job_id="order-7"))
    for type in ("charge", "mail"):
        assert (await queue.submit(type, idempotency_key="k")).job_id == "order-7"


async def test_a_key_of_a_submission_to_all_types_is_not_found_by_others(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    made = await queue.submit("charge", {"n": 1}, idempotency_key="k", scope="queue")
    async with onejob.open("memory://", clock=clock, sweep=False) as other:
        await import_all(other, *[line async for line in export_keys(queue)])
        assert (await other.submit("charge", {"n": 1}, idempotency_key="k", scope="queue")).job_id == made.job_id
        assert (await other.submit("mail", {"n": 1}, idempotency_key="k")).created


async def test_a_line_lives_as_long_as_it_says(queue: onejob.Ledger, clock: FakeClock) -> None:
    def at(seconds: int) -> str:
        moment = to_utc(clock.wall_ms()) + timedelta(seconds=seconds)
        return moment.isoformat()

    line = KeyLine(idempotency_key="k", scope="t", job_id="x")
    results = await import_all(
        queue,
        replace(line, expires_at=at(60)),
        replace(line, idempotency_key="l", created_at=at(-86_400 + 30)),
        replace(line, idempotency_key="m", created_at=at(-86_400)),
        replace(line, idempotency_key="n", expires_at=at(-1), created_at=at(0)),
    )
    assert outcomes(results) == [STORED, STORED, LineOutcome.EXPIRED, LineOutcome.EXPIRED]
    clock.advance(45)
    assert [line.idempotency_key async for line in export_keys(queue)] == ["k"]
    clock.advance(20)
    assert (await queue.submit("t", idempotency_key="k")).created


async def test_tenants_users_and_scopes_are_kept_apart(queue: onejob.Ledger) -> None:
    line = KeyLine(idempotency_key="k", scope="t", job_id="x", tenant="acme", user_id="ann")
    only_mine = ImportOptions(window_ms=60_000, tenant="default")
    assert outcomes(await import_all(queue, line, options=only_mine)) == [LineOutcome.SKIPPED]
    assert outcomes(await import_all(queue, line)) == [STORED]
    acme = queue.acting_as(tenant="acme", user="bob", actor=Actor.user("bob"))
    assert (await acme.submit("t", idempotency_key="k")).job_id == "x"


async def test_where_keys_belong_to_users_an_imported_key_is_that_of_its_user(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    line = KeyLine(idempotency_key="k", scope="t", job_id="x", tenant="acme", user_id="ann")
    results = await import_all(queue, line, replace(line, user_id=""))
    assert outcomes(results) == [STORED, LineOutcome.INVALID]
    ann = queue.acting_as(tenant="acme", user="ann", actor=Actor.user("ann"))
    bob = queue.acting_as(tenant="acme", user="bob", actor=Actor.user("bob"))
    assert (await ann.submit("t", idempotency_key="k")).job_id == "x"
    assert (await bob.submit("t", idempotency_key="k")).created
    assert (await queue.submit("t", idempotency_key="k")).created
    assert (await ann.submit("other", idempotency_key="k")).created
    assert {line.scope async for line in export_keys(ann, scope="other")} == {"other"}


async def test_what_is_no_settled_key_of_a_job_is_skipped(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.check_or_reserve("t", idempotency_key="held")
    jobs = [onejob.Submission(type="t")]
    await queue.submit_sequence("c", 1, "c:1:0123456789abcdef", scope="s", jobs=jobs)
    lines = [line async for line in export_keys(queue)]
    assert sorted(line.status for line in lines) == ["committed", "pending"]
    lines.append(KeyLine(idempotency_key="response", scope="t"))
    async with onejob.open("memory://", clock=clock, sweep=False) as other:
        assert outcomes(await import_all(other, *lines)) == [LineOutcome.SKIPPED] * 3


async def test_a_chunk_whose_outcome_is_unknown_is_stored_once() -> None:
    engine = FaultyEngine(MemoryEngine())
    runtime = Runtime(engine, onejob.IdempotencyConfig(), clock=SystemClock(), ids=SystemIds())
    async with onejob.Ledger(runtime, Caller()) as queue:
        engine.succeed(2)  # the time, and the look-ups
        engine.fail_after()
        results = await import_all(queue, *(KeyLine(idempotency_key=f"k{n}", scope="t", job_id="x") for n in range(3)))
        assert outcomes(results) == [STORED] * 3
        assert len([line async for line in export_keys(queue)]) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"idempotency_key": "k"', "JSON"),
        ('{"idempotency_key": "k", "job_id": "x", "expire_at": "2030"}', "unknown field"),
        ('{"idempotency_key": 5, "job_id": "x"}', "Expected `str`"),
        ('{"idempotency_key": "", "job_id": "x"}', "1 to 255"),
        ('{"idempotency_key": "k\\u0007", "job_id": "x"}', "control character"),
        ('{"idempotency_key": "k", "job_id": "x", "scope": "' + "s" * 101 + '"}', "1 to 100"),
        ('{"idempotency_key": "k", "job_id": "x", "expires_at": "2030-01-31 12:00:00"}', "not a time with a zone"),
        ('{"idempotency_key": "k", "job_id": "x", "fingerprint": "not hex"}', "not a fingerprint in hex"),
        ('{"idempotency_key": "k", "job_id": "x", "tenant": "type:queue"}', "reserved"),
        ('{"idempotency_key": "k\udcff", "job_id": "x"}', "surrogate"),
    ],
)
async def test_a_wrong_line_is_reported_and_the_others_are_stored(text: str, reason: str) -> None:
    good = '{"idempotency_key": "good", "job_id": "x"}'
    async with onejob.open("memory://", sweep=False) as queue:
        results: list[LineResult] = []
        await import_keys(queue, read_lines(io.StringIO(f"{text}\n\n{good}\n"), KeyFormat.JSONL), DAY, results.append)
        assert [(one.line, one.outcome) for one in results] == [(1, LineOutcome.INVALID), (3, STORED)]
        assert reason in results[0].reason


@pytest.mark.parametrize(
    "header", ["key,job_id", "job_id", "idempotency_key,idempotency_key", "idempotency_key;job_id"]
)
def test_wrong_columns_are_refused_before_anything_is_stored(header: str) -> None:
    with pytest.raises(Invalid, match="the first line names the columns"):
        list(read_lines(io.StringIO(f"{header}\nk,x\n"), KeyFormat.CSV))


@pytest.mark.usefixtures("clean_environment")
def test_the_command_imports_from_any_line_and_reports_rejects(on_engine: CommandRunner, tmp_path: Path) -> None:
    rows = ["idempotency_key,job_id,scope", "a,1,t", "b,2,t", "c,3,t,too many", "a,9,t"]
    (tmp_path / "keys.csv").write_text("\ufeff" + "\r\n".join(rows) + "\r\n", encoding="utf-8")
    rejects = tmp_path / "rejects.jsonl"
    ran = on_engine("import", "keys.csv", "--from-line", "3", "--json")
    assert ran.code == 2
    assert ran.json["counts"] == {"stored": 2, "known": 0, "conflict": 0, "expired": 0, "skipped": 0, "invalid": 1}
    ran = on_engine("import", "keys.csv", "--rejects", str(rejects))
    assert rejects.stat().st_mode & 0o777 == 0o600
    assert ran.code == 3
    assert "line 2: conflict" in ran.out
    assert [json.decode(line)["line"] for line in rejects.read_text(encoding="utf-8").splitlines()] == [2, 4]
    assert on_engine("export", "out.jsonl").out == "keys exported: 2\n"
    assert on_engine("export", "out.jsonl").code == 2
    assert on_engine("export", "out.jsonl", "--force", "--scope", "none").code == 0
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == ""
    assert on_engine("import", "keys.txt").code == 2
    assert on_engine("import", "missing.csv").code == 2


@pytest.mark.usefixtures("clean_environment")
def test_a_line_that_is_not_utf_8_is_reported_among_the_rejects(on_engine: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_bytes(b"idempotency_key,job_id,scope\na,1,t\nb\xff,2,t\nc,3,t\n")
    ran = on_engine("import", "keys.csv", "--rejects", str(tmp_path / "rejects.jsonl"), "--json")
    assert (ran.code, ran.json["counts"]["stored"], ran.json["counts"]["invalid"]) == (2, 2, 1)
    (rejected,) = (tmp_path / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.decode(rejected)["idempotency_key"] == "b\\udcff"


@pytest.mark.usefixtures("clean_environment")
async def test_the_recipe_for_a_table_of_keys_works_as_printed(postgres_url: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    (query,) = re.findall(r"\\copy \((.*?)\) TO 'keys.csv'", page, flags=re.DOTALL)
    (words,) = re.findall(r"onejob (import keys\.csv --scope .*)", page)
    db = await asyncpg.connect(postgres_url)
    try:
        await db.execute(f"CREATE SCHEMA shop; SET search_path = shop; {table}")
        rows = [
            ("paid", "finished", 201, "/charges", "now()"),
            ("old", "finished", 201, "/charges", "now() - interval '2 days'"),
            ("failed", "finished", 402, "/charges", "now()"),
            ("running", "started", None, "/charges", "now()"),
            ("other", "finished", 201, "/refunds", "now()"),
        ]
        for key, point, code, path, created in rows:
            await db.execute(
                "INSERT INTO idempotency_keys (created_at, idempotency_key, request_path, response_code, response_body, "
                f"recovery_point, user_id) VALUES ({created}, $1, $2, $3, $4, $5, 42)",
                key, path, code, f'{{"id": "ch_{key}"}}', point,
            )  # fmt: skip
        await db.copy_from_query(query, output=str(tmp_path / "keys.csv"), format="csv", header=True)
    finally:
        await db.close()
    assert await asyncio.to_thread(main, [*shlex.split(words), "--engine", f"sqlite:///{tmp_path}/onejob.db"]) == 0
    async with onejob.open(f"sqlite:///{tmp_path}/onejob.db", sweep=False) as queue:
        owner = queue.acting_as(tenant="default", user="42", actor=Actor.user("42"))
        receipts = {key: await owner.submit("charge", idempotency_key=key) for key, *_ in rows}
    assert {key: one.job_id for key, one in receipts.items() if not one.created} == {"paid": "ch_paid"}
