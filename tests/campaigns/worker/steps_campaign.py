"""The campaign of steps: kill workers between the steps of their handlers, then compare the ledger with the evidence."""

import asyncio
import multiprocessing
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
from msgspec import Struct, field

from onejob import sync
from onejob.core.states import ENDED_STATES

from . import killed_steps

_FORKS = multiprocessing.get_context("forkserver")
_POINTS = len(killed_steps.STEPS) * 7


class StepsResult(Struct):
    jobs: int = 0
    kills: int = 0
    effects: int = 0
    repeated: int = 0  # effects of steps that were interrupted
    interrupted: int = 0  # at-most-once steps that were not run again
    violations: list[str] = field(default_factory=list)


def run_steps_campaign(url: str, folder: Path, *, jobs: int, kills: int, seed: int) -> StepsResult:
    """Start one worker after the other; each kills itself at a random point, the last one runs to the end."""
    chance = Random(seed)
    evidence = folder / "steps"
    evidence.touch()
    _FORKS.set_forkserver_preload([killed_steps.__name__])
    result = StepsResult(jobs=jobs)
    has_rows = url.startswith("postgres")
    if has_rows:
        asyncio.run(_query(url, "CREATE TABLE IF NOT EXISTS step_rows (job_id text)"))
    with sync.open(url, sweep=False) as queue:
        waiting: list[str] = []
        ids: list[str] = []
        while result.kills < kills or waiting:
            waiting = [job_id for job_id in waiting if queue.job(job_id).state not in ENDED_STATES]
            if not waiting and result.kills < kills:  # the jobs have ended before all kills: submit others
                waiting = [queue.submit("order", max_attempts=100).job_id for _ in range(jobs)]
                ids += waiting
            kill_at = chance.randint(1, jobs * _POINTS // 2) if result.kills < kills else 0
            result.kills += _run_worker(queue, url, evidence, chance.getrandbits(32), kill_at, waiting)
        _verify(queue, ids, evidence, result)
    if has_rows:
        rows = [row[0] for row in asyncio.run(_query(url, "SELECT job_id FROM step_rows"))]
        if sorted(rows) != sorted(ids):
            result.violations.append(f"{len(ids)} jobs have written {len(rows)} rows, for {len(set(rows))} jobs")
    return result


async def _query(url: str, sql: str) -> Sequence[Any]:
    connection = await asyncpg.connect(url)
    try:
        rows: Sequence[Any] = await connection.fetch(sql)
        return rows
    finally:
        await connection.close()


def _run_worker(queue: sync.SyncLedger, url: str, evidence: Path, seed: int, kill_at: int, waiting: list[str]) -> bool:
    """True if the worker died; False if it was ended because all jobs had ended."""
    worker = _FORKS.Process(target=killed_steps.main, args=(url, evidence, seed, kill_at), daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            if all(queue.job(job_id).state in ENDED_STATES for job_id in waiting):
                return False
            time.sleep(0.02)
        assert worker.exitcode == -signal.SIGKILL, f"the worker ended with {worker.exitcode}"
        return True
    finally:
        worker.kill()
        worker.join()


def _verify(queue: sync.SyncLedger, ids: list[str], evidence: Path, result: StepsResult) -> None:
    lines: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for line in evidence.read_text().splitlines():
        event, job_id, step, value = line.split()
        lines[job_id, step].append((event, value))
    for job_id in ids:
        job = queue.job(job_id)
        if job.state != "success":
            result.violations.append(f"{job_id} is {job.state} ({job.error})")
            continue
        values = queue.result(job_id)
        for step in killed_steps.STEPS:
            wrong = _check_step(step, lines[job_id, step], values[step], result)
            result.violations += [f"{job_id} {step}: {text}" for text in wrong]


def _check_step(step: str, lines: list[tuple[str, str]], value: str, result: StepsResult) -> list[str]:
    effects = [value for event, value in lines if event == "effect"]
    result.effects += len(effects)
    result.repeated += max(len(effects) - 1, 0)
    is_interrupted = value == "interrupted"
    result.interrupted += is_interrupted
    wrong = []
    first_stored = next((n for n, (event, _) in enumerate(lines) if event in ("stored", "returned")), len(lines))
    if not is_interrupted and any(event == "effect" for event, _ in lines[first_stored:]):
        wrong.append("a finished step was run again")
    if not is_interrupted and (not effects or value != effects[-1]):
        wrong.append(f"the handler got {value}, the effects are {effects}")
    if len({value for event, value in lines if event in ("stored", "returned")}) > 1:
        wrong.append("attempts got different answers")
    if step in killed_steps.AT_MOST_ONCE and len(effects) > 1:
        wrong.append(f"an at-most-once step has {len(effects)} effects")
    if is_interrupted and step not in killed_steps.AT_MOST_ONCE:
        wrong.append("a step that may run again was refused")
    return wrong
