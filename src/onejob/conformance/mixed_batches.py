"""Every command in one batch with every other gets the reply that it gets alone."""

from typing import Any

from onejob.core.command import Command
from onejob.core.credentials import DropPolicy, LookUpPolicy
from onejob.core.facts import Job
from onejob.core.lookup import DryRun, LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import (
    Cancelled,
    Conflict,
    Created,
    DryRunReply,
    Forgotten,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Maintained,
    Missing,
    PolicyFound,
    Refused,
    Rejected,
    Replayed,
    Reply,
)
from onejob.core.reserve import Renew, TakeOver, Verdict
from onejob.core.work import Cancel
from onejob.engine import Engine
from onejob.ids import new_holder, new_job_id

from .commands import FactsRead, IncrementCounter, write_facts
from .samples import (
    ACTOR,
    LEASE_MS,
    TENANT,
    a_job,
    a_record,
    a_stream,
    a_usage,
    fence,
    key_id,
    policy_ids,
    reserve,
    set_policy,
    settle,
    submit,
)
from .world import World, expect

Expected = list[tuple[Command[Any], type[Reply]]]


class MixedBatchRules:
    async def test_all_commands_can_share_one_batch(self, world: World) -> None:
        expected = await _mixed_batch(world)
        replies = await world.engine.execute([command for command, _ in expected])
        for (command, kind), reply in zip(expected, replies, strict=True):
            assert isinstance(reply, kind), (command, reply)

    async def test_commands_get_the_same_replies_alone_as_in_a_batch(self, world: World) -> None:
        for command, kind in await _mixed_batch(world):
            await expect(world.engine, command, kind)


async def _mixed_batch(world: World) -> Expected:
    """Every command at least once, each on facts of its own, with the type of its reply."""
    engine = world.engine
    held = {name: await _hold_key(engine, name) for name in ("renew", "commit", "reject", "fail", "stale")}
    await expect(engine, reserve("abandoned", lease_ms=1), KeyHeld)
    await expect(engine, submit("expired", ttl_ms=1), Created)
    await expect(engine, settle(await _hold_key(engine, "rejected"), Verdict.REJECT), KeySettled)
    due = a_job(due_at=1)
    await expect(engine, write_facts(due), FactsRead)
    names = ("old", "cancel", "forget", "purge")
    jobs = {name: (await expect(engine, submit(name), Created)).job for name in names}
    await world.advance(2)
    await expect(engine, set_policy("old"), PolicyFound)
    work = [*_submissions(), *_verdicts(held), *_reads(jobs["old"])]
    return [*work, *_policies(), *_maintenance(jobs["cancel"], due)]


def _submissions() -> Expected:
    return [
        (submit("new"), Created),
        (submit(""), Created),
        (submit("old"), Replayed),
        (submit("old", input=b"{}"), Conflict),
        (submit("rejected"), Rejected),
        (submit("stale"), InProgress),
        (submit("expired"), Created),
        (reserve("reserve"), KeyHeld),
        (reserve("record", job_id=b""), KeyHeld),
        (reserve("old"), Replayed),
        (TakeOver(tenant=TENANT, record_id=key_id("abandoned"), holder=new_holder(), lease_ms=1), KeyHeld),
    ]


def _verdicts(held: dict[str, KeyHeld]) -> Expected:
    stale = fence(held["stale"]) | {"holder": new_holder()}
    return [
        (Renew(**fence(held["renew"]), lease_ms=LEASE_MS), KeyHeld),
        (Renew(**stale, lease_ms=LEASE_MS), Refused),
        (settle(held["commit"]), KeySettled),
        (settle(held["reject"], Verdict.REJECT), KeySettled),
        (settle(held["fail"], Verdict.FAIL), KeySettled),
    ]


def _reads(job: Job) -> Expected:
    return [
        (LookUpKey(tenant=TENANT, record_id=key_id("old")), Found),
        (LookUpKey(tenant=TENANT, record_id=key_id("none")), Missing),
        (LookUpJob(tenant=TENANT, job_id=job.id), Found),
        (DryRun(tenant=TENANT, command=submit("old")), DryRunReply),
    ]


def _policies() -> Expected:
    return [
        (set_policy("new"), PolicyFound),
        (set_policy("old", body=b"{}", expected_version=7), Refused),
        (set_policy("old", body=b"{}", expected_version=1), PolicyFound),
        (LookUpPolicy(**policy_ids("old")), PolicyFound),
        (LookUpPolicy(**policy_ids("none")), Missing),
        (DropPolicy(**policy_ids("old"), expected_version=1), Refused),
        (DropPolicy(**policy_ids("none")), Maintained),
    ]


def _maintenance(job: Job, due: Job) -> Expected:
    return [
        (Cancel(tenant=TENANT, job_id=job.id, actor=ACTOR), Cancelled),
        (Cancel(tenant=TENANT, job_id=new_job_id(), actor=ACTOR), Missing),
        (Forget(tenant=TENANT, record_id=key_id("forget"), actor=ACTOR, grace_ms=10), Forgotten),
        (Purge(tenant=TENANT, record_id=key_id("purge")), Maintained),
        (Expire(tenant=TENANT, record_id=key_id("old")), Maintained),
        (Maintain(tenant=TENANT, job_id=due.id), Maintained),
        (CountHits(tenant=TENANT, record_id=key_id("old"), hits=2, conflicts=1), Maintained),
        (IncrementCounter(tenant=TENANT), FactsRead),
        (write_facts(a_record("written"), a_stream(), a_usage()), FactsRead),
    ]


async def _hold_key(engine: Engine, key: str) -> KeyHeld:
    return await expect(engine, reserve(key, lease_ms=60_000), KeyHeld)
