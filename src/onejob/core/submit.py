"""Submit: a key is reserved, its job created and the key committed in one step.

Every submission, plain, reserved or sequenced, describes its jobs with a `JobSpec`, and `new_job` makes the job row from it
(facts.py).
"""

from typing import ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from .callback import callback_job, callback_job_id
from .command import CommandBase, CommandData, Facts, Footprint, Precondition, Step
from .facts import (
    FORMAT,
    U64,
    Attachment,
    AttachmentKind,
    Fact,
    Job,
    JobSpec,
    Record,
    free_version,
    is_known,
    is_live,
    new_job,
    next_version,
)
from .identity import format_job_id
from .quota import KeyLimit, QuotaCharge, QuotaRequest, charge, refuse_new_key
from .replies import Conflict, Created, InProgress, KeySettled, Reason, Refused, Rejected, Replayed
from .sites import SiteTargets
from .states import ENDED_STATES, IdempotencyStatus, JobState, Move, RecordMove, state_after, status_after
from .work import RETENTION_MS, end_job

TTL_MS_DEFAULT = 24 * 3600 * 1000
TTL_MS_MIN = 1000
TTL_MS_MAX = 365 * 24 * 3600 * 1000
LABELS_BYTES_MAX = 512
PRIORITY_MAX = 1000
ATTEMPTS_MAX = 100
TIMEOUT_MS_MAX = 30 * 24 * 3600 * 1000

# Module constants for the hot path: looking up a member of an enum costs more than building a fact.
_INPUT = AttachmentKind.INPUT
_SCHEDULED, _PENDING = JobState.SCHEDULED, JobState.PENDING
_COMMITTED = IdempotencyStatus.COMMITTED
_FIRST_INDEX = U64(0)

# The replies of a live record to a submission that did not create it.
ExistingKeyReply = Replayed | Rejected | InProgress | Conflict | Refused


