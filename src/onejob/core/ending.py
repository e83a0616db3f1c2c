"""How a job ends: the one place that clears a lease, frees a slot, sets the retention and tells the story."""

from typing import NamedTuple

from .charging import reservations_without_job
from .facts import Attachment, Fact, Job, Usage, next_version
from .history import Event, record_event, to_storable_text
from .notice import release_callback_job
from .states import ENDED_STATES, JobState, Move, state_after
from .step import Trim
from .tally import spending_changes, updated_usage

RETENTION_MS = 7 * 24 * 3600 * 1000
_ERROR_BYTES_MAX = 300  # of the 2 KiB of a head


class JobEnding(NamedTuple):
    job: Job
    puts: tuple[Fact, ...]
    attachments: tuple[Attachment, ...]
    trims: tuple[Trim, ...]


def end_job(
    job: Job,
    usage: Usage | None,
    now: int,
    *,
    move: Move,
    actor: str,
    retention_ms: int,
    error: str = "",
    cost: int | None = None,
    finish_digest: bytes = b"",
    callback: Job | None = None,
) -> JobEnding:
    """`cost` is what it really cost; unless it is known, a job that ran cost what was estimated."""
    state = state_after(job.state, move)
    assert state in ENDED_STATES
    error = shortened_error(error)
    adds, cuts = record_event(job, Event(now, state.value, actor, error))
    lost = state is JobState.LOST
    stopped = next_version(
        job,
        now,
        state=state,
        holder=job.holder if finish_digest else b"",  # whoever finished it may say so again
        seal=finish_digest,
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
    puts: tuple[Fact, ...] = (
        stopped,
        *release_callback_job(callback, state, now),
        *_usage_without_job(job, usage, now, state, spent),
    )
    return JobEnding(stopped, puts, adds, cuts)


def shortened_error(error: str) -> str:
    """As much of an error as the head has room for."""
    return to_storable_text(error).encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")


def _usage_without_job(
    job: Job, usage: Usage | None, now: int, state: JobState, spent: int
) -> tuple[Usage, ...]:
    """The tally without this job's slot and money. The mark is cleared in the same step, so both are freed once."""
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    if not job.slot or usage is None or usage.id != job.slot:
        return ()
    if job.state is JobState.PREPARING:
        return (updated_usage(usage, now, reservations=reservations_without_job(usage, job, now)),)
    live = usage.live if job.state is JobState.LOST else max(usage.live - 1, 0)
    if state is JobState.LOST:
        return (updated_usage(usage, now, live=live),)
    held = max(usage.cost_held - job.cost_held, 0)
    return (
        updated_usage(
            usage, now, live=live, cost_held=held, **(spending_changes(usage, now, spent) if spent else {})
        ),
    )
