"""The bucket engine when requests get lost, processes die at every request, clocks are wrong and stores careless."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onejob.clock import FakeClock, SystemClock
from onejob.conformance.samples import TENANT, key_id, set_limit, submit, submit_counted
from onejob.conformance.world import expect, list_facts
from onejob.core.facts import Kind
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Created, Found, Missing, Replayed, UsageFound
from onejob.core.submit import Submit
from onejob.engines.bucket import CONFIRMED_SECONDS_MAX, BucketEngine, WriteCall
from onejob.engines.bucket.log import LogEntry, decode_entry, log_name
from onejob.engines.bucket.objects import NothingSent, RequestFailed, StoreDate
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.url import ViewMode
from onejob.errors import OnejobError, StoreRefused, Unavailable, Unknown
from tests.campaigns.bucket import open_bucket, run_rounds
from tests.support.object_stores import CarelessObjects, DyingObjects, MemoryObjects, WrappedObjects

pytestmark = pytest.mark.long  # computes for seconds

HOUR = 3600.0
DAY_MS = 86_400_000


async def test_no_round_of_lost_late_and_doubled_requests_makes_two_of_anything() -> None:
    await run_rounds(1, 10)


NO_ENTRY = LogEntry(0, b"", 0, b"", [], b"")


class DecidesAnewWhileItsPutMayArrive(BucketEngine):
    async def _append(self, entry: LogEntry, call: WriteCall) -> LogEntry | None:
        try:
            if await self._objects.create(log_name(entry.position), entry.data):
                return None
        except RequestFailed:
            pass
        found = await self._get(log_name(entry.position))
        return decode_entry(entry.position, found) if found else NO_ENTRY

    async def _apply(self, entries: Sequence[LogEntry]) -> None:
        if list(entries) != [NO_ENTRY]:
            await super()._apply(entries)


class TakesItsOwnEntryForAnothers(BucketEngine):
    async def _append(self, entry: LogEntry, call: WriteCall) -> LogEntry | None:
        other = await super()._append(entry, call)
        return entry if other is None and entry.position % 7 == 0 else other


class ReadsWithoutAsking(BucketEngine):
    async def _confirm(self) -> None:
        pass


@pytest.mark.parametrize(
    "mutant",
    [DecidesAnewWhileItsPutMayArrive, TakesItsOwnEntryForAnothers, ReadsWithoutAsking],
    ids=lambda one: one.__name__,
)
async def test_the_rounds_find_a_broken_protocol(mutant: type[BucketEngine]) -> None:
    with pytest.raises(AssertionError, match="seed"):
        await run_rounds(1, 30, mutant)


async def test_a_death_after_any_request_leaves_one_job_and_one_slot(tmp_path: Path) -> None:
    """The submission is repeated by another process. The request after the last one is the control."""
    clock = SystemClock()
    for requests in range(1, 60):
        store = MemoryObjects(clock)
        other = await open_bucket(store, tmp_path / "other", clock)
        await expect(other, set_limit(5), UsageFound)
        dying = DyingObjects(store, requests)
        command = submit_counted("k", ttl_ms=3_600_000)
        answered = await _run_until_it_dies(dying, tmp_path / "dying", clock, command)
        reply = (await other.execute([command]))[0]
        assert isinstance(reply, (Created, Replayed))
        assert len(await list_facts(other, Kind.JOB)) == 1
        (usage,) = await list_facts(other, Kind.USAGE)
        assert usage.live == 1
        await other.aclose()
        if answered:
            assert requests > 10
            return
    raise AssertionError("a submission takes more requests than this test knows")


async def _run_until_it_dies(objects: DyingObjects, folder: Path, clock: SystemClock, command: Submit) -> bool:
    engine = BucketEngine(objects, ReplicaFile(str(folder), "test"), clock=clock)

    async def work() -> None:
        await engine.start()
        await engine.execute([command])

    working, dying = asyncio.ensure_future(work()), asyncio.ensure_future(objects.died.wait())
    await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
    answered = working.done()
    engine._view_mode = ViewMode.OFF  # nothing more is sent
    tasks = [working, dying, *engine._tasks]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await engine.aclose()
    return answered


async def test_a_store_that_ignores_if_none_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="If-None-Match"):
        await open_bucket(CarelessObjects(MemoryObjects(FakeClock())), tmp_path, FakeClock())


async def test_a_process_that_was_stopped_for_two_hours_answers_nothing_old(tmp_path: Path) -> None:
    """Entries are gone that the stopped process has never seen: it must not read their absence as the end of the log."""
    clock = FakeClock()
    store = MemoryObjects(clock)
    stopped, other = [await open_bucket(store, tmp_path, clock) for _ in range(2)]
    await expect(stopped, submit("before", ttl_ms=DAY_MS), Created)
    await expect(other, submit("k", ttl_ms=DAY_MS), Created)
    await other._keeper.snapshot_and_prune(other._lock, force=True)
    await expect(other, submit("later", ttl_ms=DAY_MS), Created)
    await other._keeper.snapshot_and_prune(other._lock, force=True)
    for position in (1, 2):
        del store.objects[log_name(position)]  # as cleaning would a day later
    clock.advance(2 * HOUR)
    await expect(stopped, LookUpKey(tenant=TENANT, record_id=key_id("k")), Found)
    await expect(stopped, submit("k", ttl_ms=DAY_MS), Replayed)
    assert len(await list_facts(stopped, Kind.JOB)) == 3
    await stopped.aclose()
    await other.aclose()


class SuspendedAtItsPut(WrappedObjects):
    """The machine stands still just before a put, so that its own clocks do not tell; only the store's time does."""

    skew_ms = 0
    suspend_ms = 0

    async def create(self, name: str, data: bytes) -> bool:
        if name.startswith("log/"):
            self.skew_ms += self.suspend_ms
            if self.suspend_ms:
                assert isinstance(self.inner, MemoryObjects)
                self.inner.objects.pop(name, None)  # an entry that came and was deleted meanwhile
            self.suspend_ms = 0
        return await self.inner.create(name, data)

    async def read_date(self) -> StoreDate:
        date = await self.inner.read_date()
        return StoreDate(date.ms + self.skew_ms, date.resolution_ms)


