"""The default window of keys and the retention of ended jobs, as a ledger is opened and as the service is set."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.http.config import ServiceConfig
from onejob.http.serve import open_service_ledger
from onejob.ledger import LedgerOpener
from onejob.ledger.base import runtime_of
from onejob.middleware.layer import IdempotencyLayer
from onejob.middleware.rules import IdempotencyRules
from onejob.settings import CliSettings, load_service_config

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def open_in_memory(clock: FakeClock, **options: Any) -> LedgerOpener:
    return onejob.open("memory://", clock=clock, sweep=False, **options)


def window_of(receipt: onejob.Receipt | onejob.HeldKey) -> timedelta:
    assert isinstance(receipt, onejob.Receipt)
    assert receipt.expires_at is not None
    assert receipt.job is not None
    return receipt.expires_at - receipt.job.created_at


async def test_a_key_without_a_window_of_its_own_has_that_of_its_type_else_that_of_the_ledger() -> None:
    async with open_in_memory(FakeClock(), window=HOUR, windows={"charge": 30 * DAY}) as queue:
        assert window_of(await queue.submit("mail", idempotency_key="k")) == HOUR
        assert window_of(await queue.submit("charge", idempotency_key="k")) == 30 * DAY
        assert window_of(await queue.submit("charge", idempotency_key="l", idempotency_ttl=2 * DAY)) == 2 * DAY
        many = await queue.submit_many([onejob.Submission(type="charge", idempotency_key="m")])
        assert isinstance(many[0], onejob.Receipt)
        assert window_of(many[0]) == 30 * DAY
        numbered = await queue.submit_sequence("c", 1, "n", "charge", scope="s")
        assert numbered.expires_at == numbered.jobs[0].created_at + 30 * DAY
        held = await queue.check_or_reserve("charge", idempotency_key="o")
        assert isinstance(held, onejob.HeldKey)
        assert window_of(await queue.commit(held)) == 30 * DAY


async def test_after_the_default_window_the_key_makes_a_new_job() -> None:
    clock = FakeClock()
    async with open_in_memory(clock, window=HOUR) as queue:
        first = await queue.submit("mail", idempotency_key="k")
        clock.advance(3600)
        assert (await queue.submit("mail", idempotency_key="k")).job_id == first.job_id
        clock.advance(0.001)
        assert (await queue.submit("mail", idempotency_key="k")).created


async def test_a_middleware_rule_without_a_window_has_that_of_its_ledger() -> None:
    async with open_in_memory(FakeClock(), window=HOUR) as queue:
        layer = IdempotencyLayer(queue, IdempotencyRules(scope=lambda _: "s"))
        await layer.acquire_key("k", "s", b"f", None)
        await layer.acquire_key("l", "s", b"f", DAY)
        ttls = {history.key: history.expires_at for history in await queue.keys()}
        assert ttls["l"] - ttls["k"] == DAY - HOUR


@pytest.mark.parametrize("wrong", [timedelta(0), timedelta(days=366), timedelta(seconds=-1)])
def test_a_window_outside_the_limits_is_refused(wrong: timedelta) -> None:
    for options in ({"window": wrong}, {"windows": {"t": wrong}}):
        with pytest.raises(onejob.Invalid, match="1 second to 365 days"):
            onejob.open("memory://", **options)
    with pytest.raises(onejob.Invalid, match="kept for"):
        onejob.open("memory://", retention=timedelta(days=-1))


async def test_the_service_has_settings_for_the_window_and_for_the_retention_of_ended_jobs(tmp_path: Path) -> None:
    file = tmp_path / "onejob.toml"
    file.write_text('engine = "memory://"\nwindow = "1h"\n[windows]\ncharge = "30d"\n')
    config = load_service_config(str(file), {"ONEJOB_JOB_RETENTION": "2d"})
    assert (config.window, config.windows, config.job_retention) == ("1h", {"charge": "30d"}, "2d")
    async with open_service_ledger(config, sweep=False) as queue:
        assert window_of(await queue.submit("mail", idempotency_key="k")) == HOUR
        assert window_of(await queue.submit("charge", idempotency_key="k")) == 30 * DAY
        assert runtime_of(queue).retention_ms == 2 * DAY // timedelta(milliseconds=1)


async def test_an_ended_job_is_kept_for_the_retention_and_never_deleted_before_its_record() -> None:
    clock = FakeClock()
    async with open_in_memory(clock, window=3 * DAY, retention=HOUR) as queue:
        keyed, keyless = await queue.submit("t", idempotency_key="k"), await queue.submit("t")
        for job_id in (keyed.job_id, keyless.job_id):
            await queue.cancel(job_id)
        clock.advance(3601)
        await queue.admin.sweep()
        assert (await queue.job(keyed.job_id)).state == "cancelled"
        with pytest.raises(onejob.NotFound):
            await queue.job(keyless.job_id)
        clock.advance(3 * 86_400)
        await queue.admin.sweep()
        with pytest.raises(onejob.NotFound):
            await queue.job(keyed.job_id)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("window", "5", "is not a duration; use 90s, 30m, 24h or 7d"),
        ("window", "0s", "1 second to 365 days"),
        ("windows", {"t": "400d"}, "1 second to 365 days"),
        ("job_retention", "4000d", "0 seconds to 3650 days"),
    ],
)
def test_an_invalid_window_stops_the_service_at_its_start(setting: str, value: Any, message: str) -> None:
    with pytest.raises(onejob.Invalid, match=message) as caught:
        ServiceConfig(**{setting: value})
    assert caught.value.what == setting


def test_commands_on_an_engine_take_the_window_and_the_retention_from_the_environment() -> None:
    settings = CliSettings.from_env({"ONEJOB_WINDOW": "2h", "ONEJOB_JOB_RETENTION": "30d"})
    assert (settings.window, settings.job_retention) == (timedelta(hours=2), timedelta(days=30))
    with pytest.raises(onejob.Invalid, match="ONEJOB_WINDOW: 'soon' is not a duration"):
        CliSettings.from_env({"ONEJOB_WINDOW": "soon"})
