"""The gate: single-flight for duplicates, a cache of settled receipts, and waiting for pending keys.

It wraps an engine and implements `Engine`, but is never authoritative: it may forget everything at any time. Only durable
replies are shared, created and replayed. A refusal, a failure, a conflict or an in-progress is never passed on; each
caller asks the engine for itself.

    Submit ─ remembered, and its job cannot change ──────────────────────────── answered from memory
           ─ remembered ────────────────────── read the job (CoalescedReads) ── answered with its live state
           ─ in flight with the same fingerprint and user ── wait for the leader ── share its reply
           ─ new here ───────────────────────── batcher, engine ─────────────── remember what is settled
    InProgress ─ poll the key once for all its waiters (PendingKeyWaiters) ──── submit again
                 (also when the time is up: the reply then says what is left of the lease)
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from onejob.backoff import Backoff
from onejob.core.command import Command, Precondition, is_precondition_failure, is_settings_refusal, precondition_failed
from onejob.core.credentials import LookUpPolicy
from onejob.core.facts import CONFLICTS_MAX, Job, KeyConflict
from onejob.core.identity import tenant_prefix
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Forget, Purge, shorten_paths
from onejob.core.replies import (
    AnyReply,
    Conflict,
    Created,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Missing,
    PolicyFound,
    Refused,
    Rejected,
    Replayed,
    SequenceAlreadyCommitted,
    SequenceCommitted,
)
from onejob.core.reserve import Renew, Reserve, Settle
from onejob.core.sequence import SubmitSequence
from onejob.core.states import IMMUTABLE_STATES, IdempotencyStatus
from onejob.core.submit import SubmissionCommand, Submit
from onejob.engine import EngineInfo, OnSettled, OnTimeout, Page, Query
from onejob.errors import Unavailable, Unknown
from onejob.settings import IdempotencyConfig

from .batcher import (
    Batcher,
    OnCommit,
    Pending,
    QueueStats,
    ReplyFuture,
    Result,
    collect_results,
    complete_all,
    replies_or_raise,
)

# Tenant, record id, fingerprint and user: submissions that agree in all of these may share a reply. A plain tuple, because
# one is made for every submission.
InFlightKey = tuple[str, bytes, bytes, str]


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
        self.command = submit
        self.future = future
        self.on_reply = on_reply
        self.payload_bytes = 0
        self.sent_at = sent_at
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
    """The gate's memory: submissions in flight, and settled receipts for a while. It may forget, never invent.

    Submissions in flight are kept apart from receipts and never evicted; receipts leave by age and by disuse.
    """

    def __init__(self, config: IdempotencyConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._committed_seconds, self._rejected_seconds = config.committed_ttl_seconds, config.rejected_ttl_seconds
        self._receipts: OrderedDict[bytes, CachedReceipt] = OrderedDict()
        self._rejected = 0
        self._held_until: OrderedDict[bytes, float] = OrderedDict()  # leases by record id, on the monotonic clock
        self.in_flight: dict[InFlightKey, InFlightSubmission] = {}

    def recall(self, command: SubmissionCommand) -> Created | Replayed | Rejected | None:
        """The settled reply to this very submission. A mismatch is for the engine to decide."""
        if command.record_id not in self._receipts:
            return None
        known = self._find_receipt(command)
        return None if known is None else known.reply_to(command)

    def recall_for_duplicate(self, command: SubmissionCommand) -> Replayed | Rejected | None:
        """The settled reply to another submission of the same content, which did not create the job."""
        known = self._find_receipt(command)
        return None if known is None else known.reply

    def _find_receipt(self, command: SubmissionCommand) -> CachedReceipt | None:
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
        return known

    def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
        """Keep a settled receipt, for a life counted from before the command was sent.

        It ends no later than the record's own, so that no gate answers for a key that has expired.
        """
        receipts, record_id, until, holder = self._receipts, command.record_id, self.valid_until(reply, sent_at), b""
        if isinstance(reply, Created):
            reply, holder = Replayed(reply.job, reply.expires_at, reply.at), command.job_id
        elif isinstance(reply, Rejected):
            self._rejected += 1
        if record_id in receipts:
            self.forget(record_id)
        receipts[record_id] = CachedReceipt(command.tenant, command.fingerprint, command.user, until, reply, holder)
        if len(receipts) > self._config.max_entries:
            self.forget(next(iter(receipts)))

    def limit_lifetimes(self, *, committed_seconds: float, rejected_seconds: float) -> None:
        """Remember no receipt for longer than the settings of the ledger allow."""
        self._committed_seconds = min(self._config.committed_ttl_seconds, committed_seconds)
        self._rejected_seconds = min(self._config.rejected_ttl_seconds, rejected_seconds)

    def valid_until(self, reply: Created | Replayed | Rejected, sent_at: float) -> float:
        """Until when a reply may be given to other callers, on the monotonic clock."""
        life = self._rejected_seconds if isinstance(reply, Rejected) else self._committed_seconds
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

    def note_held(self, record_id: bytes, until: float) -> None:
        """Count a key that a caller of this process holds under a lease; only the count is taken from this."""
        self._held_until[record_id] = until
        self._held_until.move_to_end(record_id)
        if len(self._held_until) > self._config.max_entries:
            self._held_until.popitem(last=False)

    def note_settled(self, record_id: bytes) -> None:
        self._held_until.pop(record_id, None)

    def clear(self) -> None:
        self._receipts.clear()
        self._held_until.clear()
        self._rejected = 0

    def evict_expired(self) -> int:
        """Drop expired receipts; returns how many."""
        now = self._monotonic()
        old = [record_id for record_id, known in self._receipts.items() if now >= known.valid_until]
        for record_id in old:
            self.forget(record_id)
        self._drop_lapsed_leases(now)
        return len(old)

    def _drop_lapsed_leases(self, now: float) -> None:
        for record_id in [record_id for record_id, until in self._held_until.items() if now >= until]:
            del self._held_until[record_id]

    def stats(self, *, waiters: int) -> CacheStats:
        followers = sum(len(submission.followers) for submission in self.in_flight.values())
        self._drop_lapsed_leases(self._monotonic())
        pending = len(self.in_flight) + len(self._held_until)
        return CacheStats(
            total=len(self._receipts) + pending,
            pending=pending,
            committed=len(self._receipts) - self._rejected,
            rejected=self._rejected,
            waiters=followers + waiters,
            limit=self._config.max_entries,
        )


TENANTS_MAX = 10_000

OUTCOME_NAMES: Mapping[type[Any], str] = {
    Created: "created",
    SequenceCommitted: "created",
    SequenceAlreadyCommitted: "replayed",
    KeyHeld: "reserved",
    Replayed: "replayed",
    InProgress: "in_progress",
    Conflict: "conflict",
    Rejected: "rejected",
    Refused: "refused",
}


class OutcomeCounter:
    """Submissions by outcome since the start. Beyond TENANTS_MAX the oldest tenants are evicted and start from zero."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, int]] = {}
        self._evicted: Counter[str] = Counter()  # the sums of evicted tenants

    def count(self, tenant: str, outcome: str) -> None:
        own = self._tenants.get(tenant)
        if own is None:
            own = self._add_tenant(tenant)
        own[outcome] = own.get(outcome, 0) + 1

    def for_tenant(self, tenant: str) -> Mapping[str, int]:
        return self._tenants.get(tenant, {})

    def tenants(self) -> Sequence[str]:
        return tuple(self._tenants)

    def total(self) -> Mapping[str, int]:
        """Summed on demand, so that counting costs one dictionary lookup."""
        total = Counter(self._evicted)
        for own in self._tenants.values():
            total.update(own)
        return total

    def _add_tenant(self, tenant: str) -> dict[str, int]:
        if len(self._tenants) >= TENANTS_MAX:
            self._evicted.update(self._tenants.pop(next(iter(self._tenants))))
        self._tenants[tenant] = {}
        return self._tenants[tenant]


