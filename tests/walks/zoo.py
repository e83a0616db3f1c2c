"""Bugs on purpose, each in a few lines: a house with one of them must be caught, or the walks have no teeth.

Most of them are mistakes that the seeds, or libraries of this field, have made. Those marked "Ours" the walks
have found in onejob itself.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from . import zoo_decisions, zoo_gate, zoo_quotas, zoo_store
from .cage import CAGE
from .plan import Faults, Op, Plan, Verb, draw
from .world import Walked, walk

__all__ = ["ZOO", "hunt", "plan_of", "zoo_decisions", "zoo_gate", "zoo_quotas", "zoo_store"]

ZOO = CAGE


def hunt(name: str, seeds: Iterable[int]) -> Walked | None:
    """The first walk that catches it."""
    for seed in seeds:
        with ZOO[name]() as parts:
            walked = walk(plan_of(seed, name), parts)
        if walked.violations:
            return walked
    return None


def plan_of(seed: int, bug: str | None = None) -> Plan:
    return _SCENES.get(bug or "", draw)(seed)


def _scene(verbs: list[Verb], ttl_ms: int, faults: Faults, seed: int) -> Plan:
    """A poor store and one busy key: what a general walk meets once in a thousand seeds, it meets sooner."""
    chance = Random(f"scene {seed}")

    def op() -> Op:
        wait_ms = chance.choice([0, 100, 300])
        return Op(chance.choice(verbs), wait_ms=wait_ms, ttl_ms=ttl_ms, twice=chance.random() < 0.3)

    clients = tuple(tuple(op() for _ in range(12)) for _ in range(6))
    return Plan(
        seed,
        clients,
        faults,
        processes=3,
        latency=0.001,
        slow_max=3.0,
        committed_ttl=0.3,
        rejected_ttl=0.3,
    )


_SCENES: dict[str, Callable[[int], Plan]] = {
    "compare_numbers_not_facts": partial(
        _scene, [Verb.SUBMIT, Verb.SUBMIT, Verb.SWEEP, Verb.COUNT], 200, Faults(slow=0.3)
    ),
    "decide_in_the_past": partial(_scene, [Verb.SUBMIT] * 4 + [Verb.FORGET], 3000, Faults(slow=0.3)),
    "doubt_forgotten_by_the_next_attempt": partial(
        _scene, [Verb.SUBMIT, Verb.KEYLESS], 3000, Faults(unavailable=0.2, reply_lost=0.25)
    ),
    "purge_leaves_the_job": partial(_scene, [Verb.SUBMIT] * 3 + [Verb.PURGE], 3000, Faults()),
    "purge_takes_the_job_of_a_living_key": partial(
        _scene, [Verb.SUBMIT] * 3 + [Verb.PURGE], 3000, Faults(slow=0.3)
    ),
    "echo_lost_in_a_flight": partial(_scene, [Verb.SUBMIT], 1000, Faults(slow=0.3)),
    "join_a_look_that_has_set_out": partial(
        _scene, [Verb.SUBMIT, Verb.LOOK_UP, Verb.LOOK_UP, Verb.CANCEL], 3000, Faults(slow=0.3)
    ),
}
