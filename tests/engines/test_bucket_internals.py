"""The bucket engine: payloads, snapshots, cleaning, and several processes on a real S3 server."""

import asyncio
import subprocess
import sys
import zlib
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.conformance.samples import OTHER, TENANT, submit
from onejob.conformance.world import dump_store, expect, list_facts, read_attachments
from onejob.core.errors import Invalid
from onejob.core.facts import Kind
from onejob.core.maintenance import Purge
from onejob.core.replies import Created, Maintained, Replayed
from onejob.engines import open_engine, redact_password
from onejob.engines.bucket.log import log_name, position_of
from onejob.engines.bucket.snapshots import LOG_BYTES_MIN, find_snapshots
from onejob.engines.bucket.url import parse_bucket_url
from onejob.engines.sqlite import schema
from onejob.errors import StoreRefused
from onejob.ids import SystemIds
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.settings import IdempotencyConfig
from tests.campaigns.bucket import open_bucket
from tests.support.object_stores import CountingObjects, MemoryObjects

DAY_MS = 86_400_000
DAY = 86_400.0
LARGE = b'"' + b"x" * 100_000 + b'"'


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryObjects:
    return MemoryObjects(clock)


def folders(store: MemoryObjects) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in store.objects)


async def test_a_large_input_is_an_object_of_its_own(tmp_path: Path, clock: FakeClock, store: MemoryObjects) -> None:
    engine = await open_bucket(store, tmp_path, clock)
    created = await expect(engine, submit("k", input=LARGE, ttl_ms=DAY_MS), Created)
    assert len(store.objects[log_name(1)][0]) < 5000
    (name,) = [name for name in store.objects if name.startswith("payload/")]
    assert store.objects[name][0] == LARGE
    other = await open_bucket(store, tmp_path, clock)
    assert await read_attachments(other, created.job.id) == [LARGE]
    store.objects[name] = (b"scribbled", 0)
    with pytest.raises(StoreRefused, match="is damaged"):
        await read_attachments(other, created.job.id)
    del store.objects[name]
    with pytest.raises(StoreRefused, match="is missing"):
        await read_attachments(other, created.job.id)
    await engine.aclose()
    await other.aclose()


async def test_a_payload_is_deleted_with_its_job(tmp_path: Path, clock: FakeClock, store: MemoryObjects) -> None:
    engine = await open_bucket(store, tmp_path, clock)
    command = submit("k", input=LARGE, ttl_ms=DAY_MS)
    await expect(engine, command, Created)
    await expect(engine, Purge(tenant=TENANT, record_id=command.record_id), Maintained)
    await asyncio.sleep(0.01)
    assert folders(store)["payload"] == 0
    await engine.aclose()


