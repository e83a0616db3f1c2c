"""The fast path of the SQLite engine: it stores and replies what the plain path does, or leaves the batch to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from random import Random
from threading import Event
from time import sleep
from typing import Any

import pytest
from msgspec.structs import replace

from onejob.clock import FakeClock
from onejob.conformance.commands import FactsRead, write_facts
from onejob.conformance.preconditions import BODY, CHANGED_BODY, POLICY_ID, set_credential, submit_with_precondition
from onejob.conformance.samples import (
    TENANT,
    TTL_MS,
    USER,
    a_record,
    key_id,
    quota_ids,
    reserve,
    set_limit,
    submit,
    submit_counted,
    submit_sequence,
)
from onejob.conformance.world import dump_store, expect, list_facts
from onejob.core.command import Command, Precondition
from onejob.core.facts import Kind
from onejob.core.maintenance import Expire, Purge
from onejob.core.replies import (
    Created,
    KeyHeld,
    Maintained,
    PolicyFound,
    Refused,
    Replayed,
    UsageFound,
)
from onejob.core.states import Delivery
from onejob.engines import sqlite
from onejob.engines.codec import TABLES
from onejob.engines.sqlite import SqliteEngine, insert_fast, schema
from onejob.errors import StoreRefused
from onejob.ids import new_nonce
from tests.support.sqlite_files import RawConnection

SEEDS = range(4)
BATCHES = 40


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "onejob.db")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(path: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteEngine]:
    monkeypatch.setattr(sqlite, "FAST_PATH_PAUSE_BATCHES", 0)
    engine = await SqliteEngine.open(path, clock=clock)
    yield engine
    await engine.aclose()


class FastInserts:
    """Counts the batches that the fast path stored, and those that it left to the plain path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stored = self.refused = 0
        insert = sqlite.SqliteStore.insert_fast

        def count(store: sqlite.SqliteStore, prepared: insert_fast.PreparedInsert) -> bool:
            is_stored = insert(store, prepared)
            self.stored += is_stored
            self.refused += not is_stored
            return is_stored

        monkeypatch.setattr(sqlite.SqliteStore, "insert_fast", count)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> FastInserts:
    return FastInserts(monkeypatch)


@asynccontextmanager
async def waiting_for_the_writer(engine: SqliteEngine, *batches: list[Command[Any]]) -> AsyncIterator[Any]:
    """InTransaction, these batches are decided and wait for the writer; on leaving, they are written in this order."""
    release = Event()
    blocked = engine._writer.call(release.wait)
    tasks = []
    for commands in batches:
        tasks.append(asyncio.ensure_future(engine.execute(commands)))
        await asyncio.sleep(0)
    assert engine._writer._calls.qsize() >= len(batches)
    results = asyncio.gather(*tasks)
    try:
        yield results
    finally:
        release.set()
        await blocked
        await asyncio.wait([results])


def always_plain(commands: Sequence[Command[Any]], now: int) -> None:
    return None


async def test_random_batches_have_equal_replies_and_stores_by_both_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: FastInserts
) -> None:
    monkeypatch.setattr(sqlite, "FAST_PATH_PAUSE_BATCHES", 0)
    for seed in SEEDS:
        paths = [str(tmp_path / f"{seed}-{name}.db") for name in ("fast", "plain")]
        clocks = FakeClock(), FakeClock()
        engines = [await SqliteEngine.open(path, clock=clock) for path, clock in zip(paths, clocks, strict=True)]
        draw = BatchDrawer(Random(f"batches {seed}"))
        for _ in range(BATCHES):
            commands, advance = draw.batch(), draw.rng.choice((0, 0.001, 0.1, 3.0))
            first = await engines[0].execute(commands)
            with monkeypatch.context() as patch:
                patch.setattr(insert_fast, "prepare_insert", always_plain)
                second = await engines[1].execute(commands)
            assert first == second, f"seed {seed}"
            for clock in clocks:
                clock.advance(advance)
        assert read_rows(paths[0]) == read_rows(paths[1]), f"seed {seed}"
        assert engines[0]._ledger.generation == engines[1]._ledger.generation
        for engine in engines:
            await engine.aclose()
    print(f"{fast.stored} batches by the fast path, {fast.refused} refused, of {len(SEEDS) * BATCHES}")
    assert fast.stored > 50
    assert fast.refused > 10


