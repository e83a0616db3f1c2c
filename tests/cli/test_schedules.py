"""`onejob schedules`: list, pause, resume, delete; and the steps in `onejob job`."""

from pathlib import Path

import pytest
from msgspec import json

from onejob import sync
from onejob.cli import main


@pytest.fixture
def engine(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out + err


def test_schedules_are_listed_paused_resumed_and_deleted(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with sync.open(engine) as queue:
        queue.admin.register_schedule("nightly", type="report", timetable="0 3 * * * Europe/Berlin", catch_up=1)
    code, text = run(capsys, "schedules", "list", "--engine", engine)
    assert code == 0
    assert "nightly   0 3 * * * Europe/Berlin  report  1         active since" in text
    assert "paused" in run(capsys, "schedules", "pause", "nightly", "--engine", engine)[1]
    assert "active" in run(capsys, "schedules", "resume", "nightly", "--engine", engine)[1]
    code, text = run(capsys, "schedules", "list", "--json", "--engine", engine)
    (one,) = json.decode(text)["schedules"]
    assert (one["name"], one["catchUp"], one["pausedAt"]) == ("nightly", 1, None)
    code, text = run(capsys, "schedules", "pause", "weekly", "--engine", engine)
    assert (code, "no worker has registered" in text) == (5, True)
    assert "no schedules" in run(capsys, "schedules", "delete", "nightly", "--engine", engine)[1]


def test_a_job_is_shown_with_its_steps(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with sync.open(engine) as queue:
        made = queue.submit("order")
        assert "STEP" not in run(capsys, "job", made.job_id, "--engine", engine)[1]
        (attempt,) = queue.claim("order", start=True)
        queue.finish_step(queue.begin_step(attempt, "pay", [1]), {"secret": 1})
        queue.begin_step(attempt, "mail")
        code, text = run(capsys, "job", made.job_id, "--engine", engine)
        assert code == 0
        assert [line.split()[:3] for line in text.splitlines()[-2:]] == [
            ["pay", "finished", "1"],
            ["mail", "begun", "1"],
        ]
        assert "secret" not in text
        steps = json.decode(run(capsys, "job", made.job_id, "--json", "--engine", engine)[1])["steps"]
        assert [step["name"] for step in steps] == ["pay", "mail"]
