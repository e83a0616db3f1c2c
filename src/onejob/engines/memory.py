"""The in-memory engine: for tests, and as the plainest reading of the engine contract."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from onejob.clock import Clock, SystemClock, make_engine_clock, wall_offset_ms
from onejob.core.batch import Changes, LoadRequest, decide_batch, execute_isolating_failures, load_facts_sync
from onejob.core.command import Command
from onejob.core.facts import Attachment, AttachmentKind, Fact, Job, Kind, is_live
from onejob.core.identity import SCHEDULE_ACTOR, SCHEDULE_SCOPE, created_ms
from onejob.core.maintenance import due_sort_key, is_due
from onejob.core.replies import AnyReply
from onejob.core.states import CLAIMABLE_STATES
from onejob.core.work import is_ready
from onejob.engine import (
    Backlog,
    CountCommits,
    CountJobs,
    CountKeys,
    CountLiveKeys,
    CountReadyJobs,
    Durability,
    EngineBase,
    EngineInfo,
    JobCount,
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    LiveKeyCount,
    OnTimeout,
    Page,
    Query,
    ReadyCount,
)
from onejob.errors import Unavailable
from onejob.ids import new_ledger_id

from .codec import check_storable, u64_to_signed

T = TypeVar("T")


class MemoryEngine(EngineBase):
    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.info = EngineInfo(name="memory", ledger_id=new_ledger_id(), durability=Durability.PROCESS)
        self._now: Callable[[], int] = make_engine_clock(clock, wall_offset_ms(clock))
        self._closed = False
        self.facts: list[dict[bytes, Any]] = [{} for _ in Kind]
        self.attachments: dict[tuple[bytes, AttachmentKind, int], Attachment] = {}

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        # No engine answers within the call; yielding once keeps callers from relying on it.
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("this engine is closed; open another")
        return execute_isolating_failures(self._execute_batch, commands, _raise_store_failure)

    async def scan(self, query: Query[T], /) -> Page[T]:
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("this engine is closed; open another")
        found = list(self._run_query(query))
        return Page(found[: query.limit], len(found) > query.limit)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        # A write that had begun waits for its one turn of the loop, which comes before this one.
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("this engine is closed; open another")

    async def aclose(self) -> None:
        self._closed = True

    def _execute_batch(self, commands: Sequence[Command[Any]]) -> list[AnyReply]:
        footprints = [command.footprint for command in commands]
        working_set = load_facts_sync(footprints, self._fetch)
        replies = decide_batch(commands, footprints, working_set, self._now())
        changes = working_set.changes()
        self._check(changes)
        self._apply(changes)
        return replies

    def _fetch(self, request: LoadRequest) -> list[Any]:
        table = self.facts[request.kind]
        return [table[id] for id in request.ids if id in table]

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
        places = [(add.job_id, add.kind, u64_to_signed(add.index)) for add in changes.attachments]
        assert len(set(places)) == len(places)
        assert not any(place in self.attachments and (Kind.JOB, place[0]) not in gone for place in places)

    def _apply(self, changes: Changes) -> None:
        for kind, deletes in changes.deletes.items():
            for fact, _ in deletes:
                del self.facts[kind][fact.id]
        gone = {fact.id for fact, _ in changes.deletes.get(Kind.JOB, ())}
        if gone:
            for place in [place for place in self.attachments if place[0] in gone]:
                del self.attachments[place]
            memos = self.facts[Kind.MEMO]
            for id in [id for id, memo in memos.items() if memo.job_id in gone]:
                del memos[id]
        for kind, inserts in changes.inserts.items():
            self.facts[kind].update((fact.id, fact) for fact in inserts)
        for kind, updates in changes.updates.items():
            self.facts[kind].update((fact.id, fact) for fact, _ in updates)
        for add in changes.attachments:
            self.attachments[add.job_id, add.kind, u64_to_signed(add.index)] = add
        for cut in changes.trims:
            self.attachments.pop((cut.job_id, cut.kind, u64_to_signed(cut.index)), None)

    def _run_query(self, query: Query[Any]) -> Iterable[Any]:
        match query:
            case ListJobs():
                return sorted(
                    (job for job in self._jobs() if _matches_filters(job, query)), key=lambda job: job.id, reverse=True
                )
            case CountJobs():
                return self._count_jobs(query)
            case CountReadyJobs():
                return self._count_ready_jobs(query)
            case CountKeys():
                return [sum(query.tenant in (None, record.tenant) for record in self.facts[Kind.RECORD].values())]
            case CountLiveKeys():
                return [self._count_live_keys()]
            case CountCommits():
                return []  # the ledger ends with its process, so no commit of it can be missing later
            case ListFacts():
                return self._list_facts(query)
            case ListAttachments():
                return self._attachments_of_job(query)
            case ListDueFacts():
                now = self._now()
                waiting = (fact for fact in self.facts[query.kind].values() if is_due(fact, now))
                return sorted((fact for fact in waiting if due_sort_key(fact) > query.after), key=due_sort_key)
            case ListReadyJobs():
                now = self._now()
                ready = (job for job in self._claimable_jobs(query) if is_ready(job, now))
                return sorted(ready, key=lambda job: (-job.priority, job.run_at, job.id))
            case ListBacklogs():
                return self._backlogs(query)
            case ListInputs():
                own = (self.attachments.get((id, AttachmentKind.INPUT, 0)) for id in sorted(set(query.job_ids)))
                return [add for add in own if add is not None]
            case ListLeasedJobs():
                now = self._now()
                return sorted(
                    (job for job in self._jobs() if _is_leased_by_holder(job, query, now)), key=lambda job: job.id
                )
        raise TypeError(f"{type(query).__name__} is not one of the queries")

    def _jobs(self) -> Iterable[Job]:
        return self.facts[Kind.JOB].values()

    def _claimable_jobs(self, query: ListReadyJobs | ListBacklogs) -> Iterable[Job]:
        return (
            job
            for job in self._jobs()
            if job.type in query.types and job.state in CLAIMABLE_STATES and query.tenant in (None, job.tenant)
        )

    def _backlogs(self, query: ListBacklogs) -> Iterable[Backlog]:
        earliest: dict[str, int] = {}
        for job in self._claimable_jobs(query):
            earliest[job.tenant] = min(job.run_at, earliest.get(job.tenant, job.run_at))
        now = self._now()
        return [
            Backlog(tenant, max(run_at - now, 0)) for tenant, run_at in sorted(earliest.items()) if tenant > query.after
        ]

    def _count_jobs(self, query: CountJobs) -> Iterable[JobCount]:
        counts = Counter((job.type, job.state) for job in self._jobs() if query.tenant in (None, job.tenant))
        found = [JobCount(type, state, count) for (type, state), count in counts.items()]
        return sorted(found, key=lambda counted: (-counted.count, counted.type, counted.state))

    def _count_live_keys(self) -> LiveKeyCount:
        now = self._now()
        records = self.facts[Kind.RECORD].values()
        ticks = SCHEDULE_ACTOR, SCHEDULE_SCOPE
        live = [record for record in records if is_live(record, now) and (record.actor, record.scope) != ticks]
        return LiveKeyCount(
            len(live), max((max(live_record.expires_at, live_record.lease_until) for live_record in live), default=0)
        )

    def _count_ready_jobs(self, query: CountReadyJobs) -> Iterable[ReadyCount]:
        now = self._now()
        ready_at: dict[str, list[int]] = {}
        for job in self._jobs():
            if query.tenant in (None, job.tenant) and job.state in CLAIMABLE_STATES and job.run_at <= now:
                ready_at.setdefault(job.type, []).append(job.run_at or created_ms(job.id))
        found = [ReadyCount(type, len(times), min(times)) for type, times in ready_at.items()]
        return sorted(found, key=lambda counted: (-counted.count, counted.type))

    def _list_facts(self, query: ListFacts) -> Iterable[Fact]:
        facts = self.facts[query.kind].values()
        own = (fact for fact in facts if query.tenant in (None, fact.tenant) and fact.id > query.after)
        return sorted(own, key=lambda fact: fact.id)

    def _attachments_of_job(self, query: ListAttachments) -> Iterable[Attachment]:
        job = self.facts[Kind.JOB].get(query.job_id)
        if job is None or job.tenant != query.tenant:
            return []
        own = (
            add
            for add in self.attachments.values()
            if add.job_id == query.job_id and add.kind is query.kind and add.index >= query.start
        )
        return sorted(own, key=lambda add: add.index)


def _is_leased_by_holder(job: Job, query: ListLeasedJobs, now: int) -> bool:
    return (job.tenant, job.holder) == (query.tenant, query.holder) and 0 < now <= job.lease_until


def _matches_filters(job: Job, query: ListJobs) -> bool:
    return (
        job.tenant == query.tenant
        and (query.state is None or job.state is query.state)
        and (query.type is None or job.type == query.type)
        and (query.user is None or job.user == query.user)
        and (not query.usage_id or job.usage_id == query.usage_id)
        and (not query.label or job.labels.startswith(b"{" + query.label) or b"," + query.label in job.labels)
        and query.created_from <= job.created_at
        and (not query.created_to or job.created_at <= query.created_to)
        and (not query.before or job.id < query.before)
    )


def _raise_store_failure(error: Exception, executed: int) -> None:
    """A dictionary does not fail: every error is the command's."""
