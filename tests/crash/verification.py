"""What must be true of a file after anything that may happen to it, given the answers that were handed out."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from onejob.core.identity import format_job_id

from .traced_program import SHORT_WINDOW_KEY


class RecordedAnswers(NamedTuple):
    """What callers were told."""

    answers: dict[str, str]  # key -> job id
    failures: dict[str, set[str]]  # key -> kinds of error
    total: int

    def certainly_not_done(self) -> set[str]:
        """Keys that were only ever told `Unavailable`, which means: certainly not done."""
        return {
            key
            for key, kinds in self.failures.items()
            if key != "-" and key not in self.answers and kinds <= {"Unavailable", "StoreRefused"}
        }


def read_answers(path: Path) -> RecordedAnswers:
    """Read what was answered; nobody may have been told two jobs for one key."""
    answers: dict[str, str] = {}
    failures: dict[str, set[str]] = {}
    count = 0
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in text.split("\n")[:-1]:  # the last one may still be being written
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
    """Whatever was answered is answered again, with the same job."""
    for key, job_id in earlier.answers.items():
        assert later.answers.get(key, job_id) == job_id, f"{key} had {job_id}, now {later.answers[key]}"


def check_integrity(path: Path) -> dict[str, str]:
    """Nothing is half done: records and jobs are together, each key has one. Returns the job id of each key."""
    # By the same library as the engine's: two of them in one process would drop each other's locks.
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not db.execute("SELECT 1 FROM sqlite_master").fetchall():
            return {}
        records: list[Any] = db.execute("SELECT key, status, job_ids FROM record").fetchall()
        jobs = {id: (key, state) for id, key, state in db.execute("SELECT id, key, state FROM job")}
        inputs = [id for (id,) in db.execute("SELECT job_id FROM attachment WHERE beside = 0")]
        strays = db.execute("SELECT * FROM attachment WHERE job_id NOT IN (SELECT id FROM job)").fetchall()
    assert sorted(inputs) == sorted(jobs), "each job has one input"
    assert not strays
    for key, status, job_id in records:
        assert job_id in jobs, f"the record of {key} has no job"
        of_key, state = jobs[job_id]
        assert of_key == key
        assert (status == "pending") == (state == "preparing"), f"{key} is {status}, its job {state}"
        assert status != "rejected" or state == "failed"
    recorded = {job_id for _, _, job_id in records}
    alone = [key for id, (key, _) in jobs.items() if id not in recorded and key != SHORT_WINDOW_KEY]
    assert not alone, f"jobs without a record: {alone}"
    assert len(records) == len({key for key, *_ in records})
    return {key: format_job_id(job_id) for key, _, job_id in records if key != SHORT_WINDOW_KEY}
