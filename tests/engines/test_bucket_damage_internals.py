"""Objects of a bucket that are not as they were written: an identical answer or a refusal by name, and never another job.

Every bit is flipped where objects are decoded; every few bits also from the opening of the bucket to its answers.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from msgspec import json, msgpack

import onejob
from onejob.cli.commands.doctor import check_bucket
from onejob.cli.commands.doctor.findings import CheckStatus
from onejob.clock import FakeClock, SystemClock
from onejob.conformance.samples import submit
from onejob.conformance.world import expect, list_facts, read_attachments
from onejob.core.facts import Kind
from onejob.core.identity import format_job_id
from onejob.core.replies import Created, Replayed
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.log import (
    LEDGER_NAME,
    LogEntry,
    decode_entry,
    encode_entry,
    find_damaged_entries,
    log_name,
    read_or_create_ledger,
)
from onejob.engines.bucket.objects import ObjectInfo, RequestFailed
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.snapshots import has_digest_of_name
from onejob.engines.bucket.url import ViewMode
from onejob.errors import Outdated, StoreRefused, Unavailable, Unknown
from onejob.ledger.base import runtime_of
from onejob.runtime.claims import ClaimRequest, Claims
from tests.campaigns.bucket import open_bucket
from tests.support.command_line import CommandRunner
from tests.support.object_stores import CountingObjects, DyingObjects, MemoryObjects, WrappedObjects

pytestmark = pytest.mark.long  # computes for seconds

DAY_MS: Final = 86_400_000
KEYS: Final = ("a", "b", "c")
SMALL_PAYLOAD: Final = b'"a payload of its own"'
BITS_PER_SAMPLE: Final = 37


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flips(data: bytes, step: int = 1) -> Iterator[bytes]:
    return (flipped(data, bit) for bit in range(0, len(data) * 8, step))


class Bucket(NamedTuple):
    """A small one, and what it answers. Its objects are copied before they are changed."""

    clock: FakeClock
    objects: dict[str, tuple[bytes, int]]
    jobs: dict[str, bytes]  # by key

    def with_objects(self, changes: dict[str, bytes | None]) -> MemoryObjects:
        store = MemoryObjects(self.clock)
        store.objects = {name: stored for name, stored in self.objects.items() if name not in changes}
        store.objects |= {name: (data, 0) for name, data in changes.items() if data is not None}
        return store

    def find(self, folder: str) -> str:
        (name,) = [name for name in self.objects if name.startswith(folder)]
        return name


@pytest.fixture(autouse=True)
def small_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.engines.bucket.replica.PAYLOAD_BYTES_MIN", 16)


async def make_bucket(folder: Path, *, snapshots: Sequence[str] = (), ledger: bytes | None = None) -> Bucket:
    clock = FakeClock()
    store = MemoryObjects(clock)
    if ledger is not None:
        await store.put(LEDGER_NAME, ledger)
    engine = await open_bucket(store, folder / "maker", clock)
    jobs: dict[str, bytes] = {}
    for key in KEYS:
        data = SMALL_PAYLOAD if key == "b" else b"1"
        created = await expect(engine, submit(key, input=data, ttl_ms=30 * DAY_MS), Created)
        jobs[key] = created.job.id
        if key in snapshots:
            await engine._keeper.snapshot_and_prune(engine._lock, force=True)
    await engine._view.write_all_pending()
    await engine.aclose()
    return Bucket(clock, dict(store.objects), jobs)


def view_of(store: MemoryObjects) -> dict[str, bytes]:
    return {name: data for name, (data, _) in store.objects.items() if name.startswith(("tenants/", "tasks/"))}


async def check_answers(
    bucket: Bucket, store: MemoryObjects, folder: Path, named: str, engine_class: type[BucketEngine] = BucketEngine
) -> bool:
    """True if everything is answered as before; False if it was refused by name. Anything else fails."""
    view = view_of(store)
    engine = engine_class(store, ReplicaFile(str(folder), "test"), clock=bucket.clock, examine=True)
    try:
        await engine.start()
        for key, job_id in bucket.jobs.items():
            data = SMALL_PAYLOAD if key == "b" else b"1"
            replayed = await expect(engine, submit(key, input=data, ttl_ms=30 * DAY_MS), Replayed)
            assert replayed.job is not None
            assert replayed.job.id == job_id
            assert await read_attachments(engine, job_id) == [data]
        assert len(await list_facts(engine, Kind.JOB)) == len(KEYS)
        return True
    except (Outdated, StoreRefused) as error:
        assert named in str(error), error  # noqa: PT017 - either is right, but not under another name
        return False
    finally:
        await engine.aclose()
        assert view_of(store) == view, "the view was overwritten"


async def test_every_flipped_bit_of_an_entry_is_refused_by_name(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    for position in (1, 2, 3):
        data = bucket.objects[log_name(position)][0]
        entry, refused = decode_entry(position, data), 0
        for changed in flips(data):
            try:
                assert decode_entry(position, changed)[:-1] == entry[:-1]
            except (Outdated, StoreRefused) as error:
                assert log_name(position) in str(error)  # noqa: PT017 - most of many are refused
                refused += 1
        assert refused == len(data) * 8
        for length in range(len(data)):
            with pytest.raises(StoreRefused, match=log_name(position)):
                decode_entry(position, data[:length])


async def test_every_flipped_bit_of_the_ledger_is_refused_by_name_or_changes_nothing(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    ledger_id = await read_or_create_ledger(bucket.with_objects({}))
    refused = 0
    for changed in flips(bucket.objects[LEDGER_NAME][0]):
        try:
            assert await read_or_create_ledger(bucket.with_objects({LEDGER_NAME: changed})) == ledger_id
        except (Outdated, StoreRefused) as error:
            assert LEDGER_NAME in str(error)  # noqa: PT017 - most of many are refused
            refused += 1
    assert refused > len(bucket.objects[LEDGER_NAME][0]) * 6


@pytest.mark.parametrize("snapshots", ["", "bc"])
async def test_a_log_without_its_ledger_is_refused_and_gets_no_other(tmp_path: Path, snapshots: str) -> None:
    bucket = await make_bucket(tmp_path, snapshots=snapshots)
    entries = {log_name(n): None for n in (1, 2, 3)} if snapshots else {}
    store = bucket.with_objects({LEDGER_NAME: None, **entries})
    assert not await check_answers(bucket, store, tmp_path / "b", f"{LEDGER_NAME} is missing")
    assert LEDGER_NAME not in store.objects
    await store.put(LEDGER_NAME, bucket.objects[LEDGER_NAME][0])
    assert await check_answers(bucket, store, tmp_path / "b", "nothing")


async def test_every_flipped_bit_of_a_snapshot_is_noticed(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path, snapshots="a")
    name = bucket.find("snap/")
    data = bucket.objects[name][0]
    assert has_digest_of_name(BytesIO(data), name)
    assert not any(has_digest_of_name(BytesIO(changed), name) for changed in flips(data))


async def test_every_flipped_bit_of_a_payload_is_refused_by_name(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    name, store = bucket.find("payload/"), bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "b", bucket.clock)
    for changed in flips(SMALL_PAYLOAD):
        store.objects[name] = (changed, 0)
        with pytest.raises(StoreRefused, match=f"{name} is damaged"):
            await read_attachments(engine, bucket.jobs["b"])
    await engine.aclose()


async def flip_bits_in_turn(bucket: Bucket, folder: Path, step: int, engine_class: type[BucketEngine]) -> int:
    """Open the bucket with each change; returns how many were refused."""
    refused = 0
    for name, (data, _) in bucket.objects.items():
        if name.startswith(("log/", "snap/")) or name == LEDGER_NAME:
            for changed in flips(data, step if len(data) < 2000 else step * 50):
                refused += not await check_answers(
                    bucket, bucket.with_objects({name: changed}), folder, name, engine_class
                )
    return refused


@pytest.mark.parametrize("snapshots", ["", "b", "ab"])
async def test_a_bucket_with_a_flipped_bit_gives_the_same_answers_or_is_refused_by_name(
    tmp_path: Path, snapshots: str
) -> None:
    bucket = await make_bucket(tmp_path, snapshots=snapshots)
    assert await check_answers(bucket, bucket.with_objects({}), tmp_path / "whole", "nothing")
    assert await flip_bits_in_turn(bucket, tmp_path / "damaged", BITS_PER_SAMPLE, BucketEngine) > 50


async def make_fork(bucket: Bucket, folder: Path, *, snapshots: str = "") -> Bucket:
    """Another history of the same ledger, as after a restore that went wrong."""
    return await make_bucket(folder / "fork", ledger=bucket.objects[LEDGER_NAME][0], snapshots=snapshots)


async def replace_entries_in_turn(bucket: Bucket, folder: Path, engine_class: type[BucketEngine]) -> None:
    """Each entry is replaced by whole ones from elsewhere, or is gone."""
    fork, foreign = await make_fork(bucket, folder), await make_bucket(folder / "foreign")
    for position in (1, 2, 3):
        name = log_name(position)
        others = [fork.objects[name][0], foreign.objects[name][0], bucket.objects[log_name(position % 3 + 1)][0]]
        for other in (*others, *([None] if position < 3 else [])):
            store = bucket.with_objects({name: other})
            # The last entry of a fork continues the fork's, so the refusal names the entry after a first one that fits.
            named = log_name(2) if other == fork.objects[name][0] and position == 1 else name
            assert not await check_answers(bucket, store, folder / "replaced", named, engine_class), (position, other)


async def test_an_entry_from_elsewhere_or_a_missing_one_is_refused_by_name(tmp_path: Path) -> None:
    await replace_entries_in_turn(await make_bucket(tmp_path), tmp_path, BucketEngine)


class ReadsWithoutDigests(BucketEngine):
    """Takes what it can decode for what was written."""

    def _decode(self, position: int, data: bytes) -> LogEntry:
        _, nonce, previous, at, digest, body = msgpack.decode(data)
        return decode_entry(position, _with_right_digest(position, nonce, previous, at, body))._replace(digest=digest)


def _with_right_digest(position: int, nonce: bytes, previous: bytes, at: int, body: bytes) -> bytes:
    return encode_entry(position, nonce, previous, at, msgpack.decode(body)).data


class IgnoresTheChain(BucketEngine):
    async def _apply(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            await super()._apply([entry._replace(previous=self._replica.state.digest)])


async def test_an_engine_that_verifies_no_digest_is_caught(tmp_path: Path) -> None:
    with pytest.raises(Exception) as caught:  # another job, or an internal error
        await flip_bits_in_turn(await make_bucket(tmp_path), tmp_path / "damaged", BITS_PER_SAMPLE, ReadsWithoutDigests)
    assert not isinstance(caught.value, (Outdated, StoreRefused))


async def test_an_engine_that_ignores_the_chain_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        await replace_entries_in_turn(await make_bucket(tmp_path), tmp_path, IgnoresTheChain)


async def test_a_snapshot_of_another_history_is_refused_by_name(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path, snapshots="c")
    fork = await make_fork(bucket, tmp_path, snapshots="c")
    theirs = fork.find("snap/")
    store = bucket.with_objects({bucket.find("snap/"): None, theirs: fork.objects[theirs][0]})
    assert not await check_answers(bucket, store, tmp_path / "b", theirs)
    del store.objects[log_name(3)]  # deleted, as a day later: then the next entry decides
    store.objects[log_name(4)] = (encode_entry(4, bytes(16), b"of ours", 0, []).data, 0)
    assert not await check_answers(bucket, store, tmp_path / "b", log_name(4))


async def test_a_log_that_lacks_what_the_replica_has_seen_is_refused_and_the_replica_is_kept(tmp_path: Path) -> None:
    """The newest entries were removed, or an older copy was put back and has grown since."""
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    engine = await open_bucket(bucket.with_objects({}), tmp_path / "shared", bucket.clock)
    path = engine._replica.path
    await engine.aclose()
    kept = path.read_bytes()
    cases: list[tuple[dict[str, bytes | None], str]] = [
        ({log_name(3): None}, f"{log_name(3)} is missing, which this machine has seen"),
        ({log_name(2): None, log_name(3): None}, f"{log_name(3)} is missing, which this machine has seen"),
        ({log_name(n): fork.objects[log_name(n)][0] for n in (1, 2, 3)}, f"{log_name(3)} is another entry"),
    ]
    for changes, text in cases:
        for _ in range(2):  # the refusal destroys no evidence
            with pytest.raises(StoreRefused, match=text):
                await open_bucket(bucket.with_objects(changes), tmp_path / "shared", bucket.clock)
            assert path.read_bytes() == kept
    engine = await open_bucket(bucket.with_objects({}), tmp_path / "shared", bucket.clock)  # it was put back
    await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    await engine.aclose()


async def test_the_replicas_of_all_processes_of_a_machine_are_asked(tmp_path: Path) -> None:
    """The one that is opened may be of a process that had seen less."""
    bucket = await make_bucket(tmp_path)
    behind = await open_bucket(bucket.with_objects({log_name(3): None}), tmp_path / "shared", bucket.clock)
    newest = await open_bucket(bucket.with_objects({}), tmp_path / "shared", bucket.clock)
    await behind.aclose()
    with pytest.raises(StoreRefused, match=f"{log_name(3)} is missing"):
        await open_bucket(bucket.with_objects({log_name(3): None}), tmp_path / "shared", bucket.clock)
    await newest.aclose()
    with pytest.raises(StoreRefused, match=f"{log_name(3)} is missing"):
        await open_bucket(bucket.with_objects({log_name(3): None}), tmp_path / "shared", bucket.clock)


async def test_an_older_copy_of_the_log_under_a_running_process_is_refused_by_it(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    store = bucket.with_objects({})
    running = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    older = {name: stored for name, stored in store.objects.items() if name not in (log_name(2), log_name(3))}
    store.objects = dict(older)
    other = await open_bucket(store, tmp_path / "other", bucket.clock, view=ViewMode.OFF)
    for key in ("d", "e", "f"):
        await expect(other, submit(key, ttl_ms=DAY_MS), Created)
    with pytest.raises(StoreRefused, match=f"{log_name(4)} does not continue {log_name(3)}"):
        await running.execute([submit("e", ttl_ms=DAY_MS)])
    for _ in range(2):
        with pytest.raises(StoreRefused, match=f"{log_name(3)} is another entry than this machine has seen"):
            await running.execute([submit("e", ttl_ms=DAY_MS)])
    store.objects = {**bucket.objects}
    await expect(running, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    await running.aclose()
    await other.aclose()


@pytest.mark.parametrize("change", ["removed", "replaced", "damaged"])
async def test_a_running_process_looks_now_and_then_whether_its_last_entry_is_still_there(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would tell the process that wrote it, while its slot is empty or others fill it."""
    monkeypatch.setattr("onejob.engines.bucket._VERIFY_SECONDS", 0.01)
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    store = bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    whole = store.objects.pop(log_name(3))
    if change != "removed":
        store.objects[log_name(3)] = fork.objects[log_name(3)] if change == "replaced" else (whole[0][:-1], 0)
    async with asyncio.timeout(10):
        while not engine._must_reopen:
            await asyncio.sleep(0.01)
    with pytest.raises(StoreRefused, match=log_name(3)):
        await engine.execute([submit("new", ttl_ms=DAY_MS)])
    store.objects[log_name(3)] = whole
    await expect(engine, submit("new", ttl_ms=DAY_MS), Created)
    await engine.aclose()