async def test_a_put_after_a_long_standstill_is_not_acknowledged(tmp_path: Path) -> None:
    clock = FakeClock()
    objects = SuspendedAtItsPut(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    await expect(engine, submit("a"), Created)
    objects.suspend_ms = 25 * 3_600_000
    with pytest.raises(Unknown, match="stopped"):
        await engine.execute([submit("b")])
    await engine.aclose()


async def test_an_unresolved_position_blocks_the_next_batch_until_it_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.engines.bucket.ANSWER_SECONDS", 0.2)

    class Silent(WrappedObjects):
        silent = False

        async def create(self, name: str, data: bytes) -> bool:
            if self.silent:
                await self.inner.create(name, data)
                raise RequestFailed("no answer")
            return await self.inner.create(name, data)

        async def get(self, name: str) -> bytes | None:
            if self.silent:
                raise RequestFailed("no answer")
            return await self.inner.get(name)

    clock = SystemClock()
    objects = Silent(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    objects.silent = True
    first = submit("a", ttl_ms=DAY_MS)
    with pytest.raises(Unknown):
        await engine.execute([first])
    with pytest.raises(Unavailable):
        await engine.execute([submit("b", ttl_ms=DAY_MS)])
    objects.silent = False
    monkeypatch.setattr("onejob.engines.bucket.ANSWER_SECONDS", 15.0)
    await expect(engine, first, Created)
    assert len(await list_facts(engine, Kind.JOB)) == 1
    await engine.aclose()


async def test_a_store_that_cannot_be_reached_has_done_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.engines.bucket._REFUSED_SECONDS", 0.05)

    class Unreachable(WrappedObjects):
        async def create(self, name: str, data: bytes) -> bool:
            if name.startswith("log/"):
                raise NothingSent("connection refused")
            return await self.inner.create(name, data)

    clock = SystemClock()
    engine = await open_bucket(Unreachable(MemoryObjects(clock)), tmp_path, clock)
    with pytest.raises(Unavailable, match="nothing was done"):
        await engine.execute([submit("a")])
    await engine.aclose()


async def test_ten_racers_on_an_expired_key_have_one_winner(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engines = [await open_bucket(store, tmp_path, clock) for _ in range(4)]
    await expect(engines[0], submit("k"), Created)
    clock.advance(HOUR / 2)
    replies = await asyncio.gather(*(engines[n % 4].execute([submit("k")]) for n in range(10)))
    kinds = sorted(type(reply).__name__ for (reply,) in replies)
    assert kinds == ["Created"] + ["Replayed"] * 9
    assert len({reply.job and reply.job.id for (reply,) in replies if isinstance(reply, (Created, Replayed))}) == 1
    for engine in engines:
        await engine.aclose()


async def test_a_wall_clock_that_is_two_days_off_changes_nothing(tmp_path: Path) -> None:
    clock, wrong = FakeClock(), FakeClock()
    store = MemoryObjects(clock)
    wrong.jump_wall(2 * DAY_MS)
    right, off = await open_bucket(store, tmp_path, clock), await open_bucket(store, tmp_path, wrong)
    created = await expect(right, submit("k", ttl_ms=DAY_MS), Created)
    replayed = await expect(off, submit("k", ttl_ms=DAY_MS), Replayed)
    assert replayed.job == created.job
    other = await expect(off, submit("other", ttl_ms=DAY_MS), Created)
    assert abs(other.at - created.at) < 1000
    await right.aclose()
    await off.aclose()


async def test_one_answer_with_a_wrong_date_expires_no_key(tmp_path: Path) -> None:
    class Dates(WrappedObjects):
        wrong = 0

        async def read_date(self) -> StoreDate:
            date = await self.inner.read_date()
            self.wrong -= 1
            return StoreDate(date.ms + 3 * DAY_MS, 1) if self.wrong >= 0 else date

    clock = FakeClock()
    objects = Dates(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    created = await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    objects.wrong = 1
    with suppress(OnejobError):  # the batch with that answer is Unknown; afterwards nothing is left of it
        await engine.execute([submit("other", ttl_ms=DAY_MS)])
    assert (await expect(engine, submit("k", ttl_ms=DAY_MS), Replayed)).job == created.job
    await engine.aclose()


async def test_dates_that_disagree_stop_the_writing(tmp_path: Path) -> None:
    class Dates(WrappedObjects):
        wild = False
        step = 0

        async def read_date(self) -> StoreDate:
            date = await self.inner.read_date()
            self.step += 1
            return StoreDate(date.ms + self.step * DAY_MS, 1) if self.wild else date

    clock = FakeClock()
    objects = Dates(MemoryObjects(clock))
    engine = await open_bucket(objects, tmp_path, clock)
    await expect(engine, submit("k"), Created)
    objects.wild = True
    with pytest.raises((Unavailable, Unknown)):
        await engine.execute([submit("a")])
    with pytest.raises(Unavailable, match="disagree"):
        await engine.execute([submit("b")])
    objects.wild = False
    await expect(engine, submit("b"), Created)
    await engine.aclose()


@pytest.mark.parametrize("column", ["boot_id", "owner"])
async def test_a_replica_of_another_boot_or_owner_is_discarded(tmp_path: Path, column: str) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path, clock)
    await expect(engine, submit("k"), Created)
    # A job that only the file has, as a page from before a power cut would.
    engine._replica._writer().db.execute("UPDATE job SET type = 'stale'")
    engine._replica._writer().db.execute(f"UPDATE replica SET {column} = 'another'")
    await engine.aclose()
    again = await open_bucket(store, tmp_path, clock)
    (job,) = await list_facts(again, Kind.JOB)
    assert job.type == "mail"
    await again.aclose()


async def test_a_replica_of_this_boot_is_continued(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path, clock)
    await expect(engine, submit("k"), Created)
    engine._replica._writer().db.execute("UPDATE job SET type = 'continued'")
    await engine.aclose()
    again = await open_bucket(store, tmp_path, clock)
    (job,) = await list_facts(again, Kind.JOB)
    assert job.type == "continued"
    await again.aclose()


async def test_a_damaged_replica_is_made_again(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path, clock)
    await expect(engine, submit("k"), Created)
    path = engine._replica.path
    await engine.aclose()
    data = path.read_bytes()
    path.write_bytes(data[:5000] + b"\xff" * 3000 + data[8000:])
    again = await open_bucket(store, tmp_path, clock)
    with suppress(Unavailable):  # whoever meets the damage first is told to retry
        await again.execute([submit("k")])
    await expect(again, submit("k"), Replayed)
    await again.aclose()


async def test_nobody_reads_a_replica_that_is_being_made_again(tmp_path: Path) -> None:
    """A read that was allowed to begin finds the replica empty: it waits, and never says that a key is missing."""
    clock = FakeClock()
    engine = await open_bucket(MemoryObjects(clock), tmp_path, clock)
    await expect(engine, submit("k", ttl_ms=DAY_MS), Created)
    confirm, discards = engine._confirm, 1

    async def confirm_and_discard() -> None:
        nonlocal discards
        await confirm()
        if discards:
            discards -= 1
            position = engine._replica.state.position
            await engine._run(engine._replica.reset)
            engine._must_reopen = True
            engine._replica.state = engine._replica.state._replace(position=position)  # as it was when it was confirmed

            def run_after_reset(*args: Any) -> Any:
                engine._replica.state = engine._replica.state._replace(position=0)
                engine._replica.run_at = run_at  # type: ignore[method-assign]
                return run_at(*args)

            run_at, engine._replica.run_at = engine._replica.run_at, run_after_reset  # type: ignore[assignment,method-assign]

    engine._confirm = confirm_and_discard  # type: ignore[method-assign]
    await asyncio.sleep(0)
    await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id("k")), Found)
    await engine.aclose()


async def test_a_replica_for_another_bucket_is_discarded(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = await open_bucket(MemoryObjects(clock), tmp_path, clock)
    await expect(engine, submit("k"), Created)
    await engine.aclose()
    other = await open_bucket(MemoryObjects(clock), tmp_path, clock)
    assert await list_facts(other, Kind.JOB) == []
    await other.aclose()


async def test_a_replica_that_fails_after_the_put_reports_no_failure(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = await open_bucket(MemoryObjects(clock), tmp_path, clock)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    commit = engine._replica.commit
    engine._replica.commit = fail  # type: ignore[method-assign,assignment]  # a disk that fails once
    await expect(engine, submit("k"), Created)
    engine._replica.commit = commit  # type: ignore[method-assign]
    await expect(engine, submit("k"), Replayed)
    await expect(engine, submit("other"), Created)
    await engine.aclose()


async def test_a_log_without_its_beginning_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryObjects(clock)
    engine = await open_bucket(store, tmp_path / "a", clock)
    for n in range(3):
        await expect(engine, submit(f"k{n}"), Created)
    await engine.aclose()
    del store.objects[log_name(1)]
    with pytest.raises(StoreRefused, match="missing"):
        await open_bucket(store, tmp_path / "b", clock)


async def test_an_entry_that_does_not_continue_the_log_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    store, foreign = MemoryObjects(clock), MemoryObjects(clock)
    for objects in (store, foreign):
        engine = await open_bucket(objects, tmp_path / "a", clock)
        for n in range(2):
            await expect(engine, submit(f"k{n}"), Created)
        await engine.aclose()
    store.objects[log_name(2)] = foreign.objects[log_name(2)]
    with pytest.raises(StoreRefused, match="does not continue"):
        await open_bucket(store, tmp_path / "b", clock)


async def test_a_missing_key_is_found_missing_after_an_hour_too(tmp_path: Path) -> None:
    clock = FakeClock()
    engine = await open_bucket(MemoryObjects(clock), tmp_path, clock)
    clock.advance(CONFIRMED_SECONDS_MAX + 1)
    await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id("k")), Missing)
    await engine.aclose()
