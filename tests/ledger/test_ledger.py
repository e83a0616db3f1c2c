"""The ledger's verbs for submissions, on every engine."""

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest
from msgspec import Raw

import onejob
from onejob.clock import FakeClock
from onejob.core import identity
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import SubmissionOptions
from onejob.runtime import maintenance
from tests.support.ledger_settings import set_settings

CHARGE = {"order": "ORD-123", "amount": 42}


async def test_a_repeated_submission_gets_the_same_job(queue: onejob.Ledger) -> None:
    first = await queue.submit("charge", CHARGE, idempotency_key="k")
    again = await queue.submit("charge", {"amount": 42.0, "order": "ORD-123"}, idempotency_key="k")
    assert first.created
    assert again.outcome is onejob.Outcome.REPLAYED
    assert first.job_id == again.job_id
    assert first.expires_at == again.expires_at
    assert await queue.input(first.job_id) == b'{"order":"ORD-123","amount":42}'


async def test_raw_json_and_a_python_value_are_the_same_submission(queue: onejob.Ledger) -> None:
    first = await queue.submit("charge", CHARGE, idempotency_key="k")
    again = await queue.submit(
        "charge", Raw(b'{ "amount": 4.2e1, "order": "ORD-\\u0031\\u0032\\u0033" }'), idempotency_key="k"
    )
    assert again.job_id == first.job_id


async def test_without_a_key_every_submission_is_new(queue: onejob.Ledger) -> None:
    first, second = [await queue.submit("charge", CHARGE) for _ in range(2)]
    assert first.job_id != second.job_id
    assert first.key is None
    assert first.expires_at is None


async def test_another_body_under_the_same_key_is_a_conflict(queue: onejob.Ledger) -> None:
    first = await queue.submit("charge", CHARGE, idempotency_key="k", scope="queue")
    with pytest.raises(onejob.IdempotencyConflict) as caught:
        await queue.submit("refund", CHARGE | {"amount": "a secret"}, idempotency_key="k", scope="queue")
    assert caught.value.job_id == first.job_id
    assert caught.value.paths == ("/type", "/input/amount")
    assert "new key" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert (await queue.submit("charge", CHARGE, idempotency_key="k", scope="queue")).job_id == first.job_id


async def test_keys_of_different_scopes_are_different(queue: onejob.Ledger) -> None:
    ids = [
        (await queue.submit("a", idempotency_key="k")).job_id,
        (await queue.submit("b", idempotency_key="k")).job_id,
        (await queue.submit("queue", idempotency_key="k")).job_id,
        (await queue.submit("queue", idempotency_key="k", scope="queue")).job_id,
    ]
    assert len(set(ids)) == 4
    assert (await queue.submit("a", idempotency_key="k", scope="a")).job_id == ids[0]


async def test_a_key_lives_until_the_last_millisecond_of_its_window(queue: onejob.Ledger, clock: FakeClock) -> None:
    first = await queue.submit("t", idempotency_key="k", idempotency_ttl=timedelta(seconds=2))
    clock.advance(2)
    assert (await queue.submit("t", idempotency_key="k")).job_id == first.job_id
    clock.advance(0.001)
    later = await queue.submit("t", idempotency_key="k")
    assert later.created
    assert later.job_id != first.job_id


async def test_windows_can_be_given_in_days(queue: onejob.Ledger) -> None:
    receipt = await queue.submit("t", idempotency_key="k", idempotency_ttl_days=30)
    assert receipt.expires_at is not None
    assert receipt.job is not None
    assert receipt.expires_at - receipt.job.created_at == timedelta(days=30)


@pytest.mark.parametrize(
    "options",
    [
        {"idempotency_key": ""},
        {"idempotency_key": "a\nb"},
        {"idempotency_key": "k" * 256},
        {"idempotency_ttl": timedelta(milliseconds=999)},
        {"idempotency_ttl": timedelta(days=366)},
        {"idempotency_ttl_days": float("nan")},
        {"idempotency_ttl_days": -1},
        {"idempotency_ttl": timedelta(days=1), "idempotency_ttl_days": 1},
        {"scope": ""},
        {"scope": "x" * 101},
        {"scope": "type:queue"},
        {"priority": 1001},
        {"priority": True},
        {"max_attempts": 0},
        {"timeout": timedelta(0)},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - a time without a zone is what is refused
        {"labels": {"n": "x" * 600}},
        {"labels": {"n": 1}},
        {"delivery": "exactly_once"},
    ],
)
async def test_a_wrong_option_is_refused_and_burns_no_key(queue: onejob.Ledger, options: dict[str, object]) -> None:
    with pytest.raises(onejob.Invalid):
        await queue.submit("t", **({"idempotency_key": "k"} | options))  # type: ignore[arg-type]
    assert (await queue.submit("t", idempotency_key="k")).created


