"""Mutants of the store, the engine and the batcher."""

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onejob.core import batch
from onejob.core.batch import OptimisticInsert
from onejob.core.facts import Kind
from onejob.core.submit import Submit
from onejob.engines.batcher import Batcher
from onejob.engines.sqlite import schema
from onejob.engines.sqlite.insert_fast import TimestampGuard
from onejob.errors import Unavailable, Unknown
from onejob.ids import SeededIds

from .mutant_registry import mutant, with_components
from .process import Components
from .store import Proposal, ReadSet, SimEngine, SimStore


@mutant
def skip_the_version_check() -> Iterator[Components]:
    class Blind(SimStore):
        def is_still_valid(self, proposal: Proposal) -> bool:
            return True

    yield with_components(store=Blind)


@mutant
def check_only_what_is_written() -> Iterator[Components]:
    class Careless(SimStore):
        def is_still_valid(self, proposal: Proposal) -> bool:
            changes = proposal.changes
            pairs = [pair for kind in (changes.updates, changes.deletes) for pairs in kind.values() for pair in pairs]
            written = {fact.id for fact, _ in pairs}
            written |= {fact.id for facts in changes.inserts.values() for fact in facts}
            read_set = [entry for entry in proposal.read_set if entry[1] in written]
            return super().is_still_valid(proposal._replace(read_set=read_set))

    yield with_components(store=Careless)


@mutant
def compare_numbers_not_facts() -> Iterator[Components]:
    """A record that was deleted and created again has version 1 again."""

    class Numbers(SimStore):
        def is_unchanged(self, kind: Kind, id: bytes, fact: Any) -> bool:
            return getattr(self.tables[kind].get(id), "version", 0) == getattr(fact, "version", 0)

    yield with_components(store=Numbers)


@mutant
def decide_in_the_past() -> Iterator[Components]:
    """A slow decision is stored with its old time, after later decisions about the same fact."""

    class Slow(SimStore):
        def is_in_order(self, made_at: float, kind: Kind, id: bytes, _: Any) -> bool:
            return True

    yield with_components(store=Slow)


@mutant
def insert_fast_with_an_old_date() -> Iterator[Components]:
    """A key is swept between the decision that takes it for new and the insert, which is dated before the sweep."""

    class Undated(SimStore):
        def is_dated_in_order(self, proposal: Proposal) -> bool:
            return True

    yield with_components(store=Undated)


@mutant
def insert_fast_trusts_its_own_deletions() -> Iterator[Components]:
    """Only other processes are suspected, but the sweep between decision and insert was made by this one."""
    with patch.object(TimestampGuard, "record_commit", lambda guard, now, **_: None):
        yield Components()


@mutant
def insert_fast_overlooks_other_processes() -> Iterator[Components]:
    class Alone(SimStore):
        def is_dated_in_order(self, proposal: Proposal) -> bool:
            writer = proposal.writer
            assert writer is not None
            return writer.guard.allows(proposal.now, self.clock())

    yield with_components(store=Alone)


@mutant
def insert_fast_overlooks_limits() -> Iterator[Components]:
    class Unlimited(SimEngine):
        def assumed_absent(self, decided: OptimisticInsert) -> ReadSet:
            return super().assumed_absent(decided._replace(absent={}))

    yield with_components(engine=Unlimited)


@mutant
def insert_fast_replaces_what_exists() -> Iterator[Components]:
    class Upserting(SimEngine):
        def assumed_absent(self, decided: OptimisticInsert) -> ReadSet:
            return [entry for entry in super().assumed_absent(decided) if entry[0] is not Kind.RECORD]

    yield with_components(engine=Upserting)


@mutant
def store_that_was_rolled_back_is_served() -> Iterator[Components]:
    """Ours: an older copy in the place of the store was logged as an error, and served."""
    with patch.object(schema, "count_missing_commits", lambda mark, ledger: 0):
        yield Components()


@mutant
def older_copy_of_another_ledger_is_adopted() -> Iterator[Components]:
    """Ours: a copy from before a restore or an accepted loss counted as one that lacks nothing, and its id replaced the note."""
    with patch.object(schema, "is_other_ledger", lambda mark, ledger: False):
        yield Components()


@mutant
def answer_before_it_is_durable() -> Iterator[Components]:
    class Hasty(SimEngine):
        async def _propose(self, proposal: Proposal, *, writing: bool) -> bool:
            if writing:
                answer = self.store.loop.create_task(super()._propose(proposal, writing=writing))
                answer.add_done_callback(lambda task: task.cancelled() or task.exception())
                return True
            return await super()._propose(proposal, writing=writing)

    yield with_components(engine=Hasty)


@mutant
def clock_of_the_process() -> Iterator[Components]:
    class Local(SimEngine):
        def now(self) -> int:
            return super().now() + self.skew_ms

    yield with_components(engine=Local)


@mutant
def time_before_stored_timestamps() -> Iterator[Components]:
    with patch.object(batch, "_decision_time", lambda command, facts, now: now):
        yield Components()


@mutant
def answers_swapped_in_a_batch() -> Iterator[Components]:
    class Swapped(SimEngine):
        async def execute(self, commands: Any, /, **options: Any) -> Any:
            return [*reversed(await super().execute(commands, **options))]

    yield with_components(engine=Swapped)


@mutant
def retry_with_a_new_candidate() -> Iterator[Components]:
    ids = SeededIds(Random("zoo"))

    class Redrawing(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown:
                new = [replace(c, job_id=ids.job_id()) if isinstance(c, Submit) else c for c in commands]
                return await super()._execute(batch, new)

    yield with_components(batcher=Redrawing)


@mutant
def unknown_outcome_forgotten_by_the_next_attempt() -> Iterator[Components]:
    """Ours: the first attempt had an unknown outcome, the second failed, and only the second was reported."""

    class Forgetful(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown:
                return await self._engine.execute(commands)

    yield with_components(batcher=Forgetful)


@mutant
def unknown_passed_off_as_unavailable() -> Iterator[Components]:
    class Sure(Batcher):
        async def _execute(self, batch: Any, commands: Any) -> Any:
            try:
                return await self._engine.execute(commands)
            except Unknown as error:
                raise Unavailable("nothing was done") from error

    yield with_components(batcher=Sure)
