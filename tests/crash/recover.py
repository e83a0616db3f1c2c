"""Recovery after a crash: the file opens, has every answer, and the scenario can be completed.

`python -m tests.crash.recover SECONDS FOLDER…`, with `j.db` and `acks` in each folder.
"""

import asyncio
import sys
from pathlib import Path

from . import verification
from .traced_program import KEYS, AnswerLog, Scenario


def main(at: str, *folders: str) -> None:
    answers = 0
    for folder in folders:
        try:
            answers += asyncio.run(recover(Path(folder), float(at)))
        except BaseException:
            print(f"in {folder}:", file=sys.stderr)
            raise
    print(answers)


async def recover(folder: Path, at: float) -> int:
    """Check one crashed run and complete its scenario; returns how many answers were checked."""
    path = folder / "j.db"
    recorded = verification.read_answers(folder / "acks")
    again = AnswerLog(str(folder / "again"))
    scenario = Scenario(str(path), again, at=at, retries=0)
    ledger = await scenario.open()
    try:
        stored = verification.check_integrity(path)
        lost = {key for key, job_id in recorded.answers.items() if stored.get(key) != job_id}
        assert not lost, f"answered, but lost: {lost}"
        done = recorded.certainly_not_done() & stored.keys()
        assert not done, f"reported as certainly not done, but stored: {done}"
    finally:
        await ledger.aclose()
    await scenario.first_run()
    await scenario.second_run()
    again.close()
    verification.check_same_answers(recorded, verification.read_answers(folder / "again"))
    assert verification.check_integrity(path).keys() == set(KEYS)
    return recorded.total


if __name__ == "__main__":
    main(*sys.argv[1:])
