"""The generic middle of every engine: gather the facts of a batch, fold the commands over them, list the changes.

An engine drives `gather` (a generator without I/O), then calls `fold`, then stores `changes`, all or nothing.
Commands of one batch see each other's effects in order, as if each had been executed alone.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from .command import JOBS_MAX, Command, Facts, Footprint, Precondition, Step, Trim, precondition_failed
from .facts import FORMAT, JOB_ID_BYTES, KINDS, Attachment, Fact, Job, Kind, NewerFormat, Record, is_held
from .replies import AnyReply, Defect

_NO_FACTS = Facts()
_KINDS = tuple(Kind)


class FootprintViolation(Exception):
    """A command that decided about what is not its own: a defect, and nothing of it is stored."""


class LoadRequest(NamedTuple):
    """A load that the engine is asked for: identities of one kind, sorted, without repetition."""

    kind: Kind
    ids: list[bytes]


class Changes(NamedTuple):
    """What a batch stores, deletes first. Updates and deletes name the version that was loaded."""

    inserts: dict[Kind, list[Any]]
    updates: dict[Kind, list[tuple[Any, int]]]
    deletes: dict[Kind, list[tuple[Any, int]]]
    attachments: list[Attachment]
    trims: list[Trim]
    settled_records: Sequence[bytes] = ()  # records that somebody held: whoever waits for them may ask again

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.deletes or self.attachments or self.trims)


class WorkingSet:
    """The facts of one batch while its commands are folded over them."""

    __slots__ = (
        "_attachments",
        "_dropped_ids",
        "_jobs",
        "_loaded",
        "_policies",
        "_records",
        "_streams",
        "_trims",
        "_usages",
        "tables",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tables: list[dict[bytes, Any]] = [{}, {}, {}, {}, {}]  # by kind
        self._loaded: list[dict[bytes, Any]] = [{}, {}, {}, {}, {}]  # as it was before the first change
        self._records: dict[bytes, Record | None]
        self._jobs: dict[bytes, Job | None]
        self._records, self._jobs, self._streams, self._usages, self._policies = self.tables
        self._attachments: list[Attachment] = []
        self._trims: list[Trim] = []
        self._dropped_ids: set[bytes] = set()  # dropped on the way, even if made anew since

    def add_loaded(self, request: LoadRequest, found: Sequence[Fact]) -> None:
        table = self.tables[request.kind]
        table.update(dict.fromkeys(request.ids))
        for fact in found:
            table[fact.id] = fact

    def facts(self, footprint: Footprint) -> Facts:
        """What a footprint names. A fact of another tenant does not exist for it."""
        tenant = footprint.tenant
        record = self._records[footprint.record] if footprint.record else None
        if record is not None and record.tenant != tenant:
            record = None
        own: dict[bytes, Job] = {}
        for id in footprint.jobs:
            job = self._jobs[id]
            if job is not None and job.tenant == tenant:
                own[id] = job
        if record is not None and footprint.follow_jobs:
            for id in _split_job_ids(record.job_ids):
                job = self._jobs[id]
                if job is not None and job.tenant == tenant:
                    own[id] = job
        if footprint.stream or footprint.usage or footprint.policy or footprint.follow_usage:
            return self._facts_of_all_kinds(footprint, record, own)
        return Facts(record, own) if own or record is not None else _NO_FACTS

    def _facts_of_all_kinds(self, footprint: Footprint, record: Record | None, jobs: dict[bytes, Job]) -> Facts:
        tenant, id = footprint.tenant, footprint.usage
        if footprint.follow_usage and not id:
            id = next((job.slot for job in jobs.values() if job.slot), b"")
        stream = _owned_fact(self._streams, footprint.stream, tenant) if footprint.stream else None
        tally = _owned_fact(self._usages, id, tenant) if id else None
        policy = _owned_fact(self._policies, footprint.policy, tenant) if footprint.policy else None
        # Most submissions are new and their users uncounted: whoever asks then finds nothing at all.
        if stream is tally is policy is record is None and not jobs:
            return _NO_FACTS
        return Facts(record, jobs, stream, tally, policy)

    def meets_precondition(
        self, precondition: Precondition, footprint: Footprint, now: int, *, preconditions_checked_later: bool
    ) -> bool:
        """Whether the warrant stands, or did when this very command was executed before: its own job is there."""
        if any(_owned_fact(self._jobs, id, footprint.tenant) is not None for id in footprint.jobs):
            return True
        if preconditions_checked_later:
            return not precondition.has_expired(now)
        return precondition.is_met(_owned_fact(self._policies, precondition.policy_id, footprint.tenant), now)

    def apply(self, step: Step[Any], footprint: Footprint, facts: Facts) -> None:
        """Take over the changes of one command: all of them, or with an error none.

        A command changes only what its footprint names, in its own tenant, from the version it was shown.
        """
        tenant = footprint.tenant
        named = (footprint.record, *footprint.jobs, *facts.jobs)
        moves: list[tuple[Kind, bytes, Any, Fact | None]] = []
        for fact in step.puts:
            kind = KINDS[type(fact)]
            old = self.tables[kind].get(fact.id)
            is_named = fact.id in named or _is_named_outside_jobs(fact.id, footprint, facts)
            if not is_named or fact.tenant != tenant or (old is not None and old.tenant != tenant):
                raise FootprintViolation("a put outside the footprint, or outside the tenant")
            if fact.version != (1 if old is None else old.version + 1):
                raise FootprintViolation("a put that does not follow the version it was shown")
            moves.append((kind, fact.id, old, fact))
        for fact in step.drops:
            kind = KINDS[type(fact)]
            old = self.tables[kind].get(fact.id)
            is_named = fact.id in named or _is_named_outside_jobs(fact.id, footprint, facts)
            if not is_named or old is None or old.tenant != tenant:
                raise FootprintViolation("a drop outside the footprint, or outside the tenant")
            moves.append((kind, fact.id, old, None))
        made = [fact.id for fact in step.puts]
        for add in step.attachments:
            if add.job_id not in facts.jobs and add.job_id not in made:
                raise FootprintViolation("an attachment to a job that is not there")
        for cut in step.trims:
            if cut.job_id not in facts.jobs:
                raise FootprintViolation("a cut from a job that is not there")
        for kind, id, old, new in moves:
            self._loaded[kind].setdefault(id, old)
            self.tables[kind][id] = new
        if step.drops:
            gone = {fact.id for fact in step.drops}
            self._dropped_ids |= gone
            self._attachments = [add for add in self._attachments if add.job_id not in gone]
        self._attachments += step.attachments
        self._trims += step.trims

    def changes(self) -> Changes:
        changes = Changes({}, {}, {}, self._attachments, self._trims, self._settled_records())
        for kind, table, loaded in zip(_KINDS, self.tables, self._loaded, strict=True):
            for id, old in loaded.items():
                new = table[id]
                if old is None:
                    if new is not None:
                        changes.inserts.setdefault(kind, []).append(new)
                elif new is None:
                    changes.deletes.setdefault(kind, []).append((old, old.version))
                elif id not in self._dropped_ids:
                    changes.updates.setdefault(kind, []).append((new, old.version))
                else:  # dropped, and made anew in the same batch: nothing of the old one may stay beside it
                    changes.deletes.setdefault(kind, []).append((old, old.version))
                    changes.inserts.setdefault(kind, []).append(new)
        return changes

    def _settled_records(self) -> list[bytes]:
        changed = self._loaded[Kind.RECORD].items()
        return [id for id, old in changed if old is not None and is_held(old) and not is_held(self._records[id])]


def load_facts(footprints: Sequence[Footprint]) -> Generator[LoadRequest, Sequence[Fact], WorkingSet]:
    """Ask for the facts of a batch, kind by kind in the order of locking; following goes only forward."""
    working = WorkingSet()
    records = {f.record for f in footprints if f.record}
    if records:
        wanted = LoadRequest(Kind.RECORD, sorted(records))
        working.add_loaded(wanted, (yield wanted))
    jobs = {id for f in footprints for id in f.jobs}
    found_records = working.tables[Kind.RECORD]
    if any(found_records.values()):
        for f in footprints:
            record = found_records[f.record] if f.follow_jobs and f.record else None
            if record is not None:
                jobs.update(_split_job_ids(record.job_ids))
    if jobs:
        wanted = LoadRequest(Kind.JOB, sorted(jobs))
        working.add_loaded(wanted, (yield wanted))
    tallies = {f.usage for f in footprints if f.usage}
    if any(f.follow_usage for f in footprints):
        tallies.update(job.slot for job in working.tables[Kind.JOB].values() if job is not None and job.slot)
    policies = {f.policy for f in footprints if f.policy}
    policies.update(f.precondition.policy_id for f in footprints if f.precondition is not None)
    for kind, ids in (
        (Kind.STREAM, {f.stream for f in footprints if f.stream}),
        (Kind.USAGE, tallies),
        (Kind.POLICY, policies),
    ):
        if ids:
            wanted = LoadRequest(kind, sorted(ids))
            working.add_loaded(wanted, (yield wanted))
    return working


def load_facts_sync(footprints: Sequence[Footprint], fetch: Callable[[LoadRequest], Sequence[Fact]]) -> WorkingSet:
    """Drive `gather` for an engine whose loads return at once."""
    loading = load_facts(footprints)
    try:
        wanted = next(loading)
        while True:
            wanted = loading.send(fetch(wanted))
    except StopIteration as done:
        working: WorkingSet = done.value
        return working


def empty_working_set(footprints: Sequence[Footprint]) -> WorkingSet:
    """What `gather` returns where nothing is there."""
    working = WorkingSet()
    records, jobs, streams, tallies, policies = working.tables
    for f in footprints:
        records[f.record] = streams[f.stream] = tallies[f.usage] = policies[f.policy] = None
        for id in f.jobs:
            jobs[id] = None
    for table in working.tables:
        table.pop(b"", None)  # names nothing
    return working


def to_defect(command: Command[Any], error: Exception) -> Defect:
    if isinstance(error, NewerFormat):
        return Defect(str(error), retryable=True)
    return Defect(f"{type(command).__name__}: {type(error).__name__}: {error}")


def decide_batch(
    commands: Sequence[Command[AnyReply]],
    footprints: Sequence[Footprint],
    working_set: WorkingSet,
    now: int,
    *,
    preconditions_checked_later: bool = False,  # that the policies of warrants read the same: whoever stores the batch proves it
) -> list[AnyReply]:
    """Decide each command in turn. One that cannot be decided changes nothing and fails alone."""
    replies: list[AnyReply] = []
    for command, footprint in zip(commands, footprints, strict=True):
        try:
            assert len(footprint.jobs) <= JOBS_MAX
            warrant = footprint.precondition
            if warrant is not None and not working_set.meets_precondition(
                warrant, footprint, now, preconditions_checked_later=preconditions_checked_later
            ):
                replies.append(precondition_failed(now))
                continue
            facts = working_set.facts(footprint)
            step = command.decide(facts, _decision_time(command, facts, now))
            if step.puts or step.drops or step.attachments or step.trims:
                if not command.writes:
                    raise FootprintViolation("a command that only reads wanted to write")
                working_set.apply(step, footprint, facts)
            replies.append(step.reply)
        except Exception as error:  # noqa: BLE001 - a batch must not fall with one command
            replies.append(to_defect(command, error))
    return replies


def _decision_time(command: Command[AnyReply], facts: Facts, now: int) -> int:
    """The time of a decision: never below the stamps of its facts, none of which may be of a newer format."""
    if command.format > FORMAT:
        raise NewerFormat(f"the command has format {command.format}; upgrade this program")
    if facts is _NO_FACTS:
        return now
    for fact in (facts.record, *facts.jobs.values(), facts.stream, facts.usage, facts.policy):
        if fact is not None:
            if fact.format > FORMAT:
                raise NewerFormat(f"a {type(fact).__name__} has format {fact.format}; upgrade this program")
            now = max(now, fact.changed_at)
    return now


def _is_named_outside_jobs(id: bytes, footprint: Footprint, facts: Facts) -> bool:
    followed = facts.usage.id if facts.usage is not None else b""
    return bool(id) and id in (footprint.stream, footprint.usage, footprint.policy, followed)


def _owned_fact(table: dict[bytes, Any], id: bytes, tenant: str) -> Any:
    fact = table[id]
    return fact if fact is not None and fact.tenant == tenant else None


def _split_job_ids(job_ids: bytes) -> tuple[bytes, ...]:
    if len(job_ids) <= JOB_ID_BYTES:
        return (job_ids,) if job_ids else ()
    return tuple(job_ids[i : i + JOB_ID_BYTES] for i in range(0, len(job_ids), JOB_ID_BYTES))
