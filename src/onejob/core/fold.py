"""The generic middle of every engine: gather the facts of a batch, fold the commands over them, list the changes.

An engine drives `gather` (a generator without I/O), then calls `fold`, then stores `changes`, all or nothing.
Commands of one batch see each other's effects in order, as if each had been executed alone.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from .facts import FORMAT, JOB_ID_BYTES, KINDS, Attachment, Fact, Job, Kind, NewerFormat, Record, held
from .receipt import AnyReply, Defect
from .step import JOBS_MAX, Command, Cut, Facts, Footprint, Step, Warrant, lapsed

_NOTHING = Facts()
_KINDS = tuple(Kind)


class Trespass(Exception):
    """A command that decided about what is not its own: a defect, and nothing of it is stored."""


class Wanted(NamedTuple):
    """A load that the engine is asked for: identities of one kind, sorted, without repetition."""

    kind: Kind
    ids: list[bytes]


class Changes(NamedTuple):
    """What a batch stores, deletes first. Updates and deletes name the version that was loaded."""

    inserts: dict[Kind, list[Any]]
    updates: dict[Kind, list[tuple[Any, int]]]
    deletes: dict[Kind, list[tuple[Any, int]]]
    adds: list[Attachment]
    cuts: list[Cut]
    settled: Sequence[bytes] = ()  # records that somebody held: whoever waits for them may ask again

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.deletes or self.adds or self.cuts)


class Working:
    """The facts of one batch while its commands are folded over them."""

    __slots__ = (
        "_adds", "_cuts", "_gone", "_jobs", "_loaded", "_policies", "_records", "_streams", "_tallies",
        "tables",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tables: list[dict[bytes, Any]] = [{}, {}, {}, {}, {}]  # by kind
        self._loaded: list[dict[bytes, Any]] = [{}, {}, {}, {}, {}]  # as it was before the first change
        self._records: dict[bytes, Record | None]
        self._jobs: dict[bytes, Job | None]
        self._records, self._jobs, self._streams, self._tallies, self._policies = self.tables
        self._adds: list[Attachment] = []
        self._cuts: list[Cut] = []
        self._gone: set[bytes] = set()  # dropped on the way, even if made anew since

    def take(self, wanted: Wanted, found: Sequence[Fact]) -> None:
        table = self.tables[wanted.kind]
        table.update(dict.fromkeys(wanted.ids))
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
            for id in _split(record.job_ids):
                job = self._jobs[id]
                if job is not None and job.tenant == tenant:
                    own[id] = job
        if footprint.stream or footprint.tally or footprint.policy or footprint.follow_tally:
            return self._further(footprint, record, own)
        return Facts(record, own) if own or record is not None else _NOTHING

    def _further(self, footprint: Footprint, record: Record | None, own: dict[bytes, Job]) -> Facts:
        tenant, id = footprint.tenant, footprint.tally
        if footprint.follow_tally and not id:
            id = next((job.slot for job in own.values() if job.slot), b"")
        stream = _owned(self._streams, footprint.stream, tenant) if footprint.stream else None
        tally = _owned(self._tallies, id, tenant) if id else None
        policy = _owned(self._policies, footprint.policy, tenant) if footprint.policy else None
        # Most submissions are new and their users uncounted: whoever asks then finds nothing at all.
        if stream is tally is policy is record is None and not own:
            return _NOTHING
        return Facts(record, own, stream, tally, policy)

    def honours(self, warrant: Warrant, footprint: Footprint, now: int, *, presumed: bool) -> bool:
        """Whether the warrant stands, or did when this very command was executed before: its own job is there."""
        if any(_owned(self._jobs, id, footprint.tenant) is not None for id in footprint.jobs):
            return True
        if presumed:
            return not warrant.is_over(now)
        return warrant.stands(_owned(self._policies, warrant.policy, footprint.tenant), now)

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
            is_named = fact.id in named or _is_further_named(fact.id, footprint, facts)
            if not is_named or fact.tenant != tenant or (old is not None and old.tenant != tenant):
                raise Trespass("a put outside the footprint, or outside the tenant")
            if fact.version != (1 if old is None else old.version + 1):
                raise Trespass("a put that does not follow the version it was shown")
            moves.append((kind, fact.id, old, fact))
        for fact in step.drops:
            kind = KINDS[type(fact)]
            old = self.tables[kind].get(fact.id)
            is_named = fact.id in named or _is_further_named(fact.id, footprint, facts)
            if not is_named or old is None or old.tenant != tenant:
                raise Trespass("a drop outside the footprint, or outside the tenant")
            moves.append((kind, fact.id, old, None))
        made = [fact.id for fact in step.puts]
        for add in step.adds:
            if add.job_id not in facts.jobs and add.job_id not in made:
                raise Trespass("an attachment to a job that is not there")
        for cut in step.cuts:
            if cut.job_id not in facts.jobs:
                raise Trespass("a cut from a job that is not there")
        for kind, id, old, new in moves:
            self._loaded[kind].setdefault(id, old)
            self.tables[kind][id] = new
        if step.drops:
            gone = {fact.id for fact in step.drops}
            self._gone |= gone
            self._adds = [add for add in self._adds if add.job_id not in gone]
        self._adds += step.adds
        self._cuts += step.cuts

    def changes(self) -> Changes:
        changes = Changes({}, {}, {}, self._adds, self._cuts, self._settled())
        for kind, table, loaded in zip(_KINDS, self.tables, self._loaded, strict=True):
            for id, old in loaded.items():
                new = table[id]
                if old is None:
                    if new is not None:
                        changes.inserts.setdefault(kind, []).append(new)
                elif new is None:
                    changes.deletes.setdefault(kind, []).append((old, old.version))
                elif id not in self._gone:
                    changes.updates.setdefault(kind, []).append((new, old.version))
                else:  # dropped, and made anew in the same batch: nothing of the old one may stay beside it
                    changes.deletes.setdefault(kind, []).append((old, old.version))
                    changes.inserts.setdefault(kind, []).append(new)
        return changes

    def _settled(self) -> list[bytes]:
        changed = self._loaded[Kind.RECORD].items()
        return [id for id, old in changed if old is not None and held(old) and not held(self._records[id])]


def gather(footprints: Sequence[Footprint]) -> Generator[Wanted, Sequence[Fact], Working]:
    """Ask for the facts of a batch, kind by kind in the order of locking; following goes only forward."""
    working = Working()
    records = {f.record for f in footprints if f.record}
    if records:
        wanted = Wanted(Kind.RECORD, sorted(records))
        working.take(wanted, (yield wanted))
    jobs = {id for f in footprints for id in f.jobs}
    found_records = working.tables[Kind.RECORD]
    if any(found_records.values()):
        for f in footprints:
            record = found_records[f.record] if f.follow_jobs and f.record else None
            if record is not None:
                jobs.update(_split(record.job_ids))
    if jobs:
        wanted = Wanted(Kind.JOB, sorted(jobs))
        working.take(wanted, (yield wanted))
    tallies = {f.tally for f in footprints if f.tally}
    if any(f.follow_tally for f in footprints):
        tallies.update(job.slot for job in working.tables[Kind.JOB].values() if job is not None and job.slot)
    policies = {f.policy for f in footprints if f.policy}
    policies.update(f.warrant.policy for f in footprints if f.warrant is not None)
    for kind, ids in (
        (Kind.STREAM, {f.stream for f in footprints if f.stream}),
        (Kind.TALLY, tallies),
        (Kind.POLICY, policies),
    ):
        if ids:
            wanted = Wanted(kind, sorted(ids))
            working.take(wanted, (yield wanted))
    return working


def gathered(footprints: Sequence[Footprint], fetch: Callable[[Wanted], Sequence[Fact]]) -> Working:
    """Drive `gather` for an engine whose loads return at once."""
    loading = gather(footprints)
    try:
        wanted = next(loading)
        while True:
            wanted = loading.send(fetch(wanted))
    except StopIteration as done:
        working: Working = done.value
        return working


def vacant(footprints: Sequence[Footprint]) -> Working:
    """What `gather` returns where nothing is there."""
    working = Working()
    records, jobs, streams, tallies, policies = working.tables
    for f in footprints:
        records[f.record] = streams[f.stream] = tallies[f.tally] = policies[f.policy] = None
        for id in f.jobs:
            jobs[id] = None
    for table in working.tables:
        table.pop(b"", None)  # names nothing
    return working


def defect_of(command: Command[Any], error: Exception) -> Defect:
    if isinstance(error, NewerFormat):
        return Defect(str(error), retryable=True)
    return Defect(f"{type(command).__name__}: {type(error).__name__}: {error}")


def fold(
    commands: Sequence[Command[AnyReply]],
    footprints: Sequence[Footprint],
    working: Working,
    now: int,
    *,
    presumed: bool = False,  # that the policies of warrants read the same: whoever stores the batch proves it
) -> list[AnyReply]:
    """Decide each command in turn. One that cannot be decided changes nothing and fails alone."""
    replies: list[AnyReply] = []
    for command, footprint in zip(commands, footprints, strict=True):
        try:
            assert len(footprint.jobs) <= JOBS_MAX
            warrant = footprint.warrant
            if warrant is not None and not working.honours(warrant, footprint, now, presumed=presumed):
                replies.append(lapsed(now))
                continue
            facts = working.facts(footprint)
            step = command.decide(facts, _checked(command, facts, now))
            if step.puts or step.drops or step.adds or step.cuts:
                if not command.writes:
                    raise Trespass("a command that only reads wanted to write")
                working.apply(step, footprint, facts)
            replies.append(step.reply)
        except Exception as error:  # noqa: BLE001 - a batch must not fall with one command
            replies.append(defect_of(command, error))
    return replies


def _checked(command: Command[AnyReply], facts: Facts, now: int) -> int:
    """The time of a decision: never below the stamps of its facts, none of which may be of a newer format."""
    if command.format > FORMAT:
        raise NewerFormat(f"the command has format {command.format}; upgrade this program")
    if facts is _NOTHING:
        return now
    for fact in (facts.record, *facts.jobs.values(), facts.stream, facts.tally, facts.policy):
        if fact is not None:
            if fact.format > FORMAT:
                raise NewerFormat(f"a {type(fact).__name__} has format {fact.format}; upgrade this program")
            now = max(now, fact.changed_at)
    return now


def _is_further_named(id: bytes, footprint: Footprint, facts: Facts) -> bool:
    followed = facts.tally.id if facts.tally is not None else b""
    return bool(id) and id in (footprint.stream, footprint.tally, footprint.policy, followed)


def _owned(table: dict[bytes, Any], id: bytes, tenant: str) -> Any:
    fact = table[id]
    return fact if fact is not None and fact.tenant == tenant else None


def _split(job_ids: bytes) -> tuple[bytes, ...]:
    if len(job_ids) <= JOB_ID_BYTES:
        return (job_ids,) if job_ids else ()
    return tuple(job_ids[i : i + JOB_ID_BYTES] for i in range(0, len(job_ids), JOB_ID_BYTES))
