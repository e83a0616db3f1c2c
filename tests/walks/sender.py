"""A sequenced client: it writes its number down before it sends, forgets it in a crash, and asks where it was."""

import asyncio
from typing import TYPE_CHECKING

from onejob.core import identity
from onejob.core.facts import U64
from onejob.core.replies import (
    AnyReply,
    Missing,
    Reason,
    Refused,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    StreamFound,
)
from onejob.core.sequence import LookUpStream, SequenceItem, SubmitSequence

from .plan import Op

if TYPE_CHECKING:
    from .person import Person
else:
    Person = object

TRIES_MAX = 6
CLIENTS = 2  # ids, so that two instances of one client meet
# Beside the next number: one too far, one too low, and the very first.
_STRAY = (1, 2, 0)


class Sender(Person):
    async def sequence(self, op: Op) -> None:
        """One number, sent until it is answered; a retry over the wire has new candidates under the same key."""
        client_id = f"till{op.key % CLIENTS}"
        stream = identity.stream_id(self.tenant, "walk", client_id)
        if stream not in self.diary and not await self._resume(stream):
            return
        number = max(1, self.diary[stream] + _STRAY[op.body % 3] if op.body else self.diary[stream] + 1)
        for _ in range(TRIES_MAX):
            command = self._numbered(op, stream, client_id, number)
            if op.twice:
                results, _ = await asyncio.gather(self.ask(command), self.ask(command))
            else:
                results = await self.ask(command)
            if results and not isinstance(results[0], BaseException):
                self._note(stream, results[0])
                break
        if op.verdict is None:  # it crashed, and its diary with it
            del self.diary[stream]

    async def _resume(self, stream: bytes) -> bool:
        """GetClientState."""
        found = await self.insist(LookUpStream(tenant=self.tenant, stream_id=stream))
        if isinstance(found, (StreamFound, Missing)):
            self.diary[stream] = found.stream.last if isinstance(found, StreamFound) else 0
        return stream in self.diary

    def _note(self, stream: bytes, reply: AnyReply) -> None:
        if isinstance(reply, (SequenceCommitted, SequenceAlreadyCommitted)):
            self.diary[stream] = max(self.diary[stream], int(reply.sequence))
        elif isinstance(reply, Refused) and reply.reason is Reason.SEQUENCE_GAP:
            self.diary[stream] = int(reply.details["last_committed_sequence"])

    def _numbered(self, op: Op, stream: bytes, client_id: str, number: int) -> SubmitSequence:
        # Two instances of one client have the same keys, or each its own.
        key = f"{client_id}:{number}" if op.wait_ms % 20 else f"{client_id}:{number}:{self.number}"
        items = tuple(
            SequenceItem(self.world.new_candidate(), "walk", b"{}", cost=self.number % 3) for _ in range(1 + op.beats)
        )
        return SubmitSequence(
            tenant=self.tenant,
            stream_id=stream,
            record_id=identity.record_id(self.tenant, "walk", key),
            scope="walk",
            client_id=client_id,
            sequence=U64(number),
            key=key,
            fingerprint=b"\x03" + bytes([op.think_ms == 50]),
            items=items,
            actor=self.actor,
            user=self.user,
            owner="api_key:other" if (op.body, op.twice) == (3, True) else "api_key:till",
            ttl_ms=op.ttl_ms,
            usage_id=self.tally_id,
            policy_id=self.policy_id,
        )
