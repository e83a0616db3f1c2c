"""A store in a dictionary that executes commands as an engine does, and builders of facts and commands."""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.core.batch import Changes, LoadRequest, WorkingSet, decide_batch, load_facts
from onejob.core.command import Command, Footprint
from onejob.core.facts import FORMAT, KINDS, Attachment, AttachmentKind, Fact, Job, Kind, Record, Usage
from onejob.core.identity import record_id, usage_id
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.maintenance import Expire, Forget, Maintain, Purge
from onejob.core.replies import AnyReply, KeyHeld
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.submit import Submit
from onejob.core.work import Cancel

TENANT, SCOPE, KEY, USER, ACTOR = "acme", "charge", "order-1", "ann", "user:ann"
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
NOW, LEASE, TTL = 1_000_000_000_000, 60 * SECOND, 2 * HOUR
JOB, JOB2, JOB3 = (f"job-{n:012}".encode() for n in (1, 2, 3))
ANN, BOB, EVE = b"nonce-of-ann", b"nonce-of-bob", b"nonce-of-eve"
FINGERPRINT, OTHER_FINGERPRINT = b"print-a", b"print-b"
RECORD_ID = record_id(TENANT, SCOPE, KEY)
USAGE_ID = usage_id(TENANT, USER)

R = TypeVar("R")


class World:
    """Facts and attachments; `load_requests` is what the last batch loaded, in order."""

    def __init__(self, *facts: Fact) -> None:
        self.facts: dict[tuple[Kind, bytes], Any] = {(KINDS[type(fact)], fact.id): fact for fact in facts}
        self.attachments: dict[tuple[bytes, AttachmentKind, int], bytes] = {}
        self.load_requests: list[LoadRequest] = []
        self.changes = Changes({}, {}, {}, [], [])

    def execute(self, command: Command[Any], at: int = NOW) -> AnyReply:
        (reply,) = self.execute_batch(command, at=at)
        return reply

    def execute_batch(self, *commands: Command[Any], at: int = NOW) -> Sequence[AnyReply]:
        footprints = [command.footprint for command in commands]
        working_set = self.load_facts(footprints)
        replies = decide_batch(commands, footprints, working_set, at)
        self.changes = working_set.changes()
        self._store(self.changes)
        return replies

    def load_facts(self, footprints: Sequence[Footprint]) -> WorkingSet:
        self.load_requests = []
        loading = load_facts(footprints)
        try:
            request = next(loading)
            while True:
                self.load_requests.append(request)
                places = [(request.kind, id) for id in request.ids]
                request = loading.send([self.facts[place] for place in places if place in self.facts])
        except StopIteration as done:
            working_set: WorkingSet = done.value
            return working_set

    def record(self, id: bytes = RECORD_ID) -> Record:
        return expect_type(self.facts.get((Kind.RECORD, id)), Record)

    def job(self, id: bytes = JOB) -> Job:
        return expect_type(self.facts.get((Kind.JOB, id)), Job)

    def usage(self, id: bytes = USAGE_ID) -> Usage:
        return expect_type(self.facts.get((Kind.USAGE, id)), Usage)

    def jobs(self) -> list[bytes]:
        return sorted(id for kind, id in self.facts if kind is Kind.JOB)

    def has(self, kind: Kind, id: bytes) -> bool:
        return (kind, id) in self.facts

    def attachment_indexes(self, attachment_kind: AttachmentKind, id: bytes = JOB) -> list[int]:
        return sorted(index for job_id, kind, index in self.attachments if (job_id, kind) == (id, attachment_kind))

    def _store(self, changes: Changes) -> None:
        for kind, deletes in changes.deletes.items():
            for fact, version in deletes:
                assert self.facts.pop((kind, fact.id)).version == version
        deleted = {fact.id for fact, _ in changes.deletes.get(Kind.JOB, ())}
        self.attachments = {place: data for place, data in self.attachments.items() if place[0] not in deleted}
        for kind, inserts in changes.inserts.items():
            for fact in inserts:
                assert (kind, fact.id) not in self.facts
                self.facts[kind, fact.id] = fact
        for kind, updates in changes.updates.items():
            for fact, version in updates:
                assert self.facts[kind, fact.id].version == version
                self.facts[kind, fact.id] = fact
        self._store_attachments(changes.attachments)
        for trim in changes.trims:
            self.attachments.pop((trim.job_id, trim.kind, trim.index), None)

    def _store_attachments(self, attachments: Sequence[Attachment]) -> None:
        for one in attachments:
            place = (one.job_id, one.kind, int(one.index))
            assert place not in self.attachments, "written once, never changed"
            self.attachments[place] = one.data


