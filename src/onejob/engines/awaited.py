"""Keys that somebody waits for: each is polled once for all its waiters, and a settling here wakes them early."""

import asyncio

from onejob.core.arrival import SubmissionCommand
from onejob.core.lookup import LookUpKey
from onejob.core.receipt import Found
from onejob.core.states import IdempotencyStatus
from onejob.engine import Unavailable, Unknown

from .combine import Batcher

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
