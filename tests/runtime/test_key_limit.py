"""The limit on live keys of a tenant, on every engine: new keys are refused, known keys never."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.identity import Actor
from onejob.core.replies import LimitName, Outcome, Reason
from onejob.errors import Invalid, SubmissionRefused
from onejob.runtime.counts import INTERVAL_MS

ALLOWED = 3
WINDOW = timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("patient_counts")


@pytest.fixture
async def limited(url: str, clock: FakeClock) -> AsyncIterator[onejob.Ledger]:
    async with onejob.open(url, clock=clock, sweep=False, window=WINDOW, live_keys_max=ALLOWED) as ledger:
        yield ledger


async def count_again(ledger: onejob.Ledger, clock: FakeClock) -> None:
    clock.advance(2 * INTERVAL_MS / 1000)
    await ledger.admin.sweep()


async def fill(ledger: onejob.Ledger, clock: FakeClock) -> None:
    for n in range(ALLOWED):
        await ledger.submit("charge", n, idempotency_key=f"k{n}")
    await count_again(ledger, clock)


async def test_a_new_key_beyond_the_limit_of_live_keys_is_refused(limited: onejob.Ledger, clock: FakeClock) -> None:
    await fill(limited, clock)
    for refused in (
        limited.submit("charge", idempotency_key="new"),
        limited.check_or_reserve("charge", idempotency_key="new"),
        limited.check_or_reserve("charge", idempotency_key="new", job=False),
        limited.submit_sequence("client", 1, "new", "charge", scope="vault"),
        limited.store_idempotency_key("new", "job-elsewhere"),
    ):
        with pytest.raises(
            SubmissionRefused, match=r"Quota exceeded: Maximum 3 live keys .* about 3 .* Wait"
        ) as caught:
            await refused
        assert caught.value.reason is Reason.QUOTA_EXCEEDED
        assert caught.value.retry_after is None
        assert caught.value.details == {"limit": LimitName.LIVE_KEYS, "allowed": ALLOWED, "used": ALLOWED}
    dry = await limited.dry_run("charge", idempotency_key="new")
    assert (dry.outcome, [one.limit for one in dry.warnings]) == (Outcome.REFUSED, [LimitName.LIVE_KEYS])


async def test_a_known_key_is_never_refused_for_the_number_of_live_keys(
    limited: onejob.Ledger, clock: FakeClock
) -> None:
    await limited.submit_sequence("client", 1, "s", "charge", scope="vault")
    held = await limited.check_or_reserve("charge", idempotency_key="held")
    assert isinstance(held, onejob.HeldKey)
    await fill(limited, clock)
    assert (await limited.submit("charge", 0, idempotency_key="k0")).outcome is Outcome.REPLAYED
    assert not (await limited.submit_sequence("client", 1, "s", "charge", scope="vault")).committed
    await limited.commit(held)
    assert (await limited.submit("charge", idempotency_key="held")).outcome is Outcome.REPLAYED
    # Without a key there is nothing to remember.
    assert (await limited.submit("charge")).created


async def test_a_key_that_was_refused_for_the_limit_is_not_burned(limited: onejob.Ledger, clock: FakeClock) -> None:
    await fill(limited, clock)
    with pytest.raises(SubmissionRefused):
        await limited.submit("charge", idempotency_key="new")
    clock.advance(WINDOW.total_seconds() + 1)
    await limited.admin.sweep()
    await count_again(limited, clock)
    assert (await limited.submit("charge", {"another": "body"}, idempotency_key="new")).created


async def test_the_keys_of_another_tenant_do_not_count(limited: onejob.Ledger, clock: FakeClock) -> None:
    await fill(limited, clock)
    other = limited.acting_as(tenant="other", user="u", actor=Actor.user("u"))
    await count_again(limited, clock)
    assert (await other.submit("charge", idempotency_key="new")).created
    assert (await limited.admin.overview()).counts.keys == ALLOWED


async def test_without_a_limit_any_number_of_keys_is_accepted(queue: onejob.Ledger, clock: FakeClock) -> None:
    await fill(queue, clock)
    assert (await queue.submit("charge", idempotency_key="new")).created


@pytest.mark.parametrize("absurd", [0, -1, True, 1.5, "3", 10**13])
def test_an_absurd_limit_of_live_keys_is_refused(absurd: int) -> None:
    with pytest.raises(Invalid, match="live_keys_max is a whole number"):
        onejob.open("memory://", live_keys_max=absurd)


async def test_a_stored_key_is_adopted_by_no_further_scope_beyond_the_limit(
    limited: onejob.Ledger, clock: FakeClock
) -> None:
    await limited.store_idempotency_key("stored", "job-elsewhere")
    assert (await limited.submit("known", idempotency_key="stored")).job_id == "job-elsewhere"
    await fill(limited, clock)
    assert (await limited.submit("known", idempotency_key="stored")).job_id == "job-elsewhere"
    for refused in (
        limited.submit("other", idempotency_key="stored"),
        limited.check_or_reserve("other", idempotency_key="stored"),
    ):
        with pytest.raises(SubmissionRefused, match="live keys"):
            await refused
    assert (await limited.dry_run("other", idempotency_key="stored")).outcome is Outcome.REFUSED
    assert len(await limited.keys(limit=100)) == ALLOWED + 2
