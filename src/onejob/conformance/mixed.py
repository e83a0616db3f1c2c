"""Batches in which every command meets every other."""

from typing import Any

from onejob.core.facts import Job
from onejob.core.lookup import LookUp, LookUpJob, Probe
from onejob.core.policy import DropPolicy, LookUpPolicy
from onejob.core.receipt import (
    Cancelled,
    Conflict,
    Created,
    Foreseen,
    Forgotten,
    Found,
    Held,
    InProgress,
    Missing,
    PolicyFound,
    Refused,
    Rejected,
    Replayed,
    Reply,
    Settled,
    Tended,
)
from onejob.core.reservation import Renew, TakeOver, Verdict
from onejob.core.step import Command
from onejob.core.upkeep import CountHits, Expire, Forget, Purge, Tend
from onejob.core.work import Cancel
from onejob.engine import Engine
from onejob.ids import new_holder, new_job_id

from .commands import Count, Seen, written
from .samples import (
    ACTOR,
    LEASE_MS,
    TENANT,
    a_job,
    a_record,
    a_stream,
    a_tally,
    fence,
    key_id,
    on_policy,
    reserve,
    set_policy,
    settle,
    submit,
)
from .world import World, ask

Expected = list[tuple[Command[Any], type[Reply]]]


class Mixed:
    async def test_every_command_meets_every_other_in_one_batch(self, world: World) -> None:
        expected = await _mixed_batch(world)
        replies = await world.engine.execute([command for command, _ in expected])
        for (command, kind), reply in zip(expected, replies, strict=True):
            assert isinstance(reply, kind), (command, reply)

    async def test_a_batch_is_answered_as_its_commands_would_be_alone(self, world: World) -> None:
        for command, kind in await _mixed_batch(world):
            await ask(world.engine, command, kind)


async def _mixed_batch(world: World) -> Expected:
    """Every command once or more, each on facts of its own, with the reply it must get."""
    engine = world.engine
    held = {name: await _held(engine, name) for name in ("renew", "commit", "reject", "fail", "stale")}
    await ask(engine, reserve("lapsed", lease_ms=1), Held)
    await ask(engine, submit("expired", ttl_ms=1), Created)
    await ask(engine, settle(await _held(engine, "rejected"), Verdict.REJECT), Settled)
    due = a_job(due_at=1)
    await ask(engine, written(due), Seen)
    names = ("old", "cancel", "forget", "purge")
    jobs = {name: (await ask(engine, submit(name), Created)).job for name in names}
    await world.advance(2)
    await ask(engine, set_policy("old"), PolicyFound)
    work = [*_submissions(), *_verdicts(held), *_reads(jobs["old"])]
    return [*work, *_policies(), *_upkeep(jobs["cancel"], due)]


def _submissions() -> Expected:
    return [
        (submit("new"), Created),
        (submit(""), Created),
        (submit("old"), Replayed),
        (submit("old", input=b"{}"), Conflict),
        (submit("rejected"), Rejected),
        (submit("stale"), InProgress),
        (submit("expired"), Created),
        (reserve("reserve"), Held),
        (reserve("record", job_id=b""), Held),
        (reserve("old"), Replayed),
        (TakeOver(tenant=TENANT, record_id=key_id("lapsed"), holder=new_holder(), lease_ms=1), Held),
    ]


def _verdicts(held: dict[str, Held]) -> Expected:
    stale = fence(held["stale"]) | {"holder": new_holder()}
    return [
        (Renew(**fence(held["renew"]), lease_ms=LEASE_MS), Held),
        (Renew(**stale, lease_ms=LEASE_MS), Refused),
        (settle(held["commit"]), Settled),
        (settle(held["reject"], Verdict.REJECT), Settled),
        (settle(held["fail"], Verdict.FAIL), Settled),
    ]


def _reads(job: Job) -> Expected:
    return [
        (LookUp(tenant=TENANT, record_id=key_id("old")), Found),
        (LookUp(tenant=TENANT, record_id=key_id("none")), Missing),
        (LookUpJob(tenant=TENANT, job_id=job.id), Found),
        (Probe(tenant=TENANT, command=submit("old")), Foreseen),
    ]


def _policies() -> Expected:
    return [
        (set_policy("new"), PolicyFound),
        (set_policy("old", body=b"{}", expected=7), Refused),
        (set_policy("old", body=b"{}", expected=1), PolicyFound),
        (LookUpPolicy(**on_policy("old")), PolicyFound),
        (LookUpPolicy(**on_policy("none")), Missing),
        (DropPolicy(**on_policy("old"), expected=1), Refused),
        (DropPolicy(**on_policy("none")), Tended),
    ]


def _upkeep(job: Job, due: Job) -> Expected:
    return [
        (Cancel(tenant=TENANT, job_id=job.id, actor=ACTOR), Cancelled),
        (Cancel(tenant=TENANT, job_id=new_job_id(), actor=ACTOR), Missing),
        (Forget(tenant=TENANT, record_id=key_id("forget"), actor=ACTOR, grace_ms=10), Forgotten),
        (Purge(tenant=TENANT, record_id=key_id("purge")), Tended),
        (Expire(tenant=TENANT, record_id=key_id("old")), Tended),
        (Tend(tenant=TENANT, job_id=due.id), Tended),
        (CountHits(tenant=TENANT, record_id=key_id("old"), hits=2, conflicts=1), Tended),
        (Count(tenant=TENANT), Seen),
        (written(a_record("written"), a_stream(), a_tally()), Seen),
    ]


async def _held(engine: Engine, key: str) -> Held:
    return await ask(engine, reserve(key, lease_ms=60_000), Held)
