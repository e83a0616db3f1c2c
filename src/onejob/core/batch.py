"""How an engine executes a batch: load the facts, decide the commands, list the changes to store.

An engine drives `load_facts` (a generator without I/O), calls `decide_batch`, and stores `WorkingSet.changes()` in one
transaction. The rules of this file:

1. Facts are loaded and locked kind by kind in the order of `Kind`, each kind sorted, and following goes only forward
   (record, jobs, usage). So no two batches deadlock.
2. The commands of a batch see each other's effects in order, as if each had been executed alone.
3. A command changes only what its footprint names, in its own tenant, from the version it was shown; and an id that it
   writes begins with its tenant. A command that breaks this rule, or cannot be decided, is answered with a `Defect` and
   changes nothing; the others go on.
4. A batch that fails for a reason other than the store is executed again one command at a time.

Every submission passes through here, so the functions below avoid calls and objects that a batch can do without.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from .command import (
    JOBS_MAX,
    Command,
    Facts,
    Footprint,
    Precondition,
    Step,
    Trim,
    arrived_too_late,
    precondition_failed,
    settings_changed,
)
from .facts import FORMAT, KINDS, Attachment, Fact, Job, Kind, NewerFormat, Record, is_held, split_job_ids
from .identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, policy_id, tenant_prefix
from .ledger_settings import CLOSED_MARK
from .replies import AnyReply, Defect

_SETTINGS_ID = policy_id(SYSTEM_TENANT, SETTINGS_POLICY_NAME)
_NO_FACTS = Facts()
_KINDS = tuple(Kind)
_JOB = Kind.JOB


class FootprintViolation(Exception):
    """A command decided to change what its footprint does not allow: a bug, and nothing of it is stored."""


class LoadRequest(NamedTuple):
    """The facts that an engine loads next: ids of one kind, sorted, without duplicates."""

    kind: Kind
    ids: list[bytes]


class Changes(NamedTuple):
    """What a batch stores, deletes first. Updates and deletes carry the version that was loaded."""

    inserts: dict[Kind, list[Any]]
    updates: dict[Kind, list[tuple[Any, int]]]
    deletes: dict[Kind, list[tuple[Any, int]]]
    attachments: list[Attachment]
    trims: list[Trim]
    settled_records: Sequence[bytes] = ()  # records that were held and no longer are: waiters are woken

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.deletes or self.attachments or self.trims)


class WorkingSet:
    """The facts of one batch while its commands are decided over them."""

    __slots__ = (
        "_attachments",
        "_dropped_ids",
        "_jobs",
        "_loaded",
        "_memos",
        "_policies",
        "_records",
        "_streams",
        "_trims",
        "_usages",
        "tables",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tables: list[dict[bytes, Any]] = [{} for _ in _KINDS]  # by kind
        self._loaded: list[dict[bytes, Any]] = [{} for _ in _KINDS]  # facts that changed, as they were loaded
        self._records: dict[bytes, Record | None]
        self._jobs: dict[bytes, Job | None]
        self._records, self._jobs, self._streams, self._usages, self._policies, self._memos = self.tables
        self._attachments: list[Attachment] = []
        self._trims: list[Trim] = []
        self._dropped_ids: set[bytes] = set()  # dropped by a command, even if a later one created it again

    def add_loaded(self, request: LoadRequest, facts: Sequence[Fact]) -> None:
        table = self.tables[request.kind]
        table.update(dict.fromkeys(request.ids))
        for fact in facts:
            table[fact.id] = fact

    def facts(self, footprint: Footprint) -> Facts:
        """The facts that a footprint names. A fact of another tenant does not exist for it."""
        f, tenant = footprint, footprint.tenant
        record = self._records[f.record] if f.record else None
        stream = self._streams[f.stream] if f.stream else None
        usage = self._usages[f.usage] if f.usage else None
        policy = self._policies[f.policy] if f.policy else None
        memo = self._memos[f.memo] if f.memo else None
        jobs: dict[bytes, Job] = {}
        for id in f.jobs:
            job = self._jobs[id]
            if job is not None and job.tenant == tenant:
                jobs[id] = job
        # The common submission has a new key and a user without limits: it finds no fact at all.
        if record is stream is usage is policy is memo is None and not jobs:
            return _NO_FACTS
        record = _owned_fact(record, tenant)
        if f.follow_jobs and record is not None:
            for id in split_job_ids(record.job_ids):
                job = self._jobs[id]
                if job is not None and job.tenant == tenant:
                    jobs[id] = job
        if f.follow_usage and not f.usage:
            usage_id = next((job.usage_id for job in jobs.values() if job.usage_id), b"")
            usage = self._usages[usage_id] if usage_id else None
        if stream is usage is policy is memo is None:
            return Facts(record, jobs)
        return Facts(
            record,
            jobs,
            _owned_fact(stream, tenant),
            _owned_fact(usage, tenant),
            _owned_fact(policy, tenant),
            _owned_fact(memo, tenant),
        )

    def meets_precondition(
        self, precondition: Precondition, footprint: Footprint, now: int, *, preconditions_checked_later: bool
    ) -> bool:
        """True if the precondition is met, or was when this very command was executed before: its job exists."""
        tenant = footprint.tenant
        if any(_owned_fact(self._jobs[id], tenant) is not None for id in footprint.jobs):
            return True
        if preconditions_checked_later:
            return not precondition.has_expired(now)
        return precondition.is_met(_owned_fact(self._policies[precondition.policy_id], tenant), now)

    def has_settings(self, footprint: Footprint) -> bool:
        """True if the ledger has the settings of this command, or had when it was executed before: its job exists."""
        policy = self._policies[_SETTINGS_ID]
        if policy is not None and policy.body == footprint.settings:
            return True
        return any(_owned_fact(self._jobs[id], footprint.tenant) is not None for id in footprint.jobs)

    def apply(self, step: Step[Any], footprint: Footprint, facts: Facts) -> None:
        """Apply the changes of one command: all of them, or with an exception none (rule 3)."""
        tenant, prefix, tables = footprint.tenant, tenant_prefix(footprint.tenant), self.tables
        named = (footprint.record, *footprint.jobs, *facts.jobs)
        replaced: list[tuple[Kind, bytes, Any, Fact | None]] = []
        for fact in step.puts:
            kind, id = KINDS[type(fact)], fact.id
            old = tables[kind].get(id)
            is_named = id in named or _is_named_outside_jobs(id, footprint, facts)
            if not is_named or fact.tenant != tenant or (old is not None and old.tenant != tenant):
                raise FootprintViolation("a put outside the footprint, or outside the tenant")
            if kind is not _JOB and not id.startswith(prefix):
                raise FootprintViolation("a put under an id that belongs to another tenant")
            if fact.version != (1 if old is None else old.version + 1):
                raise FootprintViolation("a put that does not follow the version it was shown")
            replaced.append((kind, id, old, fact))
        for fact in step.drops:
            kind = KINDS[type(fact)]
            old = self.tables[kind].get(fact.id)
            is_named = fact.id in named or _is_named_outside_jobs(fact.id, footprint, facts)
            if not is_named or old is None or old.tenant != tenant:
                raise FootprintViolation("a drop outside the footprint, or outside the tenant")
            replaced.append((kind, fact.id, old, None))
        put_ids = [fact.id for fact in step.puts]
        for attachment in step.attachments:
            if attachment.job_id not in facts.jobs and attachment.job_id not in put_ids:
                raise FootprintViolation("an attachment to a job that does not exist")
        for trim in step.trims:
            if trim.job_id not in facts.jobs:
                raise FootprintViolation("a trim of a job that does not exist")
        for kind, id, old, new in replaced:
            self._loaded[kind].setdefault(id, old)
            tables[kind][id] = new
        if step.drops:
            dropped = {fact.id for fact in step.drops}
            self._dropped_ids |= dropped
            self._attachments = [kept for kept in self._attachments if kept.job_id not in dropped]
            self._drop_memos(dropped)
        self._attachments += step.attachments
        self._trims += step.trims

    def _drop_memos(self, dropped_jobs: set[bytes]) -> None:
        """Forget the memos of dropped jobs: the engine deletes those that are stored with the job."""
        for id, memo in self._memos.items():
            if memo is not None and memo.job_id in dropped_jobs:
                self._memos[id] = None
                self._loaded[Kind.MEMO].pop(id, None)

    def changes(self) -> Changes:
        changes = Changes({}, {}, {}, self._attachments, self._trims, self._settled_records())
        for kind, loaded in zip(_KINDS, self._loaded, strict=True):
            if not loaded:
                continue
            table = self.tables[kind]
            inserts = [table[id] for id, old in loaded.items() if old is None and table[id] is not None]
            if inserts:
                changes.inserts[kind] = inserts
            if len(inserts) < len(loaded):
                self._add_replaced(changes, kind)
        return changes

    def _add_replaced(self, changes: Changes, kind: Kind) -> None:
        """Add the facts that existed before the batch."""
        table = self.tables[kind]
        for id, old in self._loaded[kind].items():
            new = table[id]
            if old is None:
                continue
            if new is None:
                changes.deletes.setdefault(kind, []).append((old, old.version))
            elif id not in self._dropped_ids:
                changes.updates.setdefault(kind, []).append((new, old.version))
            else:  # dropped and created again in one batch: the attachments of the old one must go
                changes.deletes.setdefault(kind, []).append((old, old.version))
                changes.inserts.setdefault(kind, []).append(new)

    def _settled_records(self) -> list[bytes]:
        changed = self._loaded[Kind.RECORD].items()
        return [id for id, old in changed if old is not None and is_held(old) and not is_held(self._records[id])]


def load_facts(footprints: Sequence[Footprint]) -> Generator[LoadRequest, Sequence[Fact], WorkingSet]:
    """Load the facts of a batch: yields requests and is sent what exists of each (rule 1)."""
    working_set = WorkingSet()
    record_ids = {f.record for f in footprints if f.record}
    if record_ids:
        request = LoadRequest(Kind.RECORD, sorted(record_ids))
        working_set.add_loaded(request, (yield request))
    job_ids = {id for f in footprints for id in f.jobs}
    records = working_set.tables[Kind.RECORD]
    if any(records.values()):
        for f in footprints:
            record = records[f.record] if f.follow_jobs and f.record else None
            if record is not None:
                job_ids.update(split_job_ids(record.job_ids))
    if job_ids:
        request = LoadRequest(Kind.JOB, sorted(job_ids))
        working_set.add_loaded(request, (yield request))
    usage_ids = {f.usage for f in footprints if f.usage}
    if any(f.follow_usage for f in footprints):
        usage_ids.update(
            job.usage_id for job in working_set.tables[Kind.JOB].values() if job is not None and job.usage_id
        )
    policy_ids = {f.policy for f in footprints if f.policy}
    policy_ids.update(f.precondition.policy_id for f in footprints if f.precondition is not None)
    if any(f.settings for f in footprints):
        policy_ids.add(_SETTINGS_ID)
    for kind, ids in (
        (Kind.STREAM, {f.stream for f in footprints if f.stream}),
        (Kind.USAGE, usage_ids),
        (Kind.POLICY, policy_ids),
        (Kind.MEMO, {f.memo for f in footprints if f.memo}),
    ):
        if ids:
            request = LoadRequest(kind, sorted(ids))
            working_set.add_loaded(request, (yield request))
    return working_set


def load_facts_sync(footprints: Sequence[Footprint], fetch: Callable[[LoadRequest], Sequence[Fact]]) -> WorkingSet:
    """Drive `load_facts` with a blocking `fetch`."""
    loading = load_facts(footprints)
    try:
        request = next(loading)
        while True:
            request = loading.send(fetch(request))
    except StopIteration as done:
        working_set: WorkingSet = done.value
        return working_set


def single_fact_request(footprint: Footprint) -> LoadRequest | None:
    """What `load_facts` requests for a footprint that names one job or one policy and nothing else; else None.

    For an engine that reads one fact without a transaction. Equivalence: test_a_single_fact_is_requested_as_by_load_facts.
    """
    f = footprint
    if f.record or f.stream or f.usage or f.memo or f.follow_usage or f.settings or f.precondition is not None:
        return None
    if f.policy:
        return None if f.jobs else LoadRequest(Kind.POLICY, [f.policy])
    return LoadRequest(Kind.JOB, [*f.jobs]) if len(f.jobs) == 1 else None


def empty_working_set(footprints: Sequence[Footprint]) -> WorkingSet:
    """What `load_facts` returns on an empty store, for an engine that inserts first and loads only on a collision.

    Equivalence: test_an_empty_working_set_equals_one_loaded_from_an_empty_store.
    """
    working_set = WorkingSet()
    records, jobs, streams, usages, policies, memos = working_set.tables
    for f in footprints:
        records[f.record] = streams[f.stream] = usages[f.usage] = policies[f.policy] = memos[f.memo] = None
        for id in f.jobs:
            jobs[id] = None
    for table in working_set.tables:
        table.pop(b"", None)  # empty bytes name no fact
    return working_set


def decide_batch(
    commands: Sequence[Command[AnyReply]],
    footprints: Sequence[Footprint],
    working_set: WorkingSet,
    now: int,
    *,
    preconditions_checked_later: bool = False,  # only their expiry is checked here: the store compares the policies
) -> list[AnyReply]:
    """Decide each command in turn. One that cannot be decided is answered with a `Defect` (rule 3)."""
    replies: list[AnyReply] = []
    for command, footprint in zip(commands, footprints, strict=True):
        try:
            assert len(footprint.jobs) <= JOBS_MAX
            if footprint.tenant != command.tenant:
                raise FootprintViolation("a footprint of another tenant")
            if footprint.not_after and now > footprint.not_after:
                replies.append(arrived_too_late(now))
                continue
            precondition = footprint.precondition
            if precondition is not None and not working_set.meets_precondition(
                precondition, footprint, now, preconditions_checked_later=preconditions_checked_later
            ):
                replies.append(precondition_failed(now))
                continue
            if footprint.settings and (
                CLOSED_MARK in footprint.settings
                or (not preconditions_checked_later and not working_set.has_settings(footprint))
            ):
                replies.append(settings_changed(now))
                continue
            facts = working_set.facts(footprint)
            step = command.decide(facts, _decision_time(command, facts, now))
            if step.puts or step.drops or step.attachments or step.trims:
                if not command.writes:
                    raise FootprintViolation("a command that declares itself read-only returned changes")
                working_set.apply(step, footprint, facts)
            replies.append(step.reply)
        except Exception as error:  # noqa: BLE001 - one command must not fail the batch
            replies.append(to_defect(command, error))
    return replies


class OptimisticInsert(NamedTuple):
    """A batch decided as if none of its facts existed, and what the INSERT must verify for that to be true."""

    replies: list[AnyReply]
    changes: Changes
    absent: dict[Kind, list[bytes]]
    preconditions: tuple[list[Any], ...]  # ids, tenants and bodies of policies that must exist; empty: none


def decide_optimistic_insert(
    commands: Sequence[Command[Any]], footprints: Sequence[Footprint], now: int
) -> OptimisticInsert | None:
    """Decide as if no fact existed; None unless an INSERT of the changes proves it."""
    working = empty_working_set(footprints)
    replies = decide_batch(commands, footprints, working, now, preconditions_checked_later=True)
    changes = working.changes()
    created = {fact.id for inserts in changes.inserts.values() for fact in inserts}
    named = {f.record for f in footprints}.union(*[f.jobs for f in footprints])
    named.discard(b"")
    if not created or not named <= created or changes.updates or changes.deletes or changes.trims:
        return None
    return OptimisticInsert(replies, changes, _ids_assumed_absent(footprints, created), _expected_policies(footprints))


def _ids_assumed_absent(footprints: Sequence[Footprint], created: set[bytes]) -> dict[Kind, list[bytes]]:
    """Ids that the decisions assumed absent and that are not inserted, so that no unique index proves it."""
    assumed = {
        Kind.STREAM: {f.stream for f in footprints},
        Kind.USAGE: {f.usage for f in footprints},
        Kind.POLICY: {f.policy for f in footprints},
        Kind.MEMO: {f.memo for f in footprints},
    }
    present = created | {b""}  # empty bytes name no fact
    return {kind: sorted(ids - present) for kind, ids in assumed.items() if not ids <= present}


def _expected_policies(footprints: Sequence[Footprint]) -> tuple[list[Any], ...]:
    """The policies that the preconditions name, as columns: ids, tenants, bodies."""
    expected = {
        (f.precondition.policy_id, f.tenant, f.precondition.expected_body)
        for f in footprints
        if f.precondition is not None
    }
    settings = {f.settings for f in footprints}
    settings.discard(b"")
    expected.update((_SETTINGS_ID, SYSTEM_TENANT, body) for body in settings)
    return tuple(map(list, zip(*expected, strict=True)))


def execute_isolating_failures(
    execute: Callable[[Sequence[Command[Any]]], list[AnyReply]],
    commands: Sequence[Command[Any]],
    raise_store_failure: Callable[[Exception, int], None],
) -> list[AnyReply]:
    """Execute a batch; if a command makes it fail, execute each alone, so that only the failing one fails (rule 4).

    `execute` stores all of its commands or none. `raise_store_failure` is given each error and the number of commands
    that were executed before it; it raises if the store failed, and returns if the command is at fault.
    """
    try:
        return execute(commands)
    except Exception as error:  # noqa: BLE001 - classified by raise_store_failure
        raise_store_failure(error, 0)
        if len(commands) == 1:
            return [to_defect(commands[0], error)]
    replies: list[AnyReply] = []
    for command in commands:
        try:
            replies += execute([command])
        except Exception as error:  # noqa: BLE001 - the same
            raise_store_failure(error, len(replies))
            replies.append(to_defect(command, error))
    return replies


def to_defect(command: Command[Any], error: Exception) -> Defect:
    if isinstance(error, NewerFormat):
        return Defect(str(error), retryable=True)
    if isinstance(error, MemoryError):
        raise error  # the process, not the command, is at fault
    return Defect(f"{type(command).__name__}: {type(error).__name__}: {error}")


def _decision_time(command: Command[AnyReply], facts: Facts, now: int) -> int:
    """The time of a decision: never below the `changed_at` of its facts, none of which may have a newer format."""
    if command.format > FORMAT:
        raise NewerFormat(f"the command has format {command.format}; upgrade this program")
    if facts is _NO_FACTS:
        return now
    others = (facts.record, facts.stream, facts.usage, facts.policy, facts.memo)
    for fact in (*facts.jobs.values(), *[fact for fact in others if fact is not None]):
        if fact.format > FORMAT:
            raise NewerFormat(f"a {type(fact).__name__} has format {fact.format}; upgrade this program")
        if fact.changed_at > now:
            now = fact.changed_at
    return now


def _is_named_outside_jobs(id: bytes, footprint: Footprint, facts: Facts) -> bool:
    followed_usage = facts.usage.id if facts.usage is not None else b""
    return bool(id) and id in (footprint.stream, footprint.usage, footprint.policy, footprint.memo, followed_usage)


def _owned_fact(fact: Any, tenant: str) -> Any:
    return fact if fact is not None and fact.tenant == tenant else None
