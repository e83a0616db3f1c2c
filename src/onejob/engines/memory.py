"""The engine that lives and dies with its process: for tests, and as the plainest reading of the contract."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from onejob.clock import Clock, SystemClock, tie, tied
from onejob.core.facts import Attachment, Beside, Fact, Job, Kind
from onejob.core.fold import Changes, Wanted, defect_of, fold, gathered
from onejob.core.receipt import AnyReply
from onejob.core.states import CLAIMABLE
from onejob.core.step import Command
from onejob.core.upkeep import due, due_place
from onejob.core.work import is_ready
from onejob.engine import (
    Attachments,
    Backlog,
    Due,
    Durability,
    Held,
    Inputs,
    JobPage,
    Listing,
    Page,
    Query,
    Ready,
    Unavailable,
    Waiting,
)

from .codec import check_storable, fold_u64

T = TypeVar("T")


class MemoryEngine:
    durability = Durability.PROCESS

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._now: Callable[[], int] = tied(clock, tie(clock))
        self._closed = False
        self.facts: list[dict[bytes, Any]] = [{} for _ in Kind]
        self.beside: dict[tuple[bytes, Beside, int], Attachment] = {}

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        # Yielding once keeps callers honest: no engine answers within the call.
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("this engine is closed; open another")
        return self._answered(commands)

    async def scan(self, query: Query[T], /) -> Page[T]:
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("this engine is closed; open another")
        found = list(self._matching(query))
        return Page(found[: query.limit], len(found) > query.limit)

    async def aclose(self) -> None:
        self._closed = True

    def _answered(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        """If a command breaks its batch, each is executed alone and only that one fails."""
        try:
            footprints = [command.footprint for command in commands]
            working = gathered(footprints, self._fetch)
            replies = fold(commands, footprints, working, self._now())
            changes = working.changes()
            self._check(changes)
        except Exception as error:  # noqa: BLE001 - it is the culprit's answer
            if len(commands) > 1:
                return [reply for command in commands for reply in self._answered([command])]
            return [defect_of(commands[0], error)]
        self._store(changes)
        return replies

    def _fetch(self, wanted: Wanted) -> list[Any]:
        table = self.facts[wanted.kind]
        return [table[id] for id in wanted.ids if id in table]

    def _check(self, changes: Changes) -> None:
        """What any store would refuse is refused before anything is changed."""
        gone = {(kind, fact.id) for kind, deletes in changes.deletes.items() for fact, _ in deletes}
        for kind, deletes in changes.deletes.items():
            for fact, version in deletes:
                assert self.facts[kind][fact.id].version == version
        for kind, inserts in changes.inserts.items():
            for fact in inserts:
                assert fact.id not in self.facts[kind] or (kind, fact.id) in gone
                check_storable(fact)
        for kind, updates in changes.updates.items():
            for fact, version in updates:
                assert self.facts[kind][fact.id].version == version
                check_storable(fact)
        places = [(add.job_id, add.beside, fold_u64(add.index)) for add in changes.adds]
        assert len(set(places)) == len(places)
        assert not any(place in self.beside and (Kind.JOB, place[0]) not in gone for place in places)

    def _store(self, changes: Changes) -> None:
        for kind, deletes in changes.deletes.items():
            for fact, _ in deletes:
                del self.facts[kind][fact.id]
        gone = {fact.id for fact, _ in changes.deletes.get(Kind.JOB, ())}
        if gone:
            for place in [place for place in self.beside if place[0] in gone]:
                del self.beside[place]
        for kind, inserts in changes.inserts.items():
            self.facts[kind].update((fact.id, fact) for fact in inserts)
        for kind, updates in changes.updates.items():
            self.facts[kind].update((fact.id, fact) for fact, _ in updates)
        for add in changes.adds:
            self.beside[add.job_id, add.beside, fold_u64(add.index)] = add
        for cut in changes.cuts:
            self.beside.pop((cut.job_id, cut.beside, fold_u64(cut.index)), None)

    def _matching(self, query: Query[Any]) -> Iterable[Any]:
        match query:
            case JobPage():
                return sorted(
                    (job for job in self._jobs() if _wanted(job, query)), key=lambda job: job.id, reverse=True
                )
            case Listing():
                return self._listed(query)
            case Attachments():
                return self._attached(query)
            case Due():
                now = self._now()
                waiting = (fact for fact in self.facts[query.kind].values() if due(fact, now))
                return sorted((fact for fact in waiting if due_place(fact) > query.after), key=due_place)
            case Ready():
                now = self._now()
                ready = (job for job in self._waiting(query) if is_ready(job, now))
                return sorted(ready, key=lambda job: (-job.priority, job.run_at, job.id))
            case Waiting():
                return self._backlogs(query)
            case Inputs():
                own = (self.beside.get((id, Beside.INPUT, 0)) for id in sorted(set(query.job_ids)))
                return [add for add in own if add is not None]
            case Held():
                now = self._now()
                return sorted((job for job in self._jobs() if _held(job, query, now)), key=lambda job: job.id)
        raise TypeError(f"{type(query).__name__} is not one of the queries")

    def _jobs(self) -> Iterable[Job]:
        return self.facts[Kind.JOB].values()

    def _waiting(self, query: Ready | Waiting) -> Iterable[Job]:
        return (
            job
            for job in self._jobs()
            if job.type in query.types and job.state in CLAIMABLE and query.tenant in (None, job.tenant)
        )

    def _backlogs(self, query: Waiting) -> Iterable[Backlog]:
        earliest: dict[str, int] = {}
        for job in self._waiting(query):
            earliest[job.tenant] = min(job.run_at, earliest.get(job.tenant, job.run_at))
        now = self._now()
        return [
            Backlog(tenant, max(run_at - now, 0))
            for tenant, run_at in sorted(earliest.items())
            if tenant > query.after
        ]

    def _listed(self, query: Listing) -> Iterable[Fact]:
        facts = self.facts[query.kind].values()
        own = (fact for fact in facts if fact.tenant == query.tenant and fact.id > query.after)
        return sorted(own, key=lambda fact: fact.id)

    def _attached(self, query: Attachments) -> Iterable[Attachment]:
        job = self.facts[Kind.JOB].get(query.job_id)
        if job is None or job.tenant != query.tenant:
            return []
        own = (
            add
            for add in self.beside.values()
            if add.job_id == query.job_id and add.beside is query.beside and add.index >= query.start
        )
        return sorted(own, key=lambda add: add.index)


def _held(job: Job, query: Held, now: int) -> bool:
    return (job.tenant, job.holder) == (query.tenant, query.holder) and 0 < now <= job.lease_until


def _wanted(job: Job, query: JobPage) -> bool:
    return (
        job.tenant == query.tenant
        and (query.state is None or job.state is query.state)
        and (query.type is None or job.type == query.type)
        and (query.user is None or job.user == query.user)
        and (not query.slot or job.slot == query.slot)
        and (not query.before or job.id < query.before)
    )
