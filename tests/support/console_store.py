"""A store with a little of everything that the console shows, as a small shop would have after three hours."""

import random
from datetime import timedelta
from time import monotonic, time

import onejob
from onejob.clock import FakeClock, SystemClock
from onejob.core.identity import Actor
from onejob.core.limits import CostLimit, Limits, Period, TenantLimits
from onejob.core.states import Delivery
from onejob.errors import IdempotencyConflict, SubmissionRefused
from onejob.ledger import Ledger
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.base import runtime_of
from onejob.runtime.workers import WorkerInfo, announce_worker

MINUTES = 180
USERS = ("ann", "bob", "carol", "dora")
STORY_KEY = "order-4711"
HOOK = "https://shop.example/hooks/onejob"
TYPES = {"order.charge": 5, "invoice.send": 4, "email.welcome": 3, "report.build": 1, "image.resize": 4}
ERRORS = (
    ("SmtpError at mail.py:88", "SmtpError: 451 4.7.1 greylisted, try again later"),
    ("TimeoutError at api.py:31", "TimeoutError: the bank did not answer within 10 s"),
)


async def fill_store(url: str, *, minutes: int = MINUTES, seed: int = 7) -> None:
    """Submit, run, fail and repeat jobs on a clock that ends now."""
    dice = random.Random(seed)
    clock = FakeClock(monotonic=monotonic() - minutes * 60, wall_ms=round(time() * 1000) - minutes * 60_000)
    async with onejob.open(url, clock=clock, sweep=False) as ledger:
        await ledger.admin.set_tenant_quota(TenantLimits(Limits(max_concurrent=40, jobs_per_hour=120)))
        limits = Limits(max_concurrent=12, jobs_per_day=400, cost_limit=CostLimit.of(50, Period.DAY))
        await ledger.set_quota("bob", limits)
        await _make_api_keys(ledger, clock)
        await _number_submissions(ledger)
        await _tell_story(ledger, clock)
        for minute in range(minutes):
            await _work_a_minute(ledger, clock, dice, minute)
            clock.advance(max(0.0, minute * 60 + 60 - _elapsed(clock, minutes)))
            await runtime_of(ledger).activity.report()
        await _leave_unfinished(ledger, clock)
        await runtime_of(ledger).activity.report()


async def announce_workers(url: str) -> None:
    """Three workers, as they are for a minute from now on."""
    async with onejob.open(url, sweep=False) as ledger:
        now = SystemClock().wall_ms()
        for name, host, types, running in (
            ("payments", "app-1", ("order.charge", "invoice.send"), 6),
            ("payments", "app-2", ("order.charge", "invoice.send"), 3),
            ("media", "app-3", ("image.resize", "report.build", "email.welcome"), 8),
        ):
            ended = {"success": 900 + running * 31, "retry": 12, "failed": running}
            info = WorkerInfo(
                f"{host}-{name}", name, host, 4000 + running, "0.1.0", types, 8, running, ended, now - 7_000_000, None
            )
            await announce_worker(runtime_of(ledger).gate, info)


def _elapsed(clock: FakeClock, minutes: int) -> float:
    return clock.monotonic() - (monotonic() - minutes * 60)


def _as_user(ledger: Ledger, user: str) -> Ledger:
    return ledger.acting_as(tenant="default", user=user, actor=Actor.user(user))


async def _tell_story(ledger: Ledger, clock: FakeClock) -> None:
    """One key: repeated by its client, then misused with another amount, run twice, and reported."""
    ann = _as_user(ledger, "ann")
    order = {"order": 4711, "amount": {"value": 129.9, "currency": "EUR"}, "items": ["shoes", "socks"]}
    options = {"labels": {"shop": "berlin", "release": "2026.11"}, "callback": HOOK, "max_attempts": 4}
    await ann.submit("order.charge", order, idempotency_key=STORY_KEY, **options)  # type: ignore[arg-type]
    for seconds in (2, 5, 11):
        clock.advance(seconds)
        await ann.submit("order.charge", order, idempotency_key=STORY_KEY, **options)  # type: ignore[arg-type]
    (attempt,) = await ledger.claim("order.charge", start=True, holder=b"payments:0123456789abcdef0123456789abcdef")
    attempt = await ledger.extend(
        attempt, logs=["reserving 129.90 EUR", "bank: connecting", "bank: no answer, giving up"]
    )
    clock.advance(9)
    await ledger.finish(attempt, error="TimeoutError at api.py:31", message=ERRORS[1][1])
    clock.advance(40)
    for value in (159.9, 99.9):
        changed = order | {"amount": {"value": value, "currency": "EUR"}}
        try:
            await _as_user(ledger, "bob").submit("order.charge", changed, idempotency_key=STORY_KEY, **options)  # type: ignore[arg-type]
        except IdempotencyConflict:
            clock.advance(4)
    (attempt,) = await ledger.claim("order.charge", start=True)
    attempt = await ledger.extend(attempt, logs=["reserving 129.90 EUR", "bank: accepted, reference 88-1204"])
    clock.advance(3)
    await ledger.finish(attempt, {"reference": "88-1204", "charged": 129.9})
    clock.advance(30)
    await ann.submit("order.charge", order, idempotency_key=STORY_KEY, **options)  # type: ignore[arg-type]


