"""The test helpers, used as users use them."""

import subprocess
import sys
from pathlib import Path

import pytest

import onejob
from onejob.testing import FakeClock, FaultyEngine, KillPoints, assert_submitted_once

pytest_plugins = ["onejob.testing.plugin"]


async def test_a_lost_reply_of_the_store_creates_one_job(
    onejob_ledger: onejob.Ledger, onejob_faults: FaultyEngine
) -> None:
    onejob_faults.fail_after(1)
    receipt = await onejob_ledger.submit("t", 1, idempotency_key="k")
    assert receipt.created
    assert (await assert_submitted_once(onejob_ledger, "k", scope="t")).id == receipt.job_id


async def test_an_unavailable_store_creates_no_job(onejob_ledger: onejob.Ledger, onejob_faults: FaultyEngine) -> None:
    onejob_faults.fail_before(10)
    with pytest.raises(onejob.Unavailable):
        await onejob_ledger.submit("t", 1, idempotency_key="k")
    onejob_faults.clear_faults()
    with pytest.raises(AssertionError, match="never submitted"):
        await assert_submitted_once(onejob_ledger, "k", scope="t")
    assert (await onejob_ledger.submit("t", 1, idempotency_key="k")).created


async def test_a_slow_store_is_waited_for(onejob_ledger: onejob.Ledger, onejob_faults: FaultyEngine) -> None:
    onejob_faults.delay(0.01)
    assert (await onejob_ledger.submit("t", 1, idempotency_key="k")).created
    onejob_faults.succeed()
    assert not (await onejob_ledger.submit("t", 1, idempotency_key="k")).created


async def test_the_window_ends_when_the_fake_clock_advances(
    onejob_ledger: onejob.Ledger, onejob_clock: FakeClock
) -> None:
    first = await onejob_ledger.submit("t", 1, idempotency_key="k")
    onejob_clock.advance(86_400 + 1)
    second = await onejob_ledger.submit("t", 1, idempotency_key="k")
    assert second.job_id != first.job_id
    with pytest.raises(AssertionError, match="created 2 jobs"):
        await assert_submitted_once(onejob_ledger, "k", scope="t")


def test_points_are_counted_and_the_chosen_one_kills() -> None:
    killed: list[int] = []
    points = KillPoints(2, kill=lambda: killed.append(1))
    for name in ("a", "b", "c"):
        points.reach(name)
    assert points.reached == ["a", "b", "c"]
    assert len(killed) == 1
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "from onejob.testing import KillPoints; KillPoints(1).reach('here'); print('alive')",
        ],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == -9
    assert not ran.stdout


def test_a_users_test_finds_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "async def work(ledger):\n"
        "    await ledger.submit('t', 1, idempotency_key='k')\n"
        "def test_mine(onejob_ledger):\n"
        "    import asyncio\n"
        "    from onejob.testing import assert_submitted_once\n"
        "    asyncio.run(work(onejob_ledger))\n"
        "    asyncio.run(assert_submitted_once(onejob_ledger, 'k', scope='t'))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "onejob.testing.plugin", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