@pytest.mark.parametrize(
    "options",
    [
        {"priority": True},
        {"priority": 1.0},
        {"max_attempts": True},
        {"max_attempts": 1.0},
        {"type": ["t"]},
        {"scope": {"s": 1}},
        {"delivery": ["at_most_once"]},
        {"priority": [1]},
    ],
)
async def test_an_option_is_refused_even_if_an_equal_one_was_accepted_before(
    queue: onejob.Ledger, options: dict[str, Any]
) -> None:
    """1 == True == 1.0: what was checked is remembered with its type, and what has no hash is checked every time."""
    accepted: dict[str, Any] = {"type": "t", "priority": 1, "max_attempts": 1}
    assert (await queue.submit(**accepted)).created
    with pytest.raises(onejob.Invalid):
        await queue.submit(**(accepted | options))
    assert (await queue.submit(**accepted)).created


class AnyCase(str):
    """As some frameworks have it: equal to the same text in another case."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


async def test_of_a_subclass_of_str_only_the_text_counts(queue: onejob.Ledger) -> None:
    receipt = await queue.submit(AnyCase("t"), idempotency_key=AnyCase("k"))
    assert (await queue.submit("t", idempotency_key="k")).job_id == receipt.job_id
    for type in (AnyCase("T"), AnyCase("tT"), AnyCase("tt"), "TT"):
        made = await queue.submit(type, idempotency_key="k")
        assert made.created
        assert made.job is not None
        assert str.__eq__(made.job.type, str.__str__(type))
    for key in (AnyCase("K"), AnyCase("key"), AnyCase("Key"), "KEY"):
        assert (await queue.submit("t", idempotency_key=key)).created


async def test_a_string_that_is_equal_to_a_scope_does_not_become_its_id(queue: onejob.Ledger) -> None:
    """Ids are remembered by their texts. Another process, which has not met the first string, must compute the same."""
    await set_settings(queue, key_owner="user")
    assert (await queue.submit("t", idempotency_key="k1", scope=AnyCase("Acct"))).scope == "Acct"
    assert (await queue.submit("t", idempotency_key="k1", scope=AnyCase("acct"))).scope == "acct"
    made = await queue.submit("t", idempotency_key="k2", scope="acct")
    actor = onejob.Actor.client("c")
    equal = queue.acting_as(tenant=AnyCase("Tenant"), user=AnyCase("User"), actor=actor)
    await equal.submit("t", idempotency_key="k3")
    user = queue.acting_as(tenant="tenant", user="user", actor=actor)
    other = await user.submit("t", idempotency_key="k3")
    for cached in (identity._record_id_prefix, identity.tenant_prefix, identity.usage_id):
        cached.cache_clear()
    assert (await queue.submit("t", idempotency_key="k2", scope="acct")).job_id == made.job_id
    assert (await user.submit("t", idempotency_key="k3")).job_id == other.job_id


def test_every_field_of_a_submission_is_a_typed_option() -> None:
    fields = get_type_hints(onejob.Submission)
    assert get_type_hints(SubmissionOptions) == {
        name: kind for name, kind in fields.items() if name not in ("type", "input", "idempotency_key")
    }


async def test_signatures_name_every_option_and_an_unknown_one_is_a_type_error(queue: onejob.Ledger) -> None:
    fields = inspect.signature(onejob.Submission).parameters
    for method in (queue.submit, queue.dry_run, queue.check_or_reserve):
        shown = inspect.signature(method).parameters
        assert fields.keys() <= shown.keys()
        assert all(shown[name].default == fields[name].default for name in SubmissionOptions.__annotations__)
        with pytest.raises(TypeError, match="keyword argument 'prioriti'"):
            await method("t", idempotency_key="k", prioriti=1)  # type: ignore[call-arg]  # mypy refuses it as well
    assert (await queue.submit("t", idempotency_key="k")).created


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), "\ud800", object(), {1: 2, "1": 3}, [[]] * 200_000])
async def test_a_value_that_json_cannot_carry_is_refused(queue: onejob.Ledger, wrong: object) -> None:
    deep = wrong
    with pytest.raises(onejob.Invalid):
        await queue.submit("t", {"deep": deep, "pad": "x" * (1 << 20) if wrong == [[]] * 200_000 else ""})


async def test_submit_many_has_a_verdict_for_each(queue: onejob.Ledger) -> None:
    verdicts = await queue.submit_many(
        [
            onejob.Submission(type="t", input=1, idempotency_key="a"),
            onejob.Submission(type="t", input=1, idempotency_key="a"),
            onejob.Submission(type="t", input=2, idempotency_key="a"),
            onejob.Submission(type="t", input=float("nan"), idempotency_key="b"),
            *(onejob.Submission(type="t", input=n) for n in range(1100)),
        ]
    )
    first, same, other, wrong, *rest = verdicts
    assert isinstance(first, onejob.Receipt)
    assert isinstance(same, onejob.Receipt)
    assert first.job_id == same.job_id
    assert isinstance(other, onejob.IdempotencyConflict)
    assert isinstance(wrong, onejob.Invalid)
    assert len({receipt.job_id for receipt in rest if isinstance(receipt, onejob.Receipt)}) == 1100


async def test_a_race_of_duplicates_makes_one_job(queue: onejob.Ledger) -> None:
    receipts = await asyncio.gather(*(queue.submit("t", CHARGE, idempotency_key="k") for _ in range(200)))
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert sum(receipt.created for receipt in receipts) == 1
    assert len(await queue.jobs(limit=10)) == 1


async def test_a_dry_run_returns_what_would_happen_and_changes_nothing(queue: onejob.Ledger) -> None:
    dry = await queue.dry_run("t", 1, idempotency_key="k")
    assert dry.created
    assert dry.job is None
    assert not dry.job_id
    assert await queue.jobs() == []
    made = await queue.submit("t", 1, idempotency_key="k")
    again = await queue.dry_run("t", 1, idempotency_key="k")
    assert (again.outcome, again.job_id) == (onejob.Outcome.REPLAYED, made.job_id)
    other = await queue.dry_run("t", 2, idempotency_key="k")
    assert (other.outcome, other.paths) == (onejob.Outcome.CONFLICT, ("/input",))


async def test_jobs_are_listed_newest_first_and_by_state(queue: onejob.Ledger) -> None:
    ids = [(await queue.submit("t", n)).job_id for n in range(5)]
    await queue.cancel(ids[2])
    assert [job.id for job in await queue.jobs()] == ids[::-1]
    assert [job.id for job in await queue.jobs(before=ids[2])] == ids[1::-1]
    assert [job.id for job in await queue.jobs(state="cancelled")] == [ids[2]]
    assert await queue.jobs(type="other") == []
    page = await queue.jobs(limit=2)
    assert page.next == page[-1].id
    assert (await queue.jobs(limit=len(ids))).next is None


async def test_a_job_for_later_is_scheduled(queue: onejob.Ledger) -> None:
    receipt = await queue.submit("t", run_at=datetime(2999, 1, 1, tzinfo=UTC), labels={"a": "b"}, priority=3)
    assert receipt.job is not None
    assert receipt.job.state is onejob.JobState.SCHEDULED
    assert (await queue.job(receipt.job_id)).labels == {"a": "b"}


async def test_duplicates_get_the_cancelled_job(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", idempotency_key="k")
    cancelled = await queue.cancel(made.job_id)
    assert cancelled == await queue.cancel(made.job_id)
    again = await queue.submit("t", idempotency_key="k")
    assert again.job is not None
    assert again.job.state is onejob.JobState.CANCELLED


async def test_the_history_of_a_key_is_shown(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", 1, idempotency_key="k")
    await queue.submit("t", 1, idempotency_key="k")
    with pytest.raises(onejob.IdempotencyConflict):
        await queue.submit("t", 2, idempotency_key="k")
    await queue.cancel(made.job_id)
    history = await queue.explain("k", scope="t")
    assert (history.hits, history.conflicts, history.events_total) == (1, 1, 2)
    assert [event.what for event in history.events] == ["submitted", "cancelled"]
    assert history.job is not None
    assert history.job.id == made.job_id
    with pytest.raises(onejob.NotFound):
        await queue.explain("other", scope="t")


async def test_the_history_of_a_key_has_its_last_conflicts_with_time_actor_and_paths(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    other = queue.acting_as(tenant="default", user="7", actor=onejob.Actor.user("7"))
    await queue.submit("t", {"amount": 1, "to": "a"}, idempotency_key="k")
    for n in range(10):
        clock.advance(1)
        with pytest.raises(onejob.IdempotencyConflict):
            await (other if n == 9 else queue).submit("t", {"amount": "a secret", "to": n}, idempotency_key="k")
    history = await queue.explain("k", scope="t")
    assert history.conflicts == 10
    assert [one.actor for one in history.recent_conflicts] == ["client:local"] * 7 + ["user:7"]
    assert {one.paths for one in history.recent_conflicts} == {("/input/amount", "/input/to")}
    times = [one.at for one in history.recent_conflicts]
    assert times == sorted(times)
    assert times[-1] - times[0] == timedelta(seconds=7)
    assert "secret" not in repr(history)


async def test_the_history_of_a_key_counts_hits_that_are_not_stored_yet(queue: onejob.Ledger) -> None:
    await queue.submit("t", 1, idempotency_key="k")
    for n in range(3):
        await queue.submit("t", 1, idempotency_key="k")
        assert (await queue.explain("k", scope="t")).hits == n + 1
    await queue.submit("t", 1, idempotency_key="k")
    assert [history.hits for history in await queue.keys()] == [4]


async def test_a_conflict_with_very_long_paths_takes_little_room(queue: onejob.Ledger) -> None:
    await queue.submit("t", {}, idempotency_key="k")
    deep: object = 1
    for _ in range(20):
        deep = {"n" * 60: deep}
    with pytest.raises(onejob.IdempotencyConflict):
        await queue.submit("t", {"a": 1, "b" * 900: 2, "c": deep}, idempotency_key="k")
    (conflict,) = (await queue.explain("k", scope="t")).recent_conflicts
    assert conflict.paths[0] == "/input/a"
    assert sum(map(len, conflict.paths)) <= 401


async def test_tenants_and_owners_of_keys_never_meet(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    actor = onejob.Actor.user("7")
    callers = [
        queue,
        queue.acting_as(tenant="other", user="local", actor=actor),
        queue.acting_as(tenant="default", user="7", actor=actor),
        queue.acting_as(tenant="default", user="8", actor=actor),
    ]
    receipts = [await caller.submit("t", n, idempotency_key="k") for n, caller in enumerate(callers)]
    assert all(receipt.created for receipt in receipts)
    for method in (callers[1].job, callers[1].input, callers[1].cancel):
        with pytest.raises(onejob.NotFound):
            await method(receipts[0].job_id)
    assert len(await callers[1].jobs()) == 1


async def test_a_forgotten_key_can_be_used_again_when_every_gate_has_forgotten(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    made = await queue.submit("t", 1, idempotency_key="k")
    await queue.forget("k", scope="t")
    assert (await queue.submit("t", 1, idempotency_key="k")).job_id == made.job_id
    clock.advance(302.001)
    later = await queue.submit("t", 2, idempotency_key="k")
    assert later.created
    assert (await queue.job(made.job_id)).id == made.job_id


async def test_a_purged_tenant_has_nothing_left(queue: onejob.Ledger) -> None:
    other = queue.acting_as(tenant="other", user="u", actor=onejob.Actor.user("u"))
    untouched = await other.submit("t", idempotency_key="k")
    made = await queue.submit("t", idempotency_key="k")
    await queue.submit("t")
    purged = await queue.admin.purge()
    assert purged.erased == 2
    after = await queue.submit("t")
    if not runtime_of(queue).gate.info.erasure_ms:
        assert purged.gone_at <= (await queue.job(after.job_id)).created_at  # no history is kept
    await queue.admin.purge()
    assert await queue.jobs() == []
    with pytest.raises(onejob.NotFound):
        await queue.input(made.job_id)
    assert (await other.job(untouched.job_id)).id == untouched.job_id


async def test_a_purge_that_deleted_something_does_not_say_that_nothing_was_done(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> int:
        raise onejob.Unavailable("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(runtime_of(queue), "_request_erasure", fail)
        with pytest.raises(onejob.Unavailable):  # there is nothing to delete
            await queue.admin.purge()
        await queue.submit("t", idempotency_key="k")
        with pytest.raises(onejob.Unknown, match="no disk"):
            await queue.admin.purge()
    await queue.submit("t", idempotency_key="k")
    monkeypatch.setattr(maintenance, "PURGE_PASSES_MAX", 1)
    with pytest.raises(onejob.Unknown, match="still being used"):
        await queue.admin.purge()
    assert await queue.jobs() == []


async def test_maintenance_removes_what_has_expired(queue: onejob.Ledger, clock: FakeClock) -> None:
    made = await queue.submit("t", idempotency_key="k")
    await queue.cancel(made.job_id)
    clock.advance(7 * 86400 + 1)
    await queue.admin.sweep()
    assert await queue.jobs() == []
    with pytest.raises(onejob.NotFound):
        await queue.explain("k", scope="t")


async def test_a_closed_ledger_is_unavailable(url: str) -> None:
    ledger = await onejob.open(url)
    await ledger.aclose()
    with pytest.raises(onejob.Unavailable):
        await ledger.submit("t")
