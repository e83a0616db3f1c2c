"""Part of the zoo: stores and combiners that go wrong."""

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import batch as fold
from onejob.core.facts import Kind
from onejob.core.submit import Submit
from onejob.engine import Unavailable, Unknown
from onejob.engines.batcher import Batcher
from onejob.ids import SeededIds

from .cage import bug, with_parts
from .house import Parts
from .store import Line, Proposal, SimStore


@bug
def skip_the_version_check() -> Iterator[Parts]:
    class Blind(SimStore):
        def stands(self, proposal: Proposal) -> bool:
            return True

    yield with_parts(store=Blind)


@bug
def check_only_what_is_written() -> Iterator[Parts]:
    class Careless(SimStore):
        def stands(self, proposal: Proposal) -> bool:
            changes = proposal.changes
            pairs = [pair for kind in (changes.updates, changes.deletes) for pairs in kind.values() for pair in pairs]
            written = {fact.id for fact, _ in pairs}
            written |= {fact.id for facts in changes.inserts.values() for fact in facts}
            seen = [entry for entry in proposal.seen if entry[1] in written]
            return super().stands(proposal._replace(seen=seen))

    yield with_parts(store=Careless)


@bug
def compare_numbers_not_facts() -> Iterator[Parts]:
    """A record dropped and made anew has version 1 again."""

    class Numbers(SimStore):
        def same(self, kind: Kind, id: bytes, fact: Any) -> bool:
            return getattr(self.tables[kind].get(id), "version", 0) == getattr(fact, "version", 0)

    yield with_parts(store=Numbers)


@bug
def decide_in_the_past() -> Iterator[Parts]:
    """A slow decision is stored with the time it was made, after later ones about the same fact."""

    class Slow(SimStore):
        def timely(self, made: float, kind: Kind, id: bytes, _: Any) -> bool:
            return True

    yield with_parts(store=Slow)


@bug
def answer_before_it_is_durable() -> Iterator[Parts]:
    class Hasty(Line):
        async def _propose(self, proposal: Proposal, *, writing: bool) -> bool:
            if writing:
                answer = self.store.loop.create_task(super()._propose(proposal, writing=writing))
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
                return True
            return await super()._propose(proposal, writing=writing)

    yield with_parts(line=Hasty)


@bug
def time_of_the_process() -> Iterator[Parts]:
    class Local(Line):
        def now(self) -> int:
            return super().now() + self.skew_ms

    yield with_parts(line=Local)


@bug
def time_below_the_stamps() -> Iterator[Parts]:
    with patch.object(fold, "_decision_time", lambda command, facts, now: now):
        yield Parts()


@bug
def answers_swapped_in_a_batch() -> Iterator[Parts]:
    class Swapped(Line):
        async def execute(self, commands: Any, /) -> Any:
            return [*reversed(await super().execute(commands))]

    yield with_parts(line=Swapped)


@bug
def retry_with_a_new_candidate() -> Iterator[Parts]:
    ids = SeededIds(Random("zoo"))

    class Redrawing(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown:
                new = [replace(c, job_id=ids.job_id()) if isinstance(c, Submit) else c for c in commands]
                return await super()._execute(batch, new)

    yield with_parts(combine=Redrawing)


@bug
def doubt_forgotten_by_the_next_attempt() -> Iterator[Parts]:
    """Ours: the first attempt may have done it, the second was certain of itself only."""

    class Forgetful(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown:
                return await self._engine.execute(commands)

    yield with_parts(combine=Forgetful)


@bug
def unknown_passed_off_as_unavailable() -> Iterator[Parts]:
    class Sure(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown as error:
                raise Unavailable("nothing was done") from error

    yield with_parts(combine=Sure)
