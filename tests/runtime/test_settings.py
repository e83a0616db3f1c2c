"""The settings of a ledger: stored with it, proved by every new key, and changed only while no key would be new."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import onejob
from onejob.clock import FakeClock
from onejob.conformance.commands import WriteFacts
from onejob.core.credentials import SetPolicy
from onejob.core.facts import Kind, Record
from onejob.core.identity import SCHEDULE_ACTOR, SCHEDULE_SCOPE, SETTINGS_POLICY_NAME, SYSTEM_TENANT, record_id
from onejob.core.ledger_settings import CLOSED_MS, SETTINGS_POLICY_ID, closed_settings, encode_settings
from onejob.core.maintenance import Forget
from onejob.core.replies import Reason
from onejob.core.reserve import Reserve
from onejob.core.sequence import SubmitSequence
from onejob.core.states import IdempotencyStatus
from onejob.core.submit import StoreKey, Submit
from onejob.engine import ListFacts
from onejob.engines import open_engine
from onejob.engines.batcher import Batcher
from onejob.errors import StoreRefused, TenantRefused, Unavailable, Unknown
from onejob.ids import SystemIds
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import Submission, build_submit
from onejob.ledger.service import ServiceLedger
from onejob.runtime import Runtime, policies
from onejob.runtime import settings as ledger_settings
from onejob.runtime.callers import Caller
from onejob.runtime.settings import (
    CHANGES_MAX,
    _try_change,
    change_settings,
    list_changes,
    load_settings,
    open_settings,
    preview_settings,
)
from onejob.settings import IdempotencyConfig
from tests.support.ledger_settings import set_settings

KEYS = 200


@pytest.fixture(params=["sqlite", "postgres", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """A store that several processes may open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'onejob.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def open_ledger(store: str) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def open_one(**options: Any) -> onejob.Ledger:
            return await stack.enter_async_context(onejob.open(store, sweep=False, **options))

        yield open_one


def as_user(queue: onejob.Ledger, user: str) -> onejob.Ledger:
    return queue.acting_as(tenant="default", user=user, actor=onejob.Actor.user(user))


async def submit_all(queue: onejob.Ledger, submissions: list[Submission]) -> list[onejob.Receipt]:
    receipts = await queue.submit_many(submissions)
    assert all(isinstance(one, onejob.Receipt) for one in receipts), receipts
    return [one for one in receipts if isinstance(one, onejob.Receipt)]


async def submit_patiently(queue: onejob.Ledger, key: str) -> onejob.Receipt:
    """As a client does: a refusal that may pass is repeated."""
    for _ in range(200):
        try:
            return await queue.submit("t", idempotency_key=key)
        except Unavailable:
            await asyncio.sleep(0.02)
    raise AssertionError("it was never accepted")


async def test_a_process_that_says_otherwise_is_refused_by_name(open_ledger: Any) -> None:
    first = await open_ledger(key_owner="user", window=timedelta(hours=2))
    with pytest.raises(StoreRefused, match="key_owner is tenant here, and user in the ledger"):
        await open_ledger(key_owner="tenant")
    with pytest.raises(StoreRefused, match="window is 1h here, and 2h in the ledger"):
        await open_ledger(window=timedelta(hours=1))
    again = await open_ledger(key_owner="user", window=timedelta(hours=2))
    assert runtime_of(again).settings == runtime_of(first).settings


async def test_a_process_that_says_nothing_makes_no_second_job(open_ledger: Any) -> None:
    """200 keys through two doors, of which only one was told that users own their keys."""
    told, silent = await open_ledger(key_owner="user"), await open_ledger()
    submissions = [Submission(type="t", input=n, idempotency_key=f"k{n}") for n in range(KEYS)]
    first = await submit_all(as_user(told, "ann"), submissions)
    second = await submit_all(as_user(silent, "ann"), submissions)
    assert [one.job_id for one in first] == [one.job_id for one in second]
    other = await submit_all(as_user(silent, "bob"), submissions[:3])
    assert all(one.created for one in other), "each user has its own"