HIT_RECORDS_MAX = 10_000


class HitCounter:
    """Hits and conflicts per record since the last flush, of at most HIT_RECORDS_MAX records; details of the last conflicts.

    Counting a hit durably would turn a read into a write, so hits are flushed lazily; a crash may lose some.
    """

    def __init__(self) -> None:
        self._by_record: dict[bytes, _RecordHits] = {}

    def count(self, tenant: str, record_id: bytes, conflict: KeyConflict | None = None) -> None:
        known = self._by_record.get(record_id)
        if known is None:
            if len(self._by_record) >= HIT_RECORDS_MAX:
                return
            known = self._by_record[record_id] = _RecordHits(tenant)
        if conflict is None:
            known.hits += 1
        else:
            known.conflicts += 1
            known.recent_conflicts = [*known.recent_conflicts, conflict][-CONFLICTS_MAX:]

    def add_paths(self, record_id: bytes, conflict: KeyConflict, paths: Iterable[str]) -> None:
        """Add where the bodies differ, which takes a read to find out, to a conflict that was counted."""
        known = self._by_record.get(record_id)
        if known is not None and conflict in known.recent_conflicts:
            described = list(known.recent_conflicts)
            described[described.index(conflict)] = replace(conflict, paths=shorten_paths(paths))
            known.recent_conflicts = described

    def take(self, *record_ids: bytes) -> list[CountHits]:
        """The counts since the last call, of these records or of all."""
        if record_ids:
            taken = {id: self._by_record.pop(id) for id in record_ids if id in self._by_record}
        else:
            taken, self._by_record = self._by_record, {}
        return [
            CountHits(
                tenant=counted.tenant,
                record_id=id,
                hits=counted.hits,
                conflicts=counted.conflicts,
                recent_conflicts=tuple(counted.recent_conflicts),
            )
            for id, counted in taken.items()
        ]


