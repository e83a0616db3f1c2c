"""Runs rules of the conformance suite outside of pytest, as a workload that has every kind of command."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import combinations, product
from typing import Any

from onejob.conformance import World
from onejob.conformance.fences import FencingRules
from onejob.conformance.late_commands import LateCommandRules
from onejob.conformance.mixed_batches import MixedBatchRules
from onejob.conformance.preconditions import PreconditionRules, SettingsRules
from onejob.conformance.quotas import QuotaRules
from onejob.conformance.retries import RetryRules
from onejob.conformance.samples import (
    ACTOR,
    FAR_FUTURE,
    TENANT,
    TYPE,
    USER,
    a_memo,
    every_query,
    policy_ids,
    quota_ids,
    reserve,
    set_limit,
    set_policy,
    submit,
    submit_counted,
    submit_sequence,
)
from onejob.conformance.sequences import SequenceRules
from onejob.conformance.sites import SiteRules
from onejob.conformance.steps import StepRules
from onejob.conformance.stored_keys import StoredKeyRules
from onejob.conformance.tenants import TenantRules
from onejob.conformance.work import WorkRules
from onejob.core.activity import AddActivity
from onejob.core.facts import Job, Kind
from onejob.core.memo import LookUpMemo
from onejob.core.replies import Claimed, Started
from onejob.core.states import JobState
from onejob.core.work import LOG_LINES_MAX, Claim, Extend, Finish, FinishOutcome, Release
from onejob.engine import ListBacklogs, ListDueFacts, ListFacts, ListJobs, ListReadyJobs, Query
from onejob.ids import new_holder, new_job_id
from onejob.runtime.maintenance import PurgeProgress, Sweeper, backfill_usage, purge_tenant
from onejob.runtime.settings import open_settings

_SUITE: tuple[type, ...] = (
    FencingRules, LateCommandRules, MixedBatchRules, PreconditionRules, QuotaRules, RetryRules, SequenceRules,
    SettingsRules, SiteRules, StepRules, StoredKeyRules, TenantRules, WorkRules,
)  # fmt: skip


async def run_rules(rules: tuple[type, ...], make_world: Callable[[], AbstractAsyncContextManager[World]]) -> None:
    for cls in rules:
        for name in sorted(name for name in dir(cls) if name.startswith("test_")):
            rule = getattr(cls(), name)
            for options in _cases(rule):
                async with make_world() as world:
                    await rule(world=world, **options)


def _cases(rule: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each case of a parametrized rule."""
    marks = [mark for mark in getattr(rule, "pytestmark", ()) if mark.name == "parametrize"]
    names = [mark.args[0] for mark in marks]
    for values in product(*(mark.args[1] for mark in marks)):
        yield dict(zip(names, values, strict=True))


class EverydayRules:
    """What the suite leaves out: workers that log, maintenance, a purge, and every query."""

    async def test_a_worker_logs_releases_and_finishes(self, world: World) -> None:
        await world.engine.execute([set_limit(5), submit_counted()])
        ready = await world.engine.scan(ListReadyJobs(types=(TYPE,), tenant=TENANT))
        for end in ("release", "finish"):
            claim = Claim(tenant=TENANT, job_id=ready.items[0].id, holder=new_holder(), start=end == "finish")
            (reply,) = await world.engine.execute([claim])
            assert isinstance(reply, Started if claim.start else Claimed)
            await self._end(world, reply.job)

    async def _end(self, world: World, job: Job) -> None:
        fence: dict[str, Any] = {"tenant": TENANT, "job_id": job.id, "holder": job.holder, "token": job.token}
        if job.state is JobState.PENDING:
            await world.engine.execute([Extend(**fence)])
            await world.engine.execute([Release(**fence)])
            return
        for offset in range(0, LOG_LINES_MAX + 200, 100):
            await world.engine.execute([Extend(**fence, logs=("line",) * 100, offset=offset)])
        await world.engine.execute([Extend(**fence, logs=("last",), offset=LOG_LINES_MAX + 200)])
        outcome = FinishOutcome.SUCCESS
        await world.engine.execute([Finish(**fence, outcome=outcome, result=b"1", actor=ACTOR, final=True)])

    async def test_maintenance_deletes_what_is_over(self, world: World) -> None:
        await world.engine.execute([submit("a"), submit("b"), submit_sequence(1), reserve("c"), set_limit(5)])
        await world.engine.execute([set_policy(ttl_ms=1)])
        await world.engine.execute([submit_counted("d")])
        for days in (0, 1, 400, 4000):
            await world.advance(days * 24 * 3600 * 1000)
            await Sweeper(world.engine).sweep()

    async def test_a_tenant_is_purged(self, world: World) -> None:
        await world.engine.execute([submit("a"), submit("b"), submit_sequence(1), set_policy()])
        await backfill_usage(world.engine, TENANT)
        report = AddActivity(tenant=TENANT, policy_id=policy_ids("p")["policy_id"], source="s", number=1, counts={})
        await world.engine.execute([report])
        await world.engine.execute([LookUpMemo(tenant=TENANT, job_id=a_memo().job_id, name="charge")])
        await purge_tenant(world.engine, TENANT, PurgeProgress())

    async def test_commands_name_the_settings_of_the_ledger(self, world: World) -> None:
        """As the front door sends them, alone and in batches, for users with and without limits."""
        opened = await open_settings(world.engine, {})
        fields = {"settings": opened.body}
        for limited in (False, True):
            if limited:
                await world.engine.execute([set_limit(1000)])
            for count in (1, 2, 40):
                for options in (fields, fields | quota_ids()):
                    for build in (submit, reserve):
                        await world.engine.execute([build(new_job_id().hex(), **options) for _ in range(count)])
                    await world.engine.execute([submit("", **options) for _ in range(count)])
                    await world.engine.execute([submit("same", **options) for _ in range(count)])
                    await world.engine.execute([submit("same", input=b"2", **options)])

    async def test_every_query_is_answered(self, world: World) -> None:
        await world.engine.execute([submit(type="a"), submit("l", type="b")])
        for query in queries():
            await world.engine.scan(query)


def queries() -> list[Query[Any]]:
    """Every query, and every filter of a list of jobs alone, some in pairs, and all of them together."""
    filters: dict[str, Any] = {
        "state": JobState.PENDING, "type": TYPE, "user": USER, "usage_id": b"u", "label": b'"a":"b"',
        "created_from": 1, "created_to": FAR_FUTURE, "before": b"j",
    }  # fmt: skip
    alone = [{name: value} for name, value in filters.items()]
    pairs = [{name: filters[name] for name in pair} for pair in combinations(("state", "type", "user"), 2)]
    lists = [ListJobs(tenant=TENANT, **chosen) for chosen in (*alone, *pairs)]
    others: list[Query[Any]] = [
        ListBacklogs(types=(TYPE,), tenant=TENANT),
        ListFacts(tenant=TENANT, kind=Kind.JOB, after=b"j"),
        ListFacts(tenant=None, kind=Kind.RECORD, after=b"r"),
    ]
    due: list[Query[Any]] = [ListDueFacts(kind=kind) for kind in Kind if kind is not Kind.MEMO]
    return [*every_query(b"j"), *lists, ListJobs(tenant=TENANT, **filters), *others, *due]


RULES = (*_SUITE, EverydayRules)
# What a server is sent in the time of a test; the others bring about the same combinations of facts.
SERVER_RULES = (
    EverydayRules,
    QuotaRules,
    SequenceRules,
    SettingsRules,
    SiteRules,
    StepRules,
    StoredKeyRules,
    WorkRules,
)
