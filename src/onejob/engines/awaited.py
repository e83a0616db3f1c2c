"""Keys that somebody waits for: each is polled once for all its waiters, and a settling here wakes them early."""

import asyncio

from onejob.core.arrival import Arrival
from onejob.core.lookup import LookUp
from onejob.core.receipt import Found
from onejob.core.states import IdempotencyStatus
from onejob.engine import Unavailable, Unknown

from .combine import Combine

PAUSE_FIRST = 0.02
PAUSE_MAX = 0.5


class _Poll:
    __slots__ = ("event", "task", "waiters")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiters = 0
        self.task: asyncio.Task[None] | None = None


class Awaited:
    def __init__(self, inner: Combine) -> None:
        self._inner = inner
        self._polls: dict[bytes, _Poll] = {}
        self._closed = False

    @property
    def waiters(self) -> int:
        return sum(poll.waiters for poll in self._polls.values())

    def waiting(self, begin: bytes) -> int:
        """The waiters for keys whose identities begin so."""
        return sum(poll.waiters for id, poll in self._polls.items() if id.startswith(begin))

    async def settled(self, arrival: Arrival, timeout: float) -> bool:
        """Wait until the key is no longer held; False when time is up."""
        if self._closed:
            return False
        poll = self._polls.get(arrival.record_id)
        if poll is None:
            poll = self._polls[arrival.record_id] = _Poll()
            look = LookUp(tenant=arrival.tenant, record_id=arrival.record_id)
            poll.task = asyncio.get_running_loop().create_task(self._watch(look, poll))
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
                self._end(arrival.record_id, poll)

    def wake(self, record_id: bytes) -> None:
        poll = self._polls.get(record_id)
        if poll is not None:
            self._end(record_id, poll)

    def close(self) -> None:
        self._closed = True
        for record_id, poll in list(self._polls.items()):
            self._end(record_id, poll)

    def _end(self, record_id: bytes, poll: _Poll) -> None:
        """Whoever comes from now on starts a poll of its own."""
        poll.event.set()
        if poll.task is not None:
            poll.task.cancel()
        if self._polls.get(record_id) is poll:
            del self._polls[record_id]

    async def _watch(self, look: LookUp, poll: _Poll) -> None:
        pause = PAUSE_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)
            try:
                (reply,) = await self._inner.execute([look])
            except (Unavailable, Unknown):
                continue  # not known is not settled
            if not (isinstance(reply, Found) and reply.record is not None and _held(reply)):
                self._end(look.record_id, poll)
                return


def _held(reply: Found) -> bool:
    record = reply.record
    assert record is not None
    return record.status is IdempotencyStatus.PENDING and reply.at <= record.lease_until
