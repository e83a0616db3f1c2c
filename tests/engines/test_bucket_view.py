"""The view: readable objects in the seed's layout, written before the reply, never read, repaired when damaged."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import json

import onejob
from onejob.clock import FakeClock, SystemClock
from onejob.conformance.samples import TENANT, submit
from onejob.conformance.world import expect
from onejob.core.maintenance import Purge
from onejob.core.replies import Created, Maintained, Replayed
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.objects import RequestFailed
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.view import HOLD_SECONDS, encode_name, key_hash
from tests.campaigns.bucket import open_bucket
from tests.support.command_line import CommandRunner
from tests.support.object_stores import MemoryObjects, WrappedObjects

T = TypeVar("T")
DAY_MS = 86_400_000


def read_json(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.decode(file.read_bytes()) for file in sorted(folder.glob(pattern))]


async def test_a_submission_is_shown_in_the_seeds_layout(tmp_path: Path) -> None:
    async with onejob.open(f"file://{tmp_path}") as queue:
        receipt = await queue.submit(
            "charge_customer", {"order": 123}, idempotency_key="charge-ORD-123", idempotency_ttl_days=30
        )
        assert receipt.job is not None
        digest = sha256(b"charge_customer:charge-ORD-123").hexdigest()
        (record,) = read_json(tmp_path, f"idempotency/charge_customer/{digest}.json")
        (task,) = read_json(tmp_path, f"tasks/{receipt.job.id[-1]}/{receipt.job.id}.json")
    assert list(record)[:8] == [
        "key", "key_hash", "task_id", "task_key", "created_at", "expires_at", "task_type", "input_hash",
    ]  # fmt: skip
    assert record["key"] == "charge-ORD-123"
    assert record["key_hash"] == f"sha256:{digest}"
    assert record["task_id"] == receipt.job.id
    assert record["task_key"] == f"tasks/{receipt.job.id[-1]}/{receipt.job.id}.json"
    assert record["task_type"] == "charge_customer"
    assert record["input_hash"].startswith("sha256:")
    assert record["status"] == "ready"
    assert (task["status"], task["input"]) == ("pending", {"order": 123})


async def test_a_held_key_is_shown_as_creating(tmp_path: Path) -> None:
    async with onejob.open(f"file://{tmp_path}") as queue:
        await queue.check_or_reserve("upload", idempotency_key="k")
        (record,) = read_json(tmp_path, "idempotency/upload/*.json")
    assert record["status"] == "creating"


async def test_later_states_follow_and_drops_delete(tmp_path: Path) -> None:
    clock = SystemClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path, clock)
    command = submit("k", ttl_ms=DAY_MS)
    await expect(engine, command, Created)
    assert sum(name.startswith("tenants/") for name in store.objects) == 2
    await expect(engine, Purge(tenant=TENANT, record_id=command.record_id), Maintained)
    await engine._view.write_all_pending()
    assert not any(name.startswith("tenants/") for name in store.objects)
    await engine.aclose()


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "/", "../../log", "a\x00b", "é", "~2F", "%2F", "x" * 300])
def test_no_name_leaves_its_folder(text: str) -> None:
    encoded = encode_name(text)
    assert encoded
    assert "/" not in encoded
    assert encoded.strip(".")
    assert len(encoded) <= 200
    assert encoded.isascii()


def test_different_texts_have_different_names() -> None:
    texts = ["", "..", "~2E", "a/b", "a~2Fb", "~xab", "x" * 300, "x" * 301, *map(chr, range(300))]
    assert len({encode_name(text) for text in texts}) == len(texts)


def test_the_key_hash_is_the_seeds() -> None:
    assert key_hash("charge_customer", "k") == sha256(b"charge_customer:k").hexdigest()


class ViewDown(WrappedObjects):
    """Puts of the view fail, or hang."""

    down = False
    hangs = False

    async def put(self, name: str, data: bytes) -> None:
        if self.hangs:
            await asyncio.sleep(60)
        if self.down:
            raise RequestFailed("503")
        await self.inner.put(name, data)


async def test_a_failing_view_fails_no_submission_and_is_repaired(tmp_path: Path) -> None:
    clock = SystemClock()
    store = MemoryObjects(clock)
    objects = ViewDown(store)
    engine = await open_bucket(objects, tmp_path, clock)
    objects.down = True
    await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    assert not any(name.startswith("tenants/") for name in store.objects)
    await engine.aclose()
    again = await open_bucket(store, tmp_path, clock)
    await again._repair_view()
    assert sum(name.startswith("tenants/") for name in store.objects) == 2
    await again.aclose()


async def test_what_a_dead_process_did_not_show_is_written_from_the_cursor(tmp_path: Path) -> None:
    clock = SystemClock()
    store = MemoryObjects(clock)
    objects = ViewDown(store)
    engine = await open_bucket(objects, tmp_path / "a", clock)
    objects.down = True
    await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    await engine.aclose()
    other = await open_bucket(store, tmp_path / "b", clock)  # its replica is new
    await other._repair_view()
    assert sum(name.startswith("tenants/") for name in store.objects) == 2
    assert store.objects["view/cursor"][0] == b"1"
    await other.aclose()


@pytest.mark.parametrize("cursor", [b"7", b"9" * 16, b"9" * 25, b"9" * 5000, "\u0663".encode(), b"-1"])
async def test_a_cursor_that_the_log_does_not_have_is_reset_and_drops_nothing(tmp_path: Path, cursor: bytes) -> None:
    clock = SystemClock()
    store = MemoryObjects(clock)
    objects = ViewDown(store)
    engine = await open_bucket(objects, tmp_path / "a", clock)
    objects.down = True
    await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    await engine.aclose()
    store.objects["view/cursor"] = (cursor, 0)
    other = await open_bucket(store, tmp_path / "b", clock)
    await other._repair_view()
    assert sum(name.startswith("tenants/") for name in store.objects) == 2
    assert store.objects["view/cursor"][0] == b"1"
    await other.aclose()


async def test_a_hanging_view_holds_no_answer_longer_than_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HOLD_SECONDS == 2.0
    monkeypatch.setattr("onejob.engines.bucket.view.HOLD_SECONDS", 0.1)
    monkeypatch.setattr("onejob.engines.bucket.VIEW_CLOSE_SECONDS", 0.1)
    clock = SystemClock()
    objects = ViewDown(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    objects.hangs = True
    async with asyncio.timeout(15):
        await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    await engine.aclose()


async def test_a_deleted_or_scribbled_view_changes_no_answer_and_is_repaired(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path, clock)
    for n in range(10):
        await expect(engine, submit(f"k{n}", ttl_ms=DAY_MS), Created)
    names = sorted(name for name in store.objects if name.startswith("tenants/"))
    assert len(names) == 20
    right = {name: store.objects[name][0] for name in names}
    del store.objects[names[0]]
    store.objects[names[1]] = (b"not JSON", 0)
    store.objects[names[2]] = (right[names[3]], 0)
    left_over = names[-1][:-7] + "00.json"
    store.objects[left_over] = (b"{}", 0)
    store.objects["tasks/README.txt"] = (b"somebody else's", 0)
    for n in range(10):
        await expect(engine, submit(f"k{n}", ttl_ms=DAY_MS), Replayed)
    repair = await engine.repair_view()
    assert (repair.objects, repair.missing, repair.changed, repair.left_over) == (20, 1, 2, 1)
    assert {name for name in store.objects if name.startswith("tenants/")} == set(names)
    assert "tasks/README.txt" in store.objects
    repair = await engine.repair_view()
    assert (repair.missing, repair.changed, repair.left_over) == (0, 0, 0)
    await engine.aclose()


def test_doctor_repairs_the_view(tmp_path: Path, run: CommandRunner, clean_environment: None) -> None:
    on_bucket = run.with_arguments("--engine", f"file://{tmp_path / 'bucket'}")
    assert on_bucket("submit", "charge", "--key", "k").code == 0
    (task,) = tmp_path.glob("bucket/tasks/*/*.json")
    task.unlink()
    assert "1 were missing" in on_bucket("doctor").out
    assert task.exists()
    assert "all 2 readable objects" in on_bucket("doctor").out


class BusyObjects(WrappedObjects):
    """Somebody submits around every request of one kind."""

    submit: Callable[[], Awaitable[None]] | None = None
    kind = "list"

    async def intercept(self, kind: str, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        if self.submit is not None and kind == self.kind and not name.startswith(("log", "snap")):
            await self.submit()
            result = await ask()
            await self.submit()
            return result
        return await ask()


@pytest.mark.parametrize("kind", ["list", "get", "put", "delete"])
async def test_a_repair_beside_a_service_deletes_no_object_of_its_keys(tmp_path: Path, kind: str) -> None:
    clock = SystemClock()
    store = MemoryObjects(clock)
    live = await open_bucket(store, tmp_path / "live", clock)
    await expect(live, submit("first", ttl_ms=DAY_MS), Created)
    store.objects[f"tenants/{TENANT}/tasks/0/{'0' * 36}.json"] = (b"{}", 0)
    busy = BusyObjects(store)
    doctor = BucketEngine(
        busy, ReplicaFile(str(tmp_path / "doctor"), "test", temporary=True), clock=clock, examine=True
    )
    await doctor.start()
    count = 0

    async def submit_another() -> None:
        nonlocal count
        if count < 30:
            count += 1
            await expect(live, submit(f"k{count}", ttl_ms=DAY_MS), Created)

    busy.kind, busy.submit = kind, submit_another
    repair = await doctor.repair_view()
    assert repair.left_over == 1
    assert repair.changed == 0
    await doctor.aclose()
    assert sum(name.startswith(f"tenants/{TENANT}/idempotency/") for name in store.objects) == count + 1
    assert sum(name.startswith(f"tenants/{TENANT}/tasks/") for name in store.objects) == count + 1
    await live.aclose()
