"""Mutants of the gate and its cache."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core.replies import AnyReply, Created, InProgress, Refused, Rejected, Replayed
from onejob.core.reserve import TakeOver
from onejob.core.submit import SubmissionCommand, Submit
from onejob.engines import gate
from onejob.engines.batcher import Pending, Result
from onejob.engines.gate import CoalescedReads, Gate, InFlightSubmission

from .mutant_registry import mutant, with_components
from .process import Components, CountingCache


@mutant
def evict_an_in_flight_request() -> Iterator[Components]:
    class Evicting(CountingCache):
        def recall(self, command: SubmissionCommand) -> Any:
            while len(self.in_flight) > self._config.max_entries:
                del self.in_flight[next(iter(self.in_flight))]
            return super().recall(command)

    class Losing(Gate):
        def _on_leader_reply(self, leader: InFlightSubmission, result: Result) -> None:
            if leader.key in self.cache.in_flight:
                super()._on_leader_reply(leader, result)

    yield with_components(cache=Evicting, gate=Losing)


def _gate_sharing(is_shared: Callable[[AnyReply | Exception], bool]) -> type[Gate]:
    class Sharing(Gate):
        def _on_leader_reply(self, leader: InFlightSubmission, result: Result) -> None:
            if not is_shared(result):
                super()._on_leader_reply(leader, result)
                return
            del self.cache.in_flight[leader.key]
            for pending in (leader, *leader.followers):
                pending.resolve(result)

    return Sharing


@mutant
def share_a_refusal() -> Iterator[Components]:
    yield with_components(gate=_gate_sharing(lambda result: isinstance(result, Refused)))


@mutant
def share_a_failure() -> Iterator[Components]:
    yield with_components(gate=_gate_sharing(lambda result: isinstance(result, Exception)))


@mutant
def share_an_in_progress_reply() -> Iterator[Components]:
    yield with_components(gate=_gate_sharing(lambda result: isinstance(result, InProgress)))


@mutant
def followers_forgotten_on_failure() -> Iterator[Components]:
    class Forgetful(Gate):
        def _ask_engine(self, pending: Pending) -> None:
            pass

    yield with_components(gate=Forgetful)


@mutant
def cancelled_leader_cancels_its_followers() -> Iterator[Components]:
    class Chained(Gate):
        def _on_leader_reply(self, leader: InFlightSubmission, result: Result) -> None:
            for follower in leader.followers if leader.future.cancelled() else ():
                follower.future.cancel()
            super()._on_leader_reply(leader, result)

    yield with_components(gate=Chained)


@mutant
def timed_out_waiter_is_new() -> Iterator[Components]:
    class Proceeding(Gate):
        async def _wait_while_pending(self, command: Any, reply: Any, on_resend: Any = None) -> Any:
            reply = await super()._wait_while_pending(command, reply, on_resend)
            if isinstance(reply, InProgress) and isinstance(command, Submit):
                (reply,) = await self._batcher.execute([replace(command, record_id=b"")])
            return reply

    yield with_components(gate=Proceeding)


@mutant
def reserve_forgotten_by_the_next_attempt() -> Iterator[Components]:
    """Ours: a reserve was executed, taken over and answered with in-progress; then asking again failed: "nothing was done"."""

    class Forgetful(Gate):
        def _keep_in_progress(self, in_progress: Any, last: Any) -> Any:
            return last

    yield with_components(gate=Forgetful)


@mutant
def in_progress_from_the_cache() -> Iterator[Components]:
    class Remembering(Gate):
        def _on_submit_reply(self, pending: Pending, result: Any) -> None:
            if isinstance(result, InProgress):
                assert isinstance(pending.command, Submit)
                self.__dict__.setdefault("busy", {})[pending.command.record_id] = result
            super()._on_submit_reply(pending, result)

        def _submit(self, submit: Submit, reply: Any) -> None:
            known = self.__dict__.get("busy", {}).pop(submit.record_id, None)
            if known is None:
                super()._submit(submit, reply)
            else:
                reply.set_result(known)

    yield with_components(gate=Remembering)


@mutant
def cached_beyond_the_window() -> Iterator[Components]:
    class Long(CountingCache):
        def valid_until(self, reply: Created | Replayed | Rejected, sent_at: float) -> float:
            return sent_at + self._config.committed_ttl_seconds

    yield with_components(cache=Long)


@mutant
def cache_ttl_counted_from_the_reply() -> Iterator[Components]:
    class Late(CountingCache):
        def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
            super().remember(command, reply, self._monotonic())

    yield with_components(cache=Late)


@mutant
def rejected_forever() -> Iterator[Components]:
    class Grudge(CountingCache):
        def valid_until(self, reply: Created | Replayed | Rejected, sent_at: float) -> float:
            return sent_at + 1e9 if isinstance(reply, Rejected) else super().valid_until(reply, sent_at)

    yield with_components(cache=Grudge)


@mutant
def unbounded_cache() -> Iterator[Components]:
    class Hoarding(CountingCache):
        def __init__(self, config: Any, monotonic: Any) -> None:
            super().__init__(replace(config, max_entries=1_000_000), monotonic)

    yield with_components(cache=Hoarding)


@mutant
def recall_without_the_fingerprint() -> Iterator[Components]:
    class Lax(CountingCache):
        def recall(self, command: SubmissionCommand) -> Any:
            known = self._receipts.get(command.record_id)
            return super().recall(command if known is None else replace(command, fingerprint=known.fingerprint))

    yield with_components(cache=Lax)


@mutant
def share_after_the_window() -> Iterator[Components]:
    """Ours: a late reply was shared with callers that had joined after its window was over."""

    class Late(CountingCache):
        remembering = False

        def remember(self, command: SubmissionCommand, reply: Created | Replayed | Rejected, sent_at: float) -> None:
            self.remembering = True
            super().remember(command, reply, sent_at)
            self.remembering = False

        def valid_until(self, reply: Created | Replayed | Rejected, sent_at: float) -> float:
            return super().valid_until(reply, sent_at) if self.remembering else float("inf")

    yield with_components(cache=Late)


@mutant
def echo_lost_in_flight() -> Iterator[Components]:
    """Ours: a caller that joined a request in flight with the winning candidate got "replayed"."""
    usual = gate.shareable_reply

    def shared(result: Any, leader: Any, follower: Any) -> Any:
        return result if isinstance(result, Replayed) else usual(result, leader, follower)

    with patch.object(gate, "shareable_reply", shared):
        yield Components()


@mutant
def unexpected_exception() -> Iterator[Components]:
    """Ours: a take-over of a held key failed an assertion of the gate."""

    class Asserting(Gate):
        async def execute_each(self, commands: Any, *, on_resend: Any = None) -> Any:
            results = await super().execute_each(commands, on_resend=on_resend)
            return [
                AssertionError() if isinstance(reply, InProgress) and isinstance(command, TakeOver) else reply
                for command, reply in zip(commands, results, strict=True)
            ]

    yield with_components(gate=Asserting)


@mutant
def join_a_read_already_sent() -> Iterator[Components]:
    """A read that was sent before the call may be older than the call."""

    class Late(CoalescedReads):
        def enqueue(self, pending: Pending) -> None:
            self._batches_seen = self._batcher.read_batches
            super().enqueue(pending)

    with patch.object(gate, "CoalescedReads", Late):
        yield with_components()
