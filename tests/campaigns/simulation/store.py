"""The simulated store and its engine: optimistic concurrency control over a network with faults.

`execute` loads facts, decides with the store's clock, and sends the changes together with everything it has read. The store
commits them only if all of that is unchanged: facts are immutable values, so the same object is the same version. It also
refuses a decision that is older than a committed one about the same fact: reads leave no timestamp, and without this check a
slow `forget` could end a window in the past.

It counts its commits, and notes their number and its ledger id where an older copy of the facts does not change them, as the
SQLite engine does (`schema.py`). Every engine compares both with the rule of that engine, and refuses a store that was rolled
back, also to a copy from before it became another ledger.

In some plans an engine decides new facts without loading anything, as the SQLite engine does (`insert_fast.py`): the store
then commits only if all of them are absent, and the date is checked by the `TimestampGuard` of that engine.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from onejob.core.batch import Changes, OptimisticInsert, WorkingSet, decide_batch, decide_optimistic_insert, load_facts
from onejob.core.command import Command, Footprint
from onejob.core.facts import Attachment, AttachmentKind, Fact, Kind
from onejob.core.replies import AnyReply
from onejob.core.sequence import SubmitSequence
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query
from onejob.engines.memory import MemoryEngine
from onejob.engines.sqlite import schema
from onejob.engines.sqlite.insert_fast import TimestampGuard
from onejob.errors import Unavailable, Unknown

from .loop import Owner, VirtualLoop
from .plan import Faults, Plan

T = TypeVar("T")
ReadSet = list[tuple[Kind, bytes, Any]]

CLOCK_START_MS = 1_700_000_000_000
ATTEMPTS_MAX = 12
TIMEOUT = 0.5  # seconds until a lost reply becomes Unknown


class Proposal(NamedTuple):
    """What an engine has read and decided."""

    commands: Sequence[Command[Any]]
    replies: list[AnyReply]
    changes: Changes
    read_set: ReadSet
    now: int
    made_at: float  # when, on a clock that never jumps
    writer: "Writer | None" = None  # of an engine that inserts without loading
    loads_nothing: bool = False


class Snapshot(NamedTuple):
    """A copy of the store."""

    ledger: schema.LedgerState
    tables: list[dict[bytes, Any]]
    attachments: dict[tuple[bytes, AttachmentKind, int], Attachment]


class Writer:
    """What an engine knows of the commits, as the thread that writes a SQLite file does."""

    def __init__(self, generation: int, now: int) -> None:
        self.generation = generation  # of the store, after the last commit of this engine
        self.guard = TimestampGuard(now)


FactChange = tuple[Any, Any]  # a fact before and after
Observer = Callable[[Proposal, list[FactChange]], None]


class SimStore:
    """Facts, one clock, and the rule that a commit changes only facts it has read."""

    def __init__(self, loop: VirtualLoop, plan: Plan, rng: Random, observer: Observer) -> None:
        self.loop = loop
        self.plan = plan
        self.faults = plan.faults
        self._weights: dict[str, float] = asdict(plan.faults)
        self.rng = rng
        self.context = Owner().context
        self.offset_ms = 0
        self.counts: Counter[str] = Counter()
        self.tables: list[dict[bytes, Any]] = [{} for _ in Kind]
        self.attachments: dict[tuple[bytes, AttachmentKind, int], Attachment] = {}
        self.ledger = schema.LedgerState("ledger 0", 0)  # which it is, and how often it was changed
        self.mark = self.ledger  # after the last commit
        self.failed_commands: dict[bytes, float] = {}  # commands that failed, and when
        self._last_decided_at: list[dict[bytes, float]] = [{} for _ in Kind]
        self._observer = observer
        # Queries are answered by the memory engine.
        self.reader = MemoryEngine()
        self.reader.facts, self.reader._now = self.tables, self.clock

    def clock(self) -> int:
        ms = CLOCK_START_MS + int(self.loop.time() * 1000) + self.offset_ms
        return ms - ms % self.plan.tick_ms

    def stop_faults(self) -> None:
        self.faults = Faults()
        self._weights = asdict(self.faults)

    def fault_occurs(self, fault: str) -> bool:
        weight = self._weights[fault]
        if weight and self.rng.random() < weight:
            self.counts[fault] += 1
            return True
        return False

    def latency(self) -> float:
        if self.fault_occurs("slow"):
            return self.plan.slow_max * self.rng.random()
        return self.plan.latency * (0.5 + self.rng.random())

    def take_snapshot(self) -> Snapshot:
        return Snapshot(self.ledger, [dict(table) for table in self.tables], dict(self.attachments))

    def put_back(self, copy: Snapshot) -> None:
        self.ledger = copy.ledger
        for table, facts in zip(self.tables, copy.tables, strict=True):
            table.clear()
            table.update(facts)
        self.attachments = dict(copy.attachments)

    def is_rolled_back(self) -> bool:
        return bool(schema.find_loss(self.mark, self.ledger))

    def begin_new_ledger(self) -> None:
        """Become another ledger that has lost nothing: every older copy is of another one from then on."""
        self.counts["new ledger"] += 1
        self._note_commit(f"ledger {self.counts['new ledger']}")

    def _note_commit(self, ledger_id: str) -> None:
        self.ledger = self.mark = schema.LedgerState(ledger_id, self.ledger.generation + 1)

    def commit(self, proposal: Proposal) -> bool:
        """Commit all or nothing; False if something that was read has changed."""
        if self.is_rolled_back() or not self.is_still_valid(proposal):
            self.counts["version conflict"] += 1
            return False
        for kind, id, _ in proposal.read_set:
            last_decided = self._last_decided_at[kind]
            last_decided[id] = max(last_decided.get(id, 0.0), proposal.made_at)
        if proposal.changes:
            self._advance_generation(proposal)
        self._observer(proposal, self._apply(proposal.changes))
        return True

    def _advance_generation(self, proposal: Proposal) -> None:
        self._note_commit(self.ledger.id)
        writer = proposal.writer
        if writer is not None:
            generations, has_deletes = self.ledger.generation - writer.generation, bool(proposal.changes.deletes)
            writer.guard.record_commit(self.clock(), generations=generations, has_deletes=has_deletes)
            writer.generation = self.ledger.generation
        self.counts["inserted without loading"] += proposal.loads_nothing

    def is_still_valid(self, proposal: Proposal) -> bool:
        read_set, made_at = proposal.read_set, proposal.made_at
        if proposal.loads_nothing:
            return self.is_dated_in_order(proposal) and all(self.is_unchanged(*entry) for entry in read_set)
        return all(self.is_unchanged(*entry) for entry in read_set) and all(
            self.is_in_order(made_at, *entry) for entry in read_set
        )

    def is_dated_in_order(self, proposal: Proposal) -> bool:
        writer = proposal.writer
        assert writer is not None
        return writer.guard.allows(proposal.now, self.clock()) and writer.generation == self.ledger.generation

    def is_unchanged(self, kind: Kind, id: bytes, fact: Any) -> bool:
        return self.tables[kind].get(id) is fact

    def is_in_order(self, made_at: float, kind: Kind, id: bytes, _: Any) -> bool:
        return self._last_decided_at[kind].get(id, 0.0) <= made_at

    def _apply(self, changes: Changes) -> list[FactChange]:
        changes_applied: list[FactChange] = []
        # Deletes come first: a deleted fact may be created again in the same batch.
        for kind, pairs in changes.deletes.items():
            changes_applied += [(self.tables[kind].pop(fact.id, None), None) for fact, _ in pairs]
        deleted_jobs = {fact.id for fact, _ in changes.deletes.get(Kind.JOB, ())}
        if deleted_jobs:
            self.attachments = {
                position: attachment
                for position, attachment in self.attachments.items()
                if position[0] not in deleted_jobs
            }
            memos = self.tables[Kind.MEMO]
            for id in [id for id, memo in memos.items() if memo.job_id in deleted_jobs]:
                del memos[id]
        for kind, facts in changes.inserts.items():
            changes_applied += [(self._put(kind, fact), fact) for fact in facts]
        for kind, pairs in changes.updates.items():
            changes_applied += [(self._put(kind, fact), fact) for fact, _ in pairs]
        for attachment in changes.attachments:
            position = (attachment.job_id, attachment.kind, int(attachment.index))
            self.counts["written twice"] += position in self.attachments
            self.attachments[position] = attachment
        for trim in changes.trims:
            self.attachments.pop((trim.job_id, trim.kind, trim.index), None)
        return changes_applied

    def _put(self, kind: Kind, fact: Fact) -> Fact | None:
        old: Fact | None = self.tables[kind].get(fact.id)
        self.tables[kind][fact.id] = fact
        return old


class SimEngine(EngineBase):
    """The engine of one process; what it has sent arrives even if the process dies."""

    def __init__(self, store: SimStore, batch_max: int) -> None:
        lanes = 2 if store.plan.inserts_fast else 1
        self.info = EngineInfo(
            name="simulated",
            ledger_id="simulated",
            durability=Durability.QUORUM,
            batch_max=batch_max,
            write_lanes=lanes,
            update_lanes=lanes - 1,
        )
        self.store = store
        self.writer = Writer(store.ledger.generation, store.clock()) if store.plan.inserts_fast else None
        self.skew_ms = 0  # error of the process's wall clock, which must not matter

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        try:
            return await self._execute(commands)
        except (Unavailable, Unknown) as error:
            self.store.counts[type(error).__name__.lower() + " raised"] += 1
            for command in commands:
                self.store.failed_commands[command_identity(command)] = self.store.loop.time()
            raise

    async def scan(self, query: Query[T], /) -> Page[T]:
        """A page may be outdated when it arrives; no decision relies on it."""
        store = self.store
        if store.fault_occurs("unavailable") or store.is_rolled_back():
            raise Unavailable("the store is unavailable")
        found = list(store.reader._run_query(query))
        await self._network_delay()
        return Page(found[: query.limit], len(found) > query.limit)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        """Return at once: a commit fails if a fact has changed since it was read, so no write can miss the limit."""

    async def aclose(self) -> None:
        pass

    async def _execute(self, commands: Sequence[Command[Any]]) -> Sequence[AnyReply]:
        store = self.store
        if store.fault_occurs("unavailable") or store.is_rolled_back():
            await self._network_delay()
            raise Unavailable("the store is unavailable")
        footprints = [command.footprint for command in commands]
        writing = any(command.writes for command in commands)
        if self.writer is not None and all(command.creates for command in commands):
            replies = await self._insert_fast(commands, footprints)
            if replies is not None:
                return replies
        for _ in range(ATTEMPTS_MAX):
            working, read_set = await self._load(footprints)
            now = self.now()
            replies = decide_batch(commands, footprints, working, now)
            proposal = Proposal(commands, replies, working.changes(), read_set, now, store.loop.time(), self.writer)
            if await self._propose(proposal, writing=writing):
                return replies
        raise Unavailable("too many version conflicts")

    async def _insert_fast(
        self, commands: Sequence[Command[Any]], footprints: list[Footprint]
    ) -> Sequence[AnyReply] | None:
        now = self.now()
        decided = decide_optimistic_insert(commands, footprints, now)
        if decided is None or not decided.changes.inserts.keys() <= {Kind.RECORD, Kind.JOB}:
            return None
        absent = self.assumed_absent(decided)
        proposal = Proposal(
            commands, decided.replies, decided.changes, absent, now, self.store.loop.time(), self.writer, True
        )
        return decided.replies if await self._propose(proposal, writing=True) else None

    def assumed_absent(self, decided: OptimisticInsert) -> ReadSet:
        inserted = [(kind, fact.id, None) for kind, facts in decided.changes.inserts.items() for fact in facts]
        return inserted + [(kind, id, None) for kind, ids in decided.absent.items() for id in ids]

    def now(self) -> int:
        return self.store.clock()

    async def _load(self, footprints: list[Footprint]) -> tuple[WorkingSet, ReadSet]:
        read_set: ReadSet = []
        loading = load_facts(footprints)
        try:
            request = next(loading)
            while True:
                await self._network_delay()
                table = self.store.tables[request.kind]
                found = [table[id] for id in request.ids if id in table]
                read_set += [(request.kind, id, table.get(id)) for id in request.ids]
                request = loading.send(found)
        except StopIteration as done:
            return done.value, read_set

    async def _propose(self, proposal: Proposal, *, writing: bool) -> bool:
        store, loop = self.store, self.store.loop
        if not writing:
            committed = store.commit(proposal)  # a snapshot, validated at once
            await self._network_delay()
            return committed
        reply: asyncio.Future[bool] = loop.create_future()
        if store.fault_occurs("request_lost"):
            loop.call_later(TIMEOUT, _fail_with_unknown, reply, context=store.context)
        elif store.fault_occurs("late"):
            loop.call_later(TIMEOUT, _fail_with_unknown, reply, context=store.context)
            delay = TIMEOUT + store.plan.slow_max * store.rng.random()
            loop.call_later(delay, self._deliver, proposal, reply, context=store.context)
        else:
            loop.call_later(store.latency(), self._deliver, proposal, reply, context=store.context)
        return await reply

    def _deliver(self, proposal: Proposal, reply: "asyncio.Future[bool]") -> None:
        store = self.store
        committed = store.commit(proposal)
        if store.fault_occurs("reply_lost"):
            store.loop.call_later(TIMEOUT, _fail_with_unknown, reply, context=store.context)
        else:
            store.loop.call_later(store.latency(), _resolve, reply, committed, context=store.context)

    async def _network_delay(self) -> None:
        loop = self.store.loop
        arrived: asyncio.Future[bool] = loop.create_future()
        loop.call_later(self.store.latency(), _resolve, arrived, True, context=self.store.context)
        await arrived


def command_identity(command: Command[Any]) -> bytes:
    """The identity of a command: the job it would create or reads, or its holder."""
    if isinstance(command, SubmitSequence):
        return command.items[0].job_id
    name: bytes = getattr(command, "job_id", b"") or getattr(command, "holder", b"")
    return name


def _resolve(reply: "asyncio.Future[bool]", committed: bool) -> None:
    if not reply.done():
        reply.set_result(committed)


def _fail_with_unknown(reply: "asyncio.Future[bool]") -> None:
    if not reply.done():
        reply.set_exception(Unknown("no answer came; it may be done"))
