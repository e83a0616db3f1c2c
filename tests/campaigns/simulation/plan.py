"""The plan of a simulation, drawn from a seed: operations of the clients, sizes of the system, and faults.

Each seed draws which faults are on and how small everything is: with all faults on, most bugs would hide behind the most
frequent one. The seed strings, the values of `Verb` and the order of draws determine every plan and must not change.
"""

from enum import StrEnum
from random import Random
from typing import Any

from msgspec import Struct

from onejob.core.reserve import Verdict


class Verb(StrEnum):
    SUBMIT = "submit"
    SUBMIT_MANY = "many"  # several keys in one call
    SUBMIT_WITHOUT_KEY = "keyless"
    RESERVE = "reserve"  # then renew, then settle, or abandon it
    TAKE_OVER = "take_over"
    CANCEL = "cancel"
    FORGET = "forget"
    DRY_RUN = "probe"
    LOOK_UP = "look_up"
    SWEEP = "sweep"
    FLUSH_HITS = "count"  # store the counted hits
    PURGE = "purge"  # delete all data of the tenant, while others submit
    RESERVE_SLOT = "slot"  # reserve one, then submit with it, consume it, release it, or abandon it
    SET_LIMITS = "limit"  # change the limits of a user
    RECONCILE = "recount"
    SUBMIT_SEQUENCE = "sequence"  # the next number of a client, or a wrong one
    WORK = "work"  # claim a job, start it, extend it, finish it; or exceed the lease, or abandon it


class Op(Struct, frozen=True, omit_defaults=True):
    verb: Verb
    wait_ms: int = 0
    key: int = 0
    body: int = 0
    ttl_ms: int = 1000
    lease_ms: int = 500
    renewals: int = 0
    think_ms: int = 0  # before each renewal, and before the verdict
    verdict: Verdict | None = None
    is_repeated: bool = False  # the request or the verdict is sent twice


class Faults(Struct, frozen=True, omit_defaults=True):
    """Probabilities per operation; crash, roll, pause, back, forward and roll_back are rates per second."""

    unavailable: float = 0.0
    request_lost: float = 0.0  # Unknown, not executed
    reply_lost: float = 0.0  # Unknown, executed
    late: float = 0.0  # Unknown, executed after a delay
    slow: float = 0.0
    wire_lost: float = 0.0  # the response to the client is lost
    hang_up: float = 0.0  # the client disconnects while it is served
    crash: float = 0.0
    roll: float = 0.0  # a graceful restart
    pause: float = 0.0
    back: float = 0.0  # the store's clock steps back
    forward: float = 0.0
    drift: float = 0.0  # of the processes' monotonic clocks
    roll_back: float = 0.0  # an older copy of the store is put in its place, and the newest back after a while


class Plan(Struct, frozen=True, omit_defaults=True):
    seed: int
    clients: tuple[tuple[Op, ...], ...]
    faults: Faults = Faults()
    salt: int = 0  # another order of callbacks for the same plan
    keys: int = 1
    keys_without_job: int = 0  # so many of the last keys have records without a job
    has_sequenced_key: bool = (
        False  # one more key, which belongs to a sequenced client: other submissions with it are refused
    )
    has_workers: bool = False  # some clients run jobs
    quota: int | None = None  # concurrent jobs of each user; None: no limits
    processes: int = 1
    tenants: int = 1
    users: int = 1
    tick_ms: int = 1  # a coarse clock makes the exact millisecond likely
    jitter: float = 0.25
    delay_max: float = 0.02
    latency: float = 0.005
    slow_max: float = 2.0
    client_timeout: float = 4.0  # seconds
    committed_ttl: float = 1.0
    rejected_ttl: float = 1.0
    max_entries: int = 100
    wait_for_pending: bool = True
    wait_timeout: float = 1.0
    batch_max: int = 64
    queue_max: int = 32_768
    retention_ms: int = 3000
    inserts_fast: bool = False  # new facts are inserted without loading any, in two lanes