class _RecordHits:
    __slots__ = ("conflicts", "hits", "recent_conflicts", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.hits = 0
        self.conflicts = 0
        self.recent_conflicts: Sequence[KeyConflict] = ()  # most records never have one


T = TypeVar("T")
# Makes a submission ready to be sent again after a wait: what was looked up before may have changed meanwhile.
OnResend = Callable[[Any], Awaitable[Command[Any]]]

CACHED_RECEIPT_BYTES_MAX = 1024
POLL_SECONDS_FIRST = 0.02
POLL_SECONDS_MAX = 0.5
_HIT_OUTCOMES = ("replayed", "rejected", "conflict")


class _PendingElsewhere:
    """What a follower is told when the leader was told in-progress: wait for the key, then ask."""


def _do_nothing() -> None:
    return None


_HELD_BY_OTHERS: Any = _PendingElsewhere()
_PENDING_RESULTS = (InProgress, _PendingElsewhere)


class Gate:
    def __init__(self, batcher: Batcher, config: IdempotencyConfig, monotonic: Callable[[], float]) -> None:
        self._batcher = batcher
        self._config = config
        self._monotonic = monotonic
        self._pending_waiters = PendingKeyWaiters(batcher)
        self._follower_count = 0  # of all submissions in flight
        self._reads = CoalescedReads(batcher)
        self.cache = GateIdempotencyCache(config, monotonic)
        self.outcomes = OutcomeCounter()
        self.hits = HitCounter()
        self.refusals: Counter[str] = Counter()  # by reason
        self.on_settings_changed: Callable[[], None] = (
            _do_nothing  # called when a submission was built under older ones
        )
        # What is done with a command before it is sent; all others are sent as they are.
        self._senders: dict[type[Any], Callable[[Any, ReplyFuture], None]] = {
            Submit: self._submit,
            Reserve: self._reserve,
            Renew: self._send_renew,
            LookUpPolicy: self._send_lookup,
            LookUpJob: self._send_lookup,
            Settle: self._change_key,
            Forget: self._change_key,
            Purge: self._change_key,
        }

    @property
    def info(self) -> EngineInfo:
        return self._batcher.info

    async def execute(
        self, commands: Sequence[Command[Any]], /, *, on_timeout: OnTimeout | None = None
    ) -> Sequence[AnyReply]:
        return replies_or_raise(await self.execute_each(commands))

    async def execute_each(
        self, commands: Sequence[Command[Any]], *, on_resend: OnResend | None = None
    ) -> list[AnyReply | BaseException]:
        """Each command's reply or its own failure. `on_resend` is called with a submission before it is sent again."""
        if len(commands) == 1:
            return [await self.execute_one(commands[0], on_resend=on_resend)]
        results = await collect_results([self._dispatch(command) for command in commands])
        pending: list[int] = []
        for n, command in enumerate(commands):
            if type(results[n]) in _PENDING_RESULTS and isinstance(command, SubmissionCommand):
                pending.append(n)
        if pending and self._config.wait_for_pending:
            waits = (self._wait_while_pending(commands[n], results[n], on_resend) for n in pending)
            for n, result in zip(pending, await asyncio.gather(*waits, return_exceptions=True), strict=True):
                results[n] = result
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, (SubmissionCommand, SubmitSequence)):
                self._count_outcome(command, result)
        return results

    async def execute_one(
        self, command: Command[Any], *, on_resend: OnResend | None = None
    ) -> AnyReply | BaseException:
        """`execute_each` for a single command."""
        result: AnyReply | BaseException
        future: ReplyFuture = asyncio.get_running_loop().create_future()
        try:
            send = self._senders.get(type(command)) or self._send
            send(command, future)
            result = await future
        except Exception as error:  # noqa: BLE001 - it is the result
            result = error
        if isinstance(command, SubmissionCommand):
            if type(result) in _PENDING_RESULTS and self._config.wait_for_pending:
                result = await self._wait_while_pending(command, result, on_resend)
            self._count_outcome(command, result)
        elif isinstance(command, SubmitSequence):
            self._count_outcome(command, result)
        return result

    def replay_now(self, submit: Submit) -> Replayed | None:
        """The reply to a duplicate of this submission, if it can be given at once; None: execute the duplicate.

        A fast path for servers, whose duplicates would wait for a batch of reads: a future, a task and a loop iteration
        for each. Because equal reads of an iteration are shared, it answers requests that arrived before the iteration
        began (`CoalescedReads.read_now`), not a caller that may ask twice in it. The plain twin is `execute_one`.
        Equivalence: test_a_duplicate_is_answered_at_once_as_by_a_batch.
        """
        known = self.cache.recall_for_duplicate(submit)
        if type(known) is not Replayed or known.job is None:
            return None
        if known.job.state not in IMMUTABLE_STATES:
            replies = self._reads.read_now((LookUpJob(tenant=submit.tenant, job_id=known.job.id),))
            found = None if replies is None else replies[0]
            if not isinstance(found, Found) or found.job is None:
                return None
            self.cache.refresh(submit, found.job)
            known = replace(known, job=found.job, at=found.at)
        self._count_outcome(submit, known)
        return known

    def dispatch(self, command: Command[Any]) -> ReplyFuture:
        """The future reply to one command that is not a submission."""
        assert not isinstance(command, SubmissionCommand)
        return self._dispatch(command)

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._batcher.scan(query)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        await self._batcher.barrier(tenant, user)

    def read_now(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply] | None:
        return self._reads.read_now(commands)

    def subscribe(self, on_settled: OnSettled, /) -> None:
        self._batcher.subscribe(on_settled)

    def add_commit_listener(self, listener: OnCommit, reply_types: Iterable[type[Any]] = ()) -> None:
        self._batcher.add_commit_listener(listener, reply_types)

    def release_waiters(self) -> None:
        """From now on no caller waits for another caller's submission; those that do get in-progress."""
        self._pending_waiters.close()

    async def aclose(self) -> None:
        self._pending_waiters.close()
        await self._batcher.aclose()
        self.cache.clear()

    def stats(self) -> CacheStats:
        return self.cache.stats(waiters=self._pending_waiters.waiters)

    def count_waiters(self, tenant: str) -> int:
        """How many callers of a tenant wait for another caller's submission."""
        in_flight = self.cache.in_flight.items()
        followers = sum(len(submission.followers) for (owner, *_), submission in in_flight if owner == tenant)
        return followers + self._pending_waiters.count_waiters(tenant_prefix(tenant))

    def queue_stats(self) -> dict[str, QueueStats]:
        return self._batcher.queue_stats()

    @property
    def last_error(self) -> Exception | None:
        """The error of the last batch of writes; None when it succeeded."""
        return self._batcher.last_error

    def _dispatch(self, command: Command[Any]) -> ReplyFuture:
        future: ReplyFuture = asyncio.get_running_loop().create_future()
        send = self._senders.get(type(command)) or self._send
        send(command, future)
        return future

    def _send(self, command: Command[Any], future: ReplyFuture) -> None:
        self._batcher.enqueue(Pending(command, future))

    def _send_renew(self, renew: Renew, future: ReplyFuture) -> None:
        self._batcher.enqueue(Pending(renew, future, self._on_lease_reply, self._monotonic()))

    def _send_lookup(self, lookup: LookUpPolicy | LookUpJob, future: ReplyFuture) -> None:
        self._reads.enqueue(Pending(lookup, future))

    def _submit(self, submit: Submit, future: ReplyFuture) -> None:
        if not submit.record_id:
            self._send(submit, future)
            return
        known = self.cache.recall(submit)
        # What is remembered of a key without a job does not answer a submission that wants one: the engine decides.
        if known is not None and not is_replay_without_job(known):
            self._replay(submit, known, future)
            return
        key = (submit.tenant, submit.record_id, submit.fingerprint, submit.user)
        if self._pending_waiters.waiters and self._config.wait_for_pending and self._pending_waiters.is_awaited(key):
            Pending(submit, future).resolve(_HELD_BY_OTHERS)  # an equal one was told in-progress, and the key is polled
            return
        leader = self.cache.in_flight.get(key)
        if leader is None:
            leader = InFlightSubmission(key, submit, future, self._on_leader_reply, self._monotonic())
            self.cache.in_flight[key] = leader
            self._batcher.enqueue(leader)
        elif submit.precondition is None:
            follower = Pending(submit, future, self._on_submit_reply, self._monotonic())
            if self._has_room_for_waiter():
                leader.followers.append(follower)
                self._follower_count += 1
            else:
                self._batcher.enqueue(follower)  # its queue is bounded too
        else:
            self._verify_precondition(submit, submit.precondition, future)

    def _on_leader_reply(self, leader: InFlightSubmission, result: Result) -> None:
        del self.cache.in_flight[leader.key]
        self._follower_count -= len(leader.followers)
        self._on_submit_reply(leader, result)
        if leader.followers:
            self._answer_followers(leader, result)

    def _answer_followers(self, leader: InFlightSubmission, result: Result) -> None:
        for follower in leader.followers:
            if follower.future.done():
                continue
            if type(result) is InProgress and self._config.wait_for_pending:
                follower.future.set_result(_HELD_BY_OTHERS)
                continue
            shared = shareable_reply(result, leader, follower)
            # Shared only while the receipt is valid, and no longer than a gate remembers: `forget` relies on that.
            if shared is None or follower.sent_at >= self.cache.valid_until(shared, leader.sent_at):
                self._ask_engine(follower)
            else:
                follower.resolve(shared)

    def _ask_engine(self, pending: Pending) -> None:
        pending.sent_at = self._monotonic()
        self._batcher.enqueue(pending)

    def _on_submit_reply(self, pending: Pending, result: Result) -> None:
        if isinstance(result, (Created, Replayed, Rejected)):
            assert isinstance(pending.command, SubmissionCommand)
            self.cache.remember(pending.command, result, pending.sent_at)
        pending.resolve(result)

    def _replay(self, submit: Submit, known: Created | Replayed | Rejected, future: ReplyFuture) -> None:
        """Answer from memory what cannot change any more; otherwise read the state of the job first."""
        # A submission may always get its own "created" again.
        precondition = None if type(known) is Created else submit.precondition
        if isinstance(known, Rejected) or known.job is None or known.job.state in IMMUTABLE_STATES:
            if precondition is None:
                future.set_result(known)
            else:
                self._verify_precondition(submit, precondition, future)
        elif precondition is None:
            lookup = LookUpJob(tenant=submit.tenant, job_id=known.job.id)
            self._reads.enqueue(Pending(lookup, future, partial(self._on_job_read, submit, known)))
        else:
            self._replay_verified(submit, known, precondition, future)

    def _replay_verified(
        self, submit: Submit, known: Created | Replayed, precondition: Precondition, future: ReplyFuture
    ) -> None:
        """Read the credential and the job in one batch: one after the other they would be two round trips."""
        assert known.job is not None
        results: dict[type[Any], Result] = {}

        def on_reply(pending: Pending, result: Result) -> None:
            results[type(pending.command)] = result
            if len(results) < 2:
                return
            failure = precondition_failure(precondition, results[LookUpPolicy])
            if failure is None:
                self._on_job_read(submit, known, pending, results[LookUpJob])
            else:
                pending.resolve(failure)

        for lookup in (
            LookUpPolicy(tenant=submit.tenant, policy_id=precondition.policy_id),
            LookUpJob(tenant=submit.tenant, job_id=known.job.id),
        ):
            self._reads.enqueue(Pending(lookup, future, on_reply))

    def _on_job_read(self, submit: Submit, known: Created | Replayed, pending: Pending, result: Result) -> None:
        match result:
            case Found(None, Job() as job, at):
                self.cache.refresh(submit, job)
                pending.resolve(replace(known, job=job, at=at))
            case Exception():
                pending.resolve(result)
            case _:
                # The job is gone and so is its record: the cached receipt was stale.
                self.cache.forget(submit.record_id)
                self._ask_engine(Pending(submit, pending.future, self._on_submit_reply))

    def _verify_precondition(self, submit: Submit, precondition: Precondition, future: ReplyFuture) -> None:
        """The engine checks preconditions only of commands it executes: check this one before answering from memory."""
        lookup = LookUpPolicy(tenant=submit.tenant, policy_id=precondition.policy_id)
        self._reads.enqueue(Pending(lookup, future, partial(self._on_policy_read, submit, precondition)))

    def _on_policy_read(self, submit: Submit, precondition: Precondition, pending: Pending, result: Result) -> None:
        failure = precondition_failure(precondition, result)
        if failure is None:
            self._submit(replace(submit, precondition=None), pending.future)
        else:
            pending.resolve(failure)

    def _reserve(self, reserve: Reserve, future: ReplyFuture) -> None:
        """Of a key without a job, what it was settled with cannot change, and is remembered unless it is large."""
        known = None if reserve.job_id else self.cache.recall(reserve)
        if known is not None and is_replay_without_job(known):
            future.set_result(known)
            return
        self._batcher.enqueue(Pending(reserve, future, self._on_lease_reply, self._monotonic()))

    def _on_lease_reply(self, pending: Pending, result: Result) -> None:
        command = pending.command
        assert isinstance(command, (Reserve, Renew))
        if isinstance(result, KeyHeld):
            self.cache.note_held(command.record_id, pending.sent_at + (result.lease_until - result.at) / 1000)
        elif isinstance(command, Renew):
            if isinstance(result, Refused):
                self.cache.note_settled(command.record_id)
        elif not command.job_id and is_replay_without_job(result) and len(result.receipt) <= CACHED_RECEIPT_BYTES_MAX:
            self.cache.remember(command, result, pending.sent_at)
        pending.resolve(result)

    def _change_key(self, command: Settle | Forget | Purge, future: ReplyFuture) -> None:
        """A key is changed through this gate: forget its receipt, and wake its waiters."""
        self.cache.forget(command.record_id)
        self._batcher.enqueue(Pending(command, future, self._on_key_changed))

    def _on_key_changed(self, pending: Pending, result: Result) -> None:
        command = pending.command
        assert isinstance(command, (Settle, Forget, Purge))
        # Once more, since another reply for this key may have been remembered in between.
        self.cache.forget(command.record_id)
        if isinstance(result, KeySettled):
            self.cache.note_settled(command.record_id)
        self._pending_waiters.wake(command.record_id)
        pending.resolve(result)

    async def _wait_while_pending(
        self, command: Command[Any], reply: AnyReply | BaseException, on_resend: OnResend | None
    ) -> AnyReply | BaseException:
        """Wait until the key is settled or time is up, then submit again: the reply is of now. A pending key is never free."""
        assert isinstance(command, SubmissionCommand)
        if isinstance(command, Reserve) and not command.wait_if_held:
            return reply
        self._batcher.subscribe(self._pending_waiters.wake)
        deadline = self._monotonic() + self._config.pending_wait_timeout
        in_progress: InProgress | None = None
        while type(reply) in _PENDING_RESULTS:
            in_progress = reply if isinstance(reply, InProgress) else in_progress
            left = deadline - self._monotonic()
            if left <= 0 or self._pending_waiters.is_closed or not self._has_room_for_waiter():
                break
            await self._pending_waiters.wait_until_settled(command, left)
            reply = await self._send_again(command, on_resend, self._dispatch)
        if reply is _HELD_BY_OTHERS:  # in-progress is answered only to callers that asked for it
            reply = await self._send_again(command, on_resend, self._ask_engine_now)
        return self._keep_in_progress(in_progress, reply)

    async def _send_again(
        self,
        command: Command[Any],
        on_resend: OnResend | None,
        send: Callable[[Command[Any]], ReplyFuture],
    ) -> AnyReply | BaseException:
        try:
            if on_resend is not None:
                command = await on_resend(command)
        except Exception as error:  # noqa: BLE001 - it is the result, and nothing is sent
            return error
        (reply,) = await collect_results([send(command)])
        return reply

    def _ask_engine_now(self, command: Command[Any]) -> ReplyFuture:
        asked: ReplyFuture = asyncio.get_running_loop().create_future()
        self._ask_engine(Pending(command, asked, self._on_submit_reply))
        return asked

    def _keep_in_progress(
        self, in_progress: InProgress | None, last: AnyReply | BaseException
    ) -> AnyReply | BaseException:
        """The last reply, unless it says that nothing was done.

        A reserve whose reply is lost is repeated. If its lease has expired by then, and another caller has taken the key
        over, the answer is in-progress although the reserve was executed.
        """
        return in_progress if in_progress is not None and isinstance(last, Unavailable) else last

    def _has_room_for_waiter(self) -> bool:
        return self._follower_count + self._pending_waiters.waiters < self._config.max_waiters

    def _count_outcome(self, command: SubmissionCommand | SubmitSequence, result: AnyReply | BaseException) -> None:
        outcome = OUTCOME_NAMES.get(type(result), "failed")
        if isinstance(result, Refused):
            if is_precondition_failure(result):
                if is_settings_refusal(result):
                    self.on_settings_changed()
                return  # the submission itself was not decided
            self.refusals[result.reason] += 1
        self.outcomes.count(command.tenant, outcome)
        if command.record_id and outcome in _HIT_OUTCOMES:
            conflict = KeyConflict(result.at, command.actor) if isinstance(result, Conflict) else None
            self.hits.count(command.tenant, command.record_id, conflict)


