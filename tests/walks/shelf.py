"""What the model keeps: keys, jobs and streams in dicts, and the few ways in which they change."""

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Key:
    fingerprint: bytes
    status: str
    job: bytes  # of a batch the first
    holder: bytes
    token: int
    lease: int
    expires: int
    ttl: int
    stamp: int
    receipt: bytes = b""
    hits: int = 0
    conflicts: int = 0
    client: str = ""  # sequenced, by whom
    number: int = 0
    jobs: tuple[bytes, ...] = ()
    foreign: str = ""

    def lives(self, now: int) -> bool:
        return now <= self.expires or now <= self.lease


@dataclass(slots=True)
class Work:
    id: bytes
    state: str
    until: int  # as long as its key lives, so must it
    stamp: int
    ended: int = 0
    slot: bytes = b""  # the user who is counted for it
    cost: int = 0
    attempts: int = 0
    user: str = ""
    once: bool = False  # at most once
    most: int = 1  # attempts
    token: int = 0
    holder: bytes = b""
    lease: int = 0
    run_at: int = 0
    lines: int = 0
    said: tuple[Any, ...] | None = None  # by its holder, last


@dataclass(slots=True)
class Row:
    """A client's sequence."""

    last: int
    seen: int
    owner: str
    expires: int
    stamp: int
    evicted: bool = False


class Shelf:
    def __init__(self) -> None:
        self.keys: dict[bytes, Key] = {}
        self.jobs: dict[bytes, Work] = {}
        self.rows: dict[bytes, Row] = {}
        self.counts: Counter[str] = Counter()

    def judge(self, now: int, record_id: bytes, *job_ids: bytes) -> tuple[Key | None, int]:
        """The key, and the time of the decision: never below a stamp of what it looks at."""
        key = self.keys.get(record_id) if record_id else None
        if key is not None:
            now = max(now, key.stamp)
            job_ids = (*job_ids, key.job, *key.jobs)
        for job_id in job_ids:
            job = self.jobs.get(job_id)
            if job is not None:
                now = max(now, job.stamp)
        return key, now

    def alone(self, now: int, record_id: bytes) -> tuple[Key | None, int]:
        """The key and the time, where nothing else is looked at."""
        key = self.keys.get(record_id)
        return key, now if key is None else max(now, key.stamp)

    def settle_key(self, key: Key, status: str, expires: int, receipt: bytes, now: int) -> None:
        key.status, key.lease, key.expires, key.receipt, key.stamp = status, 0, expires, receipt, now

    def make_key(self, c: Any, status: str, holder: bytes, lease: int, expires: int, now: int) -> Key:
        self.counts["re-created"] += c.record_id in self.keys
        job = getattr(c, "job_id", b"")
        key = Key(getattr(c, "fingerprint", b""), status, job, holder, 1, lease, expires, c.ttl_ms, now)
        self.keys[c.record_id] = key
        return key

    def make_job(self, job_id: bytes, state: str, until: int, now: int, *, user: str, slot: bytes, cost: int) -> None:
        self.jobs[job_id] = Work(job_id, state, until, now, slot=slot, cost=cost, user=user)

    def tie(self, job: Work | None, key: Key, now: int) -> None:
        """A job stays as long as its key."""
        if job is not None:
            job.until = key.expires
            job.stamp = max(job.stamp, now)
