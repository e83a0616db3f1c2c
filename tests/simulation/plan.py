"""A walk as data, drawn from a seed: who does what, in which house, under which faults.

Each seed also draws which faults are on and how small everything is: with all of them on at once, most bugs
would hide behind the loudest fault.
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
    RESERVE = "reserve"  # then renew, then settle, or go away without a word
    TAKE_OVER = "take_over"
    CANCEL = "cancel"
    FORGET = "forget"
    DRY_RUN = "probe"
    LOOK_UP = "look_up"
    SWEEP = "sweep"
    FLUSH_HITS = "count"  # write down the hits
    PURGE = "purge"  # erase all that the tenant has, while others submit
    RESERVE_SLOT = "slot"  # reserve one, then submit with it, consume it, release it, or go away
    SET_LIMITS = "limit"  # give a user other limits
    RECONCILE = "recount"
    SUBMIT_SEQUENCE = "sequence"  # the next number of a client, or a wrong one
    WORK = "work"  # claim a job, start it, prolong it, say how it ended; or sleep too long, or go away


class Op(Struct, frozen=True, omit_defaults=True):
    verb: Verb
    wait_ms: int = 0
    key: int = 0
    body: int = 0
    ttl_ms: int = 1000
    lease_ms: int = 500
    renewals: int = 0  # renewals
    think_ms: int = 0  # before each of them, and before the verdict
    verdict: Verdict | None = None
    is_repeated: bool = False  # the verdict is sent again, as by an impatient holder


class Faults(Struct, frozen=True, omit_defaults=True):
    """Chances per act; crash, pause, roll and jump are rates per second."""

    unavailable: float = 0.0
    request_lost: float = 0.0  # Unknown, and nothing was done
    reply_lost: float = 0.0  # Unknown, and it was done
    late: float = 0.0  # Unknown, and it is done after a while
    slow: float = 0.0
    wire_lost: float = 0.0  # the client never hears
    hang_up: float = 0.0  # the caller goes away while it is served
    crash: float = 0.0
    roll: float = 0.0  # an orderly restart
    pause: float = 0.0
    back: float = 0.0  # the store's clock steps back
    forward: float = 0.0
    drift: float = 0.0  # of the processes' monotonic clocks


class Plan(Struct, frozen=True, omit_defaults=True):
    seed: int
    clients: tuple[tuple[Op, ...], ...]
    faults: Faults = Faults()
    salt: int = 0  # another order of the same plan
    keys: int = 1
    keys_without_job: int = 0  # the last so many keys have records without a job
    has_sequenced_key: bool = False  # one more key, which belongs to a sequenced client: it is refused
    has_workers: bool = False  # some clients run jobs
    quota: int | None = None  # so many jobs at a time for each user; None: nobody counts
    processes: int = 1
    tenants: int = 1
    users: int = 1
    tick_ms: int = 1  # a coarse clock makes the exact millisecond likely
    jitter: float = 0.25
    delay_max: float = 0.02
    latency: float = 0.005
    slow_max: float = 2.0
    client_timeout: float = 4.0  # of a client for one answer
    committed_ttl: float = 1.0
    rejected_ttl: float = 1.0
    max_entries: int = 100
    wait_for_pending: bool = True
    wait_timeout: float = 1.0
    batch_max: int = 64
    queue_max: int = 32_768
    retention_ms: int = 3000


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
# The heaviest that each fault is drawn.
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
# These would loosen what can be checked, so few seeds have them.
FAULT_PROBABILITY = {"forward": 0.08, "drift": 0.15, "back": 0.2, "roll": 0.25}


def draw_plan(seed: int) -> Plan:
    chance = Random(f"plan {seed}")
    pick = chance.choice
    keys = pick([1, 1, 2, 3, 5])
    sequenced = chance.random() < 0.25
    windows = [100 * n for n in (chance.randint(2, 10), chance.randint(10, 50))]
    leases = [100 * n for n in chance.sample(range(2, 21), 2)]
    verbs, bodies, crowd = _draw_verb_weights(chance), pick([1, 2, 2, 3]), pick([2, 4, 6, 8])
    # Drawn apart, so that the walks of seeds without an erasure stay what they were.
    verbs[Verb.PURGE] = Random(f"purge {seed}").choice([0, 0, 0, 6])
    clients = tuple(
        tuple(_draw_op(chance, verbs, keys + sequenced, bodies, windows, leases) for _ in range(chance.randint(3, 14)))
        for _ in range(crowd)
    )
    # Whoever erases a tenant erases its counts and marks too, piece by piece: no law holds of them meanwhile.
    quota, more = (None, []) if verbs[Verb.PURGE] else _draw_quota_and_sequence_clients(seed, keys, windows, leases)
    hands = [] if verbs[Verb.PURGE] else _draw_workers(seed, keys, windows, leases)
    return Plan(
        seed,
        (*clients, *more, *hands),
        _draw_faults(chance),
        keys=keys,
        keys_without_job=pick([0, 0, 0, 1]) if keys > 1 else 0,
        has_sequenced_key=sequenced,
        quota=quota,
        has_workers=bool(hands),
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
    )


def _draw_quota_and_sequence_clients(
    seed: int, keys: int, windows: list[int], leases: list[int]
) -> tuple[int | None, list[tuple[Op, ...]]]:
    """In some walks users are counted, in some there are sequenced clients; drawn apart from the rest."""
    chance = Random(f"more {seed}")
    quota = chance.choice([1, 2, 3, 5, 8, 12]) if chance.random() < 0.3 else None
    crowds = [QUOTA_CLIENT_VERBS] * chance.randint(1, 2) if quota is not None else []
    crowds += [SEQUENCE_CLIENT_VERBS] * chance.randint(1, 3) if chance.random() < 0.3 else []
    return quota, [
        tuple(_draw_op(chance, verbs, keys, 4, windows, leases) for _ in range(chance.randint(3, 10)))
        for verbs in crowds
    ]


def _draw_workers(seed: int, keys: int, windows: list[int], leases: list[int]) -> list[tuple[Op, ...]]:
    """In some walks jobs are run; drawn apart from the rest, so that the other walks stay what they were."""
    chance = Random(f"hands {seed}")
    if chance.random() >= 0.3:
        return []
    return [
        tuple(_draw_op(chance, WORKER_VERBS, keys, 2, windows, leases) for _ in range(chance.randint(4, 12)))
        for _ in range(chance.randint(1, 4))
    ]


def _draw_verb_weights(chance: Random) -> dict[Verb, int]:
    """Most verbs with their usual weight, some left out, some doubled; there is always something submitted."""
    verbs = {verb: weight * chance.choice([0, 1, 1, 2]) for verb, weight in VERBS.items()}
    verbs[Verb.SUBMIT] = verbs[Verb.SUBMIT] or 10
    return verbs


def _draw_faults(chance: Random) -> Faults:
    drawn: dict[str, Any] = {}
    for name, heaviest in FAULT_WEIGHT_MAX.items():
        on = chance.random() < FAULT_PROBABILITY.get(name, 0.4)
        weight = chance.random()
        if on:
            drawn[name] = round(heaviest * max(weight, 0.1), 5)
    return Faults(**drawn)


def _draw_op(
    chance: Random, verbs: dict[Verb, int], keys: int, bodies: int, windows: list[int], leases: list[int]
) -> Op:
    verb = chance.choices(list(verbs), list(verbs.values()))[0]
    return Op(
        verb,
        wait_ms=chance.choice([0, 0, 10, 100, 300, 1000, 2500]),
        key=min(chance.randrange(keys), chance.randrange(keys)),
        body=chance.randrange(bodies) if chance.random() < 0.2 else 0,
        ttl_ms=chance.choice(windows),
        lease_ms=chance.choice(leases),
        renewals=chance.choice([0, 0, 1, 3]),
        think_ms=chance.choice([0, 50, 200, 1000, 3000]),
        verdict=chance.choice(VERDICTS),
        is_repeated=chance.random() < 0.2,
    )
