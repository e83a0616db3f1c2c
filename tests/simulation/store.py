"""The simulated store and the line to it: an engine in the optimistic style, with every fault a network has.

`execute` loads facts (hop by hop), decides with the store's clock, and sends the changes with everything it
has seen. The store takes them only if all of it still stands: facts are immutable values, so being the same
object is being the same version. It also refuses a decision that is older than one already made over the
same fact: reads leave no stamp, and without this a slow `forget` could end a window in the past.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from onejob.core.batch import Changes, WorkingSet, decide_batch, load_facts
from onejob.core.command import Command, Footprint
from onejob.core.facts import Attachment, AttachmentKind, Fact, Kind
from onejob.core.replies import AnyReply
from onejob.core.sequence import SubmitSequence
from onejob.engine import Durability, EngineBase, EngineInfo, OnTimeout, Page, Query, Unavailable, Unknown
from onejob.engines.memory import MemoryEngine

from .loop import Owner, VirtualLoop
from .plan import Faults, Plan

T = TypeVar("T")
ReadSet = list[tuple[Kind, bytes, Any]]

CLOCK_START_MS = 1_700_000_000_000
ATTEMPTS_MAX = 12
TIMEOUT = 0.5  # after which a line gives up on an answer


class Proposal(NamedTuple):
    """What a line has seen and decided."""

    commands: Sequence[Command[Any]]
    replies: list[AnyReply]
    changes: Changes
    read_set: ReadSet
    now: int
    made_at: float  # when, on a clock that never jumps


FactChange = tuple[Any, Any]  # a fact before and after
Observer = Callable[[Proposal, list[FactChange]], None]


class SimStore:
    """Facts, one clock, and the rule that nobody writes over what he has not seen."""

    def __init__(self, loop: VirtualLoop, plan: Plan, chance: Random, observer: Observer) -> None:
        self.loop = loop
        self.plan = plan
        self.faults = plan.faults
        self._weights: dict[str, float] = asdict(plan.faults)
        self.chance = chance
        self.context = Owner().context
        self.offset_ms = 0
        self.counts: Counter[str] = Counter()
        self.tables: list[dict[bytes, Any]] = [{} for _ in Kind]
        self.attachments: dict[tuple[bytes, AttachmentKind, int], Attachment] = {}
        self.failed_commands: dict[bytes, float] = {}  # commands that got no answer, and when
        self._last_decided_at: list[dict[bytes, float]] = [{} for _ in Kind]
        self._observer = observer
        # Pages are read as the plainest engine reads them.
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
        if weight and self.chance.random() < weight:
            self.counts[fault] += 1
            return True
        return False

    def latency(self) -> float:
        if self.fault_occurs("slow"):
            return self.plan.slow_max * self.chance.random()
        return self.plan.latency * (0.5 + self.chance.random())

    def commit(self, proposal: Proposal) -> bool:
        """All or nothing; False: something it has seen is not so any more."""
        if not self.is_still_valid(proposal):
            self.counts["version conflict"] += 1
            return False
        for kind, id, _ in proposal.read_set:
            judged = self._last_decided_at[kind]
            judged[id] = max(judged.get(id, 0.0), proposal.made_at)
        self._observer(proposal, self._apply(proposal.changes))
        return True

    def is_still_valid(self, proposal: Proposal) -> bool:
        seen, made = proposal.read_set, proposal.made_at
        return all(self.is_unchanged(*entry) for entry in seen) and all(
            self.is_in_order(made, *entry) for entry in seen
        )

    def is_unchanged(self, kind: Kind, id: bytes, fact: Any) -> bool:
        return self.tables[kind].get(id) is fact

    def is_in_order(self, made: float, kind: Kind, id: bytes, _: Any) -> bool:
        return self._last_decided_at[kind].get(id, 0.0) <= made

    def _apply(self, changes: Changes) -> list[FactChange]:
        moves: list[FactChange] = []
        # Deletes come first: what is dropped may be made anew in the same batch.
        for kind, pairs in changes.deletes.items():
            moves += [(self.tables[kind].pop(fact.id, None), None) for fact, _ in pairs]
        gone = {fact.id for fact, _ in changes.deletes.get(Kind.JOB, ())}
        if gone:
            self.attachments = {place: add for place, add in self.attachments.items() if place[0] not in gone}
        for kind, facts in changes.inserts.items():
            moves += [(self._put(kind, fact), fact) for fact in facts]
        for kind, pairs in changes.updates.items():
            moves += [(self._put(kind, fact), fact) for fact, _ in pairs]
        for add in changes.attachments:
            place = (add.job_id, add.kind, int(add.index))
            self.counts["written twice"] += place in self.attachments
            self.attachments[place] = add
        for cut in changes.trims:
            self.attachments.pop((cut.job_id, cut.kind, cut.index), None)
        return moves

    def _put(self, kind: Kind, fact: Fact) -> Fact | None:
        old: Fact | None = self.tables[kind].get(fact.id)
        self.tables[kind][fact.id] = fact
        return old


class SimEngine(EngineBase):
    """A process's engine. What was sent arrives even if the sender dies."""

    def __init__(self, store: SimStore, batch_max: int) -> None:
        self.info = EngineInfo(name="simulated", durability=Durability.QUORUM, batch_max=batch_max)
        self.store = store
        self.skew_ms = 0  # of the process's wall clock, which must not matter

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
        """A page that may be old when it arrives: it is never the basis of a decision."""
        store = self.store
        if store.fault_occurs("unavailable"):
            raise Unavailable("the store is away")
        found = list(store.reader._run_query(query))
        await self._network_delay()
        return Page(found[: query.limit], len(found) > query.limit)

    async def barrier(self, tenant: str, user: str | None = None) -> None:
        """The store commits nothing whose facts have changed since they were read, so nothing has to be waited for."""

    async def aclose(self) -> None:
        pass

    async def _execute(self, commands: Sequence[Command[Any]]) -> Sequence[AnyReply]:
        store = self.store
        if store.fault_occurs("unavailable"):
            await self._network_delay()
            raise Unavailable("the store is away")
        footprints = [command.footprint for command in commands]
        writing = any(command.writes for command in commands)
        for _ in range(ATTEMPTS_MAX):
            working, seen = await self._load(footprints)
            now = self.now()
            replies = decide_batch(commands, footprints, working, now)
            proposal = Proposal(commands, replies, working.changes(), seen, now, store.loop.time())
            if await self._propose(proposal, writing=writing):
                return replies
        raise Unavailable("too many others want the same")

    def now(self) -> int:
        return self.store.clock()

    async def _load(self, footprints: list[Footprint]) -> tuple[WorkingSet, ReadSet]:
        seen: ReadSet = []
        loading = load_facts(footprints)
        try:
            wanted = next(loading)
            while True:
                await self._network_delay()
                table = self.store.tables[wanted.kind]
                found = [table[id] for id in wanted.ids if id in table]
                seen += [(wanted.kind, id, table.get(id)) for id in wanted.ids]
                wanted = loading.send(found)
        except StopIteration as done:
            return done.value, seen

    async def _propose(self, proposal: Proposal, *, writing: bool) -> bool:
        store, loop = self.store, self.store.loop
        if not writing:
            taken = store.commit(proposal)  # a snapshot, proved here and now
            await self._network_delay()
            return taken
        answer: asyncio.Future[bool] = loop.create_future()
        if store.fault_occurs("request_lost"):
            loop.call_later(TIMEOUT, _fail_with_unknown, answer, context=store.context)
        elif store.fault_occurs("late"):
            loop.call_later(TIMEOUT, _fail_with_unknown, answer, context=store.context)
            late = TIMEOUT + store.plan.slow_max * store.chance.random()
            loop.call_later(late, self._deliver, proposal, answer, context=store.context)
        else:
            loop.call_later(store.latency(), self._deliver, proposal, answer, context=store.context)
        return await answer

    def _deliver(self, proposal: Proposal, answer: "asyncio.Future[bool]") -> None:
        store = self.store
        taken = store.commit(proposal)
        if store.fault_occurs("reply_lost"):
            store.loop.call_later(TIMEOUT, _fail_with_unknown, answer, context=store.context)
        else:
            store.loop.call_later(store.latency(), _resolve, answer, taken, context=store.context)

    async def _network_delay(self) -> None:
        loop = self.store.loop
        there: asyncio.Future[bool] = loop.create_future()
        loop.call_later(self.store.latency(), _resolve, there, True, context=self.store.context)
        await there


def command_identity(command: Command[Any]) -> bytes:
    """What tells a command from the others: the job it would make or looks at, or its holder."""
    if isinstance(command, SubmitSequence):
        return command.items[0].job_id
    name: bytes = getattr(command, "job_id", b"") or getattr(command, "holder", b"")
    return name


def _resolve(answer: "asyncio.Future[bool]", taken: bool) -> None:
    if not answer.done():
        answer.set_result(taken)


def _fail_with_unknown(answer: "asyncio.Future[bool]") -> None:
    if not answer.done():
        answer.set_exception(Unknown("no answer came; it may be done"))