async def test_a_payload_that_no_entry_names_is_deleted_after_two_days(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    engine = await open_bucket(store, tmp_path, clock)
    await expect(engine, submit("k", input=LARGE, ttl_ms=10 * DAY_MS), Created)
    await store.put("payload/lost/input-0-00", b"put, and then its process died")
    clock.advance(1.9 * DAY)
    await engine._keeper.delete_unnamed_payloads()
    assert folders(store)["payload"] == 2
    clock.advance(0.2 * DAY)
    await engine._keeper.delete_unnamed_payloads()
    assert folders(store)["payload"] == 1
    assert len(await read_attachments(engine, (await list_facts(engine, Kind.JOB))[0].id)) == 1
    await engine.aclose()


async def test_a_snapshot_is_due_after_a_day_or_64_mib(tmp_path: Path, clock: FakeClock, store: MemoryObjects) -> None:
    engine = await open_bucket(store, tmp_path, clock)
    keeper = engine._keeper
    assert not keeper.is_due(engine._replica.state)
    await expect(engine, submit("k"), Created)
    state = engine._replica.state
    assert not keeper.is_due(state)
    assert keeper.is_due(state._replace(log_bytes=LOG_BYTES_MIN + 1))
    assert not keeper.is_due(state._replace(log_bytes=LOG_BYTES_MIN + 1, snapshot_bytes=LOG_BYTES_MIN * 3))
    clock.advance(DAY + 1)
    assert keeper.is_due(state)
    await engine.aclose()


async def test_a_new_process_begins_with_the_newest_snapshot(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    engine = await open_bucket(store, tmp_path / "a", clock)
    for n in range(20):
        await expect(engine, submit(f"k{n}", ttl_ms=DAY_MS), Created)
    await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    await expect(engine, submit("after", ttl_ms=DAY_MS), Created)
    assert [one.position for one in await find_snapshots(store)] == [20]
    counting = CountingObjects(store)
    other = await open_bucket(counting, tmp_path / "b", clock)
    assert counting.counts["get", "log"] < 10
    assert await dump_store(other) == await dump_store(engine)
    await expect(other, submit("k3", ttl_ms=DAY_MS), Replayed)
    await engine.aclose()
    await other.aclose()


async def test_a_snapshot_of_more_than_the_cache_holds_can_be_read(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the replica has a journal: pages from there have no checksum yet, and leave the cache one by one."""
    monkeypatch.setattr(schema, "_CACHE_KIB", 100)
    engine = await open_bucket(store, tmp_path, clock)
    for start in range(0, 1500, 500):
        await engine.execute([submit(f"k{n}", ttl_ms=DAY_MS) for n in range(start, start + 500)])
    await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    await engine.aclose()
    store.objects = {name: stored for name, stored in store.objects.items() if not name.startswith("log/")}
    other = await open_bucket(store, tmp_path / "other", clock)
    for n in range(0, 1500, 100):
        await expect(other, submit(f"k{n}", ttl_ms=DAY_MS), Replayed)
    await other.aclose()


async def test_a_damaged_snapshot_is_not_believed(tmp_path: Path, clock: FakeClock, store: MemoryObjects) -> None:
    engine = await open_bucket(store, tmp_path / "a", clock)
    for key in "ab":
        await expect(engine, submit(key, ttl_ms=DAY_MS), Created)
        await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    newest = (await find_snapshots(store))[-1]
    store.objects[newest.name] = (store.objects[newest.name][0][:-1] + b"!", 0)
    other = await open_bucket(store, tmp_path / "b", clock)
    await expect(other, submit("b", ttl_ms=DAY_MS), Replayed)
    await engine.aclose()
    await other.aclose()


async def test_cleaning_keeps_two_snapshots_and_whatever_they_need(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    engine = await open_bucket(store, tmp_path / "a", clock)
    for day in range(5):
        await expect(engine, submit(f"day-{day}", ttl_ms=30 * DAY_MS), Created)
        await asyncio.sleep(0)
        while engine._keeper._busy or len(engine._tasks) > 3:  # three run for ever
            await asyncio.sleep(0.001)
        clock.advance(DAY + 1)
    snapshots = await find_snapshots(store)
    assert len(snapshots) == 2
    entries = sorted(position_of(name) for name in store.objects if name.startswith("log/"))
    assert entries[0] > 1, "nothing was deleted"
    assert entries[0] <= snapshots[0].position + 1, "the older snapshot could not be continued"
    assert entries == list(range(entries[0], 6))
    other = await open_bucket(store, tmp_path / "b", clock)
    for day in range(5):
        await expect(other, submit(f"day-{day}", ttl_ms=30 * DAY_MS), Replayed)
    await engine.aclose()
    await other.aclose()


async def test_cleaning_deletes_nothing_while_the_newest_snapshot_cannot_be_read_back(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    engine = await open_bucket(store, tmp_path, clock)
    for n in range(3):
        await expect(engine, submit(f"k{n}", ttl_ms=30 * DAY_MS), Created)
        await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    newest = (await find_snapshots(store))[-1]
    whole = store.objects[newest.name]
    store.objects[newest.name] = (b"", 0)
    clock.advance(2 * DAY)
    await engine._keeper.clean()
    assert folders(store)["log"] == 3
    store.objects[newest.name] = whole
    await engine._keeper.clean()
    assert folders(store)["log"] < 3
    await engine.aclose()


async def test_a_purge_leaves_no_byte_in_the_bucket_after_a_day(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    secret = b"a secret that must go"
    engine = await open_bucket(store, tmp_path, clock)
    await expect(engine, submit("before", ttl_ms=30 * DAY_MS), Created)
    await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    runtime = Runtime(engine, IdempotencyConfig(), clock=clock, ids=SystemIds())
    await expect(engine, submit("k", tenant=OTHER, input=b'"' + secret + b'"', ttl_ms=30 * DAY_MS), Created)
    await expect(engine, submit("large", tenant=OTHER, input=b'"' + secret * 9000 + b'"', ttl_ms=30 * DAY_MS), Created)
    await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    clock.advance(10)
    purged = await runtime.purge(Caller(tenant=OTHER))
    clock.advance(2)
    await engine._keep(erase=True)
    await engine._view.write_all_pending()
    erasure = await engine.examine_erasure()
    assert erasure is not None
    assert erasure.gone_at > erasure.requested_at + DAY_MS
    assert erasure.gone_at < purged.gone_at.timestamp() * 1000
    clock.advance(purged.gone_at.timestamp() - clock.wall_ms() / 1000)
    await engine._keep(erase=True)
    assert await engine.examine_erasure() is None
    for name, (data, _) in store.objects.items():
        assert secret not in (zlib.decompress(data) if name.startswith("snap/") else data), name
        assert OTHER not in name
    other = await open_bucket(store, tmp_path / "b", clock)
    await expect(other, submit("before", ttl_ms=30 * DAY_MS), Replayed)
    await runtime.aclose()
    await other.aclose()


SUBMITTER = """
import asyncio, sys, onejob

async def main():
    async with onejob.open(sys.argv[1], sweep=False) as queue:
        print("ready", flush=True)
        sys.stdin.readline()
        receipts = await asyncio.gather(
            *(queue.submit("charge", {"order": 7}, idempotency_key="ORD-7") for _ in range(int(sys.argv[2])))
        )
        print(*(receipt.job.id for receipt in receipts))

asyncio.run(main())
"""


def test_fifty_submissions_of_one_key_from_four_processes_make_one_job(bucket_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUBMITTER, bucket_url, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for count in (13, 13, 12, 12)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        answers += process.communicate(timeout=120)[0].split()
        assert process.returncode == 0
    assert len(answers) == 50
    assert len(set(answers)) == 1
    assert asyncio.run(_count_jobs(bucket_url)) == 1


async def _count_jobs(url: str) -> int:
    engine = await open_engine(url)
    try:
        return len(await list_facts(engine, Kind.JOB, "default"))
    finally:
        await engine.aclose()


async def test_the_commits_that_an_engine_has_seen_are_counted_for_gates(
    tmp_path: Path, clock: FakeClock, store: MemoryObjects
) -> None:
    """Whether it made them, read them or found them in its replica: gates refuse a bucket that has fewer."""
    engine, other = await open_bucket(store, tmp_path, clock), await open_bucket(store, tmp_path, clock)
    assert engine.info.generation == 0
    await expect(engine, submit("a", ttl_ms=DAY_MS), Created)
    assert (engine.info.generation, other.info.generation) == (1, 0)
    await expect(other, submit("a", ttl_ms=DAY_MS), Replayed)
    assert other.info.generation == 1
    await engine.aclose()
    await other.aclose()
    engine = await open_bucket(store, tmp_path, clock)
    assert engine.info.generation == 1
    await engine.aclose()


async def test_a_key_is_remembered_for_thirty_days_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    async with onejob.open(f"file://{tmp_path}") as queue:
        plain = await queue.submit("charge", idempotency_key="a")
        days = await queue.submit("charge", idempotency_key="b", idempotency_ttl_days=2)
    (tmp_path / "other").mkdir()
    async with onejob.open(f"file://{tmp_path / 'other'}", window=timedelta(hours=5)) as queue:
        hours = await queue.submit("charge", idempotency_key="c")
    for receipt, window in ((plain, timedelta(days=30)), (days, timedelta(days=2)), (hours, timedelta(hours=5))):
        assert receipt.job is not None
        assert receipt.expires_at is not None
        assert receipt.expires_at - receipt.job.created_at == window


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("s3://", "write s3://"),
        ("s3://me:secret@bucket/prefix", "credentials are parameters"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/a/../b", "empty part"),
        ("s3://bucket?endpiont=x", "no parameter 'endpiont'"),
        ("s3://bucket?view=never", "view is 'never'"),
        ("s3://bucket?endpoint=http://store.example.com", "plain http"),
        ("s3://bucket?endpoint=store", "not a URL"),
        ("file://relative/folder", "write file://"),
        ("file:///", "write file://"),
    ],
)
def test_a_wrong_url_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        parse_bucket_url(url)


def test_plain_http_is_for_loopback_or_by_permission() -> None:
    for url in (
        "s3://bucket?endpoint=http://127.0.0.1:8333",
        "s3://bucket?endpoint=http://[::1]:8333",
        "s3://bucket?endpoint=http://localhost:8333",
        "s3://bucket?endpoint=http://store.example.com&allow_http=true",
    ):
        assert parse_bucket_url(url).bucket == "bucket"


def test_the_environment_gives_what_the_url_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    parsed = parse_bucket_url("s3://bucket/prefix?access_key_id=from-url")
    assert parsed.parameters == {"endpoint": "http://127.0.0.1:9000", "access_key_id": "from-url"}


def test_credentials_are_never_shown() -> None:
    url = "s3://bucket/prefix?access_key_id=AKIA&secret_access_key=hidden"
    assert redact_password(url) == parse_bucket_url(url).display == "s3://bucket/prefix"
    assert "hidden" not in redact_password("s3://me:hidden@bucket/prefix")