async def test_a_running_process_notices_that_an_entry_was_replaced_before_it_went_on(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    store = bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    await engine._verify_last_entry()
    store.objects[log_name(3)] = fork.objects[log_name(3)]
    await expect(engine, submit("new", ttl_ms=DAY_MS), Created)
    await engine._verify_last_entry()
    with pytest.raises(StoreRefused, match=log_name(3)):
        await engine.execute([submit("newer", ttl_ms=DAY_MS)])
    await engine.aclose()


async def test_a_last_entry_that_a_snapshot_covers_may_be_gone(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path, snapshots="c")
    store = bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    for n in (1, 2, 3):
        del store.objects[log_name(n)]
    await engine._verify_last_entry()
    assert not engine._must_reopen
    await engine.aclose()
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    await engine.aclose()


async def test_a_log_that_is_replaced_under_a_running_process_is_not_believed(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    store = bucket.with_objects({log_name(3): None})
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    store.objects[log_name(3)] = fork.objects[log_name(3)]
    for _ in range(2):
        with pytest.raises(StoreRefused, match=f"{log_name(3)} does not continue {log_name(2)}"):
            await engine.execute([submit("new", ttl_ms=DAY_MS)])
    await engine.aclose()


@pytest.mark.parametrize("key", ["ac", "bc"])
async def test_a_complete_log_needs_no_snapshot(tmp_path: Path, key: str) -> None:
    bucket = await make_bucket(tmp_path, snapshots=key)
    damaged: dict[str, bytes | None] = {name: b"damaged" for name in bucket.objects if name.startswith("snap/")}
    assert await check_answers(bucket, bucket.with_objects(damaged), tmp_path / "b", "nothing")
    for n in (1, 2, 3):
        incomplete = bucket.with_objects({**damaged, log_name(n): None})
        assert not await check_answers(bucket, incomplete, tmp_path / "b", max(damaged) if n == 3 else "")


class DamagedNext(WrappedObjects):
    """The next entry is damaged when it is stored; whether its answer comes is for a test to say."""

    answers = True
    armed = False

    async def create(self, name: str, data: bytes) -> bool:
        if self.armed and name.startswith("log/"):
            created = await self.inner.create(name, flipped(data, 100))
            if not self.answers:
                raise RequestFailed("no answer")
            return created and False
        return await self.inner.create(name, data)


@pytest.mark.parametrize("answers", [False, True])
async def test_a_damaged_entry_that_may_be_ours_is_unknown_and_one_of_others_is_refused(
    tmp_path: Path, answers: bool
) -> None:
    clock = SystemClock()
    objects = DamagedNext(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    objects.armed, objects.answers = True, answers
    with pytest.raises(StoreRefused if answers else Unknown, match=log_name(1)):
        await engine.execute([submit("k", ttl_ms=DAY_MS)])
    await engine.aclose()


async def test_an_entry_is_an_array_that_older_programs_take_for_a_newer_one(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    data = bucket.objects[log_name(1)][0]
    format, nonce, _, _, _, body = msgpack.decode(data)
    assert format == 2
    assert isinstance(nonce, bytes)
    assert isinstance(body, bytes)


async def test_formats_of_other_programs_are_refused_by_name(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    old_ledger = json.encode({"format": 1, "ledger": "x", "made_by": "onejob"})
    for name, data, error, words in (
        (LEDGER_NAME, old_ledger, StoreRefused, "format of version 0.2"),
        (LEDGER_NAME, json.encode({"format": 3, "ledger": "x"}), Outdated, "newer program"),
        (log_name(1), msgpack.encode([1, b"nonce", b"", 0, []]), StoreRefused, "format of version 0.2"),
        (log_name(1), msgpack.encode([3, "anything"]), Outdated, "newer program"),
    ):
        with pytest.raises(error, match=f"{name} .*{words}"):
            await open_bucket(bucket.with_objects({name: data}), tmp_path / "b", bucket.clock)


async def test_a_job_whose_input_is_damaged_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "bucket"
    async with onejob.open(f"file://{root}?replica={tmp_path}") as queue:
        receipts = [await queue.submit("t", "x" * 100, idempotency_key=str(n)) for n in range(4)]
        ids = [receipt.job_id for receipt in receipts]
        for n in (0, 2):
            (payload,) = root.glob(f"payload/{ids[n]}/input-*")
            payload.write_bytes(flipped(payload.read_bytes(), 9))
        claims = Claims(runtime_of(queue).gate, runtime_of(queue).ids)
        request = ClaimRequest(types=("t",), holder=bytes(16), lease_ms=60_000, tenant="default")
        assert [format_job_id(one.job.id) for one in await claims.claim(request)] == [ids[1]]
        jobs, inputs = await claims.find_candidates(request, 3)
        assert [format_job_id(job.id) for job in jobs] == [ids[3]]
        assert list(inputs) == [jobs[0].id]
        assert [format_job_id(one.job.id) for one in await claims.claim(request)] == [ids[3]]
        assert await claims.claim(request) == []
        claims.close()
    for n in (0, 2):
        assert f"job {ids[n]} cannot be claimed" in caplog.text
        assert f"payload/{ids[n]}/input-0-" in caplog.text


async def fill_folder(url: str) -> str:
    engine = await BucketEngine.open(url)
    try:
        for key in KEYS:
            await expect(engine, submit(key, input=SMALL_PAYLOAD, ttl_ms=DAY_MS), Created)
            if key != "c":
                await engine._keeper.snapshot_and_prune(engine._lock, force=True)
        await engine._view.write_all_pending()
    finally:
        await engine.aclose()
    return url


def test_doctor_names_what_is_damaged_and_repairs_nothing(
    tmp_path: Path, run: CommandRunner, clean_environment: None
) -> None:
    url = asyncio.run(fill_folder(f"file://{tmp_path / 'bucket'}?replica={tmp_path}"))
    doctor = run.with_arguments("--engine", url)
    assert "3 log entries, 2 snapshots and 3 payloads are undamaged" in doctor("doctor").out
    root = tmp_path / "bucket"
    view = sorted(root.glob("tenants/**/*.json"))
    assert len(view) == 6
    for path in view:
        path.write_text("scribbled")
    for path in sorted(path for folder in ("log", "snap", "payload") for path in root.glob(f"{folder}/**/*")):
        if not path.is_file():
            continue
        whole = path.read_bytes()
        for damaged in (flipped(whole, 300 % (len(whole) * 8)), b"", whole + b"\0"):
            path.write_bytes(damaged)
            result = doctor("doctor")
            assert result.code != 0, path
            assert str(path.relative_to(root)) in result.out + result.err
            assert {path.read_text() for path in view} == {"scribbled"}, path
        path.write_bytes(whole)
    assert doctor("doctor").code == 0
    assert "scribbled" not in {path.read_text() for path in view}


def test_doctor_names_every_damaged_object_that_opening_does_not_need(tmp_path: Path) -> None:
    url = asyncio.run(fill_folder(f"file://{tmp_path / 'bucket'}?replica={tmp_path}"))
    root = tmp_path / "bucket"
    first, second = root / log_name(1), root / log_name(2)
    first.write_bytes(flipped(first.read_bytes(), 80))
    second.unlink()
    (payload, *_) = sorted(root.glob("payload/*/*"))
    payload.unlink()
    findings = check_bucket(url)
    assert [finding.check for finding in findings] == ["objects", "erasure"]
    assert findings[0].verdict is CheckStatus.FAIL
    assert f"{log_name(1)} is damaged" in findings[0].found
    assert f"{payload.relative_to(root)} is missing" in findings[0].found
    assert log_name(2) not in findings[0].found  # it is in a snapshot


def write_keys(url: str, keys: str) -> None:
    async def work() -> None:
        engine = await BucketEngine.open(url)
        for key in keys:
            await expect(engine, submit(key, ttl_ms=DAY_MS), Created)
        await engine._view.write_all_pending()
        await engine.aclose()

    asyncio.run(work())


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("**/*")) if path.is_file()}


@pytest.mark.parametrize("evidence", ["view", "cursor", "replica"])
def test_doctor_changes_nothing_where_something_tells_of_lost_entries(
    tmp_path: Path, run: CommandRunner, clean_environment: None, evidence: str
) -> None:
    root, replicas = tmp_path / "bucket", tmp_path / "replicas"
    url = f"file://{root}?replica={replicas}{'&view=off' if evidence == 'replica' else ''}"
    write_keys(url, "abcde")
    for position in (4, 5):
        (root / log_name(position)).unlink()
    if evidence != "replica":
        for path in replicas.glob("*.db*"):
            path.unlink()
    if evidence == "cursor":
        for path in root.glob("tenants/**/*.json"):
            path.unlink()
        (root / "view").mkdir(exist_ok=True)
        (root / "view/cursor").write_bytes(b"5")
    before = files_of(root), files_of(replicas)
    result = run("doctor", "--engine", url)
    assert result.code == 1
    assert log_name(5 if evidence == "replica" else 4) in result.out
    assert (files_of(root), files_of(replicas)) == before


def test_doctor_of_a_prefix_without_a_ledger_says_so_and_writes_nothing(
    tmp_path: Path, run: CommandRunner, clean_environment: None
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "mistyped"):
        result = run("doctor", "--engine", f"file://{tmp_path / name}?replica={tmp_path / 'replicas'}")
        assert result.code == 1
        assert f"there is no ledger at file://{tmp_path / name}" in result.out
    assert [path for path in tmp_path.glob("**/*") if path.is_file()] == []
    assert not (tmp_path / "mistyped").exists()


def test_the_loss_of_a_bucket_is_accepted_as_a_new_ledger(
    tmp_path: Path, run: CommandRunner, clean_environment: None
) -> None:
    root = tmp_path / "bucket"
    url = f"file://{root}?replica={tmp_path}"
    on_bucket = run.with_arguments("--engine", url)
    kept = on_bucket("submit", "charge", "--key", "kept", "--json").json["job"]["id"]
    older = set(root.glob("log/*"))
    assert on_bucket("submit", "charge", "--key", "lost").code == 0
    lost = set(root.glob("log/*")) - older
    for path in lost:
        path.unlink()
    refused = on_bucket("submit", "charge", "--key", "lost")
    assert refused.code
    assert "onejob restore --accept-loss" in refused.err
    accepted = on_bucket("restore", "--accept-loss")
    assert accepted.code == 0
    assert f"{len(lost)} acknowledged commits are not in it" in accepted.out
    assert "restart the managers, gates and services" in accepted.out
    assert on_bucket("doctor").code == 0
    assert on_bucket("submit", "charge", "--key", "kept", "--json").json["job"]["id"] == kept
    assert on_bucket("submit", "charge", "--key", "lost").out.startswith("created")
    assert on_bucket("restore", "--accept-loss", "--json").json["commitsLost"] == 0
    assert on_bucket("submit", "charge", "--key", "lost").out.startswith("replayed")
    assert on_bucket("doctor").code == 0


async def accept_loss(objects: MemoryObjects, folder: Path, clock: FakeClock) -> str:
    file = ReplicaFile(str(folder), "test", temporary=True)
    engine = BucketEngine(objects, file, clock=clock, examine=True, accepts_loss=True)
    try:
        await engine.start()
        return (await engine.accept_loss()).summary.ledger_id
    finally:
        await engine.aclose()


async def test_whoever_has_served_the_old_ledger_refuses_the_new_one_until_it_is_restarted(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path, snapshots="a")
    store = bucket.with_objects({})
    ahead, idle, reader = [
        await open_bucket(store, tmp_path / name, bucket.clock, view=ViewMode.OFF)
        for name in ("ahead", "idle", "reader")
    ]
    old = ahead.info.ledger_id
    await expect(ahead, submit("lost", ttl_ms=DAY_MS), Created)
    del store.objects[log_name(4)]
    new = await accept_loss(store, tmp_path / "accepting", bucket.clock)
    assert new != old
    for engine in (idle, reader):
        for _ in range(2):
            with pytest.raises(StoreRefused, match=f"{log_name(4)} begins another ledger"):
                await engine.execute([submit("new", ttl_ms=DAY_MS)])
    await ahead._verify_last_entry()
    with pytest.raises(StoreRefused, match=f"{log_name(4)} is another entry"):
        await ahead.execute([submit("new", ttl_ms=DAY_MS)])
    for engine in (ahead, idle, reader):
        await engine.aclose()
    for name in ("ahead", "idle", "reader", "nobody"):
        engine = await open_bucket(store, tmp_path / name, bucket.clock)
        assert engine.info.ledger_id == new
        await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
        await engine._keeper.snapshot_and_prune(engine._lock, force=True)
        await engine.aclose()


async def test_an_accepted_loss_that_is_put_back_too_is_refused(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    store = bucket.with_objects({log_name(3): None})
    await accept_loss(store, tmp_path / "b", bucket.clock)
    await (await open_bucket(store, tmp_path / "b", bucket.clock)).aclose()
    with pytest.raises(StoreRefused, match=f"{LEDGER_NAME} does not name the ledger"):
        await open_bucket(bucket.with_objects({log_name(3): None}), tmp_path / "b", bucket.clock)


async def test_accepting_a_loss_may_die_after_any_request_and_be_repeated(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    for requests in range(1, 60):
        store = bucket.with_objects({log_name(3): None})
        dying = DyingObjects(store, requests)
        file = ReplicaFile(str(tmp_path / "a"), "test", temporary=True)
        engine = BucketEngine(dying, file, clock=bucket.clock, examine=True, accepts_loss=True)

        async def work(engine: BucketEngine = engine) -> None:
            await engine.start()
            await engine.accept_loss()

        working, dead = asyncio.ensure_future(work()), asyncio.ensure_future(dying.died.wait())
        await asyncio.wait({working, dead}, return_when=asyncio.FIRST_COMPLETED)
        is_done = working.done() and not dead.done()
        for task in (working, dead):
            task.cancel()
        await asyncio.wait({working, dead})
        await engine.aclose()
        if log_name(3) in store.objects and b"earlier" not in store.objects[LEDGER_NAME][0]:
            with pytest.raises(StoreRefused, match="was not finished"):
                await open_bucket(store, tmp_path / "b", bucket.clock)
        new = await accept_loss(store, tmp_path / "a", bucket.clock)
        again = await open_bucket(store, tmp_path / str(requests), bucket.clock)
        assert again.info.ledger_id == new
        await expect(again, submit("b", input=SMALL_PAYLOAD, ttl_ms=30 * DAY_MS), Replayed)
        await again.aclose()
        if is_done:
            assert requests > 8
            return
    raise AssertionError("it takes more requests than this test knows")


def test_doctor_makes_the_view_from_the_bucket_and_not_from_a_replica(
    tmp_path: Path, run: CommandRunner, clean_environment: None
) -> None:
    root = tmp_path / "bucket"
    url = f"file://{root}?replica={tmp_path / 'replicas'}"
    write_keys(url, "ab")

    async def change_replica() -> None:
        engine = await BucketEngine.open(url)
        engine._replica._writer().db.execute("UPDATE job SET type = 'forged'")
        await engine.aclose()

    asyncio.run(change_replica())
    before = files_of(root)
    examined = run("doctor", "--engine", url)
    assert examined.code == 0
    assert "all 4 readable objects are as the log says" in examined.out
    assert files_of(root) == before


async def test_gaps_in_the_log_are_named_unless_a_snapshot_covers_them(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    (ledger_id,) = await read_or_create_ledger(bucket.with_objects({}))
    for missing, covered, found in (
        ((), 0, []),
        ((1,), 0, [f"{log_name(1)} is missing (1 entries in a row)"]),
        ((1, 2), 0, [f"{log_name(1)} is missing (2 entries in a row)"]),
        ((2,), 0, [f"{log_name(2)} is missing (1 entries in a row)"]),
        ((1, 2), 1, [f"{log_name(2)} is missing (1 entries in a row)"]),
        ((1, 2), 2, []),
    ):
        store = bucket.with_objects({log_name(n): None for n in missing})
        names = [log_name(n) for n in (1, 2, 3) if n not in missing]
        assert await find_damaged_entries(names, store.get, ledger_id, covered) == found


@pytest.mark.parametrize("temporary", [False, True])
async def test_a_bucket_is_served_where_no_cache_folder_can_be_made(tmp_path: Path, temporary: bool) -> None:
    bucket = await make_bucket(tmp_path)
    (tmp_path / "file").touch()
    file = ReplicaFile(str(tmp_path / "file/cache"), "test", temporary=temporary)
    engine = BucketEngine(bucket.with_objects({}), file, clock=bucket.clock)
    await engine.start()
    await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    folder = file.pattern.parent
    await engine.aclose()
    assert not folder.exists()


async def test_a_replica_that_another_process_makes_anew_meanwhile_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await make_bucket(tmp_path)
    names = os.listdir

    def list_with_removed_ones(path: Path) -> list[str]:
        return [*names(path), "bucket-test-7.db"]

    monkeypatch.setattr(os, "listdir", list_with_removed_ones)
    engine = await open_bucket(bucket.with_objects({}), tmp_path / "b", bucket.clock)
    await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    await engine.aclose()


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("change", ["removed", "replaced"])
async def test_a_process_whose_history_was_lost_makes_no_snapshot_of_it(
    tmp_path: Path, change: str, noticed: bool
) -> None:
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    store = bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    whole = store.objects.pop(log_name(3))
    if change == "replaced":
        store.objects[log_name(3)] = fork.objects[log_name(3)]
    if noticed:
        await engine._verify_last_entry()
        assert engine._must_reopen
    for erase in (False, True):
        await engine._keep(erase=erase)
    assert not [name for name in store.objects if name.startswith("snap/")]
    store.objects[log_name(3)] = whole
    await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
    await engine._keep()
    assert [name for name in store.objects if name.startswith("snap/")]
    await engine.aclose()


@pytest.mark.parametrize("pruned", [False, True])
async def test_a_snapshot_that_is_refused_leaves_the_replica_as_it_was(tmp_path: Path, pruned: bool) -> None:
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path, snapshots="c")
    theirs = fork.find("snap/")
    store = bucket.with_objects({log_name(3): None})
    engine = await open_bucket(store, tmp_path / "behind", bucket.clock)
    path = engine._replica.path
    await engine.aclose()
    kept = path.read_bytes()
    store = bucket.with_objects({})
    engine = await open_bucket(store, tmp_path / "other", bucket.clock)
    await expect(engine, submit("d", ttl_ms=DAY_MS), Created)
    await engine.aclose()
    refusing = MemoryObjects(bucket.clock)
    refusing.objects = {**store.objects, theirs: fork.objects[theirs]}
    if pruned:
        del refusing.objects[log_name(3)]
    for folder in ("behind", "nothing"):
        for _ in range(2):
            with pytest.raises(StoreRefused, match=f"{theirs} is not of this log"):
                await open_bucket(refusing, tmp_path / folder, bucket.clock)
        assert path.read_bytes() == kept
    for folder in ("behind", "nothing"):
        engine = await open_bucket(store, tmp_path / folder, bucket.clock)
        await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
        await engine.aclose()


@pytest.mark.parametrize("left", [(1,), (1, 2), (2,), ()])
async def test_a_snapshot_beyond_the_end_of_the_log_is_refused_by_name(tmp_path: Path, left: Sequence[int]) -> None:
    """It is of a copy that has grown, or the log has lost its end. Pruning deletes the entry of a snapshot last."""
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path, snapshots="c")
    theirs = fork.find("snap/")
    store = bucket.with_objects({log_name(n): None for n in (1, 2, 3) if n not in left})
    store.objects[theirs] = fork.objects[theirs]
    names = [log_name(n) for n in left]
    found = await find_damaged_entries(names, store.get, (await read_or_create_ledger(store))[0], 3)
    assert any(f"{log_name(max(left, default=0) + 1)} is missing" in one for one in found) == bool(left)
    if left:
        with pytest.raises(StoreRefused, match=f"{log_name(3)} is missing, which {theirs} has"):
            await open_bucket(store, tmp_path / "b", bucket.clock)
    else:  # everything is pruned
        await (await open_bucket(store, tmp_path / "b", bucket.clock)).aclose()


async def test_pruning_that_dies_after_any_request_is_taken_for_no_damage(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path, snapshots="c")

    class DiesDeleting(WrappedObjects):
        """Has deleted some of the names, in any order."""

        left = 0

        async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
            async for page in self.inner.list(prefix, after):
                yield [one for one in page if one.name != log_name(3)]
                yield [one for one in page if one.name == log_name(3)]

        async def delete(self, names: Sequence[str]) -> None:
            for name in reversed(names):
                if name.startswith("log/"):
                    if not self.left:
                        raise RequestFailed("died")
                    self.left -= 1
                await self.inner.delete([name])

    for deleted in range(4):
        store = bucket.with_objects({})
        dying = DiesDeleting(store)
        engine = await open_bucket(dying, tmp_path / "a", bucket.clock, view=ViewMode.OFF)
        dying.left = deleted
        with suppress(RequestFailed):
            await engine._keeper._delete_entries(3, 2**62)
        await engine.aclose()
        assert sum(name.startswith("log/") for name in store.objects) == 3 - deleted
        assert await check_answers(bucket, store, tmp_path / str(deleted), "nothing")
        names = sorted(name for name in store.objects if name.startswith("log/"))
        ledger_id = (await read_or_create_ledger(store))[0]
        assert await find_damaged_entries(names, store.get, ledger_id, 3) == []


@pytest.mark.parametrize("removed", [(4,), (4, 5), (5,)])
async def test_a_running_process_notices_that_entries_before_its_last_one_are_gone(
    tmp_path: Path, removed: Sequence[int]
) -> None:
    bucket = await make_bucket(tmp_path)
    counting = CountingObjects(bucket.with_objects({}))
    store = counting.inner
    assert isinstance(store, MemoryObjects)
    engine = await open_bucket(counting, tmp_path / "running", bucket.clock, view=ViewMode.OFF)
    await engine._verify_last_entry()
    for key in ("d", "e", "f"):
        await expect(engine, submit(key, ttl_ms=DAY_MS), Created)
    whole = {log_name(n): store.objects.pop(log_name(n)) for n in removed}
    await engine._verify_last_entry()
    last = log_name(max(removed))
    for _ in range(2):
        with pytest.raises(StoreRefused, match=f"{last} is missing, which this machine has seen"):
            await engine.execute([submit("d", ttl_ms=DAY_MS)])
    store.objects |= {last: whole[last]}
    if len(removed) > 1:
        await expect(engine, submit("d", ttl_ms=DAY_MS), Replayed)
        await engine._verify_last_entry()
        assert engine._must_reopen
    store.objects |= whole
    await expect(engine, submit("d", ttl_ms=DAY_MS), Replayed)
    await engine._verify_last_entry()
    await expect(engine, submit("g", ttl_ms=DAY_MS), Created)
    before = counting.counts["list", "log"]
    for _ in range(3):  # nothing new: nothing to list
        await engine._verify_last_entry()
    assert counting.counts["list", "log"] == before
    await engine.aclose()


async def test_an_entry_that_a_list_has_overlooked_is_not_missing(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    store = bucket.with_objects({})
    (ledger_id,) = await read_or_create_ledger(store)
    for overlooked in ((1,), (2,), (1, 2), (3,)):
        names = [log_name(n) for n in (1, 2, 3) if n not in overlooked]
        assert await find_damaged_entries(names, store.get, ledger_id, 3 if overlooked == (3,) else 0) == []
    store.objects[log_name(2)] = (b"", 0)
    found = await find_damaged_entries([log_name(1), log_name(3)], store.get, ledger_id, 0)
    assert len(found) == 1
    assert found[0].startswith(f"{log_name(2)} is damaged")


async def test_a_loss_is_not_accepted_while_a_process_serves_the_bucket(tmp_path: Path) -> None:
    bucket = await make_bucket(tmp_path)
    store = bucket.with_objects({})
    first = await open_bucket(store, tmp_path / "shared", bucket.clock, view=ViewMode.OFF)
    second = await open_bucket(store, tmp_path / "shared", bucket.clock, view=ViewMode.OFF)
    del store.objects[log_name(3)]
    before = dict(store.objects)
    for running in (first, second):
        used = running._replica.path
        with pytest.raises(Unavailable, match=f"fuser {used}.lock.*nothing was done; stop"):
            await accept_loss(store, tmp_path / "shared", bucket.clock)
        assert store.objects == before
        await running.aclose()
    await accept_loss(store, tmp_path / "shared", bucket.clock)


@pytest.mark.parametrize("change", ["hole", "fork"])
async def test_a_loss_before_later_entries_is_accepted_once_they_are_moved_away(tmp_path: Path, change: str) -> None:
    bucket = await make_bucket(tmp_path)
    fork = await make_fork(bucket, tmp_path)
    store = bucket.with_objects({log_name(2): None if change == "hole" else fork.objects[log_name(2)][0]})
    moved = log_name(3 if change == "hole" else 2)
    with pytest.raises(StoreRefused, match=f"move {moved} and all later entries out of log/") as refused:
        await accept_loss(store, tmp_path / "b", bucket.clock)
    assert "serve what is left" not in str(refused.value)
    for name in (log_name(2), log_name(3)):
        if name >= moved:
            del store.objects[name]
    await accept_loss(store, tmp_path / "b", bucket.clock)


async def test_accepting_the_loss_of_an_older_copy_that_lacks_an_accepted_ledger_lets_this_machine_serve_it(
    tmp_path: Path,
) -> None:
    bucket = await make_bucket(tmp_path)
    store = bucket.with_objects({})
    first = await accept_loss(store, tmp_path / "b", bucket.clock)
    engine = await open_bucket(store, tmp_path / "b", bucket.clock)
    await expect(engine, submit("lost", ttl_ms=DAY_MS), Created)
    await engine.aclose()
    older = bucket.with_objects({})
    with pytest.raises(StoreRefused, match=f"does not name the ledger {first}"):
        await open_bucket(older, tmp_path / "b", bucket.clock)
    new = await accept_loss(older, tmp_path / "b", bucket.clock)
    ids = await read_or_create_ledger(older)
    assert ids[-1] == new
    assert first in ids
    for folder in ("b", "nothing"):
        engine = await open_bucket(older, tmp_path / folder, bucket.clock)
        assert engine.info.ledger_id == new
        await expect(engine, submit("c", input=b"1", ttl_ms=30 * DAY_MS), Replayed)
        await engine.aclose()


def test_a_repeat_of_an_accepted_loss_that_was_interrupted_reports_no_number(
    tmp_path: Path, run: CommandRunner, clean_environment: None
) -> None:
    root = tmp_path / "bucket"
    url = f"file://{root}?replica={tmp_path}"
    write_keys(url, "abcde")
    for position in (4, 5):
        (root / log_name(position)).unlink()

    async def accept_and_die() -> None:
        engine = await BucketEngine.open(url, examine=True, accepts_loss=True)

        async def die(name: str, data: bytes) -> None:
            raise StoreRefused("died")

        engine._objects.put = die  # type: ignore[method-assign]
        with pytest.raises(StoreRefused, match="died"):
            await engine.accept_loss()
        await engine.aclose()

    asyncio.run(accept_and_die())
    accepted = run("restore", "--accept-loss", "--engine", url)
    assert accepted.code == 0
    assert "it cannot be said how many acknowledged commits are not in it" in accepted.out
    assert run("submit", "charge", "--key", "x", "--engine", url).code == 0
    assert run("restore", "--accept-loss", "--json", "--engine", url).json["commitsLost"] == 0
