"""Sequenced clients: each number of a stream is executed once, whatever its key, and no number is skipped.

The record is checked first, so that a duplicate never advances the stream; then the number, against the last one. A used
number without its own record is a refusal: a caller whose submission was not executed must not read a success.
"""

from enum import StrEnum
from typing import ClassVar

from .command import CommandData, Facts, Footprint, Step
from .errors import Invalid
from .facts import (
    U64,
    Attachment,
    AttachmentKind,
    Fact,
    JobSpec,
    Record,
    Stream,
    is_live,
    new_job,
    next_version,
    split_job_ids,
)
from .quota import KeyLimit, QuotaRequest, charge, refuse_new_key
from .replies import (
    LimitName,
    LimitWarning,
    Maintained,
    Missing,
    Reason,
    Refused,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    StreamFound,
)
from .states import IdempotencyStatus
from .submit import ready_state

STREAM_IDLE_MS = 24 * 3600 * 1000  # after that only the high-water mark of a stream is kept
HIGH_WATER_MARK_TTL_MS = 400 * 24 * 3600 * 1000
SEQUENCE_MAX = 2**64 - 1

_NOT_THE_OWNER = "this client id belongs to another credential; choose another"
_ROTATE_CLIENT_ID = "was the last number of this client id; rotate the client id: go on under another one, with 1"


class SequencePosition(StrEnum):
    NEXT = "next"
    GAP = "gap"
    PAST = "past"


def checked_sequence(value: object) -> U64:
    if type(value) is not int or not 1 <= value <= SEQUENCE_MAX:
        message = (
            f"a sequence is a whole number from 1 to {SEQUENCE_MAX}, in plain digits; the first is 1, "
            "and after the last one rotate the client id"
        )
        raise Invalid("sequence", message)
    return U64(value)


def sequence_position(last: int, sequence: int) -> SequencePosition:
    if sequence == last + 1:
        return SequencePosition.NEXT
    return SequencePosition.GAP if sequence > last else SequencePosition.PAST


class StreamCommand(CommandData, frozen=True, gc=False, kw_only=True):
    stream_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, stream=self.stream_id)