def shareable_reply(result: Result, leader: Pending, follower: Pending) -> Created | Replayed | None:
    """What a follower may be answered with: created and replayed, nothing else."""
    if not isinstance(result, (Created, Replayed)):
        return None
    assert isinstance(leader.command, Submit)
    assert isinstance(follower.command, Submit)
    # The same candidate id is the same submission: it gets "created", however it joined.
    if result.job is not None and follower.command.job_id == result.job.id:
        return Created(result.job, result.expires_at, result.at)
    if isinstance(result, Replayed) or follower.command.job_id == leader.command.job_id:
        return result
    return Replayed(result.job, result.expires_at, result.at)


def is_replay_without_job(result: Result) -> TypeGuard[Replayed]:
    """True for the settled reply of a key that has no job, as middleware keeps it."""
    return isinstance(result, Replayed) and result.job is None and not result.external_id


def precondition_failure(precondition: Precondition, result: Result) -> Result | None:
    """The reply to a submission whose precondition was read with this result; None: it is met."""
    if isinstance(result, PolicyFound) and precondition.is_met(result.policy, result.at):
        return None
    return precondition_failed(result.at) if isinstance(result, (PolicyFound, Missing)) else result


class _SharedRead(Pending):
    """A point read in the queue, and all callers that asked for it before it was sent."""

    __slots__ = ("callers",)

    def __init__(self, first: Pending, on_reply: "Callable[[_SharedRead, Result], None]") -> None:
        super().__init__(first.command, first.future, on_reply)
        self.callers = [first]


