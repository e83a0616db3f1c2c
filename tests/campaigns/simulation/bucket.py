"""The bucket engine in the simulator: the real protocol and replica, on a simulated object store in virtual time.

An entry that the store creates is a commit: it is applied to the tables of the simulated store and compared with the model.
A batch that changed nothing, and a read, must have seen every entry that was there when it was asked; it is compared with
the model if nothing was committed since.

An older copy of the bucket is put in its place for up to a second: processes that are opened meanwhile work on it, and those
that run reach no store. Whoever has not refused the copy loses what it has done.
"""

import argparse
import random
import shutil
import tempfile
from asyncio import Future, Lock
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from onejob.core.batch import Changes
from onejob.core.command import Command, Trim
from onejob.core.facts import U64, Attachment, AttachmentKind, Kind
from onejob.core.replies import AnyReply
from onejob.engine import Page, Query
from onejob.engines.bucket import BucketEngine, WriteCall
from onejob.engines.bucket.log import (
    LEDGER_NAME,
    LogEntry,
    LogPart,
    decode_entry,
    encode_entry,
    encode_ledger,
    first_digest,
    log_name,
    position_of,
)
from onejob.engines.bucket.objects import ObjectInfo, RequestFailed, SlowDown, StoreDate
from onejob.engines.bucket.replica import Decided, ReplicaFile
from onejob.engines.bucket.url import ViewMode
from onejob.engines.codec import fact_from_row, to_row_changes, u64_from_signed
from onejob.engines.sqlite.schema import LedgerState
from onejob.errors import OnejobError
from onejob.ids import SeededIds

from .loop import VirtualLoop
from .plan import Plan, draw_plan
from .process import Components
from .simulator import SimulationResult, simulate
from .store import TIMEOUT, Observer, Proposal, SimEngine, SimStore

T = TypeVar("T")
_FIRST_NONCE = bytes(16)
_LEDGER_ID = "simulated"


