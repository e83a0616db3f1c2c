"""Failovers lose no answer, and each key has one job."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import onejob
from onejob.engines import postgres
from onejob.http.app import HttpApp
from tests.campaigns.failover.callers import BODY
from tests.campaigns.failover.campaign import Campaign
from tests.campaigns.failover.cluster import Cluster
from tests.support.app_server import serve_app

FAILOVERS = 2
ANSWERS = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def other_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.timeout(900)
async def test_failovers_lose_no_answer_and_make_no_second_job(cluster: Cluster, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, cluster, seed := random.randrange(1 << 32), answers=ANSWERS)
    print("seed", seed)
    await campaign.run(FAILOVERS)
    print(dict(campaign.answers.counts))


@pytest.mark.timeout(900)
async def test_a_promoted_node_is_unavailable_until_it_has_a_standby(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with onejob.open(cluster.url) as queue, serve_app(HttpApp(queue)) as client:
        first = await client.post("/api/jobs", BODY, b"idempotency-key: before")
        assert first.status == 202
        await asyncio.to_thread(cluster.fail_over)
        monkeypatch.setattr(postgres, "ANSWER_SECONDS", 1.5)
        keys = (b"idempotency-key: alone", b"idempotency-key: before")
        for reply in await asyncio.gather(*(client.post("/api/jobs", BODY, key) for key in keys)):
            assert (reply.status, reply.code) == (503, "SERVICE_UNAVAILABLE")
        assert (await client.get("/readyz")).status == 503
        monkeypatch.setattr(postgres, "ANSWER_SECONDS", 15.0)
        await asyncio.to_thread(cluster.attach)
        again = await client.post("/api/jobs", BODY, b"idempotency-key: before")
        assert (again.status, again.body["job"]["id"]) == (202, first.body["job"]["id"])
        assert (await client.post("/api/jobs", BODY, b"idempotency-key: alone")).status == 202
        async with asyncio.timeout(15):
            while (await client.get("/readyz")).status != 200:
                await asyncio.sleep(0.1)


@pytest.mark.timeout(900)
async def test_a_promoted_node_without_standby_names_is_refused(other_cluster: Cluster) -> None:
    """Only the primary had the setting: after a promotion, answers would be on one node only."""
    async with onejob.open(other_cluster.url) as queue, serve_app(HttpApp(queue)) as client:
        first = await client.post("/api/jobs", BODY, b"idempotency-key: before")
        assert first.status == 202
        other_cluster.standby.stop()
        other_cluster.standby.settings["synchronous_standby_names"] = ""
        await asyncio.to_thread(other_cluster.standby.start)
        await asyncio.to_thread(other_cluster.fail_over)
        for key in (b"before", b"new"):
            refused = await client.post("/api/jobs", BODY, b"idempotency-key: " + key)
            assert (refused.status, refused.code) == (503, "SERVICE_UNAVAILABLE")
        ready = await client.get("/readyz")
        assert ready.status == 503
        assert "synchronous_standby_names" in ready.body["detail"]
