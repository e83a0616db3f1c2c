"""Workers killed between the steps of their handlers: each finished step once, at-most-once steps never twice."""

from pathlib import Path

import pytest

from tests.campaigns.worker.steps_campaign import run_steps_campaign


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_killed_workers_run_every_finished_step_once(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    result = run_steps_campaign(url, tmp_path, jobs=4, kills=4, seed=11)
    print(result)
    assert result.violations == []
    assert result.kills == 4
