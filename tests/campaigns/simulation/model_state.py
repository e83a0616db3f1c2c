"""The state of the model: keys, jobs and streams in dicts."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ModelKey:
    fingerprint: bytes
    status: str
    job: bytes  # the first one of a batch
    holder: bytes
    token: int
    lease_until: int
    expires_at: int
    ttl: int
    changed_at: int
    receipt: bytes = b""
    hits: int = 0
    conflicts: int = 0
    client_id: str = ""  # set for a key of a sequence
    sequence: int = 0
    jobs: tuple[bytes, ...] = ()
    external_id: str = ""

    def is_live(self, now: int) -> bool:
        return now <= self.expires_at or now <= self.lease_until

    def is_known(self, now: int) -> bool:
        """It has an answer, or a holder whose lease runs."""
        return self.is_live(now) and (self.status != "pending" or now <= self.lease_until)


@dataclass(slots=True)
class ModelJob:
    id: bytes
    state: str
    keep_until: int  # it is stored at least as long as its key
    changed_at: int
    ended_at: int = 0
    slot: bytes = b""  # id of the usage that counts it
    cost: int = 0
    attempts: int = 0
    user: str = ""
    at_most_once: bool = False
    attempts_max: int = 1
    timeout_ms: int = 0
    started_at: int = 0
    token: int = 0
    holder: bytes = b""
    lease_until: int = 0
    run_at: int = 0
    log_lines: int = 0
    last_report: tuple[Any, ...] | None = None  # of its holder
    cancels: dict[bytes, bool] = field(
        default_factory=dict
    )  # the last keys of cancels, and whether each changed the job


@dataclass(slots=True)
class ModelMemo:
    """A step of a job's handler."""

    job: bytes
    fingerprint: bytes
    token: int
    holder: bytes
    changed_at: int
    runs: int = 1
    result: bytes | None = None  # None: not finished


@dataclass(slots=True)
class ModelStream:
    """A client's sequence."""

    last: int
    last_seen: int
    owner: str
    expires_at: int
    changed_at: int
    evicted: bool = False


class ModelState:
    def __init__(self) -> None:
        self.keys: dict[bytes, ModelKey] = {}
        self.jobs: dict[bytes, ModelJob] = {}
        self.streams: dict[bytes, ModelStream] = {}
        self.memos: dict[bytes, ModelMemo] = {}
        self.counts: Counter[str] = Counter()

    def key_and_time(self, now: int, record_id: bytes, *job_ids: bytes) -> tuple[ModelKey | None, int]:
        """The key, and the decision time: never before the timestamp of a fact that was read."""
        key = self.keys.get(record_id) if record_id else None
        if key is not None:
            now = max(now, key.changed_at)
            job_ids = (*job_ids, key.job, *key.jobs)
        for job_id in job_ids:
            job = self.jobs.get(job_id)
            if job is not None:
                now = max(now, job.changed_at)
        return key, now

    def key_and_time_without_job(self, now: int, record_id: bytes) -> tuple[ModelKey | None, int]:
        """The key and the decision time, where only the key is read."""
        key = self.keys.get(record_id)
        return key, now if key is None else max(now, key.changed_at)

    def settle_key(self, key: ModelKey, status: str, expires: int, receipt: bytes, now: int) -> None:
        key.status, key.lease_until, key.expires_at, key.receipt, key.changed_at = status, 0, expires, receipt, now

    def make_key(self, c: Any, status: str, holder: bytes, lease: int, expires: int, now: int) -> ModelKey:
        self.counts["re-created"] += c.record_id in self.keys
        job = getattr(c, "job_id", b"")
        key = ModelKey(getattr(c, "fingerprint", b""), status, job, holder, 1, lease, expires, c.ttl_ms, now)
        self.keys[c.record_id] = key
        return key

    def make_job(self, job_id: bytes, state: str, until: int, now: int, *, user: str, slot: bytes, cost: int) -> None:
        self.jobs[job_id] = ModelJob(job_id, state, until, now, slot=slot, cost=cost, user=user)

    def delete_job(self, job_id: bytes) -> None:
        self.jobs.pop(job_id, None)
        self.memos = {id: memo for id, memo in self.memos.items() if memo.job != job_id}

    def keep_job_with_key(self, job: ModelJob | None, key: ModelKey, now: int) -> None:
        """A job is stored at least as long as its key."""
        if job is not None:
            job.keep_until = key.expires_at
            job.changed_at = max(job.changed_at, now)
