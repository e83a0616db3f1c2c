"""Work operations in Python, on every engine: claim, start, extend, finish, release, and waiting."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import onejob
from onejob.clock import FakeClock, SystemClock
from onejob.conformance.queries import store_facts
from onejob.conformance.samples import a_job, submit
from onejob.core.command import Command
from onejob.core.facts import Kind
from onejob.core.identity import Actor
from onejob.core.replies import AnyReply
from onejob.core.states import JobState
from onejob.core.work import Claim
from onejob.engine import ListBacklogs, ListDueFacts, Page, Query
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.engines.memory import MemoryEngine
from onejob.ledger.base import runtime_of
from onejob.runtime import maintenance, wakeups
from onejob.runtime.claims import ClaimedJob, ClaimRequest, Claims
from onejob.runtime.maintenance import LeaseExpiry
from tests.support.ledger_settings import set_settings

LEASE = timedelta(seconds=60)


async def test_a_job_goes_from_claim_to_result(queue: onejob.Ledger) -> None:
    made = await queue.submit("charge", {"amount": 42})
    (attempt,) = await queue.claim("charge", lease=LEASE)
    assert (attempt.job_id, attempt.value, attempt.token) == (made.job_id, {"amount": 42}, 1)
    assert await queue.claim("charge") == []
    attempt = await queue.start(attempt)
    attempt = await queue.extend(attempt, progress={"done": 0.5}, logs=["one", "two"])
    assert (attempt.job_row.logs, attempt.job_row.progress) == (2, '{"done":0.5}')
    done = await queue.finish(attempt, {"paid": True})
    assert done.state is onejob.JobState.SUCCESS
    assert await queue.result(made.job_id) == {"paid": True}
    assert (await queue.finish(attempt, {"paid": True})).state is onejob.JobState.SUCCESS
    with pytest.raises(onejob.LeaseLost):
        await queue.finish(attempt, {"paid": False})


async def test_a_claim_can_start_at_once(queue: onejob.Ledger) -> None:
    await queue.submit("charge")
    (attempt,) = await queue.claim(["charge", "refund"], start=True)
    assert attempt.job.state is onejob.JobState.RUNNING
    with pytest.raises(onejob.NotFound, match="running"):
        await queue.result(attempt.job_id)
    done = await queue.finish(attempt)
    assert done.state is onejob.JobState.SUCCESS
    assert await queue.result(attempt.job_id) is None


async def test_the_most_urgent_jobs_are_claimed_first(queue: onejob.Ledger) -> None:
    made = [await queue.submit("t", n, priority=n % 3) for n in range(9)]
    claimed = await queue.claim("t", limit=5)
    expected = [2, 5, 8, 1, 4]
    assert [attempt.value for attempt in claimed] == expected
    assert [attempt.job_id for attempt in claimed] == [made[n].job_id for n in expected]


async def test_a_failure_is_tried_again_after_a_while_until_it_is_final(queue: onejob.Ledger, clock: FakeClock) -> None:
    made = await queue.submit("t")
    (attempt,) = await queue.claim("t", start=True)
    job = await queue.finish(attempt, error="card declined", retry_after=timedelta(seconds=9))
    assert (job.state, job.error) == (onejob.JobState.SCHEDULED, "card declined")
    assert await queue.claim("t", start=True) == []
    clock.advance(9)
    (again,) = await queue.claim("t", start=True)
    assert (again.job_id, again.token, again.job.attempts) == (made.job_id, 2, 2)
    with pytest.raises(onejob.LeaseLost):
        await queue.extend(attempt)
    assert (await queue.finish(again, error="never", final=True)).state is onejob.JobState.FAILED
    assert (await queue.rerun(made.job_id, note="fixed")).state is onejob.JobState.PENDING
    (third,) = await queue.claim("t", start=True)
    assert third.token == 3


async def test_the_key_of_a_verb_belongs_to_the_job_whoever_owns_the_keys(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    ann, bob = (queue.acting_as(tenant="default", user=user, actor=Actor.user(user)) for user in ("ann", "bob"))
    made = await ann.submit("t", 1, idempotency_key="k", idempotency_ttl=timedelta(seconds=1))

    async def fail() -> None:
        (attempt,) = await ann.claim("t", start=True)
        assert (await ann.finish(attempt, error="boom", final=True)).state is onejob.JobState.FAILED

    await fail()
    assert (await ann.rerun(made.job_id, idempotency_key="again")).state is onejob.JobState.PENDING
    await fail()
    for key_owner in ("tenant", "user", "tenant"):
        clock.advance(2)  # no key is live
        assert (await set_settings(queue, key_owner=key_owner)).is_possible
        for user in (ann, bob):
            assert (await user.rerun(made.job_id, idempotency_key="again")).state is onejob.JobState.FAILED
            with pytest.raises(onejob.SubmissionRefused):  # the same key is the same verb
                await user.resolve(made.job_id, "succeeded", idempotency_key="again")
    assert (await bob.rerun(made.job_id, idempotency_key="once more")).state is onejob.JobState.PENDING


async def test_a_released_job_can_be_claimed_by_another_worker(queue: onejob.Ledger) -> None:
    await queue.submit("t")
    (attempt,) = await queue.claim("t", start=True)
    assert (await queue.release(attempt)).attempts == 0
    (other,) = await queue.claim("t")
    with pytest.raises(onejob.LeaseLost):
        await queue.start(attempt)
    assert (await queue.start(other)).token == 2


async def test_two_deliveries_of_one_claim_start_it_once(queue: onejob.Ledger) -> None:
    await queue.submit("t")
    (attempt,) = await queue.claim("t")
    other = onejob.Attempt(_held_by(attempt, b"another"), attempt.input, attempt.lease_ms)
    started = await asyncio.gather(queue.start(attempt), queue.start(other), return_exceptions=True)
    assert sum(isinstance(one, onejob.Attempt) for one in started) == 1
    assert sum(isinstance(one, onejob.LeaseLost) for one in started) == 1


async def test_log_lines_sent_twice_are_stored_once(queue: onejob.Ledger) -> None:
    await queue.submit("t")
    (attempt,) = await queue.claim("t", start=True)
    first = await queue.extend(attempt, logs=["a", "b"], offset=0)
    assert (await queue.extend(attempt, logs=["a", "b"], offset=0)).job_row.logs == 2
    assert (await queue.extend(first, logs=["c" * 5000])).job_row.logs == 3
    with pytest.raises(onejob.WorkRefused):
        await queue.extend(first, logs=["e"], offset=7)
    with pytest.raises(onejob.Invalid):
        await queue.extend(first, logs=["x"] * 101)
    with pytest.raises(onejob.Invalid):
        await queue.extend(first, progress="x" * 1000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": []},
        {"types": ["t"] * 2 + [str(n) for n in range(100)]},
        {"limit": 0},
        {"limit": 101},
        {"limit": True},
        {"lease": timedelta(0)},
        {"lease": timedelta(days=2)},
    ],
    ids=str,
)
async def test_absurd_claims_are_refused(queue: onejob.Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(onejob.Invalid):
        await queue.claim(**{"types": "t"} | wrong)


async def test_a_waiter_for_a_job_is_woken_at_its_end(queue: onejob.Ledger) -> None:
    made = await queue.submit("t")
    waiting = asyncio.create_task(queue.wait(made.job_id, timedelta(seconds=20)))
    (attempt,) = await queue.claim("t", start=True)
    await queue.finish(attempt, 7)
    assert (await waiting).state is onejob.JobState.SUCCESS


@pytest.mark.parametrize("timeout", [timedelta(milliseconds=10), 0.01, 0, timedelta(0)])
async def test_wait_raises_after_its_timeout(queue: onejob.Ledger, timeout: timedelta | float) -> None:
    made = await queue.submit("t")
    with pytest.raises(TimeoutError, match="is pending after"):
        await queue.wait(made.job_id, timeout)
    assert (await queue.wait_at_most(made.job_id, timedelta(0))).state is onejob.JobState.PENDING


async def test_a_ledger_that_is_closed_ends_its_waits(queue: onejob.Ledger) -> None:
    made = await queue.submit("t")
    waiting = asyncio.create_task(queue.wait(made.job_id))
    await asyncio.sleep(0.05)
    await queue.aclose()
    with pytest.raises(onejob.Unavailable, match="closed"):
        await waiting


async def test_claims_of_one_process_do_not_compete_for_the_same_jobs(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(24):
        await queue.submit("t")
    gate, tried = queue._runtime.gate, 0
    execute_each = gate.execute_each

    async def count_claims(commands: Sequence[Command[Any]]) -> list[AnyReply | BaseException]:
        nonlocal tried
        tried += sum(isinstance(command, Claim) for command in commands)
        return await execute_each(commands)

    monkeypatch.setattr(gate, "execute_each", count_claims)
    claimed = await asyncio.gather(*(queue.claim("t") for _ in range(24)))
    assert len({attempt.job_id for (attempt,) in claimed}) == 24
    assert tried == 24, "no claim tried a job that another one won"


async def test_a_waiting_claim_is_woken_by_a_submission_at_once(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "PAUSE_FIRST", 60.0)  # there is no poll that could find the job
    monkeypatch.setattr(wakeups, "PAUSE_MAX", 60.0)
    claiming = asyncio.create_task(queue.claim("t", wait=timedelta(seconds=20)))
    other = asyncio.create_task(queue.claim("other", wait=timedelta(seconds=20)))
    await asyncio.sleep(0.2)
    made = await queue.submit("t")
    assert [one.job_id for one in await claiming] == [made.job_id]
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_a_scheduled_job_is_claimed_when_its_time_has_come() -> None:
    clock = SystemClock()
    begin = clock.monotonic()
    async with onejob.open("memory://") as queue:
        await queue.submit("t", run_at=datetime.now(UTC) + timedelta(milliseconds=700))
        (attempt,) = await queue.claim("t", wait=timedelta(seconds=20))
        assert 0.6 < clock.monotonic() - begin < 15
        assert attempt.job.state is onejob.JobState.PENDING


async def test_a_job_is_claimable_right_after_its_lease_without_a_sweep(queue: onejob.Ledger, clock: FakeClock) -> None:
    job_id = (await queue.submit("t", max_attempts=2)).job_id
    (first,) = await queue.claim("t", lease=timedelta(milliseconds=500), start=True)
    assert await queue.claim("t", start=True) == []
    clock.advance(0.6)
    (second,) = await queue.claim("t", start=True)
    assert (second.job_id, second.token) == (job_id, first.token + 1)


async def test_an_at_most_once_job_is_lost_right_after_its_lease_without_a_sweep(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    job_id = (await queue.submit("t", delivery=onejob.Delivery.AT_MOST_ONCE)).job_id
    await queue.claim("t", lease=timedelta(milliseconds=500), start=True)
    clock.advance(0.6)
    assert await queue.claim("t") == []
    assert (await queue.job(job_id)).state is onejob.JobState.LOST


async def test_a_waiting_claim_gets_a_job_soon_after_its_lease() -> None:
    clock = SystemClock()
    async with onejob.open("memory://", sweep=False) as queue:
        await queue.submit("t", max_attempts=2)
        await queue.claim("t", lease=timedelta(milliseconds=300), start=True)
        begin = clock.monotonic()
        (again,) = await queue.claim("t", wait=timedelta(seconds=20))
        assert again.token == 2
        assert clock.monotonic() - begin < 15


async def test_due_jobs_that_are_only_to_be_deleted_hide_no_expired_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_PAGE_SIZE", 3)
    engine = MemoryEngine(FakeClock())
    await store_facts(engine, [a_job(state=JobState.SUCCESS, due_at=n + 1) for n in range(3 * 4)])
    running = a_job(state=JobState.RUNNING, due_at=1000, lease_until=1000, attempts_max=2)
    await store_facts(engine, [running])
    leases = LeaseExpiry(engine)
    assert [await leases.end_expired() for _ in range(3)] == [0, 1, 0]
    assert engine.facts[Kind.JOB][running.id].state is JobState.PENDING


async def test_a_cancelled_claim_releases_its_jobs() -> None:
    engine = SlowEngine()
    async with onejob.open("memory://") as queue:
        runtime_of(queue).claims = Claims(_gate_on(engine), runtime_of(queue).ids)
        await engine.execute([])
        claims = runtime_of(queue).claims
        await claims._gate.execute([_submit("t")])
        claiming = asyncio.create_task(claims.claim(_claim_request("t")))
        await engine.reached.wait()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        engine.go.set()
        while not (claimed := await claims.claim(_claim_request("t"))):
            await asyncio.sleep(0.01)
        assert claimed[0].job.token == 2


async def test_tenants_are_served_in_turn() -> None:
    async with onejob.open("memory://") as queue:
        claims = runtime_of(queue).claims
        await queue.submit_many([onejob.Submission(type="t") for _ in range(60)])
        for n in range(3):
            tenant = queue.acting_as(tenant=f"small{n}", user="u", actor=Actor.client("c"))
            for _ in range(3):
                await tenant.submit("t")
        served: list[str] = []
        for _ in range(6):
            served += [one.job.tenant for one in await claims.claim(_claim_request("t", limit=4))]
        assert Counter(served[:12]) == {"default": 3, "small0": 3, "small1": 3, "small2": 3}
        assert set(served[12:]) == {"default"}
        one_by_one = [(await claims.claim(_claim_request("t")))[0].job.tenant for _ in range(3)]
        assert one_by_one == ["default"] * 3


async def test_more_tenants_than_a_page_has_are_all_served() -> None:
    async with onejob.open("memory://") as queue:
        for n in range(130):
            await queue.acting_as(tenant=f"t{n:03}", user="u", actor=Actor.client("c")).submit("t")
        served: Counter[str] = Counter()
        for _ in range(130):
            served.update(one.job.tenant for one in await runtime_of(queue).claims.claim(_claim_request("t")))
        assert served == {f"t{n:03}": 1 for n in range(130)}


async def test_a_claim_that_loses_races_tries_further_jobs() -> None:
    async with onejob.open("memory://") as queue:
        await queue.submit_many([onejob.Submission(type="t", input=n) for n in range(40)])
        claims = [Claims(runtime_of(queue).gate, runtime_of(queue).ids) for _ in range(4)]
        claimed: list[list[ClaimedJob]] = []
        while sum(map(len, claimed)) < 40:
            claimed += await asyncio.gather(*(one.claim(_claim_request("t", limit=5)) for one in claims))
            assert len(claimed) < 40, "the claims keep losing to each other"
        assert sorted(one.input for some in claimed for one in some) == sorted(b"%d" % n for n in range(40))


async def test_an_idle_claim_polls_about_once_a_second() -> None:
    class CountingEngine(MemoryEngine):
        scans = 0

        async def scan(self, query: Query[Any], /) -> Page[Any]:
            assert isinstance(query, (ListBacklogs, ListDueFacts))
            self.scans += isinstance(query, ListBacklogs)
            return await super().scan(query)

    engine = CountingEngine()
    claims = Claims(_gate_on(engine), onejob.ids.SystemIds())
    await claims.claim_or_wait(_claim_request("t"), 2.0)
    before = engine.scans
    await claims.claim_or_wait(_claim_request("t"), 3.0)
    assert engine.scans - before <= 6


def _held_by(attempt: onejob.Attempt, holder: bytes) -> Any:
    return replace(attempt.job_row, holder=holder)


def _claim_request(*types: str, limit: int = 1) -> ClaimRequest:
    return ClaimRequest(types=types, holder=onejob.ids.new_holder(), limit=limit, lease_ms=60_000)


def _submit(type: str) -> Any:
    return submit("k", type=type)


def _gate_on(engine: MemoryEngine) -> Gate:
    return Gate(Batcher(engine), onejob.IdempotencyConfig(), FakeClock().monotonic)


class SlowEngine(MemoryEngine):
    """Delays claims until the event `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def execute(self, commands: Any, /, **options: Any) -> Any:
        if any(type(command).__name__ == "Claim" for command in commands):
            self.reached.set()
            await self.go.wait()
        return await super().execute(commands, **options)
