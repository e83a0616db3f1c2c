"""The fast, forgetful front: duplicates in flight share one question, settled receipts are remembered.

It is an engine in front of an engine and never an authority. Only durable answers are shared: created and
replayed. A refusal, a failure, a conflict, an in-progress is never passed on; each caller asks for itself.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

from msgspec.structs import replace

from onejob.core.command import Command, Precondition, is_precondition_failure, precondition_failed
from onejob.core.credentials import LookUpPolicy
from onejob.core.facts import Job
from onejob.core.identity import tenant_prefix
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.maintenance import Forget, Purge
from onejob.core.replies import AnyReply, Created, Found, InProgress, Missing, PolicyFound, Refused, Rejected, Replayed
from onejob.core.reserve import Reserve, Settle
from onejob.core.sequence import SubmitSequence
from onejob.core.states import IMMUTABLE_STATES, IdempotencyStatus
from onejob.core.submit import SubmissionCommand, Submit
from onejob.engine import Durability, Page, Query
from onejob.errors import Unavailable, Unknown
from onejob.settings import IdempotencyConfig

from .batcher import Batcher, Deliver, QueueStats, collect_results, deliver_to, replies_or_raise
from .counters import OUTCOME_NAMES, HitCounter, OutcomeCounter
from .receipts import CacheStats, GateIdempotencyCache, InFlightKey

# Who waits for a question on its way, and which answers may be given to others than who asked.


class InFlightCaller(NamedTuple):
    """A caller of a flight; the first of them is the one that asked."""

    submit: Submit
    reply: "asyncio.Future[AnyReply]"
    arrived_at: float


class Completion:
    """Where an answer lands: it is noted, then given to whoever asked.

    One object instead of a function with its cells: there is one for every question on its way, and each is looked at
    whenever garbage is collected.
    """

    __slots__ = ("command", "on_reply", "reply", "sent_at")

    def __init__(
        self,
        on_reply: Callable[[Any, AnyReply | Exception, float], None],
        command: Command[Any],
        reply: "asyncio.Future[AnyReply]",
        sent_at: float,
    ) -> None:
        self.on_reply = on_reply
        self.command = command
        self.reply = reply
        self.sent_at = sent_at

    def __call__(self, result: AnyReply | Exception) -> None:
        self.on_reply(self.command, result, self.sent_at)
        if self.reply.done():
            return
        if isinstance(result, Exception):
            self.reply.set_exception(result)
        else:
            self.reply.set_result(result)


def shareable_reply(
    result: AnyReply | Exception, leader: InFlightCaller, follower: InFlightCaller
) -> Created | Replayed | None:
    """What a follower may be told: created and replayed, nothing else."""
    if not isinstance(result, (Created, Replayed)):
        return None
    # The same candidate is the same submission: it hears "created", however it joined.
    if result.job is not None and follower.submit.job_id == result.job.id:
        return Created(result.job, result.expires_at, result.at)
    if isinstance(result, Replayed) or follower.submit.job_id == leader.submit.job_id:
        return result
    return Replayed(result.job, result.expires_at, result.at)


def is_replay_without_job(result: AnyReply | Exception) -> TypeGuard[Replayed]:
    """Whether it is the settled answer of a key without a job."""
    return isinstance(result, Replayed) and result.job is None and not result.external_id


# Point reads on their way: equal questions that wait for the same batch are asked once.


class CoalescedReads:
    """A question sets out after the last of its askers came, so that each hears what was true after it asked."""

    def __init__(self, inner: Batcher) -> None:
        self._inner = inner
        self._pending: dict[Command[Any], list[Deliver]] = {}
        inner.on_read_batch = self._pending.clear  # what has set out is joined by nobody
        self._replies_this_iteration: dict[Command[Any], AnyReply] = {}

    def read_now(self, command: Command[Any]) -> AnyReply | None:
        """The reply at once, where the engine has it at hand; read once in a turn of the loop.

        Whoever asks in a turn was heard of before it began: what is read in it is not older than the question. The
        next turn forgets it before anybody who was heard of since can ask.
        """
        reply = self._replies_this_iteration.get(command)
        if reply is None:
            reply = self._inner.read_now(command)
            if reply is not None:
                if not self._replies_this_iteration:
                    asyncio.get_running_loop().call_soon(self._replies_this_iteration.clear)
                self._replies_this_iteration[command] = reply
        return reply

    def enqueue(self, command: Command[Any], deliver: Deliver) -> None:
        assert not command.writes
        askers = self._pending.get(command)
        if askers is not None:
            askers.append(deliver)
            return
        self._pending[command] = askers = [deliver]
        self._inner.enqueue(command, self._completion_for(command, askers))

    def _completion_for(self, command: Command[Any], callers: list[Deliver]) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            if self._pending.get(command) is callers:
                del self._pending[command]  # it was turned away, and never set out
            first, *others = callers
            first(result)
            for deliver in others:
                # A failure is never passed on: each asks for itself.
                if isinstance(result, Exception):
                    self._inner.enqueue(command, deliver)
                else:
                    deliver(result)

        return land


# Keys that somebody waits for: each is polled once for all its waiters, and a settling here wakes them early.


POLL_SECONDS_FIRST = 0.02
POLL_SECONDS_MAX = 0.5


class _Poll:
    __slots__ = ("event", "task", "waiters")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiters = 0
        self.task: asyncio.Task[None] | None = None


class PendingKeyWaiters:
    def __init__(self, inner: Batcher) -> None:
        self._inner = inner
        self._polls: dict[bytes, _Poll] = {}
        self._closed = False

    @property
    def waiters(self) -> int:
        return sum(poll.waiters for poll in self._polls.values())

    def count_waiters(self, id_prefix: bytes) -> int:
        """The waiters for keys whose identities begin so."""
        return sum(poll.waiters for id, poll in self._polls.items() if id.startswith(id_prefix))

    async def wait_until_settled(self, command: SubmissionCommand, timeout: float) -> bool:
        """Wait until the key is no longer held; False when time is up."""
        if self._closed:
            return False
        poll = self._polls.get(command.record_id)
        if poll is None:
            poll = self._polls[command.record_id] = _Poll()
            look = LookUpKey(tenant=command.tenant, record_id=command.record_id)
            poll.task = asyncio.get_running_loop().create_task(self._poll_until_settled(look, poll))
        poll.waiters += 1
        try:
            async with asyncio.timeout(timeout):
                await poll.event.wait()
            return True
        except TimeoutError:
            return False
        finally:
            poll.waiters -= 1
            if not poll.waiters:
                self._stop_poll(command.record_id, poll)

    def wake(self, record_id: bytes) -> None:
        poll = self._polls.get(record_id)
        if poll is not None:
            self._stop_poll(record_id, poll)

    def close(self) -> None:
        self._closed = True
        for record_id, poll in list(self._polls.items()):
            self._stop_poll(record_id, poll)

    def _stop_poll(self, record_id: bytes, poll: _Poll) -> None:
        """Whoever comes from now on starts a poll of its own."""
        poll.event.set()
        if poll.task is not None:
            poll.task.cancel()
        if self._polls.get(record_id) is poll:
            del self._polls[record_id]

    async def _poll_until_settled(self, lookup: LookUpKey, poll: _Poll) -> None:
        pause = POLL_SECONDS_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, POLL_SECONDS_MAX)
            try:
                (reply,) = await self._inner.execute([lookup])
            except (Unavailable, Unknown):
                continue  # not known is not settled
            if not (isinstance(reply, Found) and reply.record is not None and _is_pending(reply)):
                self._stop_poll(lookup.record_id, poll)
                return


def _is_pending(reply: Found) -> bool:
    record = reply.record
    assert record is not None
    return record.status is IdempotencyStatus.PENDING and reply.at <= record.lease_until


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
        if type(result) is InProgress and isinstance(command, SubmissionCommand) and self._config.wait_for_pending:
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

    def _on_key_changed(self, command: Settle | Forget | Purge, result: AnyReply | Exception, sent_at: float) -> None:
        # Once more, since a flight may have landed in between.
        self.cache.forget(command.record_id)
        self._pending_waiters.wake(command.record_id)

    def _submit(self, submit: Submit, reply: ReplyFuture) -> None:
        known = self.cache.recall(submit)
        # What a key without a job is remembered for is no answer to who wants one: that is for the engine to judge.
        if known is not None and not is_replay_without_job(known):
            warrant = None if type(known) is Created else submit.precondition  # its own answer it may hear again
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
            deliver_to(reply)(precondition_failed(result.at) if isinstance(result, (PolicyFound, Missing)) else result)

        self._coalesced_reads.enqueue(LookUpPolicy(tenant=submit.tenant, policy_id=precondition.policy_id), land)

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

    def _completion_of_job_read(self, submit: Submit, known: Created | Replayed, reply: ReplyFuture) -> Deliver:
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

    def _count_outcome(self, command: SubmissionCommand | SubmitSequence, result: AnyReply | BaseException) -> None:
        word = OUTCOME_NAMES.get(type(result), "failed")
        if isinstance(result, Refused):
            if is_precondition_failure(result):
                return  # it was not looked at
            self.refusals[result.reason] += 1
        self.outcomes.count(command.tenant, word)
        if command.record_id and word in _HIT_OUTCOMES:
            self.hits.count(command.tenant, command.record_id, conflict=word == "conflict")