VERBS = {
    Verb.SUBMIT: 40,
    Verb.SUBMIT_MANY: 5,
    Verb.SUBMIT_WITHOUT_KEY: 4,
    Verb.RESERVE: 22,
    Verb.TAKE_OVER: 6,
    Verb.CANCEL: 6,
    Verb.FORGET: 4,
    Verb.DRY_RUN: 3,
    Verb.LOOK_UP: 5,
    Verb.SWEEP: 8,
    Verb.FLUSH_HITS: 3,
}
QUOTA_CLIENT_VERBS = {Verb.RESERVE_SLOT: 10, Verb.RESERVE: 3, Verb.SET_LIMITS: 1, Verb.RECONCILE: 2, Verb.CANCEL: 8}
SEQUENCE_CLIENT_VERBS = {Verb.SUBMIT_SEQUENCE: 12, Verb.CANCEL: 1, Verb.SWEEP: 1, Verb.FORGET: 1}
WORKER_VERBS = {Verb.WORK: 16, Verb.SWEEP: 6, Verb.SUBMIT: 3, Verb.SUBMIT_WITHOUT_KEY: 2, Verb.CANCEL: 3}
VERDICTS = [Verdict.COMMIT, Verdict.COMMIT, Verdict.REJECT, Verdict.FAIL, None]
# Upper bound of each fault's weight.
FAULT_WEIGHT_MAX = {
    "unavailable": 0.2,
    "request_lost": 0.15,
    "reply_lost": 0.25,
    "late": 0.15,
    "slow": 0.2,
    "wire_lost": 0.2,
    "hang_up": 0.15,
    "crash": 0.5,
    "roll": 0.3,
    "pause": 0.5,
    "back": 0.2,
    "forward": 0.2,
    "drift": 0.001,
}
ROLL_BACK_WEIGHT_MAX = 1.0
ROLL_BACK_PROBABILITY = 0.2
# These weaken what can be checked, so few seeds have them.
FAULT_PROBABILITY = {"forward": 0.08, "drift": 0.15, "back": 0.2, "roll": 0.25}


def draw_plan(seed: int) -> Plan:
    rng = Random(f"plan {seed}")
    pick = rng.choice
    keys = pick([1, 1, 2, 3, 5])
    sequenced = rng.random() < 0.25
    windows = [100 * n for n in (rng.randint(2, 10), rng.randint(10, 50))]
    leases = [100 * n for n in rng.sample(range(2, 21), 2)]
    verbs, bodies, client_count = _draw_verb_weights(rng), pick([1, 2, 2, 3]), pick([2, 4, 6, 8])
    # Drawn from a generator of its own, so that plans without a purge stay the same.
    verbs[Verb.PURGE] = Random(f"purge {seed}").choice([0, 0, 0, 6])
    clients = tuple(
        tuple(_draw_op(rng, verbs, keys + sequenced, bodies, windows, leases) for _ in range(rng.randint(3, 14)))
        for _ in range(client_count)
    )
    # A purge deletes usages and streams piece by piece, so their invariants do not hold meanwhile.
    quota, other_clients = (
        (None, []) if verbs[Verb.PURGE] else _draw_quota_and_sequence_clients(seed, keys, windows, leases)
    )
    workers = [] if verbs[Verb.PURGE] else _draw_workers(seed, keys, windows, leases)
    return Plan(
        seed,
        (*clients, *other_clients, *workers),
        _draw_faults(rng, seed),
        keys=keys,
        keys_without_job=pick([0, 0, 0, 1]) if keys > 1 else 0,
        has_sequenced_key=sequenced,
        quota=quota,
        has_workers=bool(workers),
        processes=pick([1, 2, 2, 3]),
        tenants=pick([1, 1, 2]),
        users=pick([1, 1, 2]),
        tick_ms=pick([1, 1, 10, 100]),
        jitter=pick([0.1, 0.25, 0.25, 0.5]),
        delay_max=pick([0.002, 0.02, 0.2]),
        latency=pick([0.001, 0.005, 0.05]),
        slow_max=pick([0.5, 2.0, 6.0]),
        client_timeout=pick([0.5, 4.0, 15.0]),
        committed_ttl=pick([0.3, 1.0, 3.0, 10.0]),
        rejected_ttl=pick([0.3, 1.0, 3.0]),
        max_entries=pick([1, 2, 3, 100]),
        wait_for_pending=pick([True, True, True, False]),
        wait_timeout=pick([0.0, 0.2, 1.0, 4.0]),
        batch_max=pick([1, 2, 5, 64]),
        queue_max=pick([4, 32_768, 32_768, 32_768]),
        retention_ms=pick([200, 1000, 3000]),
        # Drawn from a generator of its own, so that other plans stay the same.
        inserts_fast=Random(f"fast {seed}").random() < 0.25,
    )


