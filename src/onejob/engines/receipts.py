"""The gate's memory: submissions in flight, and settled receipts for a while. It may forget, never invent."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from onejob.core.facts import Job
from onejob.core.replies import Created, Rejected, Replayed
from onejob.core.submit import SubmissionCommand, Submit
from onejob.settings import IdempotencyConfig

from .batcher import Pending, ReplyFuture, Result


class InFlightKey(NamedTuple):
    """Submissions that agree in all of these may share a reply."""

    tenant: str
    record_id: bytes
    fingerprint: bytes
    user: str


class InFlightSubmission(Pending):
    """A submission on its way to the engine, with the duplicates that wait for its reply."""

    __slots__ = ("followers", "key")
    command: Submit

    def __init__(
        self,
        key: InFlightKey,
        submit: Submit,
        future: ReplyFuture,
        on_reply: "Callable[[InFlightSubmission, Result], None]",
        sent_at: float,
    ) -> None:
        super().__init__(submit, future, on_reply, sent_at)
        self.key = key
        self.followers: list[Pending] = []


class CacheStats(Struct, frozen=True):
    total: int
    pending: int
    committed: int
    rejected: int
    waiters: int
    limit: int


class CachedReceipt(Struct, frozen=True):
    tenant: str
    fingerprint: bytes
    user: str
    valid_until: float  # on the monotonic clock
    reply: Replayed | Rejected
    holder: bytes  # the candidate that was answered "created", and is again; empty: not known

    def reply_to(self, command: SubmissionCommand) -> Created | Replayed | Rejected:
        reply = self.reply
        if isinstance(reply, Replayed) and reply.job and command.job_id in (self.holder, reply.job.id):
            return Created(reply.job, reply.expires_at, reply.at)
        return reply


class GateIdempotencyCache:
    """Submissions in flight are kept apart from receipts and never evicted; receipts leave by age and by disuse."""

    def __init__(self, config: IdempotencyConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._receipts: OrderedDict[bytes, CachedReceipt] = OrderedDict()
        self._rejected = 0
        self.in_flight: dict[InFlightKey, InFlightSubmission] = {}

    def recall(self, command: SubmissionCommand) -> Created | Replayed | Rejected | None:
        """The settled reply to this very submission. A mismatch is for the engine to decide."""
        known = self._receipts.get(command.record_id)
        if known is None:
            return None
        if self._monotonic() >= known.valid_until:
            self.forget(command.record_id)
            return None
        if known.fingerprint != command.fingerprint or known.user != command.user:
            return None
        if known.tenant != command.tenant:
            return None
        self._receipts.move_to_end(command.record_id)
        return known.reply_to(command)

    def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
        """Keep a settled receipt, for a life counted from before the command was sent.

        It ends no later than the record's own, so that no gate answers for a key that has expired.
        """
        rejected = isinstance(reply, Rejected)
        until = self.valid_until(reply, sent_at)
        holder = command.job_id if isinstance(reply, Created) else b""
        if isinstance(reply, Created):
            reply = Replayed(reply.job, reply.expires_at, reply.at)
        self.forget(command.record_id)
        self._receipts[command.record_id] = CachedReceipt(
            command.tenant, command.fingerprint, command.user, until, reply, holder
        )
        self._rejected += rejected
        if len(self._receipts) > self._config.max_entries:
            self.forget(next(iter(self._receipts)))

    def valid_until(self, reply: Created | Replayed | Rejected, sent_at: float) -> float:
        """Until when a reply may be given to other callers, on the monotonic clock."""
        config = self._config
        life = config.rejected_ttl_seconds if isinstance(reply, Rejected) else config.committed_ttl_seconds
        return sent_at + min(life, (reply.expires_at - reply.at) / 1000)

    def refresh(self, command: SubmissionCommand, job: Job) -> None:
        """Keep the newer state of a cached job, without extending the life of its receipt."""
        known = self._receipts.get(command.record_id)
        if known is None or not isinstance(known.reply, Replayed) or known.reply.job is None:
            return
        if known.reply.job is not job and known.reply.job.id == job.id:
            reply = replace(known.reply, job=job)
            self._receipts[command.record_id] = replace(known, reply=reply)

    def forget(self, record_id: bytes) -> None:
        known = self._receipts.pop(record_id, None)
        if known is not None and isinstance(known.reply, Rejected):
            self._rejected -= 1

    def clear(self) -> None:
        self._receipts.clear()
        self._rejected = 0

    def evict_expired(self) -> int:
        """Drop expired receipts; returns how many."""
        now = self._monotonic()
        old = [record_id for record_id, known in self._receipts.items() if now >= known.valid_until]
        for record_id in old:
            self.forget(record_id)
        return len(old)

    def stats(self, *, waiters: int) -> CacheStats:
        followers = sum(len(submission.followers) for submission in self.in_flight.values())
        return CacheStats(
            total=len(self._receipts) + len(self.in_flight),
            pending=len(self.in_flight),
            committed=len(self._receipts) - self._rejected,
            rejected=self._rejected,
            waiters=followers + waiters,
            limit=self._config.max_entries,
        )
