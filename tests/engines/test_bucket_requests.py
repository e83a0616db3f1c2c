"""What the bucket engine costs: the HTTP requests that arrive at a real S3 server, counted by a proxy in front of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onejob.conformance.samples import TENANT, submit
from onejob.core.command import Command
from onejob.core.work import Claim
from onejob.engine import Engine
from onejob.engines.batcher import Batcher
from onejob.engines.bucket import BucketEngine
from onejob.ids import new_holder
from tests.support.counting_proxy import CountingProxy, running_counting_proxy
from tests.support.seaweedfs import SeaweedServer

DAY_MS = 86_400_000
CREATE, READ = ("PUT", "log"), ("GET", "log")
VIEW = ("PUT", "tenants")  # every tenant but the default one has a folder there


@pytest.fixture
async def proxy(seaweedfs: SeaweedServer) -> AsyncIterator[CountingProxy]:
    async with running_counting_proxy(seaweedfs.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def engine(
    seaweedfs: SeaweedServer, bucket_url: str, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BucketEngine]:
    """An engine that has done what it does once: the self-test, reading the cursor of the view, a first entry."""
    monkeypatch.setattr("onejob.engines.bucket.view.HOLD_SECONDS", 30.0)  # on a busy machine, too, all of it is counted
    engine = await BucketEngine.open(bucket_url.replace(seaweedfs.endpoint, proxy.endpoint))
    await engine.execute([submit("first", ttl_ms=DAY_MS)])
    while not proxy.counts["GET", "view"]:
        await asyncio.sleep(0.01)
    yield engine
    await engine.aclose()


async def count_requests(proxy: CountingProxy, engine: Engine, *batch: Command[Any]) -> Counter[tuple[str, str]]:
    """The requests of a batch, except those that read the store's clock."""
    proxy.counts.clear()
    await engine.execute(batch)
    counts = proxy.counts.copy()
    del counts["HEAD", ""]
    return counts


async def test_a_batch_is_one_put_and_its_duplicates_are_one_get(proxy: CountingProxy, engine: BucketEngine) -> None:
    new = [submit(f"n{n}", ttl_ms=DAY_MS) for n in range(64)]
    assert await count_requests(proxy, engine, *new) == {CREATE: 1, VIEW: 2 * 64}
    assert await count_requests(proxy, engine, *new) == {READ: 1}
    assert await count_requests(proxy, engine, submit("one", ttl_ms=DAY_MS)) == {CREATE: 1, VIEW: 2}
    claims = [Claim(tenant=TENANT, job_id=command.job_id, holder=new_holder(), lease_ms=60_000) for command in new]
    # What the view shows of claims is written later.
    assert await count_requests(proxy, engine, *claims) == {CREATE: 1}


async def test_concurrent_callers_share_the_requests_of_their_batches(
    proxy: CountingProxy, engine: BucketEngine
) -> None:
    batcher = Batcher(engine)
    commands = [submit(f"n{n}", ttl_ms=DAY_MS) for n in range(100)]
    batches = 0
    for expected in ({CREATE, VIEW}, {READ}):
        proxy.counts.clear()
        await asyncio.gather(*(batcher.execute([command]) for command in commands))
        before, batches = batches, sum(batcher.queue_stats()["write"].batches)
        assert proxy.counts[CREATE] + proxy.counts[READ] <= batches - before <= 10
        assert proxy.counts.keys() - {("HEAD", "")} == expected
