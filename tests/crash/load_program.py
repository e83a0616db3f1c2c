"""A program that submits by many concurrent callers until it is killed.

`python -m tests.crash.load_program DATABASE ACKS NAME SYNCHRONOUS KNOWN…` first repeats every submission answered in the
files KNOWN and prints `confirmed N lost N`; then the load starts. Each answer is appended to ACKS when it arrives.
"""

import asyncio
import random
import sys
from datetime import timedelta
from pathlib import Path

import onejob
from onejob.clock import SystemClock
from onejob.engines.sqlite import SqliteEngine
from onejob.ids import SystemIds
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller

from .traced_program import AnswerLog
from .verification import read_answers

CALLERS = 64
_LEASE = timedelta(milliseconds=1)
_CONFIG = onejob.IdempotencyConfig(wait_for_pending=False, pending_wait_timeout=0.0)


async def open_ledger(path: str, *, synchronous: str = "FULL") -> onejob.Ledger:
    clock = SystemClock()
    engine = await SqliteEngine.open(path, clock=clock, synchronous=synchronous)
    return onejob.Ledger(Runtime(engine, _CONFIG, clock=clock, ids=SystemIds()), Caller())


async def count_changed_answers(ledger: onejob.Ledger, answers: dict[str, str]) -> int:
    """Repeat answered submissions; returns how many have another job now."""
    receipts = await ledger.submit_many([submission_for(key) for key in answers])
    known = [receipt.job_id for receipt in receipts if isinstance(receipt, onejob.Receipt)]
    assert len(known) == len(answers), [r for r in receipts if not isinstance(r, onejob.Receipt)][:3]
    return sum(before != now for before, now in zip(answers.values(), known, strict=True))


async def run_caller(ledger: onejob.Ledger, name: str, acks: AnswerLog, rng: random.Random) -> None:
    """One caller: new keys, old keys, and keys that are reserved first, until the store fails."""
    answers: dict[str, str] = {}
    number = 0
    while True:
        number += 1
        is_repeat = bool(answers) and rng.random() < 0.2
        key = rng.choice(list(answers)[-50:]) if is_repeat else f"{name}.{number}"
        try:
            if not is_repeat and rng.random() < 0.1:
                job_id = await _reserve_and_commit(ledger, key)
            else:
                submission = submission_for(key)
                job_id = (await ledger.submit(submission.type, submission.input, idempotency_key=key)).job_id
        except (onejob.Unavailable, onejob.Unknown):
            return
        acks.record_answer(key, job_id)
        assert answers.setdefault(key, job_id) == job_id


async def _reserve_and_commit(ledger: onejob.Ledger, key: str) -> str:
    submission = submission_for(key)
    held = await ledger.check_or_reserve(submission.type, submission.input, idempotency_key=key, lease=_LEASE)
    if isinstance(held, onejob.HeldKey):
        await ledger.commit(held)
    return held.job_id


def submission_for(key: str) -> onejob.Submission:
    return onejob.Submission(type="t", input={"of": key, "fill": "x" * 100}, idempotency_key=key)


async def main(path: str, acks_path: str, name: str, synchronous: str, *known: str) -> None:
    acks = AnswerLog(acks_path)
    ledger = await open_ledger(path, synchronous=synchronous)
    answers = {key: job_id for file in known for key, job_id in read_answers(Path(file)).answers.items()}
    lost = await count_changed_answers(ledger, answers)
    print(f"confirmed {len(answers) - lost} lost {lost}", flush=True)
    rng = random.Random(name)
    callers = (run_caller(ledger, f"{name}.{n}", acks, random.Random(rng.getrandbits(64))) for n in range(CALLERS))
    await asyncio.gather(*callers)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