async def _make_api_keys(ledger: Ledger, clock: FakeClock) -> None:
    keys = ApiKeys(_as_user(ledger, "root"))
    for name, roles in (
        ("old-till", ["submitter"]),
        ("payments", ["worker"]),
        ("on-call", ["operator"]),
        ("prometheus", ["metrics"]),
    ):
        made = await keys.create(name, roles=roles)
        clock.advance(1)
        if name == "old-till":
            await keys.revoke(made.key.id)
    await keys.create("checkout", roles=["submitter"], user="ann")


async def _number_submissions(ledger: Ledger) -> None:
    await ledger.admin.register_schedule("nightly-report", type="report.build", timetable="0 3 * * *", catch_up=1)
    await ledger.admin.register_schedule("poll-bank", type="order.charge", timetable="every 5 minutes", catch_up=0)
    for client, count in (("till-berlin-1", 5), ("till-berlin-2", 3), ("till-hamburg", 8)):
        for sequence in range(1, count + 1):
            await ledger.submit_sequence(client, sequence, f"{client}-{sequence}", "email.welcome", scope="tills")


async def _work_a_minute(ledger: Ledger, clock: FakeClock, dice: random.Random, minute: int) -> None:
    for number in range(dice.randrange(1, 5 + (minute % 30 > 20) * 4)):
        type, user, key = dice.choice([*TYPES]), dice.choice(USERS), f"{minute:03}-{number}"
        callback = f"https://{user}.example/jobs-done" if minute % 20 == 19 else None
        as_user = _as_user(ledger, user)
        try:
            for _ in range(1 + (dice.random() < 0.35) + (dice.random() < 0.1)):
                await as_user.submit(type, {"n": minute}, idempotency_key=key, max_attempts=2, callback=callback)
            if dice.random() < 0.06:
                await as_user.submit(type, {"n": -minute}, idempotency_key=key)
        except (IdempotencyConflict, SubmissionRefused):
            pass
        clock.advance(dice.random() * 3)
    for attempt in await ledger.claim([*TYPES], limit=12, start=True):
        clock.advance(dice.random() * 1.5)
        if dice.random() < 0.07:
            error, message = dice.choice(ERRORS)
            await ledger.finish(attempt, error=error, message=message, final=dice.random() < 0.5)
        else:
            await ledger.finish(attempt, {"ok": True})


async def _leave_unfinished(ledger: Ledger, clock: FakeClock) -> None:
    """Jobs that run, wait, are due later or are lost; a paused type, and slots."""
    for number in range(3):
        options = {"idempotency_key": f"payout-{number}", "delivery": Delivery.AT_MOST_ONCE}
        await _as_user(ledger, "carol").submit("bank.payout", {"to": "DE02", "amount": 120 + number}, **options)  # type: ignore[arg-type]
    await ledger.claim("bank.payout", limit=3, start=True, lease=timedelta(milliseconds=100))
    clock.advance(0.2)
    await ledger.admin.sweep()
    for number in range(4):
        await _as_user(ledger, "dora").submit("report.build", {"month": number}, idempotency_key=f"report-{number}")
    (attempt, *_) = await ledger.claim("report.build", start=True, lease=timedelta(hours=1))
    lines = [f"rows {1000 * n} to {1000 * (n + 1)}" for n in range(30)]
    await ledger.extend(attempt, progress={"done": 31, "total": 120}, logs=lines)
    later = timedelta(hours=6)
    for number in range(3):
        run_at = onejob.core.timestamps.to_utc(clock.wall_ms()) + later
        await _as_user(ledger, "ann").submit("email.welcome", number, idempotency_key=f"later-{number}", run_at=run_at)
    await ledger.admin.pause_type("image.resize")
    for number in range(6):
        await _as_user(ledger, "bob").submit("image.resize", {"image": number}, idempotency_key=f"image-{number}")
    for user in ("bob", "carol"):
        await ledger.reserve_job_slot(user, ttl_seconds=3600)
