"""The plans of SQLite's queries, and how many rows they examine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.conformance.queries import store_facts
from onejob.conformance.samples import OTHER, TENANT, a_job
from onejob.core.facts import Job, Kind
from onejob.core.states import JobState
from onejob.engine import (
    CountJobs,
    CountKeys,
    CountReadyJobs,
    Engine,
    ListDueFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    Query,
)
from onejob.engines import sql
from onejob.engines.sqlite import SqliteEngine, queries
from onejob.ledger.reads import to_job_page
from tests.support.sqlite_files import RawConnection

EXAMINED = 4
RARE: dict[str, dict[str, Any]] = {
    "state": {"state": JobState.LOST},
    "type": {"type": "rare"},
    "user": {"user": "rare"},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


@pytest.fixture
async def engine(path: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteEngine]:
    monkeypatch.setattr(sql, "EXAMINED_MAX", EXAMINED)
    engine = await SqliteEngine.open(path)
    yield engine
    await engine.aclose()


@pytest.mark.parametrize("rare", RARE.values(), ids=RARE)
@pytest.mark.parametrize("many", [0, 1, EXAMINED - 1, EXAMINED, EXAMINED + 1, 3 * EXAMINED])
async def test_a_rare_filter_finds_all_page_by_page(engine: SqliteEngine, rare: dict[str, Any], many: int) -> None:
    jobs = [a_job(**(rare if n % 5 == 2 else {})) for n in range(many)]
    await store_facts(engine, [*jobs, a_job(OTHER, **rare)])
    expected = [job for n, job in enumerate(jobs) if n % 5 == 2][::-1]
    for limit in (1, 2, 100):
        assert await all_pages(engine, ListJobs(tenant=TENANT, limit=limit, **rare)) == expected


async def test_a_filtered_page_examines_a_bounded_number_of_jobs(engine: SqliteEngine) -> None:
    jobs = await store_facts(engine, [a_job(type="rare"), *(a_job() for _ in range(EXAMINED))])
    page = await engine.scan(ListJobs(tenant=TENANT, type="rare"))
    assert (page.items, page.more, page.scanned_to) == ([], True, jobs[1].id)
    page = await engine.scan(ListJobs(tenant=TENANT, type="rare", before=page.scanned_to))
    assert (page.items, page.more) == ([jobs[0]], False)


async def test_a_page_without_a_filter_is_never_short(engine: SqliteEngine) -> None:
    jobs = await store_facts(engine, [a_job() for _ in range(3 * EXAMINED)])
    page = await engine.scan(ListJobs(tenant=TENANT))
    assert (page.items, page.more) == (jobs[::-1], False)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (ListJobs(tenant=TENANT, state=JobState.PENDING, type="a"), "job_state (tenant=? AND state=? AND type=?)"),
        (CountJobs(tenant=TENANT), "COVERING INDEX job_state (tenant=?)"),
        (CountReadyJobs(), "job_ready"),
        (CountKeys(tenant=TENANT), "COVERING INDEX record_id (id>? AND id<?)"),
        (CountKeys(), "COVERING INDEX"),
        (ListJobs(tenant=TENANT, type="a", user="b", before=b"x"), "job_tenant (tenant=? AND id"),
        (ListDueFacts(kind=Kind.RECORD), "record_due (expires_at>? AND expires_at<?)"),
        (ListDueFacts(kind=Kind.JOB), "job_due ((due_at,id)>(?,?) AND due_at<?)"),
        (ListDueFacts(kind=Kind.STREAM), "stream_due ((expires_at,id)>(?,?) AND expires_at<?)"),
        (ListReadyJobs(types=("a",)), "job_ready (type=?)"),
        (ListInputs(job_ids=(b"a",)), "PRIMARY KEY (job_id=? AND kind=? AND index=?)"),
        (ListLeasedJobs(tenant=TENANT, holder=b"h"), "job_held (holder=?)"),
    ],
    ids=str,
)
async def test_a_query_has_its_index(engine: SqliteEngine, path: str, query: Query[Any], index: str) -> None:
    statement, values = queries.build_statement(query, 1)
    with RawConnection(path) as db:
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values))
    assert index in plan


@pytest.mark.parametrize(
    ("statement", "values", "search"),
    [
        (queries.NEXT_TENANT, ("a", "b"), "job_ready (type=? AND tenant>?)"),
        (queries.NEXT_PRIORITY, ("a", "b", 1), "job_ready (type=? AND tenant=? AND priority<?)"),
        (
            queries.READY_AT_PRIORITY,
            ("a", "b", 1, 2, 3, 4),
            "job_ready (type=? AND tenant=? AND priority=? AND run_at<?)",
        ),
    ],
)
async def test_ready_jobs_are_found_by_index_without_sorting(
    engine: SqliteEngine, path: str, statement: str, values: tuple[Any, ...], search: str
) -> None:
    with RawConnection(path) as db:
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values))
    assert search in plan
    assert "TEMP B-TREE" not in plan


async def all_pages(engine: Engine, query: ListJobs) -> list[Job]:
    """All items of a list, found by following `next`."""
    found: list[Job] = []
    for _ in range(100):
        page = await engine.scan(query)
        found += page.items
        following = to_job_page(page).next
        if following is None:
            return found
        query = replace(query, before=bytes.fromhex(following.replace("-", "")))
    raise AssertionError("the pages do not end")