async def test_whoever_was_open_before_the_first_word_adopts_it(open_ledger: Any) -> None:
    silent = await open_ledger()
    told = await open_ledger(key_owner="user")
    first = await as_user(told, "ann").submit("t", idempotency_key="k")
    assert (await as_user(silent, "ann").submit("t", idempotency_key="k")).job_id == first.job_id
    assert runtime_of(silent).settings == runtime_of(told).settings


@pytest.mark.parametrize(
    "verb",
    [
        lambda queue: queue.submit("t", idempotency_key="k"),
        lambda queue: queue.submit_many([Submission(type="t"), Submission(type="t", idempotency_key="k")]),
        lambda queue: queue.dry_run("t", idempotency_key="k"),
        lambda queue: queue.submit_sequence("c", 1, "k", "t", scope="s"),
        lambda queue: queue.check_or_reserve("t", idempotency_key="k"),
        lambda queue: queue.store_idempotency_key("k", "other-1", scope="s"),
    ],
    ids=["submit", "submit_many", "dry_run", "submit_sequence", "check_or_reserve", "store_idempotency_key"],
)
async def test_a_verb_is_executed_under_settings_that_another_process_changed(open_ledger: Any, verb: Any) -> None:
    """Nobody waits for its next maintenance, and no caller sees the change."""
    silent, other = await open_ledger(), await open_ledger()
    assert (await set_settings(other, key_owner="user")).is_possible
    answer = await verb(as_user(silent, "ann"))
    for receipt in answer if isinstance(answer, list) else [answer]:
        assert not isinstance(receipt, BaseException)
    assert runtime_of(silent).settings == runtime_of(other).settings


async def test_the_first_word_is_refused_while_a_key_is_live(open_ledger: Any) -> None:
    silent = await open_ledger()
    await silent.submit("t", idempotency_key="k", idempotency_ttl=timedelta(days=2))
    with pytest.raises(
        StoreRefused,
        match=r"key_owner is user here, and tenant in the ledger .* 1 live key would be new under it; the last",
    ):
        await open_ledger(key_owner="user")
    assert not runtime_of(await open_ledger(key_owner="tenant")).settings.owns_keys
    assert (await submit_patiently(silent, "k")).outcome is onejob.Outcome.REPLAYED


async def test_an_identity_changes_only_while_no_key_is_live(queue: onejob.Ledger, clock: FakeClock) -> None:
    receipt = await queue.submit("t", idempotency_key="k", idempotency_ttl=timedelta(minutes=1))
    before = runtime_of(queue).settings_body
    refused = await set_settings(queue, key_owner="user")
    assert not refused.is_possible
    assert refused.live.count == 1
    assert receipt.expires_at is not None
    assert refused.live.last_until == round(receipt.expires_at.timestamp() * 1000)
    assert runtime_of(queue).settings_body == before, "no door was closed"
    clock.advance(60.002)
    assert (await preview_settings(runtime_of(queue).gate, {"key_owner": "user"})).is_possible
    assert (await set_settings(queue, key_owner="user")).is_possible
    assert queue.caller.owns_keys


async def test_a_held_key_is_live(queue: onejob.Ledger, clock: FakeClock) -> None:
    held = await queue.check_or_reserve("t", idempotency_key="k", lease=timedelta(hours=1))
    assert isinstance(held, onejob.HeldKey)
    assert not (await set_settings(queue, key_owner="user")).is_possible


async def test_a_command_that_was_built_before_a_change_does_nothing(url: str, clock: FakeClock) -> None:
    """The process froze after it had built the command, and goes on after the change."""
    async with onejob.open(url, clock=clock, sweep=False) as queue:
        late = build_submit(Submission(type="t", idempotency_key="k"), queue.caller, runtime_of(queue).ids.job_id())
        await set_settings(queue, key_owner="user")
        await set_settings(queue, key_owner="tenant")
        for commands in ([late], [late, replace(late, job_id=runtime_of(queue).ids.job_id())]):
            for reply in await runtime_of(queue).gate.execute(commands):
                assert getattr(reply, "reason", None) is Reason.SETTINGS_CHANGED
        assert await queue.jobs() == []
        made = await queue.submit("t", idempotency_key="k")
        assert made.created