def _draw_quota_and_sequence_clients(
    seed: int, keys: int, windows: list[int], leases: list[int]
) -> tuple[int | None, list[tuple[Op, ...]]]:
    """Some plans have quotas, some have sequenced clients; drawn from a generator of their own."""
    rng = Random(f"more {seed}")
    quota = rng.choice([1, 2, 3, 5, 8, 12]) if rng.random() < 0.3 else None
    client_kinds = [QUOTA_CLIENT_VERBS] * rng.randint(1, 2) if quota is not None else []
    client_kinds += [SEQUENCE_CLIENT_VERBS] * rng.randint(1, 3) if rng.random() < 0.3 else []
    return quota, [
        tuple(_draw_op(rng, verbs, keys, 4, windows, leases) for _ in range(rng.randint(3, 10)))
        for verbs in client_kinds
    ]


def _draw_workers(seed: int, keys: int, windows: list[int], leases: list[int]) -> list[tuple[Op, ...]]:
    """Some plans have workers; drawn from a generator of their own, so that other plans stay the same."""
    rng = Random(f"hands {seed}")
    if rng.random() >= 0.3:
        return []
    return [
        tuple(_draw_op(rng, WORKER_VERBS, keys, 2, windows, leases) for _ in range(rng.randint(4, 12)))
        for _ in range(rng.randint(1, 4))
    ]


def _draw_verb_weights(rng: Random) -> dict[Verb, int]:
    """Most verbs with their usual weight, some left out, some doubled; there are always submissions."""
    verbs = {verb: weight * rng.choice([0, 1, 1, 2]) for verb, weight in VERBS.items()}
    verbs[Verb.SUBMIT] = verbs[Verb.SUBMIT] or 10
    return verbs


def _draw_faults(rng: Random, seed: int) -> Faults:
    drawn: dict[str, Any] = {}
    for name, weight_max in FAULT_WEIGHT_MAX.items():
        is_on = rng.random() < FAULT_PROBABILITY.get(name, 0.4)
        weight = rng.random()
        if is_on:
            drawn[name] = round(weight_max * max(weight, 0.1), 5)
    own = Random(f"roll back {seed}")  # so that other plans stay the same
    if own.random() < ROLL_BACK_PROBABILITY:
        drawn["roll_back"] = round(ROLL_BACK_WEIGHT_MAX * max(own.random(), 0.1), 5)
    return Faults(**drawn)


def _draw_op(rng: Random, verbs: dict[Verb, int], keys: int, bodies: int, windows: list[int], leases: list[int]) -> Op:
    verb = rng.choices(list(verbs), list(verbs.values()))[0]
    return Op(
        verb,
        wait_ms=rng.choice([0, 0, 10, 100, 300, 1000, 2500]),
        key=min(rng.randrange(keys), rng.randrange(keys)),
        body=rng.randrange(bodies) if rng.random() < 0.2 else 0,
        ttl_ms=rng.choice(windows),
        lease_ms=rng.choice(leases),
        renewals=rng.choice([0, 0, 1, 3]),
        think_ms=rng.choice([0, 50, 200, 1000, 3000]),
        verdict=rng.choice(VERDICTS),
        is_repeated=rng.random() < 0.2,
    )
