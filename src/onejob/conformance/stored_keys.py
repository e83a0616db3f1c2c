"""A key is stored for an external job: over a key that nobody holds it ends the preparation, over a held one nothing changes."""

from typing import Any

import pytest
from msgspec import json

from onejob.core.facts import NOT_FREE, AttachmentKind, Kind, free_version
from onejob.core.identity import format_job_id
from onejob.core.lookup import LookUpJob, LookUpKey
from onejob.core.replies import (
    Created,
    Found,
    InProgress,
    KeyHeld,
    KeySettled,
    Missing,
    Reason,
    Refused,
    Replayed,
    UsageFound,
)
from onejob.core.reserve import Renew, TakeOver, Verdict
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.submit import ExternalJob, StoreKey
from onejob.core.work import RETENTION_MS
from onejob.ids import new_holder

from .samples import (
    ACTOR,
    LEASE_MS,
    TENANT,
    TTL_MS,
    TYPE,
    USER,
    fence,
    key_id,
    quota_ids,
    reserve,
    set_limit,
    settle,
    submit,
    submit_counted,
)
from .world import World, dump_store, expect, list_facts, race, read_attachments

ELSEWHERE = "ec2-77"
EXTERNAL_JOB = ExternalJob(ELSEWHERE, ACTOR, USER, TTL_MS)

each_way_to_be_free = pytest.mark.parametrize("released", [True, False], ids=["released", "lapsed"])


