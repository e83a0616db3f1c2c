"""A fresh process after a crash: the file opens, holds what was answered, and the rest of the life can be lived.

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
    """Judge one crashed life and live it on; returns how many answers were checked."""
    path = folder / "j.db"
    told = verification.read_answers(folder / "acks")
    again = AnswerLog(str(folder / "again"))
    life = Scenario(str(path), again, at=at, patience=0)
    ledger = await life.open()
    try:
        kept = verification.check_integrity(path)
        lost = {key for key, job_id in told.answers.items() if kept.get(key) != job_id}
        assert not lost, f"answered, and gone: {lost}"
        lied = told.certainly_not_done() & kept.keys()
        assert not lied, f"said to be certainly not done, but done: {lied}"
    finally:
        await ledger.aclose()
    await life.first_run()
    await life.second_run()
    again.close()
    verification.check_same_answers(told, verification.read_answers(folder / "again"))
    assert verification.check_integrity(path).keys() == set(KEYS)
    return told.total


if __name__ == "__main__":
    main(*sys.argv[1:])
