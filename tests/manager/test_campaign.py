"""A few seconds of the campaign that `python -m tests.campaigns.manager` runs at length."""

import random
from pathlib import Path

import pytest

from tests.campaigns.manager.campaign import Campaign, Plan, cut_each_reply

SLICE = Plan(
    callers=8, pace_seconds=0.05, gate_deaths=1, gate_death_every=1.0, manager_rounds=1, freeze_seconds=2.5,
    cut_seconds=1.0, lossy_seconds=1.0,
)  # fmt: skip


def new_campaign(engine: str, folder: Path, *, managers: int) -> Campaign:
    print("seed", seed := random.randrange(1 << 32))
    return Campaign(engine, folder, SLICE, seed, managers=managers)


@pytest.mark.timeout(900)
async def test_through_deaths_freezes_and_lost_lines_each_key_has_one_job(postgres_url: str, tmp_path: Path) -> None:
    campaign = new_campaign(postgres_url, tmp_path, managers=2)
    async with campaign.fleet.running():
        await campaign.run_under_load(
            campaign.kill_gates, campaign.disturb_managers, campaign.cut_line_both_ways, campaign.lose_replies
        )
    await campaign.verify()
    assert not campaign.too_slow


@pytest.mark.timeout(900)
async def test_any_one_reply_may_be_lost_after_the_commit(tmp_path: Path) -> None:
    campaign = new_campaign(f"sqlite:///{tmp_path}/onejob.db", tmp_path, managers=1)
    async with campaign.fleet.running():
        assert await cut_each_reply(campaign.fleet, campaign.load)
    await campaign.verify()
