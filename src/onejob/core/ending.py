"""How a job ends: the one place that clears a lease, frees a slot, sets the retention and tells the story."""

from typing import NamedTuple

from .charging import without
from .facts import Attachment, Fact, Job, Tally, changed
from .history import Event, storable, told
from .notice import let_go
from .states import ENDED, JobState, Move, after
from .step import Cut
from .tally import noted, spending

RETENTION_MS = 7 * 24 * 3600 * 1000
_ERROR_BYTES_MAX = 300  # of the 2 KiB of a head


class Ending(NamedTuple):
    job: Job
    puts: tuple[Fact, ...]
    adds: tuple[Attachment, ...]
    cuts: tuple[Cut, ...]


def ended(
    job: Job,
    tally: Tally | None,
    now: int,
    *,
    move: Move,
    actor: str,
    retention_ms: int,
    error: str = "",
    cost: int | None = None,
    seal: bytes = b"",
    notice: Job | None = None,
) -> Ending:
    """`cost` is what it really cost; unless it is known, a job that ran cost what was estimated."""
    state = after(job.state, move)
    assert state in ENDED
    error = shortened(error)
    adds, cuts = told(job, Event(now, state.value, actor, error))
    lost = state is JobState.LOST
    stopped = changed(
        job,
        now,
        state=state,
        holder=job.holder if seal else b"",  # whoever finished it may say so again
        seal=seal,
        lease_until=0,
        # What a lost job spent is not known yet: its money stays held, and the mark says where.
        slot=job.slot if lost and job.cost_held else b"",
        ended_at=now,
        # A lost job waits for an operator, however long.
        due_at=0 if lost else max(now + retention_ms, job.keep_until),
        error=error,
        events=job.events + 1,
    )
    spent = job.cost_held if cost is None and job.attempts else cost or 0
    puts: tuple[Fact, ...] = (stopped, *let_go(notice, state, now), *_freed(job, tally, now, state, spent))
    return Ending(stopped, puts, adds, cuts)


def shortened(error: str) -> str:
    """As much of an error as the head has room for."""
    return storable(error).encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _freed(job: Job, tally: Tally | None, now: int, state: JobState, spent: int) -> tuple[Tally, ...]:
    """The tally without this job's slot and money. The mark is cleared in the same step, so both are freed once."""
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    if not job.slot or tally is None or tally.id != job.slot:
        return ()
    if job.state is JobState.PREPARING:
        return (noted(tally, now, reservations=without(tally, job, now)),)
    live = tally.live if job.state is JobState.LOST else max(tally.live - 1, 0)
    if state is JobState.LOST:
        return (noted(tally, now, live=live),)
    held = max(tally.cost_held - job.cost_held, 0)
    return (noted(tally, now, live=live, cost_held=held, **(spending(tally, now, spent) if spent else {})),)