class CoalescedReads:
    """Equal point reads that wait for the same batch are executed once.

    A read is sent after the last of its callers asked, so that each gets a value that was read after its call. An engine that
    answers point reads without waiting is asked at the end of the loop iteration, without a batch and its task.
    """

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._waiting: dict[Command[Any], _SharedRead] = {}
        self._batches_seen = 0
        self._reads_at_once = batcher.info.synchronous_reads
        self._replies_this_iteration: dict[Command[Any], AnyReply] = {}

    def enqueue(self, pending: Pending) -> None:
        command = pending.command
        assert not command.writes
        if self._batches_seen != self._batcher.read_batches and not self._reads_at_once:
            self._batches_seen = self._batcher.read_batches
            self._waiting.clear()  # those were sent: they cannot be joined any more
        shared = self._waiting.get(command)
        if shared is not None:
            shared.callers.append(pending)
            return
        self._waiting[command] = shared = _SharedRead(pending, self._on_reply)
        if not self._reads_at_once:
            self._batcher.enqueue(shared)
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._read_waiting)

    def _read_waiting(self) -> None:
        shared_reads = list(self._waiting.values())
        self._waiting.clear()  # what is asked from now on is read later
        try:
            replies = self._batcher.read_now([shared.command for shared in shared_reads])
        except Exception:  # noqa: BLE001 - a batch meets it again, and reports it
            replies = None
        if replies is not None:
            complete_all(shared_reads, replies)
            return
        for shared in shared_reads:
            self._batcher.enqueue(shared)

    def read_now(self, commands: Sequence[Command[Any]]) -> Sequence[AnyReply] | None:
        """The replies without waiting, or None; an equal read is executed once per loop iteration.

        A caller of this iteration asked before it began or in it, so the reply is never older than the question. The
        next iteration forgets it before a later caller can ask.
        """
        if len(commands) != 1:
            return self._batcher.read_now(commands)
        (command,) = commands
        reply = self._replies_this_iteration.get(command)
        if reply is not None:
            return (reply,)
        replies = self._batcher.read_now(commands)
        if replies is not None:
            if not self._replies_this_iteration:
                asyncio.get_running_loop().call_soon(self._replies_this_iteration.clear)
            self._replies_this_iteration[command] = replies[0]
        return replies

    def _on_reply(self, shared: _SharedRead, result: Result) -> None:
        if self._waiting.get(shared.command) is shared:
            del self._waiting[shared.command]  # it may have been refused, and never sent
        first, *others = shared.callers
        first.complete(result)
        for pending in others:
            # A failure is never shared: each caller asks for itself.
            if isinstance(result, Exception):
                self._batcher.enqueue(pending)
            else:
                pending.complete(result)


