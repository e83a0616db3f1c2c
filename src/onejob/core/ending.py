"""How a job ends: the one place that clears a lease, frees a slot, sets the retention and tells the story."""

from typing import NamedTuple

from .facts import Attachment, Fact, Job, Tally, changed
from .history import Event, told
from .states import ENDED, JobState, Move, after
from .step import Cut

RETENTION_MS = 7 * 24 * 3600 * 1000
_ERROR_BYTES_MAX = 300  # of the 2 KiB of a head


class Ending(NamedTuple):
    job: Job
    puts: tuple[Fact, ...]
    adds: tuple[Attachment, ...]
    cuts: tuple[Cut, ...]


def ended(
    job: Job, tally: Tally | None, now: int, *, move: Move, actor: str, retention_ms: int, error: str = ""
) -> Ending:
    state = after(job.state, move)
    assert state in ENDED
    error = error.encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")
    adds, cuts = told(job, Event(now, state.value, actor, error))
    stopped = changed(
        job,
        now,
        state=state,
        holder=b"",
        lease_until=0,
        slot=b"",
        ended_at=now,
        # A lost job waits for an operator, however long.
        due_at=0 if state is JobState.LOST else max(now + retention_ms, job.keep_until),
        error=error,
        events=job.events + 1,
    )
    return Ending(stopped, (stopped, *_freed(job, tally, now, state)), adds, cuts)


def _freed(job: Job, tally: Tally | None, now: int, state: JobState) -> tuple[Tally, ...]:
    """The tally without this job's slot. The mark is cleared in the same step, so a slot is freed once."""
    if not job.slot:
        return ()
    assert tally is not None
    assert tally.id == job.slot
    assert tally.live > 0
    # What a lost job spent is not known yet: its money stays held.
    released = 0 if state is JobState.LOST else job.cost_held
    return (changed(tally, now, live=tally.live - 1, cost_held=tally.cost_held - released),)
