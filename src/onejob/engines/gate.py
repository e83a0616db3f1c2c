"""The fast, forgetful front: duplicates in flight share one question, settled receipts are remembered.

It is an engine in front of an engine and never an authority. Only durable answers are shared: created and
replayed. A refusal, a failure, a conflict, an in-progress is never passed on; each caller asks for itself.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.core.arrival import SubmissionCommand
from onejob.core.facts import Job
from onejob.core.identity import tenant_prefix
from onejob.core.lookup import LookUpJob
from onejob.core.policy import LookUpPolicy
from onejob.core.receipt import (
    AnyReply,
    Created,
    Found,
    InProgress,
    Missing,
    PolicyFound,
    Refused,
    Rejected,
    Replayed,
)
from onejob.core.reservation import Reserve, Settle
from onejob.core.sequence import SubmitSequence
from onejob.core.states import IMMUTABLE_STATES
from onejob.core.step import Command, Precondition, is_precondition_failure, precondition_failed
from onejob.core.submission import Submit
from onejob.core.upkeep import Forget, Purge
from onejob.engine import Durability, Page, Query
from onejob.settings import IdempotencyConfig

from .awaited import PendingKeyWaiters
from .cache import CacheStats, GateIdempotencyCache, InFlightKey
from .combine import Batcher, deliver_to
from .flights import Completion, InFlightCaller, is_replay_without_job, shareable_reply
from .hits import HitCounter
from .looks import CoalescedReads
from .outcomes import OUTCOME_NAMES, OutcomeCounter
from .queues import Deliver, QueueStats
from .replies import collect_results, replies_or_raise

T = TypeVar("T")
ReplyFuture = asyncio.Future[AnyReply]

CACHED_RECEIPT_BYTES_MAX = 1024
_HIT_OUTCOMES = ("replayed", "rejected", "conflict")


class Gate:
    def __init__(self, inner: Batcher, config: IdempotencyConfig, monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._config = config
        self._monotonic = monotonic
        self._pending_waiters = PendingKeyWaiters(inner)
        self._coalesced_reads = CoalescedReads(inner)
        self.cache: GateIdempotencyCache[InFlightCaller] = GateIdempotencyCache(config, monotonic)
        self.outcomes = OutcomeCounter()
        self.hits = HitCounter()
        self.refusals: Counter[str] = Counter()  # by reason

    @property
    def durability(self) -> Durability:
        return self._inner.durability

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        return replies_or_raise(await self.execute_each(commands))

    def dispatch(self, command: Command[Any]) -> ReplyFuture:
        """The reply to one command that is no submission; most questions are one."""
        assert not isinstance(command, SubmissionCommand)
        return self._dispatch(command)

    @property
    def reads_are_synchronous(self) -> bool:
        """Whether the engine answers point reads without waiting."""
        return self._inner.reads_are_synchronous

    def read_now(self, lookup: LookUpPolicy) -> AnyReply | None:
        """The reply without waiting, where the engine has it at hand; None: ask for it."""
        return self._coalesced_reads.read_now(lookup)

    async def execute_each(self, commands: Sequence[Command[Any]]) -> list[AnyReply | BaseException]:
        """Each command's reply or its own failure."""
        if len(commands) == 1:
            return [await self.execute_one(commands[0])]
        results = await collect_results([self._dispatch(command) for command in commands])
        # Submissions wait; whoever asks to take over wants to know now.
        late: list[int] = []
        for n, command in enumerate(commands):
            if type(results[n]) is InProgress and isinstance(command, SubmissionCommand):
                late.append(n)
        if late and self._config.wait_for_pending:
            waits = (self._wait_while_pending(commands[n], results[n]) for n in late)
            for n, result in zip(late, await asyncio.gather(*waits, return_exceptions=True), strict=True):
                results[n] = result
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, (SubmissionCommand, SubmitSequence)):
                self._count_outcome(command, result)
        return results

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._inner.scan(query)

    async def barrier(self) -> None:
        await self._inner.barrier()

    def release_waiters(self) -> None:
        """From now on nobody waits for somebody else's submission; whoever does is told that it is in progress."""
        self._pending_waiters.close()

    async def aclose(self) -> None:
        self._pending_waiters.close()
        await self._inner.aclose()
        self.cache.clear()

    def stats(self) -> CacheStats:
        return self.cache.stats(waiters=self._pending_waiters.waiters)

    def count_waiters(self, tenant: str) -> int:
        """How many callers of a tenant wait for somebody else's submission."""
        flights = self.cache.in_flight.items()
        followers = sum(len(waiting) - 1 for key, waiting in flights if key.tenant == tenant)
        return followers + self._pending_waiters.count_waiters(tenant_prefix(tenant))

    def queue_stats(self) -> dict[str, QueueStats]:
        return self._inner.queue_stats()

    @property
    def last_error(self) -> Exception | None:
        """What the last batch of writes met; None when it went well."""
        return self._inner.last_error

    async def execute_one(self, command: Command[Any]) -> AnyReply | BaseException:
        """`results` for the one command that most callers have."""
        result: AnyReply | BaseException
        try:
            result = await self._dispatch(command)
        except Exception as error:  # noqa: BLE001 - it is the result
            result = error
        if (
            type(result) is InProgress
            and isinstance(command, SubmissionCommand)
            and self._config.wait_for_pending
        ):
            result = await self._wait_while_pending(command, result)
        if isinstance(command, (SubmissionCommand, SubmitSequence)):
            self._count_outcome(command, result)
        return result

    def _dispatch(self, command: Command[Any]) -> ReplyFuture:
        reply: ReplyFuture = asyncio.get_running_loop().create_future()
        if type(command) is Submit and command.record_id:
            self._submit(command, reply)
        elif type(command) is Reserve and not command.job_id:
            self._reserve(command, reply)
        elif type(command) in (LookUpPolicy, LookUpJob):
            self._coalesced_reads.enqueue(command, deliver_to(reply))
        elif isinstance(command, (Settle, Forget, Purge)):
            self._change_key(command, reply)
        else:
            self._inner.enqueue(command, deliver_to(reply))
        return reply

    def _change_key(self, command: Settle | Forget | Purge, reply: ReplyFuture) -> None:
        """A key is being changed through this gate: forget it, and wake whoever waits for it."""
        self.cache.forget(command.record_id)
        self._inner.enqueue(command, Completion(self._on_key_changed, command, reply, 0.0))

    def _on_key_changed(
        self, command: Settle | Forget | Purge, result: AnyReply | Exception, sent_at: float
    ) -> None:
        # Once more, since a flight may have landed in between.
        self.cache.forget(command.record_id)
        self._pending_waiters.wake(command.record_id)

    def _submit(self, submit: Submit, reply: ReplyFuture) -> None:
        known = self.cache.recall(submit)
        # What a key without a job is remembered for is no answer to who wants one: that is for the engine to judge.
        if known is not None and not is_replay_without_job(known):
            warrant = (
                None if type(known) is Created else submit.precondition
            )  # its own answer it may hear again
            if warrant is None:
                self._replay(submit, known, reply)
            else:
                self._verify_precondition(submit, warrant, reply)
            return
        key = InFlightKey(submit.tenant, submit.record_id, submit.fingerprint, submit.user)
        flight = self.cache.in_flight.get(key)
        if flight is None:
            self.cache.in_flight[key] = [InFlightCaller(submit, reply, self._monotonic())]
            self._inner.enqueue(submit, self._completion_for(key))
        elif submit.precondition is None:
            flight.append(InFlightCaller(submit, reply, self._monotonic()))
        else:
            self._verify_precondition(submit, submit.precondition, reply)

    def _verify_precondition(self, submit: Submit, precondition: Precondition, reply: ReplyFuture) -> None:
        """The engine proves only what it is asked for: look whether the right stands before it is answered."""

        def land(result: AnyReply | Exception) -> None:
            if isinstance(result, PolicyFound) and precondition.is_met(result.policy, result.at):
                self._submit(replace(submit, precondition=None), reply)
                return
            deliver_to(reply)(
                precondition_failed(result.at) if isinstance(result, (PolicyFound, Missing)) else result
            )

        self._coalesced_reads.enqueue(
            LookUpPolicy(tenant=submit.tenant, policy_id=precondition.policy_id), land
        )

    def _reserve(self, reserve: Reserve, reply: ReplyFuture) -> None:
        """A key without a job: what it was settled with cannot change, and is remembered unless it is large."""
        known = self.cache.recall(reserve)
        if known is not None and is_replay_without_job(known):
            reply.set_result(known)
            return
        self._inner.enqueue(reserve, Completion(self._on_reserved, reserve, reply, self._monotonic()))

    def _on_reserved(self, reserve: Reserve, result: AnyReply | Exception, sent_at: float) -> None:
        if is_replay_without_job(result) and len(result.receipt) <= CACHED_RECEIPT_BYTES_MAX:
            self.cache.remember(reserve, result, sent_at)

    def _completion_for(self, key: InFlightKey) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            leader, *followers = self.cache.in_flight.pop(key)
            self._remember_settled(leader.submit, result, leader.arrived_at)
            deliver_to(leader.reply)(result)
            for follower in followers:
                if follower.reply.done():
                    continue
                shared = shareable_reply(result, leader, follower)
                # Only what was alive when it came; no longer than a gate remembers, for `forget` counts on that.
                if shared is None or follower.arrived_at >= self.cache.valid_until(shared, leader.arrived_at):
                    self._ask_engine(follower.submit, follower.reply)
                else:
                    follower.reply.set_result(shared)

        return land

    def _ask_engine(self, submit: Submit, reply: ReplyFuture) -> None:
        sent = self._monotonic()

        def land(result: AnyReply | Exception) -> None:
            self._remember_settled(submit, result, sent)
            deliver_to(reply)(result)

        self._inner.enqueue(submit, land)

    def _remember_settled(self, submit: Submit, result: AnyReply | Exception, sent_at: float) -> None:
        if isinstance(result, (Created, Replayed, Rejected)):
            self.cache.remember(submit, result, sent_at)

    def _replay(self, submit: Submit, known: Created | Replayed | Rejected, reply: ReplyFuture) -> None:
        """Answer from memory what cannot change any more; the state of anything else is read."""
        if isinstance(known, Rejected) or known.job is None or known.job.state in IMMUTABLE_STATES:
            reply.set_result(known)
            return
        look = LookUpJob(tenant=submit.tenant, job_id=known.job.id)
        self._coalesced_reads.enqueue(look, self._completion_of_job_read(submit, known, reply))

    def _completion_of_job_read(
        self, submit: Submit, known: Created | Replayed, reply: ReplyFuture
    ) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            match result:
                case Found(None, Job() as job, at):
                    self.cache.refresh(submit, job)
                    deliver_to(reply)(replace(known, job=job, at=at))
                case Exception():
                    deliver_to(reply)(result)
                case _:
                    # The job is gone, so is the record: memory was behind.
                    self.cache.forget(submit.record_id)
                    self._ask_engine(submit, reply)

        return land

    async def _wait_while_pending(
        self, command: Command[Any], reply: AnyReply | BaseException
    ) -> AnyReply | BaseException:
        """Wait for whoever holds the key, then ask again; when time is up, say in progress. Never proceed."""
        assert isinstance(reply, InProgress)
        assert isinstance(command, SubmissionCommand)
        if isinstance(command, Reserve) and not command.wait_if_held:
            return reply
        self._inner.subscribe(self._pending_waiters.wake)
        until = self._monotonic() + self._config.pending_wait_timeout
        while isinstance(reply, InProgress):
            left = until - self._monotonic()
            if left <= 0 or not await self._pending_waiters.wait_until_settled(command, left):
                break
            (reply,) = await collect_results([self._dispatch(command)])
        return reply

    def _count_outcome(
        self, command: SubmissionCommand | SubmitSequence, result: AnyReply | BaseException
    ) -> None:
        word = OUTCOME_NAMES.get(type(result), "failed")
        if isinstance(result, Refused):
            if is_precondition_failure(result):
                return  # it was not looked at
            self.refusals[result.reason] += 1
        self.outcomes.count(command.tenant, word)
        if command.record_id and word in _HIT_OUTCOMES:
            self.hits.count(command.tenant, command.record_id, conflict=word == "conflict")