class _Poll:
    __slots__ = ("awaited", "event", "task", "waiters")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.awaited: set[InFlightKey] = set()
        self.waiters = 0
        self.task: asyncio.Task[None] | None = None


class PendingKeyWaiters:
    """Callers that wait for a pending key: each key is polled once for all of them, and settling it here wakes them."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._polls: dict[bytes, _Poll] = {}
        self.is_closed = False
        self.waiters = 0  # of all polls

    def count_waiters(self, id_prefix: bytes) -> int:
        """The waiters for records whose ids begin with this."""
        return sum(poll.waiters for id, poll in self._polls.items() if id.startswith(id_prefix))

    async def wait_until_settled(self, command: SubmissionCommand, timeout: float) -> None:
        """Wait until the key is no longer held, or time is up."""
        poll = self._polls.get(command.record_id)
        if poll is None:
            poll = self._polls[command.record_id] = _Poll()
            lookup = LookUpKey(tenant=command.tenant, record_id=command.record_id)
            poll.task = asyncio.get_running_loop().create_task(self._poll_until_settled(lookup, poll))
        poll.awaited.add((command.tenant, command.record_id, command.fingerprint, command.user))
        poll.waiters += 1
        self.waiters += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await poll.event.wait()
        finally:
            poll.waiters -= 1
            self.waiters -= 1
            if not poll.waiters:
                self._stop_poll(command.record_id, poll)

    def is_awaited(self, key: InFlightKey) -> bool:
        """True if an equal submission waits: it was told in-progress, and the key is known to be held since."""
        _, record_id, *_ = key
        poll = self._polls.get(record_id)
        return poll is not None and key in poll.awaited

    def wake(self, record_id: bytes) -> None:
        poll = self._polls.get(record_id)
        if poll is not None:
            self._stop_poll(record_id, poll)

    def close(self) -> None:
        self.is_closed = True
        for record_id, poll in list(self._polls.items()):
            self._stop_poll(record_id, poll)

    def _stop_poll(self, record_id: bytes, poll: _Poll) -> None:
        """Wake the waiters; a caller that comes later starts a poll of its own."""
        poll.event.set()
        if poll.task is not None:
            poll.task.cancel()
        if self._polls.get(record_id) is poll:
            del self._polls[record_id]

    async def _poll_until_settled(self, lookup: LookUpKey, poll: _Poll) -> None:
        backoff = Backoff(POLL_SECONDS_FIRST, POLL_SECONDS_MAX)
        while True:
            await asyncio.sleep(next(backoff))
            try:
                (reply,) = await self._batcher.execute([lookup])
            except (Unavailable, Unknown):
                continue  # a failed read does not mean that the key is settled
            if not (isinstance(reply, Found) and _is_held(reply)):
                self._stop_poll(lookup.record_id, poll)
                return


def _is_held(found: Found) -> bool:
    record = found.record
    return record is not None and record.status is IdempotencyStatus.PENDING and found.at <= record.lease_until