class SimBucket(SimStore):
    """The tables of the simulated store, which follow the log of a bucket."""

    def __init__(self, loop: VirtualLoop, plan: Plan, rng: Random, observer: Observer) -> None:
        super().__init__(loop, plan, rng, observer)
        self.folder = Path(tempfile.mkdtemp(prefix="onejob-"))
        self.files: list[ReplicaFile] = []
        self.objects = {LEDGER_NAME: encode_ledger([_LEDGER_ID])}
        self.copy: dict[str, bytes] | None = None  # an older one, in the place of the objects
        self.is_put_back = False
        self.engines: list[ObservedBucketEngine] = []
        self.position = 0
        self.proposals: dict[bytes, tuple[Sequence[Command[Any]], Decided]] = {}
        self.nonces = SeededIds(Random(f"nonces {plan.seed} {plan.salt}"))

    def ensure_first_entry(self) -> None:
        """Facts that the simulation put into the tables are the first entry."""
        facts = {kind: list(self.tables[kind].values()) for kind in Kind if self.tables[kind]}
        if not self.position and facts:
            part = LogPart(to_row_changes(Changes(facts, {}, {}, [], [])))
            entry = encode_entry(1, _FIRST_NONCE, first_digest(_LEDGER_ID), self.clock(), [part])
            self.objects[log_name(1)] = entry.data
            self.position = 1

    def take_snapshot(self) -> "BucketCopy":  # type: ignore[override]
        return BucketCopy(self.ledger, dict(self.objects))

    def put_back(self, copy: "BucketCopy") -> None:  # type: ignore[override]
        # A crash may leave entries that nobody has seen: nobody misses them.
        seen = max((engine._replica.state.position for engine in self.engines), default=0)
        self.is_put_back = not self.is_put_back  # an older copy and the newest in turn
        is_noticed = self.is_put_back and copy.ledger.generation < min(seen, self.position)
        self.copy = dict(copy.objects) if is_noticed else None

    def begin_new_ledger(self) -> None:
        """A bucket goes on with its log."""

    def create(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            self.counts["version conflict"] += name.startswith("log/")
            return False
        self.objects[name] = data
        if name.startswith("log/"):
            self._commit_entry(position_of(name), data)
        return True

    def _commit_entry(self, position: int, data: bytes) -> None:
        assert position == self.position + 1
        self.position, self.ledger = position, LedgerState(_LEDGER_ID, position)
        entry = decode_entry(position, data)
        commands, decided = self.proposals[entry.digest]
        applied = []
        for part in entry.parts:
            applied += self._apply(_to_changes(part, self.tables))
        read_set: list[tuple[Kind, bytes, Any]] = [
            (kind, id, None) for command in commands for kind, id in _named_facts(command)
        ]
        self._observer(
            Proposal(commands, decided.replies, Changes({}, {}, {}, [], []), read_set, entry.at, self.loop.time()),
            applied,
        )

    def observe_reads(
        self, commands: Sequence[Command[Any]], replies: Sequence[AnyReply], now: int, *, seen: int, asked_at: int
    ) -> None:
        checker: Any = getattr(self._observer, "__self__")  # noqa: B009 - a bound method of the checker
        if seen < asked_at:
            checker.report_violation("a read sees what was committed before it", f"entry {seen} of {asked_at}")
        if seen == self.position:
            read_set = [(kind, id, None) for command in commands for kind, id in _named_facts(command)]
            none = Changes({}, {}, {}, [], [])
            self._observer(Proposal(commands, list(replies), none, read_set, now, self.loop.time()), [])
        else:
            for command, reply in zip(commands, replies, strict=True):
                checker.decided_replies[id(reply)] = (reply, command, self.loop.time())

    def close(self) -> None:
        for file in self.files:
            file.release()
        shutil.rmtree(self.folder, ignore_errors=True)


def _named_facts(command: Command[Any]) -> Iterator[tuple[Kind, bytes]]:
    f = command.footprint
    named = ((Kind.RECORD, f.record), (Kind.STREAM, f.stream), (Kind.USAGE, f.usage), (Kind.POLICY, f.policy))
    yield from ((kind, id) for kind, id in (*named, *((Kind.JOB, id) for id in f.jobs)) if id)


def _to_changes(part: LogPart, tables: list[dict[bytes, Any]]) -> Changes:
    rows = part.rows
    return Changes(
        {kind: [fact_from_row(kind, row) for row in inserts] for kind, inserts in rows.inserts.items()},
        {kind: [(fact_from_row(kind, row), was) for row, was in pairs] for kind, pairs in rows.updates.items()},
        {kind: [(tables[kind][id], was) for id, was in pairs] for kind, pairs in rows.deletes.items()},
        [Attachment(id, AttachmentKind(kind), U64(u64_from_signed(n)), data) for id, kind, n, data in rows.attachments],
        [Trim(id, AttachmentKind(kind), u64_from_signed(n)) for id, kind, n in rows.trims],
    )


class BucketCopy(NamedTuple):
    ledger: LedgerState
    objects: dict[str, bytes]


class SimObjects:
    """Requests to the simulated bucket, which may get lost, arrive late, or lose their answers."""

    def __init__(self, store: SimBucket) -> None:
        self._store = store
        self._copy = store.copy

    def _objects(self) -> dict[str, bytes]:
        return self._store.objects if self._copy is None or self._store.copy is not self._copy else self._copy

    async def create(self, name: str, data: bytes) -> bool:
        def create() -> bool:
            objects = self._objects()
            if objects is self._store.objects:
                return self._store.create(name, data)
            return objects.setdefault(name, data) is data

        is_entry = name.startswith("log/")
        return await self._ask(create, may_be_late=is_entry, is_faulty=is_entry)

    async def put(self, name: str, data: bytes) -> None:
        await self._ask(lambda: self._objects().__setitem__(name, data), may_be_late=False)

    async def get(self, name: str) -> bytes | None:
        return await self._ask(lambda: self._objects().get(name), may_be_late=False)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        def names() -> list[ObjectInfo]:
            found = sorted(name for name in self._objects() if name.startswith(f"{prefix}/") and name > after)
            return [ObjectInfo(name, 1, 0) for name in found]

        yield await self._ask(names, may_be_late=False)

    async def delete(self, names: Sequence[str]) -> None:
        await self._ask(lambda: [self._objects().pop(name, None) for name in names], may_be_late=False)

    async def upload(self, name: str, file: Path) -> None:
        raise AssertionError("no snapshot is due in a simulation")

    async def download(self, name: str, file: Path) -> bool:
        raise AssertionError("there is no snapshot in a simulation")

    async def read_date(self) -> StoreDate:
        store = self._store
        date = await self._ask(store.clock, may_be_late=False, is_faulty=False)
        return StoreDate(date, store.plan.tick_ms)

    async def aclose(self) -> None:
        pass

    async def _ask(self, execute: Callable[[], T], *, may_be_late: bool, is_faulty: bool = True) -> T:
        store, loop = self._store, self._store.loop
        reply: Future[T] = loop.create_future()

        def fail() -> None:
            if not reply.done():
                reply.set_exception(RequestFailed("no answer came"))

        def deliver() -> None:
            answer = execute()
            if is_faulty and store.fault_occurs("reply_lost"):
                loop.call_later(TIMEOUT, fail, context=store.context)
            else:
                loop.call_later(store.latency() / 2, answer_with, answer, context=store.context)

        def answer_with(answer: T) -> None:
            if not reply.done():
                reply.set_result(answer)

        if store.copy is not None and store.copy is not self._copy:
            raise SlowDown("the older copy is being put in place")
        if is_faulty and store.fault_occurs("unavailable"):
            raise SlowDown("503")
        if is_faulty and store.fault_occurs("request_lost"):
            loop.call_later(TIMEOUT, fail, context=store.context)
        elif may_be_late and store.fault_occurs("late"):
            loop.call_later(TIMEOUT, fail, context=store.context)
            loop.call_later(TIMEOUT + store.plan.slow_max * store.rng.random(), deliver, context=store.context)
        else:
            loop.call_later(store.latency() / 2, deliver, context=store.context)
        return await reply


class SimClock:
    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic = loop.time

    def wall_ms(self) -> int:
        raise AssertionError("the wall clock of a machine does not matter")


class ObservedBucketEngine(BucketEngine):
    """The real engine; what it decides is told to the store before it is sent."""

    store: SimBucket
    seen = 0  # the position on which the last batch was decided
    _decided: tuple[Sequence[Command[Any]], Decided]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._asked_at: dict[int, int] = {}  # the position of the log when a batch came, by its identity

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        result = work(*args)
        if isinstance(result, Decided):
            self._decided = args[0], result
            self.seen = self._replica.state.position
        return result

    async def _write(self, commands: Sequence[Command[Any]], call: WriteCall) -> list[AnyReply]:
        self._asked_at[id(commands)] = self.store.position
        return await super()._write(commands, call)

    async def _append(self, entry: LogEntry, call: WriteCall) -> LogEntry | None:
        self.store.proposals[entry.digest] = self._decided
        return await super()._append(entry, call)

    async def _is_newest(self) -> bool:
        commands, decided = self._decided
        seen = self.seen
        if not await super()._is_newest():
            return False
        asked_at = self._asked_at[id(commands)]
        self.store.observe_reads(commands, decided.replies, decided.at, seen=seen, asked_at=asked_at)
        return True


class SimBucketEngine(SimEngine):
    """One process on the bucket."""

    engine_class: type[ObservedBucketEngine] = ObservedBucketEngine

    def __init__(self, store: SimBucket, batch_max: int) -> None:
        super().__init__(store, batch_max)
        self._bucket = store
        self._engine: ObservedBucketEngine | None = None
        self._opening = Lock()

    async def _execute(self, commands: Sequence[Command[Any]]) -> Sequence[AnyReply]:
        engine = await self._opened()
        asked_at = self._bucket.position
        if any(command.writes for command in commands):
            return await engine.execute(commands)
        replies = await engine.execute(commands)
        state = engine._replica.state
        self._bucket.observe_reads(commands, replies, engine._replica.now(), seen=state.position, asked_at=asked_at)
        return replies

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await (await self._opened()).scan(query)

    async def aclose(self) -> None:
        if self._engine is not None:
            await self._engine.aclose()

    async def _opened(self) -> ObservedBucketEngine:
        async with self._opening:
            if self._engine is None:
                store = self._bucket
                store.ensure_first_entry()
                file = ReplicaFile(str(store.folder), "simulated")
                store.files.append(file)
                engine = self.engine_class(
                    SimObjects(store),
                    file,
                    clock=SimClock(store.loop),
                    ids=store.nonces,
                    view=ViewMode.OFF,
                    run=_run_now,
                )
                engine.store = store
                release, file.release = file.release, _keep_open  # type: ignore[method-assign]  # the simulation does
                try:
                    await engine.start()
                except OnejobError:
                    store.files.remove(file)
                    release()
                    raise
                store.counts["opened on an older copy"] += store.copy is not None
                store.engines.append(engine)
                self._engine = engine
            return self._engine


def _keep_open() -> None:
    pass


async def _run_now(work: Callable[..., T], *args: Any) -> T:
    return work(*args)


def simulate_bucket(plan: Plan, engine_class: type[ObservedBucketEngine] = ObservedBucketEngine) -> SimulationResult:
    with bucket_components(engine_class) as components:
        return simulate(plan, components)


@contextmanager
def bucket_components(engine_class: type[ObservedBucketEngine]) -> Iterator[Components]:
    stores: list[SimBucket] = []

    class Store(SimBucket):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            stores.append(self)

    class Engine(SimBucketEngine):
        pass

    Engine.engine_class = engine_class
    components = Components()
    components.store, components.engine = Store, Engine
    try:
        yield components
    finally:
        for store in stores:
            store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"bucket: {options.seeds} simulations from seed {options.first}")
    for seed in range(options.first, options.first + options.seeds):
        violations = simulate_bucket(draw_plan(seed)).violations
        assert not violations, f"seed {seed}: {violations}"


if __name__ == "__main__":
    main()
