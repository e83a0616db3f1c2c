"""Random steps on an engine, compared with the model of the simulation: `python -m tests.campaigns.model_based`.

The simulation tests concurrent processes and faults. Here nothing fails and steps run one at a time, but hours and days pass,
jobs start and end, and all facts are compared after every step. Seed strings and the order of draws determine the steps.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from onejob.clock import FakeClock
from onejob.core.command import Command, CommandData, Facts, Footprint, Step
from onejob.core.facts import Kind, Policy, Usage, next_version
from onejob.core.limits import effective_limits
from onejob.core.replies import AnyReply, Defect, Maintained, Missing
from onejob.core.slots import Reconcile, slots_and_cost_held
from onejob.core.states import JobState, Move, is_allowed, state_after
from onejob.core.work import end_job
from onejob.engine import PAGE_MAX, Engine, ListFacts
from onejob.engines.memory import MemoryEngine
from onejob.ids import SeededIds
from tests.campaigns.simulation.comparison import model_reply, modelled_fact, stored_fact
from tests.campaigns.simulation.invariants import slots_in_use
from tests.campaigns.simulation.model import Model

from .model_based_commands import POLICY, TENANT, VERBS, CommandFactory

STEPS = 500  # of one seed
WAITS = [0] * 12 + [1, 500, 501, 1000, 1001, 60_000, 60_001, 600_000, 3_600_000, 86_400_000]


# Moves of workers, and the states of jobs they apply to.
WORKER_MOVES: dict[str, tuple[Move, tuple[str, ...]]] = {
    "start": (Move.START, ("pending",)),
    "succeed": (Move.SUCCEED, ("running", "lost")),
    "fail_job": (Move.FAIL, ("running", "lost")),
    "lose": (Move.LOSE, ("running",)),
}


class RandomStep(NamedTuple):
    """One step as numbers, so that steps can be left out and the others keep their meaning."""

    verb: str
    wait_ms: int
    a: int
    b: int
    c: int


class WorkerMove(CommandData, frozen=True, kw_only=True):
    """Start or end a job without a lease, which is enough for quotas."""

    job_id: bytes
    move: Move
    cost: int | None = None

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, jobs=(self.job_id,), follow_usage=True)

    def decide(self, facts: Facts, now: int) -> Step[Maintained | Missing]:
        job = facts.jobs.get(self.job_id)
        if job is None:
            return Step(Missing(now))
        if not is_allowed(job.state, self.move):
            return Step(Maintained(False, now))
        if self.move is Move.START:
            state, attempts = state_after(job.state, self.move), job.attempts + 1
            return Step(Maintained(True, now), (next_version(job, now, state=state, attempts=attempts),))
        end = end_job(job, facts.usage, now, move=self.move, actor="client:w", retention_ms=1000, cost=self.cost)
        return Step(Maintained(True, now), end.puts, attachments=end.attachments, trims=end.trims)


class ModelMismatch(AssertionError):
    """The engine and the model differ."""


class ModelComparison:
    """Runs the same steps on an engine and on the model."""

    def __init__(self, engine: Engine, clock: FakeClock, seed: int) -> None:
        self.engine = engine
        self.clock = clock
        self.model = Model()
        self.commands_factory = CommandFactory(SeededIds(Random(f"ids {seed}")), self.model)
        self.counts: Counter[str] = Counter()

    async def run_step(self, step: RandomStep) -> None:
        """Run one step, perhaps several commands in one batch, whose replies are those of a serial execution."""
        self.clock.advance(step.wait_ms / 1000)
        commands = await self.build_commands(step)
        if not commands:
            return
        before = await self._usages()
        replies = await self.engine.execute(commands)
        for command, reply in zip(commands, replies, strict=True):
            self._check_reply(command, reply)
        await self._compare(before, backfilling=step.verb == "backfill")

    def _check_reply(self, command: Command[Any], reply: AnyReply) -> None:
        if isinstance(reply, Defect):
            raise ModelMismatch(f"{type(command).__name__}: {reply.message}")
        now = self.clock.wall_ms()
        expected = (
            self._expected_worker_move(command, now)
            if isinstance(command, WorkerMove)
            else self.model.expect(command, now, reply)
        )
        self.counts[expected[1] if expected[0] == "refused" else expected[0]] += 1
        if model_reply(reply) != expected:
            raise ModelMismatch(f"{type(command).__name__}: {model_reply(reply)}, not {expected}")
        self.commands_factory.remember(command, reply)

    async def build_commands(self, step: RandomStep) -> list[Command[Any]]:
        if step.verb in WORKER_MOVES:
            job_id = self.commands_factory.job(step.a, *WORKER_MOVES[step.verb][1])
            cost = [None, None, 0, 3][step.b % 4]
            return (
                [WorkerMove(tenant=TENANT, job_id=job_id, move=WORKER_MOVES[step.verb][0], cost=cost)] if job_id else []
            )
        if step.verb == "reconcile":
            return [await self._build_reconcile(usage) for usage in (await self._usages()).values()]
        return self.commands_factory.build(step.verb, step.a, step.b, step.c)

    async def _build_reconcile(self, usage: Usage) -> Reconcile:
        jobs = await self._list_facts(Kind.JOB)
        held_by_jobs = [slots_and_cost_held(job, usage.id) for job in jobs]
        return Reconcile(
            tenant=TENANT,
            usage_id=usage.id,
            policy_id=POLICY,
            expected_version=usage.version,
            live=sum(slots for slots, _ in held_by_jobs),
            cost_held=sum(cost for _, cost in held_by_jobs),
            jobs_counted=sum(job.usage_id == usage.id for job in jobs),
        )

    def _expected_worker_move(self, c: WorkerMove, now: int) -> tuple[Any, ...]:
        job = self.model.jobs.get(c.job_id)
        if job is None:
            return ("missing",)
        if not is_allowed(JobState(job.state), c.move):
            return ("maintained", False)
        if c.move is Move.START:
            job.state, job.attempts, job.changed_at = "running", job.attempts + 1, now
        else:
            state = {Move.SUCCEED: "success", Move.FAIL: "failed", Move.LOSE: "lost"}[c.move]
            self.model.end(job, state, now, cost=c.cost)
        return ("maintained", True)

    async def _compare(self, before: dict[bytes, Usage], *, backfilling: bool) -> None:
        now = self.clock.wall_ms()
        for kind in Kind:
            stored = {fact.id: stored_fact(fact, now) for fact in await self._list_facts(kind)}
            model_facts: dict[bytes, Any] = [
                self.model.keys, self.model.jobs, self.model.streams, self.model.usages, self.model.policies,
                self.model.memos,
            ][kind]  # type: ignore[assignment]  # fmt: skip
            modelled = {id: modelled_fact(self.model, kind, id, now) for id in model_facts}
            if stored != modelled:
                mismatch = [id for id in {*stored, *modelled} if stored.get(id) != modelled.get(id)]
                raise ModelMismatch(f"{kind.name}: {stored.get(mismatch[0])}, not {modelled.get(mismatch[0])}")
        jobs, policies = await self._list_facts(Kind.JOB), await self._list_facts(Kind.POLICY)
        for id, usage in (await self._usages()).items():
            held_by_jobs = [slots_and_cost_held(job, id) for job in jobs]
            if (usage.live, usage.cost_held) != (
                sum(n for n, _ in held_by_jobs),
                sum(cost for _, cost in held_by_jobs),
            ):
                raise ModelMismatch(f"drift of {usage.user}")
            limit = _max_concurrent(usage, policies)
            if (
                limit is not None
                and slots_in_use(before.get(id), now) < slots_in_use(usage, now) > limit
                and not backfilling
            ):
                raise ModelMismatch(f"{usage.user} uses {slots_in_use(usage, now)} of {limit}")

    async def _usages(self) -> dict[bytes, Usage]:
        return {usage.id: usage for usage in await self._list_facts(Kind.USAGE)}

    async def _list_facts(self, kind: Kind) -> Sequence[Any]:
        if isinstance(self.engine, MemoryEngine):  # the same facts, faster
            return list(self.engine.facts[kind].values())
        page = await self.engine.scan(ListFacts(tenant=TENANT, kind=kind, limit=PAGE_MAX))
        assert not page.more
        return page.items


def _max_concurrent(usage: Usage, policies: Sequence[Policy]) -> int | None:
    return effective_limits(usage.limits, policies[0].body if policies else b"").max_concurrent


def draw_steps(seed: int, steps: int = STEPS) -> list[RandomStep]:
    rng = Random(f"paces {seed}")
    verbs = {verb: weight * rng.choice([0, 1, 1, 2]) for verb, weight in VERBS.items()}
    verbs["submit"] = verbs["submit"] or 10
    names, weights = list(verbs), list(verbs.values())

    def number() -> int:
        return rng.randrange(1 << 16)

    return [
        RandomStep(verb, rng.choice(WAITS), number(), number(), number())
        for verb in rng.choices(names, weights, k=steps)
    ]


async def run_steps(engine: Engine, clock: FakeClock, seed: int, random_steps: Sequence[RandomStep]) -> ModelComparison:
    comparison = ModelComparison(engine, clock, seed)
    for number, step in enumerate(random_steps):
        try:
            await comparison.run_step(step)
        except ModelMismatch as mismatch:
            raise ModelMismatch(f"seed {seed}, step {number}, {step}: {mismatch}") from None
    return comparison


async def run_in_memory(seed: int, random_steps: Sequence[RandomStep]) -> ModelComparison:
    clock = FakeClock()
    return await run_steps(MemoryEngine(clock), clock, seed, random_steps)


async def fails(seed: int, random_steps: Sequence[RandomStep]) -> bool:
    try:
        await run_in_memory(seed, random_steps)
    except ModelMismatch:
        return True
    return False


async def shrink_steps(seed: int, random_steps: list[RandomStep]) -> list[RandomStep]:
    """Remove steps while the others still fail."""
    part = len(random_steps) // 2
    while part:
        for at in range(0, len(random_steps), part):
            fewer = random_steps[:at] + random_steps[at + part :]
            if await fails(seed, fewer):
                random_steps = fewer
                break
        else:
            part //= 2
    return random_steps


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.model_based", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="number of steps (default 1,000,000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(options.start, options.start + -(-options.steps // STEPS)):
        random_steps = draw_steps(seed)
        try:
            counts += (await run_in_memory(seed, random_steps)).counts
        except ModelMismatch as mismatch:
            print(mismatch)
            for step in await shrink_steps(seed, random_steps):
                print(f"  {step}")
            return 1
    print(f"{options.steps:,} steps from seed {options.start}, no difference from the model")
    print(", ".join(f"{outcome} {count:,}" for outcome, count in sorted(counts.items()) if " " not in outcome))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