class ExternalJob(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A job of another system that a key is stored for, as `StoreKey` says."""

    id: str
    actor: str  # that stored the key
    user: str
    ttl_ms: int
    retention_ms: int = RETENTION_MS  # of a job that was being prepared under the key
    fingerprint: bytes = b""


class KeyOfRecord(Protocol):
    """The key that a command names, and the record it has."""

    @property
    def tenant(self) -> str: ...
    @property
    def record_id(self) -> bytes: ...
    @property
    def scope(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def key_limit(self) -> KeyLimit | None: ...


def store_external_job(key: KeyOfRecord, external: ExternalJob, facts: Facts, now: int) -> Step[KeySettled | Refused]:
    """Commit a key that is not known (`is_known`) with a job of another system.

    If it was held before, its holder is fenced off, and the job that was being prepared is cancelled in the same step:
    nothing can settle that any more.
    """
    old = facts.record
    was_held = old is not None and is_live(old, now)
    if not was_held and (refused := refuse_new_key(key.key_limit, now)):
        return Step(refused)
    token = old.token + 1 if old is not None and was_held else 1
    record = _record_of_external_job(key, external, old, token=token, now=now)
    job = facts.job if was_held else None
    if job is None or job.state in ENDED_STATES:
        return Step(KeySettled(record, None, now), (record,))
    end = end_job(
        replace(job, keep_until=0),  # no record names it any more
        facts.usage,
        now,
        move=Move.CANCEL,
        actor=external.actor,
        retention_ms=external.retention_ms,
        error=f"the key was stored for another job, {external.id}",
    )
    return Step(KeySettled(record, None, now), (record, *end.puts), attachments=end.attachments, trims=end.trims)


def _record_of_external_job(
    key: KeyOfRecord, external: ExternalJob, old: Record | None, *, token: int, now: int
) -> Record:
    return Record(
        key.record_id,
        key.tenant,
        key.scope,
        key.key,
        _COMMITTED,
        fingerprint=external.fingerprint,
        job_ids=b"",
        holder=b"",
        token=token,
        lease_until=0,
        created_at=now,
        changed_at=now,
        expires_at=now + external.ttl_ms,
        ttl_ms=external.ttl_ms,
        actor=external.actor,
        user=external.user,
        version=1 if old is None else old.version + 1,
        external_id=external.id,
    )


class SubmissionCommand(CommandBase, JobSpec, frozen=True, gc=False, kw_only=True):
    """What Submit and Reserve share: one logical submission, and the reply of a live record to it."""

    creates: ClassVar[bool] = True
    may_be_overtaken: ClassVar[bool] = True

    tenant: str
    format: int = FORMAT
    record_id: bytes = b""  # empty: no key, every submission is new
    scope: str = ""
    key: str = ""
    fingerprint: bytes = b""
    actor: str
    user: str
    ttl_ms: int = TTL_MS_DEFAULT
    usage_id: bytes = b""  # of the user; empty: not counted
    policy_id: bytes = b""  # of the tenant's limits
    reservation: str = ""  # a slot that was reserved for it
    key_limit: KeyLimit | None = None  # None: the tenant may have any number of keys
    settings: bytes = b""  # of the ledger, that it was built under (ledger_settings.py)
    external_job: ExternalJob | None = None  # that its key is stored for in the scope of all types; None: it is not
    free_version: int | None = None  # of its own record when that was looked up (facts.py); None: it was not

    @property
    def payload_bytes(self) -> int:
        return len(self.input)

    @property
    def footprint(self) -> Footprint:
        # Without a job there is nothing to charge, and the job of another submission under the key is not needed.
        if not self.job_id:
            return Footprint(
                self.tenant, self.record_id, follow_jobs=self.external_job is not None, settings=self.settings
            )
        # By position: that is cheaper on the path of every submission.
        return Footprint(
            self.tenant, self.record_id, (self.job_id,), b"", self.usage_id, self.policy_id, True, False, None, b"", 0,
            self.settings,
        )  # fmt: skip

    def is_uncounted(self, facts: Facts) -> bool:
        """The common case: there is neither a usage fact nor a policy, and no slot was reserved."""
        return facts.usage is None and facts.policy is None and not self.reservation

    def charge(self, facts: Facts, request: QuotaRequest, now: int) -> QuotaCharge | Refused | None:
        return charge(facts, request, now, tenant=self.tenant, user=self.user, usage_id=self.usage_id)

    def new_record(
        self,
        old: Record | None,
        status: IdempotencyStatus,
        now: int,
        *,
        holder: bytes,
        lease_until: int,
        expires_at: int,
    ) -> Record:
        """A new record; it replaces the expired one if there is one."""
        return Record(
            self.record_id,
            self.tenant,
            self.scope,
            self.key,
            status,
            self.fingerprint,
            self.job_id,
            holder,
            1,
            lease_until,
            now,
            now,
            expires_at,
            self.ttl_ms,
            self.actor,
            self.user,
            1 if old is None else old.version + 1,
        )

    def reply_for_external_job(self, facts: Facts, now: int) -> Step[Replayed | Refused | InProgress] | None:
        """Commit the key with the job that it is stored for; None if there is none, or its own scope knows the key.

        If the key became free after it was looked up, it may have been stored before that: it is to be looked up again.
        """
        if self.external_job is None:
            seen, record = self.free_version, facts.record
            if seen is None or is_known(record, now) or free_version(record, now) == seen:
                return None
            return Step(InProgress(b"" if record is None else record.job_id, 1, now))
        if is_known(facts.record, now):
            return None
        step = store_external_job(self, self.external_job, facts, now)
        if isinstance(step.reply, Refused):
            return Step(step.reply)
        record = step.reply.record
        reply = Replayed(None, record.expires_at, now, record.external_id)
        return Step(reply, step.puts, attachments=step.attachments, trims=step.trims)

    def input_attachment(self) -> Attachment:
        return Attachment(self.job_id, _INPUT, _FIRST_INDEX, self.input)

    def reply_for_existing_key(self, record: Record, facts: Facts, now: int) -> ExistingKeyReply | None:
        """The reply of a live record; None when it is pending and its lease has expired."""
        if record.external_id:
            return external_job_reply(record, self.fingerprint, now)
        if record.client_id:
            return Refused(Reason.IDEMPOTENCY_KEY_REUSED, "the key belongs to a sequenced client; use a new key", now)
        # A mismatch comes before in-progress: waiting would not resolve it.
        if record.fingerprint != self.fingerprint or bool(record.job_ids) != bool(self.job_id):
            return Conflict(record.job_id, record.external_id, now)
        match record.status:
            case IdempotencyStatus.COMMITTED:
                return replayed_reply(record, facts, now)
            case IdempotencyStatus.REJECTED:
                return Rejected(record.job_id, record.receipt, record.expires_at, now)
            case IdempotencyStatus.PENDING:
                if now > record.lease_until:
                    return None
                return InProgress(record.job_id, record.lease_until - now + 1, now)


def external_job_reply(record: Record, fingerprint: bytes, now: int) -> Replayed | Conflict:
    """The reply of a key that was stored for an external job, whatever was asked for unless it was stored with it."""
    if record.fingerprint not in (b"", fingerprint):
        return Conflict(record.job_id, record.external_id, now)
    return Replayed(None, record.expires_at, now, record.external_id)


def replayed_reply(record: Record, facts: Facts, now: int) -> Replayed:
    job = facts.jobs.get(record.job_id)
    # A committed record and its job are stored and deleted together.
    assert (job is None) == (not record.job_ids)
    return Replayed(job, record.expires_at, now, record.external_id, record.receipt)


def ready_state(run_at: int, now: int) -> JobState:
    return _SCHEDULED if run_at > now else _PENDING


def readied_job(job: Job, now: int, *, keep_until: int, usage_id: bytes) -> Job:
    """A prepared job that may run now."""
    move = Move.SCHEDULE if job.run_at > now else Move.COMMIT
    return next_version(
        job, now, state=state_after(job.state, move), keep_until=keep_until, due_at=0, usage_id=usage_id
    )


def committed_record(
    record: Record, now: int, *, holder: bytes, token: int, ttl_ms: int, receipt: bytes = b""
) -> Record:
    return next_version(
        record,
        now,
        status=status_after(record.status, RecordMove.COMMIT),
        holder=holder,
        token=token,
        lease_until=0,
        expires_at=now + ttl_ms,
        receipt=receipt,
    )


def retained_job(job: Job, now: int, *, keep_until: int, lease_until: int = 0) -> Job:
    """The job of a key whose window changed: maintenance must not end or delete it before its record.

    A job that is being prepared is due when the lease of its holder ends, so that whoever can prepare it finds it.
    """
    due_at = max(job.due_at, keep_until) if job.state in ENDED_STATES else lease_until or keep_until
    return next_version(job, now, keep_until=keep_until, due_at=due_at)


def commit_ended_job(record: Record, job: Job, now: int) -> Step[Replayed]:
    """The job was cancelled while its key was pending: the key is committed with that job."""
    done = committed_record(record, now, holder=record.holder, token=record.token, ttl_ms=record.ttl_ms)
    job = retained_job(job, now, keep_until=done.expires_at)
    return Step(Replayed(job, done.expires_at, now), (done, job))


class Submit(SubmissionCommand, frozen=True, gc=False, kw_only=True):
    """Reserve, create and commit in one step. The candidate job id is the holder."""

    callback: str = ""  # the URL to notify when the job has ended; empty: none
    precondition: Precondition | None = None  # None: the credential was checked before
    sites: SiteTargets | None = None  # the data centres to deliver it to; None: this ledger alone

    @property
    def footprint(self) -> Footprint:
        if not self.job_id:
            return replace(super().footprint, precondition=self.precondition)
        jobs: tuple[bytes, ...] = (self.job_id,)
        if self.callback:
            jobs += (callback_job_id(self.job_id),)
        if self.sites is not None:
            jobs += self.sites.delivery_job_ids(self.job_id)
        # By position: that is cheaper on the path of every submission.
        return Footprint(
            self.tenant, self.record_id, jobs, b"", self.usage_id, self.policy_id, True, False, self.precondition, b"", 0,
            self.settings,
        )  # fmt: skip

    def decide(self, facts: Facts, now: int) -> Step[Created | ExistingKeyReply]:
        record = facts.record
        if self.free_version is not None or self.external_job is not None:
            external = self.reply_for_external_job(facts, now)
            if external is not None:
                return external
        if record is None or not is_live(record, now):
            step = self._create(record, facts, now)
            return step if self.sites is None else self.sites.add_deliveries(self.fingerprint, step, now)
        reply = self.reply_for_existing_key(record, facts, now)
        if reply is None:
            return self._take_over_and_commit(record, facts, now)
        if type(reply) is Replayed and reply.job is not None and record.holder == self.job_id:
            return Step(Created(reply.job, record.expires_at, now))
        return Step(reply)

    def _create(self, old: Record | None, facts: Facts, now: int) -> Step[Created | ExistingKeyReply]:
        existing = facts.jobs.get(self.job_id)
        if existing is not None:
            # This command was executed before, and its record has been deleted since. The reply says that the window
            # is over, even if the clock was set back in between, so that no gate caches it.
            assert existing.key == self.key
            return Step(Created(existing, min(existing.keep_until, now - 1), now))
        if self.key_limit is not None and self.record_id and (refused := refuse_new_key(self.key_limit, now)):
            return Step(refused)
        charged = None if self.is_uncounted(facts) else self.charge(facts, self._quota_request(self.job_id), now)
        if isinstance(charged, Refused):
            return Step(charged)
        expires_at = now + self.ttl_ms if self.record_id else 0
        state = ready_state(self.run_at, now)
        puts: tuple[Fact, ...]
        if charged is None:
            job = new_job(self, self, state, now, keep_until=expires_at)
            reply, puts = Created(job, expires_at, now), (job,)
        else:
            job = new_job(self, self, state, now, keep_until=expires_at, usage_id=charged.usage.id)
            reply, puts = Created(job, expires_at, now, charged.warnings), (job, charged.usage)
        if self.record_id:
            record = self.new_record(old, _COMMITTED, now, holder=self.job_id, lease_until=0, expires_at=expires_at)
            puts = (record, *puts)
        if not self.callback:
            return Step(reply, puts, attachments=(self.input_attachment(),))
        callback, callback_input = callback_job(job, self.callback, now)
        return Step(reply, (*puts, callback), attachments=(self.input_attachment(), callback_input))

    def _take_over_and_commit(self, record: Record, facts: Facts, now: int) -> Step[Created | ExistingKeyReply]:
        """Take over a key whose lease has expired, and commit it with the job it has."""
        job = facts.jobs[record.job_id]
        if job.state in ENDED_STATES:
            return commit_ended_job(record, job, now)
        # The job keeps the estimate it was reserved with, and it was counted then.
        request = self._quota_request(job.id)._replace(cost=job.cost_held, is_new=False)
        charged = self.charge(facts, request, now)
        if isinstance(charged, Refused):
            return Step(charged)
        usages, warnings = ((), ()) if charged is None else ((charged.usage,), charged.warnings)
        committed = committed_record(record, now, holder=self.job_id, token=record.token + 1, ttl_ms=self.ttl_ms)
        usage_id = usages[0].id if usages else b""
        # Slot, cost and job belong to the user who took the key over.
        ready = readied_job(replace(job, user=self.user), now, keep_until=committed.expires_at, usage_id=usage_id)
        return Step(Created(ready, committed.expires_at, now, warnings), (committed, ready, *usages))

    def _quota_request(self, job_id: bytes) -> QuotaRequest:
        slot = self.reservation
        return QuotaRequest(cost=self.cost, reservation=slot, job_id=format_job_id(job_id), had_slot=bool(slot))


class StoreKey(CommandData, frozen=True, gc=False, kw_only=True):
    """Record a key for a job of another system; duplicates get that job's id. Repeating it with the same id succeeds.

    Without a fingerprint a duplicate is whatever has the key; with one, another submission under the key is a conflict.
    A key that was released, or whose lease ran out, is stored as if it were new.
    """

    record_id: bytes
    scope: str
    key: str
    external_id: str
    actor: str
    user: str
    ttl_ms: int
    key_limit: KeyLimit | None = None
    fingerprint: bytes = b""
    settings: bytes = b""  # of the ledger, that it was built under (ledger_settings.py)
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, self.record_id, follow_jobs=True, follow_usage=True, settings=self.settings)

    def decide(self, facts: Facts, now: int) -> Step[KeySettled | Refused]:
        record = facts.record
        if record is None or not is_known(record, now):
            external = ExternalJob(
                self.external_id, self.actor, self.user, self.ttl_ms, self.retention_ms, self.fingerprint
            )
            return store_external_job(self, external, facts, now)
        reason, message = Reason.IDEMPOTENCY_KEY_REUSED, ""
        if self.external_id not in (record.external_id, format_job_id(record.job_id) if record.job_ids else ""):
            message = "this key already names another job; use a new key"
        elif self.fingerprint and record.fingerprint not in (b"", self.fingerprint):
            message = "this key was used for another submission (its fingerprint differs); use a new key"
        elif record.status is IdempotencyStatus.PENDING:  # its holder may still reject or release it
            reason, message = Reason.IN_PROGRESS, "the key is held; store it when it is settled"
        return Step(Refused(reason, message, now) if message else KeySettled(record, facts.job, now))