class StoredKeyRules:
    @each_way_to_be_free
    async def test_storing_a_key_that_nobody_holds_ends_its_preparation(self, world: World, released: bool) -> None:
        await expect(world.engine, set_limit(1), UsageFound)
        held = await expect(world.engine, reserve(**quota_ids()), KeyHeld)
        await free(world, held, released=released)
        settled = await expect(world.engine, store_key(), KeySettled)
        assert (settled.record.status, settled.record.external_id) == (IdempotencyStatus.COMMITTED, ELSEWHERE)
        assert settled.record.token == held.token + 1
        found = await expect(await world.open_another(), LookUpJob(tenant=TENANT, job_id=held.job_id), Found)
        assert found.job is not None
        assert (found.job.state, found.job.usage_id) == (JobState.CANCELLED, b"")
        # No record names the job any more, so that only its retention keeps it.
        assert (found.job.keep_until, found.job.due_at) == (0, found.job.ended_at + RETENTION_MS)
        (event,) = await read_attachments(world.engine, held.job_id, AttachmentKind.EVENT)
        assert ELSEWHERE in json.decode(event)["detail"]
        await assert_settled(world, held)
        await expect(world.engine, submit_counted("next", **quota_ids()), Created)  # its slot is free, and only once
        await expect(world.engine, submit_counted("one more", **quota_ids()), Refused)

    @each_way_to_be_free
    async def test_storing_a_key_without_a_job_fences_off_its_holder(self, world: World, released: bool) -> None:
        held = await expect(world.engine, reserve(job_id=b""), KeyHeld)
        await free(world, held, released=released)
        await expect(world.engine, store_key(), KeySettled)
        await assert_settled(world, held)

    async def test_a_holder_that_took_the_key_over_is_fenced_off_like_the_first(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        for token in (2, 3):
            await world.advance(LEASE_MS + 1)
            held = await expect(world.engine, reserve(), KeyHeld)
            assert held.token == token
        await world.advance(LEASE_MS + 1)
        assert (await expect(world.engine, store_key(), KeySettled)).record.token == 4
        await assert_settled(world, held)

    async def test_a_held_key_is_not_stored(self, world: World) -> None:
        held = await expect(world.engine, reserve(), KeyHeld)
        before = await dump_store(world.engine)
        for id, reason in (
            (ELSEWHERE, Reason.IDEMPOTENCY_KEY_REUSED),
            (format_job_id(held.job_id), Reason.IN_PROGRESS),
        ):
            assert (await expect(world.engine, store_key(id), Refused)).reason is reason
        assert (await expect(world.engine, submit(external_job=EXTERNAL_JOB), InProgress)).job_id == held.job_id
        assert await dump_store(world.engine) == before
        await expect(world.engine, settle(held), KeySettled)
        await expect(world.engine, store_key(format_job_id(held.job_id)), KeySettled)

    @each_way_to_be_free
    async def test_a_submission_takes_nothing_over_from_a_key_that_is_stored_for_all_types(
        self, world: World, released: bool
    ) -> None:
        for key, command in (("a", submit), ("b", reserve)):
            held = await expect(world.engine, reserve(key), KeyHeld)
            await free(world, held, released=released)
            replayed = await expect(world.engine, command(key, external_job=EXTERNAL_JOB), Replayed)
            assert (replayed.job, replayed.external_id) == (None, ELSEWHERE)
            await assert_settled(world, held, key)
        assert {job.state for job in await list_facts(world.engine, Kind.JOB)} == {JobState.CANCELLED}

    @each_way_to_be_free
    async def test_a_key_that_became_free_after_it_was_looked_up_is_in_progress(
        self, world: World, released: bool
    ) -> None:
        doors: list[tuple[str, Any, Any, Any]] = [("a", submit, Created, Replayed), ("b", reserve, KeyHeld, InProgress)]
        for key, command, made, known in doors:
            held = await expect(world.engine, reserve(key), KeyHeld)
            await free(world, held, released=released)
            before = await dump_store(world.engine)
            found = await expect(world.engine, LookUpKey(tenant=TENANT, record_id=key_id(key)), Found)
            assert found.record is not None
            for seen in (0, NOT_FREE, found.record.version - 1):
                reply = await expect(await world.open_another(), command(key, free_version=seen), InProgress)
                assert (reply.job_id, reply.retry_after_ms) == (held.job_id, 1)
                take_over = TakeOver(
                    tenant=TENANT, record_id=key_id(key), holder=new_holder(), lease_ms=LEASE_MS, free_version=seen
                )
                await expect(world.engine, take_over, Missing)
            assert await dump_store(world.engine) == before
            assert found.record.version == free_version(found.record, found.at)
            await expect(world.engine, command(key, free_version=found.record.version), made)
            await expect(world.engine, submit(key, free_version=0), known)

    async def test_a_new_key_that_was_looked_up_is_created(self, world: World) -> None:
        made = await expect(world.engine, submit("a", free_version=0), Created)
        await expect(world.engine, reserve("b", free_version=0), KeyHeld)
        for seen in (0, NOT_FREE, 1):
            again = await expect(world.engine, submit("a", free_version=seen), Replayed)
            assert again.job is not None
            assert again.job.id == made.job.id
        assert (await expect(world.engine, submit("c", free_version=NOT_FREE), InProgress)).job_id == b""

    async def test_of_a_late_commit_and_a_stored_key_one_wins(self, world: World) -> None:
        engines = [world.engine, await world.open_another()]
        held = await expect(world.engine, reserve(), KeyHeld)
        await world.advance(LEASE_MS + 1)
        commands: list[Any] = [settle(held), store_key(), settle(held), store_key()]
        committed, stored, *again = await race(engines, commands)
        assert isinstance(committed, KeySettled) != isinstance(stored, KeySettled)
        assert [type(reply) for reply in again] == [type(committed), type(stored)]
        (job,) = await list_facts(world.engine, Kind.JOB)
        assert job.state is (JobState.PENDING if isinstance(committed, KeySettled) else JobState.CANCELLED)


def store_key(id: str = ELSEWHERE) -> StoreKey:
    return StoreKey(
        tenant=TENANT, record_id=key_id(), scope=TYPE, key="k", external_id=id, actor=ACTOR, user=USER, ttl_ms=TTL_MS
    )


async def free(world: World, held: KeyHeld, *, released: bool) -> None:
    """Let nobody hold the key any more."""
    if released:
        await expect(world.engine, settle(held, Verdict.FAIL), KeySettled)
    else:
        await world.advance(LEASE_MS + 1)


async def assert_settled(world: World, held: KeyHeld, key: str = "k") -> None:
    """Every submission gets the external job, and neither the old holder nor anybody else can change that."""
    before = await dump_store(world.engine)
    for engine in (world.engine, await world.open_another()):
        for verdict in Verdict:
            assert (await expect(engine, settle(held, verdict), Refused)).reason is Reason.STALE
        assert (await expect(engine, Renew(**fence(held), lease_ms=LEASE_MS), Refused)).reason is Reason.STALE
        take_over = TakeOver(tenant=TENANT, record_id=key_id(key), holder=new_holder(), lease_ms=LEASE_MS)
        for command in (take_over, submit(key), reserve(key), submit(key, input=b"{}")):
            assert (await expect(engine, command, Replayed)).external_id == ELSEWHERE
        found = await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id(key)), Found)
        assert found.job is None
    assert await dump_store(world.engine) == before
