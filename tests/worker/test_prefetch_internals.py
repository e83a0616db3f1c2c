"""Prefetching reserves nothing, starts no job twice, and uses no stale candidate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import onejob
from onejob.core.facts import Job
from onejob.ledger.base import runtime_of
from onejob.runtime.claims import ClaimRequest
from onejob.worker.prefetch import PREFETCH_AGE_SECONDS_MAX, PREFETCH_MAX, Prefetcher

MANY = 300


@pytest.fixture
async def queue(url: str) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open(url, sweep=False) as ledger:
        yield ledger


async def submit_jobs(queue: onejob.Ledger, jobs: int, **options: int) -> None:
    await queue.submit_many([onejob.Submission(type="t", input=n, **options) for n in range(jobs)])  # type: ignore[arg-type]


def claim_request(queue: onejob.Ledger, limit: int) -> ClaimRequest:
    return ClaimRequest(
        types=("t",),
        holder=runtime_of(queue).ids.holder(),
        limit=limit,
        lease_ms=60_000,
        start=True,
        tenant=None,
    )


async def prefetched(queue: onejob.Ledger, limit: int) -> Prefetcher:
    prefetcher = Prefetcher(runtime_of(queue).claims)
    prefetcher.take(limit)
    await prefetcher.fetch(claim_request(queue, limit))
    return prefetcher


async def test_workers_that_prefetch_run_each_job_once(queue: onejob.Ledger, url: str) -> None:
    ran: list[str] = []
    app = onejob.App()

    @app.job("t")
    async def handle(ctx: onejob.Context) -> None:
        ran.append(ctx.job_id)
        assert ctx.token == 1

    await submit_jobs(queue, MANY)
    async with AsyncExitStack() as stack:
        workers = []
        for _ in range(3):
            ledger = queue if url == "memory://" else await stack.enter_async_context(onejob.open(url))
            workers.append(await stack.enter_async_context(app.background_worker(ledger)))
        async with asyncio.timeout(30):
            while sum(worker.counts().get("success", 0) for worker in workers) < MANY:
                await asyncio.sleep(0.01)
    assert len(ran) == len(set(ran)) == MANY


async def test_prefetched_jobs_are_not_reserved(queue: onejob.Ledger) -> None:
    await submit_jobs(queue, 20)
    prefetcher = await prefetched(queue, 10)
    candidates = prefetcher.take(10)
    others = await queue.claim("t", limit=20)
    assert len(others) == 20
    assert await prefetcher.claim(claim_request(queue, 10), candidates) == []


async def test_a_prefetched_job_is_claimed_once(queue: onejob.Ledger) -> None:
    await submit_jobs(queue, 20)
    prefetcher = await prefetched(queue, 10)
    first = prefetcher.take(10)
    claiming = asyncio.create_task(prefetcher.claim(claim_request(queue, 10), first))
    await asyncio.sleep(0)
    await prefetcher.fetch(claim_request(queue, 10))  # it may still return what is being claimed
    rest = prefetcher.take(20)
    assert not {job.id for job, _ in first} & {job.id for job, _ in rest}
    assert len(await claiming) == 10


async def test_a_refused_job_can_be_claimed_later(queue: onejob.Ledger) -> None:
    await submit_jobs(queue, 1)
    prefetcher = await prefetched(queue, 1)
    candidates = prefetcher.take(1)
    (attempt,) = await queue.claim("t")
    assert await prefetcher.claim(claim_request(queue, 1), candidates) == []
    await queue.release(attempt)
    await prefetcher.fetch(claim_request(queue, 1))
    ((job, _),) = prefetcher.take(1)
    assert isinstance(job, Job)
    assert len(await prefetcher.claim(claim_request(queue, 1), [(job, b"null")])) == 1


async def test_a_slow_worker_prefetches_no_more_than_it_runs(queue: onejob.Ledger) -> None:
    await submit_jobs(queue, MANY)
    prefetcher = Prefetcher(runtime_of(queue).claims)
    for _ in range(3):
        assert prefetcher.take(2) == []  # the candidates are too old
        await prefetcher.fetch(claim_request(queue, 2))
        assert len(prefetcher._candidates) <= 4
        prefetcher._fetched_at -= 2 * PREFETCH_AGE_SECONDS_MAX
    sizes = []
    for _ in range(8):
        await prefetcher.fetch(claim_request(queue, 2))
        sizes.append(len(prefetcher._candidates))
        prefetcher._candidates.clear()
    assert sizes[-1] == PREFETCH_MAX


async def test_an_urgent_job_overtakes_prefetched_ones(queue: onejob.Ledger) -> None:
    order: list[int] = []
    app = onejob.App()

    @app.job("t")
    async def handle(n: int) -> None:
        order.append(n)
        await asyncio.sleep(0.005)

    await submit_jobs(queue, MANY)
    async with app.background_worker(queue, concurrency=1), asyncio.timeout(30):
        while len(order) < 20:
            await asyncio.sleep(0.001)
        await queue.submit("t", -1, priority=100)
        while -1 not in order:
            await asyncio.sleep(0.001)
    assert len(order) < MANY / 2
