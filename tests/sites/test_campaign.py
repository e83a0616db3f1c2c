"""A slice of the long campaign; see campaign.py."""

from pathlib import Path

from tests.campaigns.sites.campaign import run_campaign


def test_every_site_has_each_job_once_after_kills_and_cuts(tmp_path: Path) -> None:
    verdict = run_campaign(tmp_path, jobs=40, seed=1, pause=0.05, acts_min=3)
    assert not verdict.violations, verdict
    assert verdict.kills >= 2