def read_rows(path: str) -> dict[str, list[Any]]:
    """All rows of all facts, and the attachments."""
    with RawConnection(path) as db:
        names = (*TABLES.values(), "attachment")
        return {name: db.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall() for name in names}


class BatchDrawer:
    """Batches of submissions of all shapes, of new and known keys, with limits that come and go, and deletions."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._numbers = iter(range(1, 10_000))
        self._sequences = iter(range(1, 10_000))

    def batch(self) -> list[Command[Any]]:
        if self.rng.random() < 0.2:
            return [self._change()]
        size = self.rng.choice((1, 1, 2, 7, 8, 9, 20, insert_fast.ROWS_MAX, insert_fast.ROWS_MAX + 1))
        shapes = self.rng.sample(_SHAPES, 3)
        batch = [self._submission(shapes, f"new-{next(self._numbers)}") for _ in range(size)]
        if self.rng.random() < 0.4:
            known = f"k{self.rng.randrange(12)}"
            batch.insert(self.rng.randrange(size), self._submission(shapes, known))
        if self.rng.random() < 0.05:
            batch.append(submit_sequence(next(self._sequences)))
        return batch

    def _submission(self, shapes: list[Callable[[], dict[str, Any]]], key: str) -> Command[Any]:
        rng = self.rng
        options: dict[str, Any] = rng.choice(shapes)()
        if rng.random() < 0.2 and "callback" not in options:
            return reserve(key, job_id=rng.choice((b"", submit().job_id)), **options)
        return submit(rng.choice((key, key, key, "")), input=b"x" * rng.choice((0, 1, 5000)), **options)

    def _change(self) -> Command[Any]:
        rng = self.rng
        key = f"k{rng.randrange(12)}"
        changes: list[Callable[[], Command[Any]]] = [
            lambda: Expire(tenant=TENANT, record_id=key_id(key)),
            lambda: Purge(tenant=TENANT, record_id=key_id(key)),
            lambda: set_limit(rng.choice((0, 3, 100)), user=rng.choice((USER, "bob", "eve"))),
            lambda: set_credential(rng.choice((BODY, BODY, CHANGED_BODY))),
        ]
        return rng.choice(changes)()


_SHAPES: list[Callable[[], dict[str, Any]]] = [
    dict,
    dict,
    lambda: quota_ids(user="zoe"),
    lambda: quota_ids(user="bob"),
    lambda: {"labels": b'{"a":"b"}', "priority": 7, "attempts_max": 3, "delivery": Delivery.AT_MOST_ONCE},
    lambda: {"run_at": 1_700_000_060_000, "timeout_ms": 5000, "ttl_ms": 1000},
    lambda: {"user": "Ünïcode \U0001f511", "type": "t" * 100},
    lambda: {"callback": "https://example.org/ended"},
    lambda: {"cost": 5},
]


async def test_a_batch_of_new_facts_takes_one_statement(
    engine: SqliteEngine, fast: FastInserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite.SqliteStore, "write", forbidden)
    for size in (1, 7, 8, 9, insert_fast.ROWS_MAX):
        replies = await engine.execute([submit(f"{size} {n}") for n in range(size)])
        assert {type(reply) for reply in replies} == {Created}
    await expect(engine, submit("", callback="https://example.org/"), Created)
    await expect(engine, reserve("held"), KeyHeld)
    await expect(engine, reserve("held without a job", job_id=b""), KeyHeld)
    await expect(engine, submit_counted("of a user without limits"), Created)
    assert fast.refused == 0


async def test_a_known_key_sends_its_whole_batch_the_plain_way(engine: SqliteEngine, fast: FastInserts) -> None:
    known = await expect(engine, submit("known"), Created)
    for size in (3, insert_fast.ROWS_MAX):
        batch = [*(submit(f"{size} {n}") for n in range(size - 1)), submit("known")]
        replies = await engine.execute(batch)
        assert [type(reply) for reply in replies] == [Created] * (size - 1) + [Replayed]
        assert replies[-1].job == known.job  # type: ignore[union-attr]
    assert (fast.stored, fast.refused) == (1, 2)
    jobs = await list_facts(engine, Kind.JOB)
    assert len(jobs) == 1 + 2 + insert_fast.ROWS_MAX - 1


async def test_after_a_refusal_some_batches_take_the_plain_path_at_once(
    engine: SqliteEngine, fast: FastInserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "FAST_PATH_PAUSE_BATCHES", 3)
    for key in ("k", "k", "a", "b", "c", "d"):
        await engine.execute([submit(key)])
    assert (fast.stored, fast.refused) == (2, 1)


async def test_there_are_two_lanes_while_batches_of_new_facts_are_large_and_the_disk_is_fast(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(size: int) -> list[Command[Any]]:
        return [submit(new_nonce()) for _ in range(size)]

    monkeypatch.setattr(sqlite.WriteLanePolicy, "measure", nullcontext)
    few, many = sqlite.WriteLanePolicy.SIZE_LOW, sqlite.WriteLanePolicy.SIZE_MIN
    for waiting, commands, lanes in (
        (1.0, batch(many), 1),
        (0.4, batch(many - 1), 1),
        (0.4, batch(many), 2),
        (0.55, batch(few), 2),
        (0.0, [set_limit(5, user="bob")], 2),  # has a lane of its own
        (0.0, batch(few - 1), 1),
        (0.0, batch(many), 2),
        (0.6, batch(many), 1),
        (0.0, batch(many), 2),
        (0.0, [submit(cost=5), *batch(100)], 1),  # the plain path
    ):
        engine._lanes.waiting = waiting
        await engine.execute(commands)
        assert engine.info.write_lanes == lanes, (waiting, len(commands))


def test_the_writer_measures_how_long_it_waits() -> None:
    lanes = sqlite.WriteLanePolicy()
    for _ in range(60):
        with lanes.measure():
            sum(range(20_000))
    busy = lanes.waiting
    for _ in range(60):
        with lanes.measure():
            sleep(0.001)
    assert busy < lanes.waiting
    assert lanes.waiting > 0.8


async def test_two_batches_in_flight_make_one_job_of_one_key(engine: SqliteEngine, fast: FastInserts) -> None:
    first, second = await asyncio.gather(engine.execute([submit()]), engine.execute([submit()]))
    assert (type(first[0]), type(second[0])) == (Created, Replayed)
    assert first[0].job == second[0].job  # type: ignore[union-attr]
    assert (fast.stored, fast.refused) == (1, 1)


async def test_a_key_that_is_deleted_after_the_decision_is_not_made_before_its_deletion(
    engine: SqliteEngine, clock: FakeClock, fast: FastInserts
) -> None:
    """By this process: its own commits do not change what it knows of the generation."""
    old = await expect(engine, submit(), Created)
    clock.advance(TTL_MS / 1000)  # its last millisecond
    expire = Expire(tenant=TENANT, record_id=key_id())
    async with waiting_for_the_writer(engine, [expire], [submit()]) as replies:
        clock.advance(0.001)
    (expired,), (created,) = await replies
    assert expired.changed
    assert isinstance(created, Created)
    assert old.expires_at < expired.at <= created.at == created.job.created_at
    assert fast.refused == 1


async def test_a_key_that_another_process_deletes_after_the_decision_is_not_made_before_its_deletion(
    engine: SqliteEngine, path: str, clock: FakeClock, fast: FastInserts
) -> None:
    old = await expect(engine, submit(), Created)
    other = await SqliteEngine.open(path, clock=clock)
    clock.advance(TTL_MS / 1000)
    async with waiting_for_the_writer(engine, [submit()]) as replies:
        clock.advance(0.001)
        expired = await expect(other, Expire(tenant=TENANT, record_id=key_id()), Maintained)
        assert expired.changed
    ((created,),) = await replies
    assert isinstance(created, Created)
    assert old.expires_at < expired.at <= created.at
    assert fast.refused == 1
    await other.aclose()


async def test_what_other_processes_wrote_before_a_commit_is_noticed_after_it(
    engine: SqliteEngine, path: str, clock: FakeClock, fast: FastInserts
) -> None:
    """The plain path commits on top of the other process, so that the generation is as expected afterwards."""
    await expect(engine, submit(), Created)
    other = await SqliteEngine.open(path, clock=clock)
    clock.advance(TTL_MS / 1000)
    async with waiting_for_the_writer(engine, [set_limit(1, user="bob")], [submit()]) as replies:
        clock.advance(0.001)
        expired = await expect(other, Expire(tenant=TENANT, record_id=key_id()), Maintained)
    _, (created,) = await replies
    assert isinstance(created, Created)
    assert created.at >= expired.at
    assert fast.refused == 1
    await other.aclose()


async def test_a_batch_that_waits_long_for_the_writer_is_decided_again(
    engine: SqliteEngine, clock: FakeClock, fast: FastInserts
) -> None:
    for wait_ms, refused in ((insert_fast.LAG_MS_MAX, 0), (insert_fast.LAG_MS_MAX + 1, 1)):
        async with waiting_for_the_writer(engine, [submit(f"waits {wait_ms}")]) as replies:
            clock.advance(wait_ms / 1000)
        ((created,),) = await replies
        assert created.at == clock.wall_ms() - (0 if refused else wait_ms)
        assert fast.refused == refused


async def test_a_limit_that_is_set_after_the_decision_holds(
    engine: SqliteEngine, path: str, clock: FakeClock, fast: FastInserts
) -> None:
    async with waiting_for_the_writer(engine, [set_limit(0)], [submit_counted("too many")]) as replies:
        pass
    _, (refused,) = await replies
    assert isinstance(refused, Refused)

    other = await SqliteEngine.open(path, clock=clock)
    await expect(other, Purge(tenant=TENANT, usage_id=quota_ids()["usage_id"]), Maintained)
    async with waiting_for_the_writer(engine, [submit_counted("too many")]) as replies:
        await expect(other, set_limit(0), UsageFound)
    ((refused,),) = await replies
    assert isinstance(refused, Refused)
    assert fast.refused == 2
    assert not await list_facts(engine, Kind.JOB)
    await other.aclose()


@pytest.mark.parametrize("change", ["changed", "expired", "deleted"])
async def test_a_precondition_that_fails_after_the_decision_refuses(
    engine: SqliteEngine, path: str, clock: FakeClock, fast: FastInserts, change: str
) -> None:
    now = (await expect(engine, set_credential(), PolicyFound)).at
    await expect(engine, submit_with_precondition("before"), Created)
    assert fast.stored == 1
    changes = {
        "changed": "UPDATE policy SET body = x'00'",
        "expired": f"UPDATE policy SET expires_at = {now - 1}",
        "deleted": "DELETE FROM policy",
    }
    async with waiting_for_the_writer(engine, [submit_with_precondition("after")]) as replies:
        with RawConnection(path) as db:  # the generation stays: the policy itself is compared
            db.execute(changes[change])
    ((reply,),) = await replies
    assert isinstance(reply, Refused)
    assert fast.refused == 1


async def test_a_date_before_the_last_change_of_a_policy_is_not_used(
    engine: SqliteEngine, path: str, fast: FastInserts
) -> None:
    policy = await expect(engine, set_credential(), PolicyFound)
    with RawConnection(path) as db:
        db.execute(f"UPDATE policy SET changed_at = {policy.at + 1}")
    await expect(engine, submit_with_precondition(), Created)
    assert (fast.stored, fast.refused) == (0, 1)


async def test_a_batch_that_is_refused_leaves_nothing_of_itself(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await expect(engine, write_facts(a_record("clash")), FactsRead)
    await expect(engine, submit("before"), Created)
    before = await dump_store(engine)
    store = engine._write_store
    assert store is not None
    for size in (5, insert_fast.ROWS_MAX - 1):
        commands = [*(submit(f"{n}") for n in range(size)), submit("clash")]
        prepared = insert_fast.prepare_insert(commands, engine._now())
        assert prepared is not None
        assert not await engine._writer.call(store.insert_fast, prepared)
        assert not store.db.in_transaction
        assert await dump_store(engine) == before
        assert schema.read_ledger(store.db) == store.ledger


async def test_facts_that_do_not_fit_the_statement_are_left_to_the_plain_path(engine: SqliteEngine) -> None:
    batches: tuple[list[Command[Any]], ...] = (
        [],
        [submit_sequence(1)],  # a stream
        [submit(cost=5)],  # a column that the trigger does not know
        [submit(), set_limit(3)],  # a command that does not create
        [submit("k"), submit("k")],  # the second finds the first
        [submit(format=2)],  # a newer program's
        [submit("", callback="https://example.org/") for _ in range(insert_fast.ROWS_MAX // 2 + 1)],  # too many jobs
        [submit_with_precondition(precondition=Precondition(POLICY_ID, BODY, valid_until=1))],  # expired
    )
    for commands in batches:
        assert insert_fast.prepare_insert(commands, engine._now()) is None, commands


@pytest.mark.parametrize("value", ["lone \ud800 surrogate", 2**63])
async def test_a_value_that_cannot_be_stored_fails_its_own_command_only(engine: SqliteEngine, value: Any) -> None:
    bad = submit("bad", actor=value) if isinstance(value, str) else submit("bad", priority=value)
    reply, fine = await engine.execute([bad, submit("fine")])
    assert "Error" in reply.message  # type: ignore[union-attr]
    assert isinstance(fine, Created)
    assert len(await list_facts(engine, Kind.JOB)) == 1


async def test_a_command_with_a_deadline_is_judged_when_it_is_written(engine: SqliteEngine, clock: FakeClock) -> None:
    late: Any = LateSubmit(submit(), engine._now())
    async with waiting_for_the_writer(engine, [late]) as replies:
        clock.advance(0.001)
    ((reply,),) = await replies
    assert isinstance(reply, Refused)


class LateSubmit:
    """A submission that must be executed in time, as no submission of ours is."""

    writes = creates = True

    def __init__(self, command: Any, not_after: int) -> None:
        self.footprint = replace(command.footprint, not_after=not_after)
        self.decide = command.decide
        self.format, self.tenant = command.format, command.tenant


async def test_another_ledger_in_the_file_is_refused_by_the_statement(
    engine: SqliteEngine, path: str, fast: FastInserts
) -> None:
    await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        db.execute("UPDATE ledger SET id = 'another'")
    with pytest.raises(StoreRefused, match="another ledger"):
        await engine.execute([submit("new")])
    with RawConnection(path) as db:
        assert db.execute("SELECT count(*) FROM record").get == 1


async def test_the_view_of_the_fast_path_is_not_stored_in_the_file(engine: SqliteEngine, path: str) -> None:
    await expect(engine, submit(), Created)
    with RawConnection(path) as db:
        assert not db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'new_facts%'").fetchall()


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("the plain path was taken")
