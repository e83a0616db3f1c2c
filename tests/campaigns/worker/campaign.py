"""The campaign: submit jobs, kill workers at random moments, then compare the ledger with the evidence."""

import multiprocessing
import os
import signal
import time
from collections import defaultdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec import Struct, field

from onejob import Delivery, Job, Submission, sync
from onejob.core.facts import AttachmentKind
from onejob.core.identity import parse_job_id
from onejob.core.states import ENDED_STATES
from onejob.engine import ListAttachments
from onejob.ledger.base import runtime_of
from tests.support.job_rows import load_job_row

from . import killed_worker

_FORKS = multiprocessing.get_context("forkserver")
_ATTEMPTS = 100


class EvidenceLine(NamedTuple):
    event: str
    job_id: str
    token: int
    pid: int


class CampaignResult(Struct):
    jobs: int = 0
    kills: int = 0
    seconds: float = 0.0
    attempts: int = 0
    lost: int = 0
    violations: list[str] = field(default_factory=list)


def run_campaign(url: str, folder: Path, *, jobs: int, workers: int, seed: int, seconds_max: float) -> CampaignResult:
    """Submit, kill workers until half of the jobs or of the time is used, wait for the rest, verify."""
    chance = Random(seed)
    evidence = folder / "evidence"
    evidence.touch()
    _FORKS.set_forkserver_preload([killed_worker.__name__])
    begin = time.monotonic()
    with sync.open(url, sweep=False) as queue:
        ids = _submit_jobs(queue, jobs)
        pool = _Pool(url, evidence, workers, chance)
        try:
            _kill_workers(
                pool, chance, lambda: len(_read_evidence(evidence, "reported")) > jobs * 0.5, begin + seconds_max / 2
            )
            _wait_for_all(queue, ids, begin + seconds_max)
        finally:
            pool.close()
        verdict = CampaignResult(jobs=jobs, kills=len(pool.killed), seconds=time.monotonic() - begin)
        _verify(queue, ids, _read_evidence(evidence), pool.killed, verdict)
    return verdict


class _Pool:
    """Worker processes; each one that is killed is replaced."""

    def __init__(self, url: str, evidence: Path, workers: int, chance: Random) -> None:
        self._args = url, evidence
        self._chance = chance
        self.killed: set[int] = set()
        self._workers = [self._start_worker() for _ in range(workers)]

    def kill_one(self) -> None:
        n = self._chance.randrange(len(self._workers))
        self._kill(self._workers[n])
        self._workers[n] = self._start_worker()

    def close(self) -> None:
        for worker in self._workers:
            self._kill(worker, record=False)

    def _kill(self, worker: BaseProcess, *, record: bool = True) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        if record:
            self.killed.add(worker.pid)

    def _start_worker(self) -> BaseProcess:
        worker = _FORKS.Process(
            target=killed_worker.main, args=(*self._args, self._chance.getrandbits(32)), daemon=True
        )
        worker.start()
        return worker


def _submit_jobs(queue: sync.SyncLedger, jobs: int) -> dict[str, Delivery]:
    kinds = [Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]
    submissions = [
        Submission(
            type=killed_worker.TYPES[n % 2],
            idempotency_key=f"k{n}",
            delivery=kinds[n % 2],
            max_attempts=_ATTEMPTS,
            priority=n % 3,
        )
        for n in range(jobs)
    ]
    receipts = queue.submit_many(submissions)
    return {getattr(one, "job_id", ""): kinds[n % 2] for n, one in enumerate(receipts)}


def _kill_workers(pool: _Pool, chance: Random, over: object, until: float) -> None:
    assert callable(over)
    while not over() and time.monotonic() < until:
        time.sleep(0.05 + 0.25 * chance.random())
        pool.kill_one()


def _wait_for_all(queue: sync.SyncLedger, ids: dict[str, Delivery], until: float) -> None:
    waiting = set(ids)
    while waiting and time.monotonic() < until:
        waiting = {job_id for job_id in waiting if queue.job(job_id).state not in ENDED_STATES}
        time.sleep(0.1)


def _read_evidence(evidence: Path, wanted: str = "") -> list[EvidenceLine]:
    fields = (line.split() for line in evidence.read_text().splitlines())
    return [
        EvidenceLine(event, job, int(token), int(pid)) for event, job, token, pid in fields if wanted in ("", event)
    ]


def _verify(
    queue: sync.SyncLedger,
    ids: dict[str, Delivery],
    lines: list[EvidenceLine],
    killed: set[int],
    verdict: CampaignResult,
) -> None:
    by_job: dict[str, list[EvidenceLine]] = defaultdict(list)
    for line in lines:
        by_job[line.job_id].append(line)
    for job_id, delivery in ids.items():
        job = queue.job(job_id)
        token = queue.run(load_job_row(queue.async_ledger, job_id)).token
        verdict.attempts += token
        evidence = by_job[job_id]
        wrong = _check_any_job(queue, job, token, evidence)
        if delivery is Delivery.AT_MOST_ONCE:
            verdict.lost += job.state == "lost"
            wrong += _check_at_most_once(job, evidence, killed)
        elif job.state != "success":
            wrong.append(f"an at-least-once job is {job.state} ({job.error})")
        verdict.violations += [f"{job_id}: {text}" for text in wrong]


def _check_any_job(queue: sync.SyncLedger, job: Job, token: int, evidence: list[EvidenceLine]) -> list[str]:
    """One attempt has finished, and its result is stored; tokens only grow."""
    wrong = []
    begun = [line.token for line in evidence if line.event == "begin"]
    if begun != sorted(set(begun)):
        wrong.append(f"the tokens of its starts are {begun}")
    query = ListAttachments(tenant="default", job_id=parse_job_id(job.id), kind=AttachmentKind.RESULT)
    results = [int(add.index) for add in queue.run(runtime_of(queue.async_ledger).gate.scan(query)).items]
    if results != ([token] if job.state == "success" else []):
        wrong.append(f"{job.state} with token {token} and results of {results}")
    if job.state == "success" and ("end", token) not in [(one.event, one.token) for one in evidence]:
        wrong.append("it succeeded, but its handler never ended")
    return wrong


def _check_at_most_once(job: Job, evidence: list[EvidenceLine], killed: set[int]) -> list[str]:
    wrong = []
    begun = [line for line in evidence if line.event == "begin"]
    if len(begun) > 1 or job.attempts > 1:
        wrong.append(f"an at-most-once job was started {len(begun)} times")
    if job.state not in ("success", "lost"):
        wrong.append(f"an at-most-once job is {job.state} ({job.error})")
    if job.state == "lost" and (not killed or any(line.pid not in killed for line in begun)):
        wrong.append("it is lost, but its worker was not killed")
    if job.state == "lost" and any(line.event == "reported" for line in evidence):
        wrong.append("it is lost, but its outcome was acknowledged")
    return wrong