def expect_type(value: object, kind: type[R]) -> R:
    assert isinstance(value, kind), f"{kind.__name__} expected, not {value}"
    return value


def a_record(status: IdempotencyStatus = IdempotencyStatus.COMMITTED, **changes: Any) -> Record:
    plain = Record(
        id=RECORD_ID,
        tenant=TENANT,
        scope=SCOPE,
        key=KEY,
        status=status,
        fingerprint=FINGERPRINT,
        job_ids=JOB,
        holder=ANN,
        token=1,
        lease_until=0,
        created_at=NOW - HOUR,
        changed_at=NOW - HOUR,
        expires_at=NOW + HOUR,
        ttl_ms=TTL,
        actor=ACTOR,
        user=USER,
        version=3,
    )
    return replace(plain, **changes)


def a_job(state: JobState = JobState.PENDING, **changes: Any) -> Job:
    plain = Job(
        id=JOB,
        tenant=TENANT,
        type=SCOPE,
        state=state,
        scope=SCOPE,
        key=KEY,
        actor=ACTOR,
        user=USER,
        created_at=NOW - HOUR,
        changed_at=NOW - HOUR,
        keep_until=NOW + HOUR,
        version=5,
    )
    return replace(plain, **changes)


def a_usage(**changes: Any) -> Usage:
    return replace(Usage(USAGE_ID, TENANT, USER, live=3, changed_at=NOW - HOUR, version=7), **changes)


def submit(job_id: bytes = JOB, **changes: Any) -> Submit:
    plain = Submit(
        tenant=TENANT,
        job_id=job_id,
        type=SCOPE,
        input=b'{"amount":1}',
        record_id=RECORD_ID,
        scope=SCOPE,
        key=KEY,
        fingerprint=FINGERPRINT,
        actor=ACTOR,
        user=USER,
        ttl_ms=TTL,
    )
    return replace(plain, **changes)


def reserve(job_id: bytes = JOB, *, holder: bytes = ANN, lease_ms: int = LEASE, **changes: Any) -> Reserve:
    plain = Reserve(
        tenant=TENANT,
        job_id=job_id,
        type=SCOPE,
        input=b'{"amount":1}',
        record_id=RECORD_ID,
        scope=SCOPE,
        key=KEY,
        fingerprint=FINGERPRINT,
        actor=ACTOR,
        user=USER,
        ttl_ms=TTL,
        holder=holder,
        lease_ms=lease_ms,
    )
    return replace(plain, **changes)


def renew(held: KeyHeld, *, lease_ms: int = LEASE) -> Renew:
    return Renew(
        tenant=TENANT,
        record_id=held.record_id,
        job_id=held.job_id,
        token=held.token,
        holder=held.holder,
        lease_ms=lease_ms,
    )


def settle(held: KeyHeld, verdict: Verdict, receipt: bytes = b"", **changes: Any) -> Settle:
    plain = Settle(
        tenant=TENANT,
        record_id=held.record_id,
        job_id=held.job_id,
        token=held.token,
        holder=held.holder,
        verdict=verdict,
        receipt=receipt,
        actor=ACTOR,
    )
    return replace(plain, **changes)


def take_over(holder: bytes = BOB, *, lease_ms: int = LEASE) -> TakeOver:
    return TakeOver(tenant=TENANT, record_id=RECORD_ID, holder=holder, lease_ms=lease_ms)


def look_up(record_id: bytes = RECORD_ID, *, tenant: str = TENANT) -> LookUpKey:
    return LookUpKey(tenant=tenant, record_id=record_id)


def look_up_job(job_id: bytes = JOB, *, tenant: str = TENANT) -> LookUpJob:
    return LookUpJob(tenant=tenant, job_id=job_id)


def cancel(job_id: bytes = JOB, **changes: Any) -> Cancel:
    return replace(Cancel(tenant=TENANT, job_id=job_id, actor=ACTOR), **changes)


def expire() -> Expire:
    return Expire(tenant=TENANT, record_id=RECORD_ID)


def maintain(job_id: bytes = JOB) -> Maintain:
    return Maintain(tenant=TENANT, job_id=job_id)


def forget(grace_ms: int) -> Forget:
    return Forget(tenant=TENANT, record_id=RECORD_ID, actor=ACTOR, grace_ms=grace_ms)


def purge(**changes: Any) -> Purge:
    return replace(Purge(tenant=TENANT, record_id=RECORD_ID), **changes)


NEWER_FORMAT = FORMAT + 1