async def test_a_command_that_was_executed_before_a_change_gets_its_answer(queue: onejob.Ledger) -> None:
    command = build_submit(Submission(type="t", idempotency_key="k"), queue.caller, runtime_of(queue).ids.job_id())
    (first,) = await runtime_of(queue).gate.execute([command])
    await set_settings(queue, window_ms=7_200_000)
    engine = Batcher(runtime_of(queue)._engine)  # without the memory of the gate
    (again,) = await engine.execute([command])
    assert again.job.id == first.job.id  # type: ignore[union-attr]


async def test_every_command_that_makes_a_key_proves_the_settings(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    execute = Batcher.execute_each

    async def record(self: Batcher, commands: Any, **options: Any) -> Any:
        sent.extend(commands)
        return await execute(self, commands, **options)

    enqueue = Batcher.enqueue

    def record_one(self: Batcher, pending: Any) -> Any:
        sent.append(pending.command)
        return enqueue(self, pending)

    monkeypatch.setattr(Batcher, "execute_each", record)
    monkeypatch.setattr(Batcher, "enqueue", record_one)
    await queue.submit("t", idempotency_key="a")
    await queue.submit_many([Submission(type="t", idempotency_key="b")])
    await queue.check_or_reserve("t", idempotency_key="c")
    await ServiceLedger.of(queue).reserve_prepared(
        type="t", scope="t", key="d", fingerprint=b"f", ttl_ms=None, lease_ms=1000
    )
    await queue.submit_sequence("client", 1, "e", "t", scope="t")
    await queue.store_idempotency_key("f", "x", scope="t")
    await queue.forget("a", scope="t")
    made = [one for one in sent if isinstance(one, (Submit, Reserve, SubmitSequence, StoreKey, Forget))]
    assert {type(one) for one in made} == {Submit, Reserve, SubmitSequence, StoreKey, Forget}
    assert all(one.settings == runtime_of(queue).settings_body for one in made)


async def test_closed_doors_are_opened_after_a_while(queue: onejob.Ledger, clock: FakeClock) -> None:
    """The process that closed them died."""
    stored = await load_settings(runtime_of(queue).gate)
    assert stored is not None
    closed = encode_settings(closed_settings(stored.settings, stored.at, by="client:gone"))
    command = SetPolicy(
        tenant=SYSTEM_TENANT,
        policy_id=SETTINGS_POLICY_ID,
        name=SETTINGS_POLICY_NAME,
        body=closed,
        expected_version=None,
    )
    await runtime_of(queue).gate.execute([command])
    with pytest.raises(Unavailable, match="settings of the ledger were changed"):
        await queue.submit("t", idempotency_key="k")
    clock.advance(CLOSED_MS / 1000 + 1)
    assert (await submit_patiently(queue, "k")).created
    (late,) = await runtime_of(queue).gate.execute([replace(command, body=b"{}", expected_version=2)])
    assert getattr(late, "reason", None) is Reason.STALE, "whoever closed them changes nothing now"


async def test_submissions_race_with_changes(open_ledger: Any) -> None:
    """64 submitters through two doors, while a third changes who owns keys: each key has one job at a time."""
    doors = [await open_ledger(), await open_ledger()]
    operator = await open_ledger()
    short = timedelta(seconds=1)

    async def submit(n: int) -> None:
        queue = as_user(doors[n % 2], f"user{n % 3}")
        for attempt in range(6):
            with_key = queue.submit("t", idempotency_key=f"k{(n + attempt) % 8}", idempotency_ttl=short)
            try:
                await with_key
            except (Unavailable, onejob.SubmissionRefused):
                await asyncio.sleep(0.02)

    async def change() -> int:
        made = 0
        for n in range(6):
            change = await change_settings(
                runtime_of(operator).gate, {"key_owner": ("user", "tenant")[n % 2]}, actor="client:a"
            )
            made += change.is_possible
            await asyncio.sleep(0.05)
        return made

    await asyncio.gather(*(submit(n) for n in range(64)), change())
    page = await runtime_of(operator).gate.scan(ListFacts(tenant="default", kind=Kind.RECORD, limit=1000))
    records = [fact for fact in page.items if isinstance(fact, Record)]
    tenants = [one for one in records if one.id == record_id("default", one.scope, one.key, "")]
    for shared in tenants:
        for own in (one for one in records if one not in tenants and one.key == shared.key):
            assert own.created_at > shared.expires_at or shared.created_at > own.expires_at, "both were live at once"


async def test_forget_waits_for_the_gate_that_remembers_longest(queue: onejob.Ledger, clock: FakeClock) -> None:
    await set_settings(queue, committed_ttl_ms=600_000)
    await queue.submit("t", idempotency_key="a")
    now = clock.wall_ms()
    assert round((await queue.forget("a", scope="t")).timestamp() * 1000) - now in range(601_000, 603_000)
    await set_settings(queue, committed_ttl_ms=1000, rejected_ttl_ms=1000)
    await queue.submit("t", idempotency_key="b")
    until = (await queue.forget("b", scope="t")).timestamp() * 1000
    assert until - clock.wall_ms() > 500_000, "a gate that has not noticed may still remember"
    clock.advance(601 + CLOSED_MS / 1000)
    await queue.submit("t", idempotency_key="c")
    until = (await queue.forget("c", scope="t")).timestamp() * 1000
    assert until - clock.wall_ms() < 4000


async def test_a_gate_remembers_no_longer_than_the_ledger_says(url: str, clock: FakeClock) -> None:
    config = onejob.IdempotencyConfig(committed_ttl_seconds=1000)
    async with onejob.open(url, clock=clock, config=config, sweep=False) as queue:
        await queue.submit("t", idempotency_key="k", idempotency_ttl=timedelta(hours=1))
        assert queue.admin.cache_stats().committed == 1
        clock.advance(301)
        await queue.admin.sweep()
        assert queue.admin.cache_stats().committed == 0


async def test_the_default_window_is_the_ledgers(open_ledger: Any) -> None:
    told, silent = await open_ledger(window=timedelta(hours=1)), await open_ledger()
    for queue, key in ((told, "a"), (silent, "b")):
        receipt = await queue.submit("t", idempotency_key=key)
        assert receipt.expires_at is not None
        assert receipt.job is not None
        assert receipt.expires_at - receipt.job.created_at == timedelta(hours=1)


async def test_a_process_that_was_told_otherwise_accepts_nothing_after_a_change(open_ledger: Any) -> None:
    told, operator = await open_ledger(key_owner="tenant"), await open_ledger()
    await set_settings(operator, key_owner="user")
    for _ in range(3):
        with pytest.raises(Unavailable):
            await told.submit("t", idempotency_key="k")
        await asyncio.sleep(0.02)
    with pytest.raises(StoreRefused, match="key_owner is tenant here"):
        await runtime_of(told).reload_settings()
    with pytest.raises(StoreRefused, match="key_owner is tenant here"):
        await runtime_of(told).check_ready()
    assert await operator.jobs() == []


def make_record(owner: str, key: str, now: int, *, user: str = "ann") -> Record:
    """A key as programs made it that had no settings."""
    return Record(
        record_id("default", "t", key, user if owner == "user" else ""),
        "default",
        "t",
        key,
        IdempotencyStatus.COMMITTED,
        fingerprint=b"",
        job_ids=b"",
        holder=b"",
        token=1,
        lease_until=0,
        created_at=now,
        changed_at=now,
        expires_at=now + 3_600_000,
        ttl_ms=3_600_000,
        actor="client:local",
        user=user,
        external_id="job-1",
    )


async def open_used(url: str, clock: FakeClock, owners: list[str], **options: Any) -> onejob.Ledger:
    """A ledger that was used before it had settings."""
    engine = await open_engine(url, clock=clock)
    records = [make_record(owner, f"k{n}", clock.wall_ms()) for n, owner in enumerate(owners)]
    await engine.execute([WriteFacts(tenant="default", record=record) for record in records])
    runtime = Runtime(engine, config=IdempotencyConfig(), clock=clock, ids=SystemIds())
    try:
        await runtime.open_settings(options)
    except StoreRefused:
        await runtime.aclose()
        raise
    return onejob.Ledger(runtime, Caller(user="ann"))


@pytest.mark.parametrize("owner", ["tenant", "user"])
@pytest.mark.parametrize("says", [None, "tenant", "user"])
async def test_a_ledger_without_settings_keeps_the_owner_of_its_live_keys(
    url: str, clock: FakeClock, owner: str, says: str | None
) -> None:
    options = {} if says is None else {"key_owner": says}
    if says not in (None, owner):
        with pytest.raises(StoreRefused, match=f"key_owner is {says} here, and {owner} of the live keys"):
            await open_used(url, clock, [owner, owner], **options)
        return
    queue = await open_used(url, clock, [owner, owner], **options)
    try:
        assert runtime_of(queue).settings.owns_keys == (owner == "user")
        assert (await queue.submit("t", idempotency_key="k1")).job_id == "job-1"
    finally:
        await queue.aclose()


async def test_a_ledger_whose_live_keys_have_both_owners_is_refused_until_they_end(url: str, clock: FakeClock) -> None:
    with pytest.raises(StoreRefused, match="live keys of tenants and live keys of users"):
        await open_used(url, clock, ["tenant", "user"])


async def test_of_two_processes_that_say_otherwise_the_later_one_is_refused(open_ledger: Any, store: str) -> None:
    """Both read settings that nobody had said, and one was slower."""
    await open_ledger()
    engine = await open_engine(store)
    stored = await load_settings(engine)
    assert stored is not None
    await open_ledger(key_owner="tenant")
    assert await _try_change(engine, stored, {"key_owner": "user"}, actor="system:open") is None
    with pytest.raises(StoreRefused, match="key_owner is user here, and tenant in the ledger"):
        await open_settings(engine, {"key_owner": "user"})
    await engine.aclose()


async def test_a_change_that_was_begun_long_ago_is_not_made(queue: onejob.Ledger, clock: FakeClock) -> None:
    """Its process slept: what it computed from the time of reading no longer holds."""
    stored = await load_settings(runtime_of(queue).gate)
    assert stored is not None
    clock.advance(CLOSED_MS / 1000 + 1)
    assert await _try_change(runtime_of(queue).gate, stored, {"committed_ttl_ms": 1000}, actor="client:admin") is None
    await runtime_of(queue).reload_settings()
    assert runtime_of(queue).settings.committed_ttl_ms is None


async def test_what_is_already_so_is_no_change(queue: onejob.Ledger) -> None:
    await set_settings(queue, window_ms=7_200_000)
    before = runtime_of(queue).settings_body
    change = await set_settings(queue, window_ms=7_200_000)
    assert change.before == change.after
    assert runtime_of(queue).settings_body == before, "commands that are on their way stay valid"


async def test_the_ledger_tells_who_changed_its_settings(queue: onejob.Ledger) -> None:
    for hours in range(1, CHANGES_MAX + 3):
        await change_settings(runtime_of(queue).gate, {"window_ms": hours * 3_600_000}, actor=f"user:{hours}")
    noted = await list_changes(runtime_of(queue).gate)
    assert len(noted) == CHANGES_MAX
    assert (noted[-1].actor, noted[-1].settings) == (f"user:{CHANGES_MAX + 2}", f"window = {CHANGES_MAX + 2}h")
    assert noted[-1].version == noted[0].version + CHANGES_MAX - 1


async def test_the_ticks_of_schedules_stand_in_no_way(queue: onejob.Ledger) -> None:
    """Their keys belong to nobody, so a ledger with running schedules can change its owner."""
    scheduler = queue.acting_as(tenant="default", user="local", actor=onejob.Actor.parse(SCHEDULE_ACTOR))
    tick = Submission(type="report", idempotency_key="nightly@2026-11-17T02:00:00Z", scope=SCHEDULE_SCOPE)
    first = await scheduler.submit_prepared(tick)
    assert (await set_settings(queue, key_owner="user")).is_possible
    assert (await scheduler.submit_prepared(tick)).job_id == first.job_id


async def test_what_holds_in_a_used_ledger_is_not_changed_by_a_process_that_opens_it(open_ledger: Any) -> None:
    """A shell with a variable, or a script, would change it for all others; an operator does it by a command."""
    silent = await open_ledger()
    await silent.submit("t", idempotency_key="k")
    await silent.submit("t", idempotency_key="short", idempotency_ttl=timedelta(seconds=1))
    before = runtime_of(silent).settings
    with pytest.raises(
        StoreRefused, match=r"window is 1s here, and .* in the ledger .* `onejob settings set window=1s`"
    ):
        await open_ledger(window=timedelta(seconds=1))
    same = await open_ledger(key_owner="tenant")  # it is so already, whoever has said it
    assert runtime_of(same).settings == before


async def test_an_outage_while_a_ledger_is_opened_is_an_outage(
    open_ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is refused stops; one that meets an outage is started again."""
    silent = await open_ledger()
    scan = runtime_of(silent).gate.scan
    failures: list[Exception] = [Unavailable("the store is away"), Unavailable("it still is")]

    async def fail_twice(query: Any) -> Any:
        if failures:
            raise failures.pop()
        return await scan(query)

    monkeypatch.setattr(runtime_of(silent).gate, "scan", fail_twice)
    said = {"window_ms": 3_600_000}
    for _ in range(2):
        with pytest.raises(Unavailable) as raised:
            await open_settings(runtime_of(silent).gate, said)
        assert not isinstance(raised.value, StoreRefused)
    assert (await open_settings(runtime_of(silent).gate, said)).settings.window_ms == 3_600_000


async def test_a_gate_that_may_not_look_takes_a_ledger_for_used(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(query: Any) -> Any:
        raise TenantRefused("this gate key is for tenants a, b")

    monkeypatch.setattr(runtime_of(queue).gate, "scan", refuse)
    with pytest.raises(StoreRefused, match="window is 1h here"):
        await open_settings(runtime_of(queue).gate, {"window_ms": 3_600_000})


async def test_a_change_whose_answer_was_lost_and_that_comes_too_late_again_is_known(
    queue: onejob.Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process slept after the answer was lost: the repetition is refused, and what is stored says that it was made."""
    lost = False

    async def lose_the_first_answer(*args: Any, **options: Any) -> Any:
        nonlocal lost
        policy = await try_set_policy(*args, **options)
        if not lost and args[2] == SETTINGS_POLICY_NAME:
            lost = True
            clock.advance(CLOSED_MS / 1000 + 1)
            raise Unknown("the answer was lost")
        return policy

    try_set_policy = policies.try_set_policy
    monkeypatch.setattr(ledger_settings, "try_set_policy", lose_the_first_answer)
    change = await change_settings(runtime_of(queue).gate, {"window_ms": 7_200_000}, actor="client:admin")
    assert change.after.window_ms == 7_200_000
    assert [noted.actor for noted in await list_changes(runtime_of(queue).gate)] == ["client:admin"]


async def test_a_change_that_nobody_could_note_names_its_actor(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*args: Any, **options: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(ledger_settings, "_note_change", die)
    with pytest.raises(asyncio.CancelledError):
        await change_settings(runtime_of(queue).gate, {"window_ms": 7_200_000}, actor="user:ann")
    (noted,) = await list_changes(runtime_of(queue).gate)
    assert (noted.actor, noted.settings) == ("user:ann", "window = 2h")


async def test_a_key_that_is_stored_for_a_user_is_the_users(queue: onejob.Ledger) -> None:
    await set_settings(queue, key_owner="user")
    await queue.store_idempotency_key("k", "job-1", user_id="ann", scope="t")
    assert (await as_user(queue, "ann").submit("t", idempotency_key="k")).job_id == "job-1"
    assert (await as_user(queue, "bob").submit("t", idempotency_key="k")).created


async def test_a_reservation_whose_answer_was_lost_is_held_after_the_settings_changed(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = runtime_of(queue).gate.execute_one

    async def lose_the_answer(command: Any, **options: Any) -> Any:
        await execute(command, **options)
        return Unknown("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(runtime_of(queue).gate, "execute_one", lose_the_answer)
        with pytest.raises(Unknown):
            await queue.check_or_reserve("t", idempotency_key="k", job=False)
    await change_settings(runtime_of(queue).gate, {"window_ms": 7_200_000}, actor="client:admin")
    assert isinstance(await queue.check_or_reserve("t", idempotency_key="k", job=False), onejob.HeldKey)
