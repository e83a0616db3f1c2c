"""Mutants: deliberate bugs of a few lines each, which the simulation must catch, and the plans that catch rare ones.

Most of them are mistakes of the seeds or of other libraries. Those marked "Ours" are bugs of onejob that a simulation found.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from onejob.core.reserve import Verdict

from . import mutants_decisions, mutants_gate, mutants_quotas, mutants_steps, mutants_store, mutants_work
from .mutant_registry import MUTANTS
from .plan import Faults, Op, Plan, Verb, draw_plan
from .simulator import SimulationResult, simulate

__all__ = [
    "ALL_MUTANTS",
    "find_catching_seed",
    "mutants_decisions",
    "mutants_gate",
    "mutants_quotas",
    "mutants_steps",
    "mutants_store",
    "mutants_work",
    "plan_for",
]

ALL_MUTANTS = MUTANTS
WORK_MUTANTS = (
    "claim_a_held_job",
    "expired_lease_is_extended_after_another_took_it",
    "expired_lease_runs_an_at_most_once_job_again",
    "extension_past_the_timeout_is_accepted",
    "finish_without_checking_the_token",
    "late_extension_is_refused",
    "late_extension_revives_a_lost_job",
    "late_extension_revives_a_reported_attempt",
    "late_release_is_refused",
    "revived_job_stays_in_the_queue",
    "slot_freed_by_cancel_and_again_by_finish",
    "start_without_checking_the_holder",
    "started_at_most_once_job_is_released",
    "success_after_the_timeout_is_accepted",
    "token_stays_with_the_next_claim",
)
DATE_MUTANTS = (
    "insert_fast_overlooks_other_processes",
    "insert_fast_trusts_its_own_deletions",
    "insert_fast_with_an_old_date",
)
STEP_MUTANTS = (
    "finished_step_is_run_again",
    "interrupted_at_most_once_step_is_run_again",
    "repeated_begin_of_a_step_is_a_second_run",
    "step_begun_by_a_stale_attempt",
    "step_finished_by_an_earlier_run",
    "step_with_other_arguments_is_answered",
)


def find_catching_seed(name: str, seeds: Iterable[int]) -> SimulationResult | None:
    """The first simulation that violates an invariant with this mutant."""
    for seed in seeds:
        with ALL_MUTANTS[name]() as components:
            result = simulate(plan_for(seed, name), components)
        if result.violations:
            return result
    return None


def plan_for(seed: int, mutant: str | None = None) -> Plan:
    return SCENARIOS.get(mutant or "", draw_plan)(seed)


def _one_key_scenario(verbs: list[Verb], ttl_ms: int, faults: Faults, seed: int) -> Plan:
    """A faulty store and one busy key: it finds sooner what a drawn plan meets once in a thousand seeds."""
    rng = Random(f"scene {seed}")

    def op() -> Op:
        wait_ms = rng.choice([0, 100, 300])
        return Op(rng.choice(verbs), wait_ms=wait_ms, ttl_ms=ttl_ms, is_repeated=rng.random() < 0.3)

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


def _swept_keys_scenario(seed: int) -> Plan:
    """Two processes insert without loading while keys with short windows are swept, and the store is sometimes slow."""
    rng = Random(f"swept {seed}")
    verbs = [Verb.SUBMIT] * 4 + [Verb.SWEEP] * 3

    def op() -> Op:
        return Op(rng.choice(verbs), wait_ms=rng.choice([0, 20, 50, 100]), key=rng.randrange(3), ttl_ms=200)

    clients = tuple(tuple(op() for _ in range(20)) for _ in range(8))
    return Plan(
        seed,
        clients,
        Faults(slow=0.3),
        keys=3,
        processes=rng.choice([1, 2]),
        latency=0.02,
        slow_max=0.2,
        committed_ttl=0.1,
        retention_ms=200,
        inserts_fast=True,
    )


def _short_leases_scenario(seed: int) -> Plan:
    """Many workers, few jobs and leases shorter than the work, so that expired workers report late."""
    rng = Random(f"shift {seed}")
    verbs = [Verb.WORK] * 5 + [Verb.SUBMIT_WITHOUT_KEY, Verb.SUBMIT] + [Verb.SWEEP] * 3 + [Verb.CANCEL] * 2

    def op() -> Op:
        return Op(
            rng.choice(verbs),
            wait_ms=rng.choice([0, 50, 200]),
            key=rng.randrange(3),
            body=rng.randrange(2),
            ttl_ms=3000,
            lease_ms=rng.choice([200, 400]),
            renewals=rng.choice([0, 0, 1, 2]),
            think_ms=rng.choice([0, 100, 500, 900]),
            verdict=rng.choice([Verdict.COMMIT, Verdict.COMMIT, Verdict.FAIL, None]),
            is_repeated=rng.random() < 0.3,
        )

    clients = tuple(tuple(op() for _ in range(14)) for _ in range(6))
    faults = Faults(reply_lost=0.05 * rng.random())
    return Plan(seed, clients, faults, keys=3, processes=2, has_workers=True, quota=8, latency=0.001)


def _taken_over_scenario(seed: int) -> Plan:
    """Holders of one key whose replies are late or lost, with leases that others take over meanwhile."""
    rng = Random(f"taken over {seed}")

    def op() -> Op:
        return Op(Verb.RESERVE, ttl_ms=300, lease_ms=rng.choice([50, 2000]), think_ms=1000, verdict=Verdict.FAIL)

    clients = tuple(tuple(op() for _ in range(12)) for _ in range(6))
    faults = Faults(unavailable=0.1, reply_lost=0.7, slow=0.3, roll=1.0)
    return Plan(seed, clients, faults, processes=3, latency=0.001, slow_max=0.2)


SCENARIOS: dict[str, Callable[[int], Plan]] = {
    "reserve_forgotten_by_the_next_attempt": _taken_over_scenario,
    "compare_numbers_not_facts": partial(
        _one_key_scenario, [Verb.SUBMIT, Verb.SUBMIT, Verb.SWEEP, Verb.FLUSH_HITS], 200, Faults(slow=0.3)
    ),
    "decide_in_the_past": partial(_one_key_scenario, [Verb.SUBMIT] * 4 + [Verb.FORGET], 3000, Faults(slow=0.3)),
    "unknown_outcome_forgotten_by_the_next_attempt": partial(
        _one_key_scenario, [Verb.SUBMIT, Verb.SUBMIT_WITHOUT_KEY], 3000, Faults(unavailable=0.2, reply_lost=0.25)
    ),
    "purge_leaves_the_job": partial(_one_key_scenario, [Verb.SUBMIT] * 3 + [Verb.PURGE], 3000, Faults()),
    "purge_deletes_the_job_of_a_live_key": partial(
        _one_key_scenario, [Verb.SUBMIT] * 3 + [Verb.PURGE], 3000, Faults(slow=0.3)
    ),
    **dict.fromkeys(DATE_MUTANTS, _swept_keys_scenario),
    **dict.fromkeys((*WORK_MUTANTS, *STEP_MUTANTS), _short_leases_scenario),
    "echo_lost_in_flight": partial(_one_key_scenario, [Verb.SUBMIT], 1000, Faults(slow=0.3)),
    "join_a_read_already_sent": partial(
        _one_key_scenario, [Verb.SUBMIT, Verb.LOOK_UP, Verb.LOOK_UP, Verb.CANCEL], 3000, Faults(slow=0.3)
    ),
}
