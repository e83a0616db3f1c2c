"""Operations of a sequenced client: send the next number, or a wrong one; resume after a crash."""

import asyncio
from typing import TYPE_CHECKING

from onejob.core import identity
from onejob.core.facts import U64, JobSpec
from onejob.core.replies import (
    AnyReply,
    Missing,
    Reason,
    Refused,
    SequenceAlreadyCommitted,
    SequenceCommitted,
    StreamFound,
)
from onejob.core.sequence import LookUpStream, SubmitSequence

from .plan import Op

if TYPE_CHECKING:
    from .client_protocol import ClientProtocol
else:
    ClientProtocol = object

TRIES_MAX = 6
CLIENTS = 2  # few ids, so that two instances of one client compete
# Added to the last number instead of 1.
_WRONG_SEQUENCE_OFFSETS = (1, 2, 0)


class SequenceClient(ClientProtocol):
    async def submit_sequence(self, op: Op) -> None:
        """Send one number until it is answered; a retry has new candidate job ids under the same key."""
        client_id = f"till{op.key % CLIENTS}"
        stream = identity.stream_id(self.tenant, "walk", client_id)
        if stream not in self.last_sequences and not await self._resume(stream):
            return
        number = max(
            1,
            self.last_sequences[stream] + _WRONG_SEQUENCE_OFFSETS[op.body % 3]
            if op.body
            else self.last_sequences[stream] + 1,
        )
        for _ in range(TRIES_MAX):
            command = self._build_command(op, stream, client_id, number)
            if op.is_repeated:
                results, _ = await asyncio.gather(self.ask(command), self.ask(command))
            else:
                results = await self.ask(command)
            if results and not isinstance(results[0], BaseException):
                self._remember_sequence(stream, results[0])
                break
        if op.verdict is None:  # the client crashes and loses its state
            del self.last_sequences[stream]

    async def _resume(self, stream: bytes) -> bool:
        """Read the last committed number from the server."""
        found = await self.ask_until_answered(LookUpStream(tenant=self.tenant, stream_id=stream))
        if isinstance(found, (StreamFound, Missing)):
            self.last_sequences[stream] = found.stream.last if isinstance(found, StreamFound) else 0
        return stream in self.last_sequences

    def _remember_sequence(self, stream: bytes, reply: AnyReply) -> None:
        if isinstance(reply, (SequenceCommitted, SequenceAlreadyCommitted)):
            self.last_sequences[stream] = max(self.last_sequences[stream], int(reply.sequence))
        elif isinstance(reply, Refused) and reply.reason in (Reason.SEQUENCE_GAP, Reason.ALREADY_COMMITTED):
            self.last_sequences[stream] = int(reply.details["last_committed_sequence"])

    def _build_command(self, op: Op, stream: bytes, client_id: str, number: int) -> SubmitSequence:
        # Instances of one client use the same keys, or different ones.
        key = f"{client_id}:{number}" if op.wait_ms % 20 else f"{client_id}:{number}:{self.number}"
        items = tuple(
            JobSpec(self.simulation.new_candidate(), "walk", b"{}", cost=self.number % 3)
            for _ in range(1 + op.renewals)
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
            owner="api_key:other" if (op.body, op.is_repeated) == (3, True) else "api_key:till",
            ttl_ms=op.ttl_ms,
            usage_id=self.usage_id,
            policy_id=self.policy_id,
        )
