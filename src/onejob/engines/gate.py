"""The fast, forgetful front: duplicates in flight share one question, settled receipts are remembered.

It is an engine in front of an engine and never an authority. Only durable answers are shared: created and
replayed. A refusal, a failure, a conflict, an in-progress is never passed on; each caller asks for itself.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from onejob.core.arrival import Arrival
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
from onejob.core.states import SETTLED
from onejob.core.step import Command, Warrant, is_lapsed, lapsed
from onejob.core.submission import Submit
from onejob.core.upkeep import Forget, Purge
from onejob.engine import Durability, Page, Query
from onejob.settings import IdempotencyConfig

from .awaited import Awaited
from .cache import CacheStats, FlightKey, GateIdempotencyCache
from .combine import Combine, delivery
from .flights import Landing, Waiting, is_wrapped, shared_of
from .hits import Hits
from .looks import Looks
from .outcomes import WORDS, Outcomes
from .queues import Deliver, Load
from .replies import all_or_failure, each

T = TypeVar("T")
Future = asyncio.Future[AnyReply]

WRAPPED_BYTES_MAX = 1024
_COUNTED = ("replayed", "rejected", "conflict")


class Gate:
    def __init__(self, inner: Combine, config: IdempotencyConfig, monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._config = config
        self._monotonic = monotonic
        self._awaited = Awaited(inner)
        self._looks = Looks(inner)
        self.cache: GateIdempotencyCache[Waiting] = GateIdempotencyCache(config, monotonic)
        self.outcomes = Outcomes()
        self.hits = Hits()
        self.refusals: Counter[str] = Counter()  # by reason

    @property
    def durability(self) -> Durability:
        return self._inner.durability

    async def execute(self, commands: Sequence[Command[Any]], /) -> Sequence[AnyReply]:
        return all_or_failure(await self.results(commands))

    def reply(self, command: Command[Any]) -> Future:
        """The reply to one command that is no submission; most questions are one."""
        assert not isinstance(command, Arrival)
        return self._enter(command)

    @property
    def has_at_hand(self) -> bool:
        """Whether the engine answers point reads without waiting."""
        return self._inner.has_at_hand

    def now(self, look: LookUpPolicy) -> AnyReply | None:
        """The reply without waiting, where the engine has it at hand; None: ask for it."""
        return self._looks.now(look)

    async def results(self, commands: Sequence[Command[Any]]) -> list[AnyReply | BaseException]:
        """Each command's reply or its own failure."""
        if len(commands) == 1:
            return [await self.result(commands[0])]
        results = await each([self._enter(command) for command in commands])
        # Submissions wait; whoever asks to take over wants to know now.
        late: list[int] = []
        for n, command in enumerate(commands):
            if type(results[n]) is InProgress and isinstance(command, Arrival):
                late.append(n)
        if late and self._config.wait_for_pending:
            waits = (self._wait(commands[n], results[n]) for n in late)
            for n, result in zip(late, await asyncio.gather(*waits, return_exceptions=True), strict=True):
                results[n] = result
        for command, result in zip(commands, results, strict=True):
            if isinstance(command, (Arrival, SubmitSequence)):
                self._count(command, result)
        return results

    async def scan(self, query: Query[T], /) -> Page[T]:
        return await self._inner.scan(query)

    async def quiet(self) -> None:
        await self._inner.quiet()

    def release_waiters(self) -> None:
        """From now on nobody waits for somebody else's submission; whoever does is told that it is in progress."""
        self._awaited.close()

    async def aclose(self) -> None:
        self._awaited.close()
        await self._inner.aclose()
        self.cache.clear()

    def stats(self) -> CacheStats:
        return self.cache.stats(waiters=self._awaited.waiters)

    def waiting(self, tenant: str) -> int:
        """How many callers of a tenant wait for somebody else's submission."""
        flights = self.cache.flights.items()
        followers = sum(len(waiting) - 1 for key, waiting in flights if key.tenant == tenant)
        return followers + self._awaited.waiting(tenant_prefix(tenant))

    def loads(self) -> dict[str, Load]:
        return self._inner.loads()

    @property
    def trouble(self) -> Exception | None:
        """What the last batch of writes met; None when it went well."""
        return self._inner.trouble

    async def result(self, command: Command[Any]) -> AnyReply | BaseException:
        """`results` for the one command that most callers have."""
        result: AnyReply | BaseException
        try:
            result = await self._enter(command)
        except Exception as error:  # noqa: BLE001 - it is the result
            result = error
        if type(result) is InProgress and isinstance(command, Arrival) and self._config.wait_for_pending:
            result = await self._wait(command, result)
        if isinstance(command, (Arrival, SubmitSequence)):
            self._count(command, result)
        return result

    def _enter(self, command: Command[Any]) -> Future:
        reply: Future = asyncio.get_running_loop().create_future()
        if type(command) is Submit and command.record_id:
            self._submit(command, reply)
        elif type(command) is Reserve and not command.job_id:
            self._reserve(command, reply)
        elif type(command) in (LookUpPolicy, LookUpJob):
            self._looks.post(command, delivery(reply))
        elif isinstance(command, (Settle, Forget, Purge)):
            self._touch(command, reply)
        else:
            self._inner.post(command, delivery(reply))
        return reply

    def _touch(self, command: Settle | Forget | Purge, reply: Future) -> None:
        """A key is being changed through this gate: forget it, and wake whoever waits for it."""
        self.cache.forget(command.record_id)
        self._inner.post(command, Landing(self._touched, command, reply, 0.0))

    def _touched(self, command: Settle | Forget | Purge, result: AnyReply | Exception, sent: float) -> None:
        # Once more, since a flight may have landed in between.
        self.cache.forget(command.record_id)
        self._awaited.wake(command.record_id)

    def _submit(self, submit: Submit, reply: Future) -> None:
        known = self.cache.recall(submit)
        # What a key without a job is remembered for is no answer to who wants one: that is for the engine to judge.
        if known is not None and not is_wrapped(known):
            warrant = None if type(known) is Created else submit.warrant  # its own answer it may hear again
            if warrant is None:
                self._replay(submit, known, reply)
            else:
                self._prove(submit, warrant, reply)
            return
        key = FlightKey(submit.tenant, submit.record_id, submit.fingerprint, submit.user)
        flight = self.cache.flights.get(key)
        if flight is None:
            self.cache.flights[key] = [Waiting(submit, reply, self._monotonic())]
            self._inner.post(submit, self._landing(key))
        elif submit.warrant is None:
            flight.append(Waiting(submit, reply, self._monotonic()))
        else:
            self._prove(submit, submit.warrant, reply)

    def _prove(self, submit: Submit, warrant: Warrant, reply: Future) -> None:
        """The engine proves only what it is asked for: look whether the right stands before it is answered."""

        def land(result: AnyReply | Exception) -> None:
            if isinstance(result, PolicyFound) and warrant.stands(result.policy, result.at):
                self._submit(replace(submit, warrant=None), reply)
                return
            delivery(reply)(lapsed(result.at) if isinstance(result, (PolicyFound, Missing)) else result)

        self._looks.post(LookUpPolicy(tenant=submit.tenant, policy_id=warrant.policy), land)

    def _reserve(self, reserve: Reserve, reply: Future) -> None:
        """A key without a job: what it was settled with cannot change, and is remembered unless it is large."""
        known = self.cache.recall(reserve)
        if known is not None and is_wrapped(known):
            reply.set_result(known)
            return
        self._inner.post(reserve, Landing(self._reserved, reserve, reply, self._monotonic()))

    def _reserved(self, reserve: Reserve, result: AnyReply | Exception, sent: float) -> None:
        if is_wrapped(result) and len(result.receipt) <= WRAPPED_BYTES_MAX:
            self.cache.remember(reserve, result, sent)

    def _landing(self, key: FlightKey) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            leader, *followers = self.cache.flights.pop(key)
            self._keep(leader.submit, result, leader.since)
            delivery(leader.reply)(result)
            for follower in followers:
                if follower.reply.done():
                    continue
                shared = shared_of(result, leader, follower)
                # Only what was alive when it came; no longer than a gate remembers, for `forget` counts on that.
                if shared is None or follower.since >= self.cache.until(shared, leader.since):
                    self._ask(follower.submit, follower.reply)
                else:
                    follower.reply.set_result(shared)

        return land

    def _ask(self, submit: Submit, reply: Future) -> None:
        sent = self._monotonic()

        def land(result: AnyReply | Exception) -> None:
            self._keep(submit, result, sent)
            delivery(reply)(result)

        self._inner.post(submit, land)

    def _keep(self, submit: Submit, result: AnyReply | Exception, sent: float) -> None:
        if isinstance(result, (Created, Replayed, Rejected)):
            self.cache.remember(submit, result, sent)

    def _replay(self, submit: Submit, known: Created | Replayed | Rejected, reply: Future) -> None:
        """Answer from memory what cannot change any more; the state of anything else is read."""
        if isinstance(known, Rejected) or known.job is None or known.job.state in SETTLED:
            reply.set_result(known)
            return
        look = LookUpJob(tenant=submit.tenant, job_id=known.job.id)
        self._looks.post(look, self._looked(submit, known, reply))

    def _looked(self, submit: Submit, known: Created | Replayed, reply: Future) -> Deliver:
        def land(result: AnyReply | Exception) -> None:
            match result:
                case Found(None, Job() as job, at):
                    self.cache.refresh(submit, job)
                    delivery(reply)(replace(known, job=job, at=at))
                case Exception():
                    delivery(reply)(result)
                case _:
                    # The job is gone, so is the record: memory was behind.
                    self.cache.forget(submit.record_id)
                    self._ask(submit, reply)

        return land

    async def _wait(self, command: Command[Any], reply: AnyReply | BaseException) -> AnyReply | BaseException:
        """Wait for whoever holds the key, then ask again; when time is up, say in progress. Never proceed."""
        assert isinstance(reply, InProgress)
        assert isinstance(command, Arrival)
        if isinstance(command, Reserve) and not command.patient:
            return reply
        self._inner.listen(self._awaited.wake)
        until = self._monotonic() + self._config.pending_wait_timeout
        while isinstance(reply, InProgress):
            left = until - self._monotonic()
            if left <= 0 or not await self._awaited.settled(command, left):
                break
            (reply,) = await each([self._enter(command)])
        return reply

    def _count(self, arrival: Arrival | SubmitSequence, result: AnyReply | BaseException) -> None:
        word = WORDS.get(type(result), "failed")
        if isinstance(result, Refused):
            if is_lapsed(result):
                return  # it was not looked at
            self.refusals[result.reason] += 1
        self.outcomes.count(arrival.tenant, word)
        if arrival.record_id and word in _COUNTED:
            self.hits.count(arrival.tenant, arrival.record_id, conflict=word == "conflict")
