"""Seeded rounds of the bucket engine on a store that loses, delays and repeats requests.

In each round four engines on one log race for twenty keys, for six slots of one user, and for a counter, which has no echo:
a batch that is put twice shows as a wrong number. `python -m tests.campaigns.bucket` runs many.
"""

import argparse
import asyncio
import logging
import random
import tempfile
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from onejob.clock import Clock, SystemClock
from onejob.conformance.commands import FactsRead, IncrementCounter
from onejob.conformance.samples import TENANT, USER, key_id, quota_ids, set_limit, submit
from onejob.conformance.world import list_facts
from onejob.core.facts import Kind
from onejob.core.identity import format_job_id
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Created, Found, Refused, Replayed
from onejob.engines.bucket import BucketEngine
from onejob.engines.bucket.objects import ObjectStore
from onejob.engines.bucket.replica import ReplicaFile
from onejob.engines.bucket.url import ViewMode
from tests.support.object_stores import FaultyObjects, MemoryObjects

WRITERS = 4
KEYS = 20
RACERS = 4
SLOTS = 6
COUNTERS = 30
AT_ONCE = 10


async def open_bucket(
    objects: ObjectStore, folder: Path, clock: Clock, *, view: ViewMode = ViewMode.BEFORE
) -> BucketEngine:
    engine = BucketEngine(objects, ReplicaFile(str(folder), "test"), clock=clock, view=view)
    await engine.start()
    return engine


async def run_round(seed: int, folder: Path, engine_class: type[BucketEngine] = BucketEngine) -> None:
    rng, clock = Random(seed), SystemClock()
    store = MemoryObjects(clock)
    async with AsyncExitStack() as stack:
        engines, faulty = [], []
        for _ in range(WRITERS):
            objects = FaultyObjects(store, rng, weight=0.0)
            engine = engine_class(
                objects, ReplicaFile(str(folder), "round"), clock=clock, view=rng.choice([ViewMode.SOON, ViewMode.OFF])
            )
            await engine.start()
            stack.push_async_callback(engine.aclose)
            engines.append(engine)
            faulty.append(objects)
        await engines[0].execute([set_limit(SLOTS)])
        for objects in faulty:
            objects.weight = 0.04
        await _race(rng, engines)
        for objects in faulty:
            objects.weight = 0.0
            if objects.late:
                await asyncio.wait(objects.late)
        await _check(engines[rng.randrange(WRITERS)])


async def _race(rng: Random, engines: list[BucketEngine]) -> None:
    jobs: dict[str, set[str]] = defaultdict(set)
    created: dict[str, int] = defaultdict(int)
    numbers: list[int] = []
    admitted = 0

    async def submit_key(key: str) -> None:
        reply = (await rng.choice(engines).execute([submit(key, ttl_ms=3_600_000)]))[0]
        assert isinstance(reply, (Created, Replayed)), reply
        created[key] += isinstance(reply, Created)
        assert reply.job is not None
        jobs[key].add(format_job_id(reply.job.id))
        found = (await rng.choice(engines).execute([LookUpKey(tenant=TENANT, record_id=key_id(key))]))[0]
        assert isinstance(found, Found), f"{key} was answered, then not found"

    async def take_slot(n: int) -> None:
        nonlocal admitted
        command = submit(f"slot-{n}", **quota_ids(), user=USER, ttl_ms=3_600_000)
        reply = (await rng.choice(engines).execute([command]))[0]
        assert isinstance(reply, (Created, Refused)), reply
        admitted += isinstance(reply, Created)

    async def increment() -> None:
        reply = (await rng.choice(engines).execute([IncrementCounter(tenant=TENANT)]))[0]
        assert isinstance(reply, FactsRead)
        assert reply.policy is not None
        numbers.append(reply.policy.version)

    calls = [submit_key(f"k{n % KEYS}") for n in range(KEYS * RACERS)]
    calls += [take_slot(n) for n in range(2 * SLOTS)]
    calls += [increment() for _ in range(COUNTERS)]
    rng.shuffle(calls)
    await asyncio.gather(*calls)
    assert all(len(ids) == 1 for ids in jobs.values()), jobs
    assert all(count == 1 for count in created.values()), created
    assert admitted == SLOTS, admitted
    assert sorted(numbers) == list(range(1, COUNTERS + 1)), sorted(numbers)


async def _check(engine: BucketEngine) -> None:
    assert len(await list_facts(engine, Kind.JOB)) == KEYS + SLOTS
    (usage,) = await list_facts(engine, Kind.USAGE)
    assert usage.live == SLOTS
    versions = [policy.version for policy in await list_facts(engine, Kind.POLICY) if policy.name == "counter"]
    assert versions == [COUNTERS]


async def run_rounds(first_seed: int, rounds: int, engine_class: type[BucketEngine] = BucketEngine) -> None:
    """Several at a time, because a round mostly waits."""
    for start in range(first_seed, first_seed + rounds, AT_ONCE):
        seeds = range(start, min(start + AT_ONCE, first_seed + rounds))
        with tempfile.TemporaryDirectory(prefix="onejob-") as folder:
            results = await asyncio.gather(
                *(run_round(seed, Path(folder) / str(seed), engine_class) for seed in seeds), return_exceptions=True
            )
        for seed, result in zip(seeds, results, strict=True):
            if result is not None:
                raise AssertionError(f"seed {seed}: {result!r}") from result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"bucket: {options.rounds} rounds from seed {options.seed}")
    logging.disable()
    asyncio.run(run_rounds(options.seed, options.rounds))


if __name__ == "__main__":
    main()
