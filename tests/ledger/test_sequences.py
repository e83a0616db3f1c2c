"""The ledger's verbs for sequenced clients, row by row of the specification's tables, on every engine."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw

import onejob
from onejob.clock import FakeClock
from onejob.core.facts import Kind
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.identity import Actor, stream_scope, usage_id
from onejob.core.limits import Limits, encode_limits
from onejob.core.replies import Reason
from onejob.core.sequence import Evict
from onejob.core.slots import SetLimits
from onejob.engine import ListDueFacts

CLIENT, SCOPE = "host1.dc1:12345", "acme/vault-1"
DAY = 86_400
COMMITTED, ALREADY = onejob.SequenceOutcome.COMMITTED, onejob.SequenceOutcome.ALREADY_COMMITTED
Job = onejob.Submission


async def send(queue: onejob.Ledger, sequence: Any, **changes: Any) -> onejob.SequenceReceipt:
    arguments = {
        "client_id": CLIENT,
        "sequence": sequence,
        "idempotency_key": f"key-{sequence}",
        "scope": SCOPE,
    } | changes
    if "jobs" not in arguments:
        arguments = {"type": "write", "input": {"n": sequence}} | arguments
    return await queue.submit_sequence(**arguments)


async def refusal_of(queue: onejob.Ledger, sequence: int, **changes: Any) -> onejob.SubmissionRefused:
    with pytest.raises(onejob.SubmissionRefused) as caught:
        await send(queue, sequence, **changes)
    return caught.value


async def last_sequence(queue: onejob.Ledger, client_id: str = CLIENT, scope: Any = SCOPE) -> int:
    return (await queue.get_client_state(client_id, scope=scope)).last_committed_sequence


def job_ids_of(receipt: onejob.SequenceReceipt) -> list[str]:
    return [job.id for job in receipt.jobs]


async def evict(queue: onejob.Ledger) -> int:
    """The sweep of idle streams alone."""
    due = await queue._gate.scan(ListDueFacts(kind=Kind.STREAM))
    await queue._gate.execute([Evict(tenant=one.tenant, stream_id=one.id) for one in due.items])
    return len(due.items)


async def set_limits(queue: onejob.Ledger, **limits: Any) -> None:
    id = usage_id("default", "local")
    await queue._execute(SetLimits(tenant="default", usage_id=id, user="local", limits=encode_limits(Limits(**limits))))


async def test_the_next_number_is_executed_and_an_unknown_client_is_at_zero(queue: onejob.Ledger) -> None:
    assert await queue.get_client_state(CLIENT, scope=SCOPE) == onejob.ClientState(CLIENT, SCOPE, 0, None)
    for sequence in (1, 2, 3):
        receipt = await send(queue, sequence)
        assert (receipt.outcome, receipt.assigned_sequence, receipt.last_committed_sequence) == (
            COMMITTED,
            sequence,
            sequence,
        )
        assert receipt.committed
        assert receipt.expires_at is not None
        assert await queue.input(job_ids_of(receipt)[0]) == b'{"n":%d}' % sequence
    state = await queue.get_client_state(CLIENT, scope=SCOPE)
    (newest,) = await queue.jobs(limit=1)
    assert (state.last_committed_sequence, state.last_seen) == (3, newest.created_at)


@pytest.mark.parametrize("sequence", [1, 2, 3])
async def test_a_repeated_number_gets_its_whole_receipt_with_live_jobs(queue: onejob.Ledger, sequence: int) -> None:
    first = {n: await send(queue, n) for n in (1, 2, 3)}[sequence]
    await queue.cancel(job_ids_of(first)[0])
    again = await send(queue, sequence)
    assert (again.outcome, again.assigned_sequence, again.last_committed_sequence) == (ALREADY, sequence, 3)
    assert (job_ids_of(again), again.expires_at) == (job_ids_of(first), first.expires_at)
    assert again.jobs[0].state is onejob.JobState.CANCELLED


async def test_a_gap_is_refused_and_the_client_recovers_from_its_state(queue: onejob.Ledger) -> None:
    await send(queue, 1)
    gap = await refusal_of(queue, 3)
    assert (gap.reason, gap.details) == (Reason.SEQUENCE_GAP, {"last_committed_sequence": 1})
    recovered = await last_sequence(queue) + 1
    assert (await send(queue, recovered)).assigned_sequence == 2
    assert (await send(queue, 3)).committed


async def test_a_used_number_under_another_key_is_refused(queue: onejob.Ledger) -> None:
    await send(queue, 1)
    other = await refusal_of(queue, 1, idempotency_key="other", input="another")
    assert other.reason is Reason.ALREADY_COMMITTED
    assert other.details == {"assigned_sequence": 1, "last_committed_sequence": 1}
    assert not other.retryable
    assert len(await queue.jobs()) == 1


async def test_a_used_number_whose_window_is_over_is_refused_and_never_runs_again(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    await send(queue, 1, idempotency_ttl=timedelta(seconds=1))
    clock.advance(2)
    assert (await refusal_of(queue, 1)).reason is Reason.ALREADY_COMMITTED
    assert len(await queue.jobs()) == 1


async def test_a_live_key_under_a_new_number_gets_its_original_answer_and_number(
    queue: onejob.Ledger,
) -> None:
    first = await send(queue, 1)
    for sequence in (2, 9):
        moved = await send(queue, sequence, idempotency_key="key-1", input={"n": 1})
        assert (moved.outcome, moved.assigned_sequence, job_ids_of(moved)) == (ALREADY, 1, job_ids_of(first))
    assert await last_sequence(queue) == 1


async def test_a_key_with_another_payload_is_reused(queue: onejob.Ledger) -> None:
    await send(queue, 1)
    for sequence in (1, 2, 9):
        reused = await refusal_of(queue, sequence, idempotency_key="key-1", input="another")
        assert (reused.reason, reused.details) == (Reason.IDEMPOTENCY_KEY_REUSED, {"assigned_sequence": 1})
    assert (await send(queue, 2)).committed


async def test_a_key_of_another_client_or_of_an_unsequenced_submission_is_reused(queue: onejob.Ledger) -> None:
    await send(queue, 1)
    stranger = await refusal_of(queue, 1, client_id="other", input={"n": 1})
    assert (stranger.reason, stranger.details) == (Reason.IDEMPOTENCY_KEY_REUSED, {})
    with pytest.raises(onejob.SubmissionRefused, match="sequenced"):
        await queue.submit("write", {"n": 1}, idempotency_key="key-1", scope=SCOPE)
    await queue.submit("write", {"n": 2}, idempotency_key="plain", scope=SCOPE)
    plain = await refusal_of(queue, 2, idempotency_key="plain")
    assert plain.reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert await last_sequence(queue) == 1


@pytest.mark.parametrize("value", [0, -1, 2**64, 1.5, 1.0, "1", True, None])
async def test_an_invalid_number_is_refused(queue: onejob.Ledger, value: Any) -> None:
    with pytest.raises(onejob.Invalid, match="sequence"):
        await send(queue, value)
    assert await queue.jobs() == []


async def test_scopes_and_clients_count_apart(queue: onejob.Ledger) -> None:
    places: list[tuple[str, Any]] = [
        ("a", "acme"),
        ("a", ("acme", "v")),
        ("a", ("acme", "v/w")),
        ("b", "acme"),
        ("a:1", "acme"),
    ]
    receipts = [await send(queue, 1, client_id=client, scope=scope) for client, scope in places[:1]]
    receipts += [
        await send(queue, 1, client_id=client, scope=scope, idempotency_key=f"{client}{scope}")
        for client, scope in places[1:]
    ]
    assert all(receipt.committed for receipt in receipts)
    assert [await last_sequence(queue, *place) for place in places] == [1] * 5
    assert await last_sequence(queue, "a", "acme/v") == 1
    assert await last_sequence(queue, "b", "acme/v") == 0


def test_an_organisation_and_a_vault_are_one_scope_of_their_own() -> None:
    pairs = [("a", "b"), ("a", "b/c"), ("ab", "c"), ("a", "bc")]
    assert len({stream_scope(pair) for pair in pairs}) == len(pairs)
    for wrong in [("a/b", "c"), ("", "b"), ("a", ""), ("a",), ("a", "b", "c"), ["a", "b"], ("a", 1), None, "",
                  ("a" * 60, "b" * 60), "type:queue"]:  # fmt: skip
        with pytest.raises(onejob.Invalid):
            stream_scope(wrong)  # type: ignore[arg-type]  # what a caller may get wrong


@pytest.mark.parametrize("client_id", ["", "x" * 201, "a\nb", "\ud800", None, 7])
async def test_an_invalid_client_id_is_refused(queue: onejob.Ledger, client_id: Any) -> None:
    with pytest.raises(onejob.Invalid, match="client id"):
        await send(queue, 1, client_id=client_id)
    with pytest.raises(onejob.Invalid, match="client id"):
        await queue.get_client_state(client_id, scope=SCOPE)


async def test_the_longest_client_id_makes_structured_keys_of_every_number(queue: onejob.Ledger) -> None:
    client = "ü" * 200
    keys = onejob.KeyGenerator(client)
    for sequence in (1, 2):
        key = next(keys)
        assert key.sequence == sequence
        receipt = await send(queue, sequence, client_id=client, idempotency_key=str(key))
        assert (receipt.committed, receipt.key) == (True, str(key))


async def test_a_key_is_compared_and_never_read(queue: onejob.Ledger) -> None:
    odd = str(onejob.IdempotencyKey("somebody-else", 77, "0" * 16))
    first = await send(queue, 1, idempotency_key=odd)
    assert first.assigned_sequence == 1
    assert job_ids_of(await send(queue, 1, idempotency_key=odd)) == job_ids_of(first)


async def test_a_batch_takes_one_number_and_keeps_its_order(queue: onejob.Ledger) -> None:
    jobs = [Job(type=f"t{n % 3}", input=n, priority=n, labels={"n": str(n)}) for n in range(100)]
    first = await send(queue, 1, jobs=jobs)
    assert (first.committed, len(first.jobs), await last_sequence(queue)) == (True, 100, 1)
    assert [(job.type, job.priority, job.labels["n"]) for job in first.jobs] == [
        (f"t{n % 3}", n, str(n)) for n in range(100)
    ]
    assert await queue.input(job_ids_of(first)[42]) == b"42"
    again = await send(queue, 1, jobs=iter(jobs))
    assert (again.outcome, job_ids_of(again)) == (ALREADY, job_ids_of(first))
    swapped = await refusal_of(queue, 1, jobs=[jobs[1], jobs[0], *jobs[2:]])
    assert swapped.reason is Reason.IDEMPOTENCY_KEY_REUSED
    assert (await send(queue, 2)).committed


async def test_a_batch_of_one_asks_for_what_its_job_asks_for(queue: onejob.Ledger) -> None:
    first = await send(queue, 1, type="write", input={"a": 1, "b": 2})
    again = await send(queue, 1, jobs=[Job(type="write", input=Raw(b'{"b": 2.0, "a": 1}'), priority=7)])
    assert job_ids_of(again) == job_ids_of(first)


@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [Job(type="w")] * 101,
        [Job(type="w"), Job(type="")],
        [Job(type="w"), Job(type="w", priority=5000)],
        [Job(type="w"), Job(type="w", input=float("nan"))],
        [Job(type="w", idempotency_key="own")],
        [Job(type="w", scope="own")],
        [Job(type="w", idempotency_ttl_days=1)],
        [Job(type="w", reservation="x")],
        [Job(type="w", input="x" * (INPUT_BYTES_MAX // 2))] * 2,
    ],
)
async def test_an_invalid_batch_leaves_its_number_free_for_another_payload(
    queue: onejob.Ledger, jobs: list[onejob.Submission]
) -> None:
    with pytest.raises(onejob.Invalid):
        await send(queue, 1, jobs=jobs)
    assert (await queue.jobs(), await last_sequence(queue)) == ([], 0)
    assert (await send(queue, 1)).committed


async def test_the_error_names_the_wrong_job_of_a_batch(queue: onejob.Ledger) -> None:
    with pytest.raises(onejob.Invalid, match=r"^jobs\[1\]: .*type"):
        await send(queue, 1, jobs=[Job(type="w"), Job(type="")])


async def test_one_job_or_a_batch_and_never_both(queue: onejob.Ledger) -> None:
    for more in ({"type": "w"}, {"input": 1}, {"priority": 1}):
        with pytest.raises(onejob.Invalid, match="one job"):
            await send(queue, 1, jobs=[Job(type="w")], **more)
    with pytest.raises(onejob.Invalid, match="one job"):
        await queue.submit_sequence(CLIENT, 1, "k", scope=SCOPE)


async def test_a_batch_over_quota_leaves_its_number_free_for_another_payload(queue: onejob.Ledger) -> None:
    await set_limits(queue, max_concurrent=2)
    over = await refusal_of(queue, 1, jobs=[Job(type="w", input=n) for n in range(3)])
    assert over.reason is Reason.QUOTA_EXCEEDED
    assert (await queue.jobs(), await last_sequence(queue)) == ([], 0)
    fits = await send(queue, 1, jobs=[Job(type="w", input=n) for n in range(2)])
    assert fits.committed
    assert [warning.limit for warning in fits.warnings] == ["maxConcurrent"]
    assert (await refusal_of(queue, 2)).reason is Reason.QUOTA_EXCEEDED
    # A hit needs no slot.
    assert job_ids_of(await send(queue, 1, jobs=[Job(type="w", input=n) for n in range(2)])) == job_ids_of(fits)
    await queue.cancel(job_ids_of(fits)[0])
    assert (await send(queue, 2)).committed


async def test_a_hundred_copies_of_one_number_are_executed_once(queue: onejob.Ledger) -> None:
    receipts = await asyncio.gather(*(send(queue, 1) for _ in range(100)))
    assert sorted(receipt.outcome for receipt in receipts) == [ALREADY] * 99 + [COMMITTED]
    assert len({tuple(job_ids_of(receipt)) for receipt in receipts}) == 1
    assert len(await queue.jobs()) == 1


async def test_copies_of_one_number_under_many_keys_and_payloads_are_executed_once(
    queue: onejob.Ledger,
) -> None:
    copies = (send(queue, 1, idempotency_key=f"k{n}", input=n) for n in range(100))
    results = await asyncio.gather(*copies, return_exceptions=True)
    (receipt,) = [result for result in results if isinstance(result, onejob.SequenceReceipt)]
    assert (receipt.committed, receipt.assigned_sequence) == (True, 1)
    refusals = [result for result in results if isinstance(result, onejob.SubmissionRefused)]
    assert [refusal.reason for refusal in refusals] == [Reason.ALREADY_COMMITTED] * 99
    assert len(await queue.jobs()) == 1


async def test_numbers_sent_at_once_are_executed_in_their_order_or_refused(queue: onejob.Ledger) -> None:
    results = await asyncio.gather(*(send(queue, n) for n in (3, 1, 2, 5)), return_exceptions=True)
    reached = [result for result in results if isinstance(result, onejob.SequenceReceipt)]
    assert await last_sequence(queue) == len(reached) == 2
    assert all(isinstance(result, onejob.SubmissionRefused) for result in (results[0], results[3]))


async def test_an_idle_client_goes_on_after_three_windows(queue: onejob.Ledger, clock: FakeClock) -> None:
    await send(queue, 1)
    await send(queue, 2)
    for _ in range(3):
        clock.advance(DAY + 1)
        await evict(queue)
        await queue.admin.sweep()
    assert await last_sequence(queue) == 2
    assert (await refusal_of(queue, 2)).reason is Reason.ALREADY_COMMITTED
    assert (await refusal_of(queue, 4)).details == {"last_committed_sequence": 2}
    assert (await send(queue, 3)).committed


async def test_a_high_water_mark_is_gone_after_four_hundred_days(queue: onejob.Ledger, clock: FakeClock) -> None:
    await send(queue, 1)
    clock.advance(DAY + 1)
    assert await evict(queue) == 1
    clock.advance(400 * DAY)
    assert await evict(queue) == 0
    assert await last_sequence(queue) == 1
    clock.advance(1)
    assert await evict(queue) == 1
    assert await last_sequence(queue) == 0
    assert (await refusal_of(queue, 2)).details == {"last_committed_sequence": 0}
    assert (await send(queue, 1)).committed


async def test_a_client_id_belongs_to_the_credential_that_used_it_first(queue: onejob.Ledger) -> None:
    first = await send(queue, 1)
    thief = queue.acting_as(tenant="default", user="local", actor=Actor.client("thief"))
    for sequence in (1, 2):
        stolen = await refusal_of(thief, sequence)
        assert (stolen.reason, stolen.details) == (Reason.NOT_THE_OWNER, {})
    with pytest.raises(onejob.SubmissionRefused, match="another credential"):
        await thief.get_client_state(CLIENT, scope=SCOPE)
    seen = await thief.get_client_state(CLIENT, scope=SCOPE, any_owner=True)
    assert seen.last_committed_sequence == 1
    assert job_ids_of(await send(queue, 1)) == job_ids_of(first)


async def test_two_tenants_with_equal_clients_scopes_and_keys_never_meet(queue: onejob.Ledger) -> None:
    tenants = [queue.acting_as(tenant=name, user="ann", actor=Actor.client("same")) for name in ("acme", "zeta")]
    for sequence in (1, 2):
        receipts = [await send(one, sequence) for one in tenants]
        assert [receipt.outcome for receipt in receipts] == [COMMITTED, COMMITTED]
        assert not set(job_ids_of(receipts[0])) & set(job_ids_of(receipts[1]))
    await send(tenants[0], 3)
    assert [await last_sequence(one) for one in tenants] == [3, 2]
    await tenants[0].admin.purge()
    assert [await last_sequence(one) for one in tenants] == [0, 2]
    assert [len(await one.jobs()) for one in tenants] == [0, 2]


async def test_everything_is_there_after_a_restart(durable_url: str) -> None:
    async with onejob.open(durable_url, sweep=False) as queue:
        first = [await send(queue, n, jobs=[Job(type="w", input=[n, m]) for m in range(n)]) for n in (1, 2, 3)]
    async with onejob.open(durable_url, sweep=False) as queue:
        for n, before in enumerate(first, 1):
            again = await send(queue, n, jobs=[Job(type="w", input=[n, m]) for m in range(n)])
            assert (again.outcome, job_ids_of(again), again.expires_at) == (
                ALREADY,
                job_ids_of(before),
                before.expires_at,
            )
        assert await last_sequence(queue) == 3
        assert (await refusal_of(queue, 5)).reason is Reason.SEQUENCE_GAP
        assert (await send(queue, 4)).committed


async def test_numbers_are_counted_as_submissions_and_hits(queue: onejob.Ledger) -> None:
    await send(queue, 1)
    for _ in range(3):
        await send(queue, 1)
    await refusal_of(queue, 7)
    counted = queue.admin.runtime_stats().outcomes
    assert (counted["created"], counted["replayed"], counted["refused"]) == (1, 3, 1)
    history = await queue.explain("key-1", scope=SCOPE)
    assert (history.hits, history.key) == (3, "key-1")


@pytest.mark.parametrize("job", [{"type": "write"}, "write", None])
async def test_an_element_that_is_not_a_submission_is_refused_with_a_clear_message(
    queue: onejob.Ledger, job: Any
) -> None:
    with pytest.raises(onejob.Invalid, match=r"^a job in a list is a Submission"):
        await send(queue, 1, jobs=[job])
    with pytest.raises(onejob.Invalid, match=r"^jobs\[1\]: a job in a list"):
        await send(queue, 1, jobs=[Job(type="write"), job])
    fine, refused = await queue.submit_many([Job(type="write"), job])
    assert isinstance(fine, onejob.Receipt)
    assert isinstance(refused, onejob.Invalid)
    assert (await send(queue, 1)).committed