class SubmitSequence(StreamCommand, frozen=True, gc=False, kw_only=True):
    """One number of a client's sequence: a job or a batch of jobs, all or nothing."""

    record_id: bytes
    scope: str
    client_id: str
    sequence: U64
    key: str
    fingerprint: bytes
    items: tuple[JobSpec, ...]
    actor: str
    user: str
    owner: str  # the credential; a client id belongs to the first one that used it
    ttl_ms: int
    usage_id: bytes = b""
    policy_id: bytes = b""
    key_limit: KeyLimit | None = None
    settings: bytes = b""  # of the ledger, that it was built under (ledger_settings.py)

    @property
    def payload_bytes(self) -> int:
        return sum(len(item.input) for item in self.items)

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            self.tenant,
            self.record_id,
            tuple(item.job_id for item in self.items),
            self.stream_id,
            self.usage_id,
            self.policy_id,
            follow_jobs=True,
            settings=self.settings,
        )

    def decide(self, facts: Facts, now: int) -> Step[SequenceCommitted | SequenceAlreadyCommitted | Refused]:
        stream = facts.stream
        if stream is not None and stream.owner != self.owner:
            return Step(Refused(Reason.NOT_THE_OWNER, _NOT_THE_OWNER, now))
        last = U64(0) if stream is None else stream.last
        if facts.record is not None and is_live(facts.record, now):
            return Step(self._reply_for_existing_key(facts.record, facts, last, now))
        match sequence_position(last, self.sequence):
            case SequencePosition.NEXT:
                return self._advance(facts, now)
            case SequencePosition.PAST:
                return Step(self._reply_for_used_number(facts, last, now))
            case SequencePosition.GAP:
                message = f"the last committed sequence is {last}; continue with {last + 1}"
                details: dict[str, int | str] = {"last_committed_sequence": last}
                return Step(Refused(Reason.SEQUENCE_GAP, message, now, details))

    def _reply_for_existing_key(
        self, record: Record, facts: Facts, last: U64, now: int
    ) -> SequenceCommitted | SequenceAlreadyCommitted | Refused:
        """A live key has its original reply and its original number."""
        if record.client_id != self.client_id or record.fingerprint != self.fingerprint:
            message = "this key was used for something else; use a new key for a new submission"
            # The number of another client is not disclosed.
            is_same_client = record.client_id == self.client_id
            details: dict[str, int | str] = {"assigned_sequence": record.sequence} if is_same_client else {}
            return Refused(Reason.IDEMPOTENCY_KEY_REUSED, message, now, details)
        jobs = tuple(facts.jobs[id] for id in split_job_ids(record.job_ids))
        if record.holder == self.items[0].job_id:
            return SequenceCommitted(jobs, record.sequence, record.expires_at, now)
        return SequenceAlreadyCommitted(jobs, record.sequence, last, record.expires_at, now)

    def _reply_for_used_number(self, facts: Facts, last: U64, now: int) -> SequenceCommitted | Refused:
        """The number was used, and its record is not this key's, or is gone."""
        jobs = tuple(facts.jobs[item.job_id] for item in self.items if item.job_id in facts.jobs)
        if len(jobs) == len(self.items):
            # This command was executed before, and its record has been deleted since (as in Submit).
            return SequenceCommitted(jobs, self.sequence, min(jobs[0].keep_until, now - 1), now)
        next_act = f"{last} {_ROTATE_CLIENT_ID}" if last == SEQUENCE_MAX else f"send a new submission as {last + 1}"
        message = (
            f"number {self.sequence} was executed before, under another key or under one whose window is over, "
            f"and nothing was executed now; {next_act}"
        )
        details: dict[str, int | str] = {"assigned_sequence": self.sequence, "last_committed_sequence": last}
        return Refused(Reason.ALREADY_COMMITTED, message, now, details)

    def _advance(self, facts: Facts, now: int) -> Step[SequenceCommitted | SequenceAlreadyCommitted | Refused]:
        if refused := refuse_new_key(self.key_limit, now):
            return Step(refused)
        request = QuotaRequest(jobs=len(self.items), cost=sum(item.cost for item in self.items))
        charged = charge(facts, request, now, tenant=self.tenant, user=self.user, usage_id=self.usage_id)
        if isinstance(charged, Refused):
            return Step(charged)
        expires_at = now + self.ttl_ms
        usage_id = b"" if charged is None else charged.usage.id
        jobs = tuple(
            new_job(item, self, ready_state(item.run_at, now), now, keep_until=expires_at, usage_id=usage_id)
            for item in self.items
        )
        puts: tuple[Fact, ...] = (
            self._new_record(facts.record, now, expires_at),
            *jobs,
            self._advanced_stream(facts.stream, now),
        )
        if charged is not None:
            puts = (*puts, charged.usage)
        warnings = () if charged is None else charged.warnings
        if self.sequence == SEQUENCE_MAX:
            warnings = (*warnings, LimitWarning(LimitName.SEQUENCE, f"{self.sequence} {_ROTATE_CLIENT_ID}"))
        inputs = tuple(Attachment(item.job_id, AttachmentKind.INPUT, U64(0), item.input) for item in self.items)
        return Step(SequenceCommitted(jobs, self.sequence, expires_at, now, warnings), puts, attachments=inputs)

    def _advanced_stream(self, old: Stream | None, now: int) -> Stream:
        if old is not None:
            return next_version(old, now, last=self.sequence, last_seen=now, expires_at=now + STREAM_IDLE_MS, evicted=0)
        return Stream(
            self.stream_id,
            self.tenant,
            self.scope,
            self.client_id,
            self.sequence,
            now,
            self.owner,
            now,
            now + STREAM_IDLE_MS,
        )

    def _new_record(self, old: Record | None, now: int, expires_at: int) -> Record:
        return Record(
            self.record_id,
            self.tenant,
            self.scope,
            self.key,
            IdempotencyStatus.COMMITTED,
            self.fingerprint,
            b"".join(item.job_id for item in self.items),
            holder=self.items[0].job_id,
            token=1,
            lease_until=0,
            created_at=now,
            changed_at=now,
            expires_at=expires_at,
            ttl_ms=self.ttl_ms,
            actor=self.actor,
            user=self.user,
            version=1 if old is None else old.version + 1,
            client_id=self.client_id,
            sequence=self.sequence,
        )


class LookUpStream(StreamCommand, frozen=True, gc=False, kw_only=True):
    """The last number of a client (GetClientState), for its owner or for a caller that may read all clients."""

    writes: ClassVar[bool] = False

    owner: str = ""  # the credential that asks; empty: it may read all clients

    def decide(self, facts: Facts, now: int) -> Step[StreamFound | Missing | Refused]:
        stream = facts.stream
        if stream is None:
            return Step(Missing(now))
        if self.owner and stream.owner != self.owner:
            return Step(Refused(Reason.NOT_THE_OWNER, _NOT_THE_OWNER, now))
        return Step(StreamFound(stream, now))


class Evict(StreamCommand, frozen=True, gc=False, kw_only=True):
    """Reduce an idle stream to its high-water mark; delete the mark after HIGH_WATER_MARK_TTL_MS."""

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        stream = facts.stream
        if stream is None or now <= stream.expires_at:
            return Step(Maintained(False, now))
        if stream.evicted:
            return Step(Maintained(True, now), drops=(stream,))
        return Step(
            Maintained(True, now), (next_version(stream, now, evicted=1, expires_at=now + HIGH_WATER_MARK_TTL_MS),)
        )
