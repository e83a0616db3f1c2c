"""Checks of a store after any fault, given the answers that callers got."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from onejob.core.identity import format_job_id

from .traced_program import SHORT_WINDOW_KEY


class RecordedAnswers(NamedTuple):
    answers: dict[str, str]  # key -> job id
    failures: dict[str, set[str]]  # key -> kinds of error
    total: int

    def certainly_not_done(self) -> set[str]:
        """Keys whose callers got only `Unavailable`, which means: certainly not done."""
        return {
            key
            for key, kinds in self.failures.items()
            if key != "-" and key not in self.answers and kinds <= {"Unavailable", "StoreRefused"}
        }


def read_answers(path: Path) -> RecordedAnswers:
    """Read a log of answers; no key may have two jobs."""
    answers: dict[str, str] = {}
    failures: dict[str, set[str]] = {}
    count = 0
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in text.split("\n")[:-1]:  # the last line may be incomplete
        key, word, *_ = line.split(" ", 2)
        if word.startswith("!"):
            failures.setdefault(key, set()).add(word[1:])
            continue
        count += 1
        if key == SHORT_WINDOW_KEY:
            continue  # its window ends, so it may name a new job later
        assert answers.setdefault(key, word) == word, f"{key} was answered with {answers[key]} and {word}"
    return RecordedAnswers(answers, failures, count)


def check_same_answers(earlier: RecordedAnswers, later: RecordedAnswers) -> None:
    """Every earlier answer is repeated with the same job."""
    for key, job_id in earlier.answers.items():
        assert later.answers.get(key, job_id) == job_id, f"{key} had {job_id}, now {later.answers[key]}"


def check_integrity(path: Path) -> dict[str, str]:
    """Every record has its job and every job its record and input. Returns the job id of each key."""
    # By the library of the engine: two libraries in one process would drop each other's locks.
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not db.execute("SELECT 1 FROM sqlite_master").fetchall():
            return {}
        records: list[Any] = db.execute("SELECT key, status, job_ids FROM record").fetchall()
        jobs = {id: (key, state) for id, key, state in db.execute("SELECT id, key, state FROM job")}
        inputs = [id for (id,) in db.execute("SELECT job_id FROM attachment WHERE kind = 0")]
        orphans = db.execute("SELECT * FROM attachment WHERE job_id NOT IN (SELECT id FROM job)").fetchall()
    assert sorted(inputs) == sorted(jobs), "each job has one input"
    assert not orphans
    for key, status, job_id in records:
        assert job_id in jobs, f"the record of {key} has no job"
        job_key, state = jobs[job_id]
        assert job_key == key
        assert (status == "pending") == (state == "preparing"), f"{key} is {status}, its job {state}"
        assert status != "rejected" or state == "failed"
    recorded = {job_id for _, _, job_id in records}
    unrecorded = [key for id, (key, _) in jobs.items() if id not in recorded and key != SHORT_WINDOW_KEY]
    assert not unrecorded, f"jobs without a record: {unrecorded}"
    assert len(records) == len({key for key, *_ in records})
    return {key: format_job_id(job_id) for key, _, job_id in records if key != SHORT_WINDOW_KEY}
