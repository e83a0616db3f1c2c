"""Part of the zoo: gates that go wrong."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core.arrival import Arrival
from onejob.core.receipt import AnyReply, Created, InProgress, Refused, Rejected, Replayed
from onejob.core.reservation import TakeOver
from onejob.core.step import Command
from onejob.core.submission import Submit
from onejob.engines import flights, gate
from onejob.engines.combine import delivery
from onejob.engines.gate import Gate
from onejob.engines.looks import Looks
from onejob.engines.queues import Deliver

from .cage import bug, with_parts
from .house import CountedCache, Parts


@bug
def evict_a_flight() -> Iterator[Parts]:
    class Evicting(CountedCache):
        def recall(self, arrival: Arrival) -> Any:
            while len(self.flights) > self._config.max_entries:
                del self.flights[next(iter(self.flights))]
            return super().recall(arrival)

    class Losing(Gate):
        def _landing(self, key: Any) -> Deliver:
            land = super()._landing(key)
            return lambda result: land(result) if key in self.cache.flights else None

    yield with_parts(cache=Evicting, gate=Losing)


def _sharing(wanted: Callable[[AnyReply | Exception], bool]) -> type[Gate]:
    class Sharing(Gate):
        def _landing(self, key: Any) -> Deliver:
            usual = super()._landing(key)

            def land(result: AnyReply | Exception) -> None:
                if wanted(result):
                    for waiting in self.cache.flights.pop(key):
                        delivery(waiting.reply)(result)
                else:
                    usual(result)

            return land

    return Sharing


@bug
def share_a_refusal() -> Iterator[Parts]:
    yield with_parts(gate=_sharing(lambda result: isinstance(result, Refused)))


@bug
def share_a_failure() -> Iterator[Parts]:
    yield with_parts(gate=_sharing(lambda result: isinstance(result, Exception)))


@bug
def share_what_is_in_progress() -> Iterator[Parts]:
    yield with_parts(gate=_sharing(lambda result: isinstance(result, InProgress)))


@bug
def followers_forgotten_on_failure() -> Iterator[Parts]:
    class Forgetful(Gate):
        def _ask(self, submit: Submit, reply: Any) -> None:
            pass

    yield with_parts(gate=Forgetful)


@bug
def leader_takes_its_followers_along() -> Iterator[Parts]:
    class Chained(Gate):
        def _landing(self, key: Any) -> Deliver:
            usual = super()._landing(key)

            def land(result: AnyReply | Exception) -> None:
                leader, *followers = self.cache.flights[key]
                for follower in followers if leader.reply.cancelled() else ():
                    follower.reply.cancel()
                usual(result)

            return land

    yield with_parts(gate=Chained)


@bug
def timed_out_waiter_is_new() -> Iterator[Parts]:
    class Proceeding(Gate):
        async def _wait(self, command: Any, reply: Any) -> Any:
            reply = await super()._wait(command, reply)
            if isinstance(reply, InProgress) and isinstance(command, Submit):
                (reply,) = await self._inner.execute([replace(command, record_id=b"")])
            return reply

    yield with_parts(gate=Proceeding)


@bug
def in_progress_from_memory() -> Iterator[Parts]:
    class Remembering(Gate):
        def _keep(self, submit: Submit, result: Any, sent: float) -> None:
            if isinstance(result, InProgress):
                self.__dict__.setdefault("busy", {})[submit.record_id] = result
            super()._keep(submit, result, sent)

        def _submit(self, submit: Submit, reply: Any) -> None:
            known = self.__dict__.get("busy", {}).pop(submit.record_id, None)
            if known is None:
                super()._submit(submit, reply)
            else:
                reply.set_result(known)

    yield with_parts(gate=Remembering)


@bug
def remember_beyond_the_window() -> Iterator[Parts]:
    class Long(CountedCache):
        def until(self, reply: Created | Replayed | Rejected, sent: float) -> float:
            return sent + self._config.committed_ttl_seconds

    yield with_parts(cache=Long)


@bug
def remember_from_the_answer_on() -> Iterator[Parts]:
    class Late(CountedCache):
        def remember(self, arrival: Arrival, reply: Created | Replayed | Rejected, sent: float) -> None:
            super().remember(arrival, reply, self._monotonic())

    yield with_parts(cache=Late)


@bug
def rejected_for_ever() -> Iterator[Parts]:
    class Grudge(CountedCache):
        def until(self, reply: Created | Replayed | Rejected, sent: float) -> float:
            return sent + 1e9 if isinstance(reply, Rejected) else super().until(reply, sent)

    yield with_parts(cache=Grudge)


@bug
def remember_everything() -> Iterator[Parts]:
    class Hoarding(CountedCache):
        def __init__(self, config: Any, monotonic: Any) -> None:
            super().__init__(replace(config, max_entries=1_000_000), monotonic)

    yield with_parts(cache=Hoarding)


@bug
def recall_without_the_fingerprint() -> Iterator[Parts]:
    class Lax(CountedCache):
        def recall(self, arrival: Arrival) -> Any:
            known = self._receipts.get(arrival.record_id)
            return super().recall(
                arrival if known is None else replace(arrival, fingerprint=known.fingerprint)
            )

    yield with_parts(cache=Lax)


@bug
def share_after_the_window() -> Iterator[Parts]:
    """Ours: a flight landed late, and told whoever had joined since then of a window that was over."""

    class Late(CountedCache):
        keeping = False

        def remember(self, arrival: Arrival, reply: Created | Replayed | Rejected, sent: float) -> None:
            self.keeping = True
            super().remember(arrival, reply, sent)
            self.keeping = False

        def until(self, reply: Created | Replayed | Rejected, sent: float) -> float:
            return super().until(reply, sent) if self.keeping else float("inf")

    yield with_parts(cache=Late)


@bug
def echo_lost_in_a_flight() -> Iterator[Parts]:
    """Ours: whoever joined a flight with the winning candidate was told "replayed"."""
    usual = flights.shared_of

    def shared(result: Any, leader: Any, follower: Any) -> Any:
        return result if isinstance(result, Replayed) else usual(result, leader, follower)

    with patch.object(gate, "shared_of", shared):
        yield Parts()


@bug
def failure_of_a_third_kind() -> Iterator[Parts]:
    """Ours: the gate wanted to wait for whoever held the key, on behalf of a take-over, and could not."""

    class Asserting(Gate):
        async def results(self, commands: Any) -> Any:
            results = await super().results(commands)
            return [
                AssertionError() if isinstance(reply, InProgress) and isinstance(command, TakeOver) else reply
                for command, reply in zip(commands, results, strict=True)
            ]

    yield with_parts(gate=Asserting)


@bug
def join_a_look_that_has_set_out() -> Iterator[Parts]:
    """What was read before one asked is not an answer."""

    class Late(Looks):
        def post(self, command: Command[Any], deliver: Deliver) -> None:
            askers = self._waiting.setdefault(command, [])
            askers.append(deliver)
            if len(askers) > 1:
                return

            def land(result: AnyReply | Exception) -> None:
                for each in self._waiting.pop(command):
                    each(result)

            self._inner.post(command, land)

    with patch.object(gate, "Looks", Late):
        yield with_parts()
