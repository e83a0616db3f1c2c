"""How jobs come to their slots: the one place where a submission meets the tally of its user.

A job that may run has a slot without a deadline, and bears its mark. One that is being prepared has a
reservation under its own name, which ends with the lease of its key, so that a crash frees it.
"""

from .facts import Job, Tally
from .ids import text_of
from .limits import Effective, effective
from .quota import Ask, Taken, take
from .receipt import Refused
from .states import JobState
from .step import Facts
from .tally import blank, kept, noted


def limits_in(facts: Facts) -> Effective:
    own = b"" if facts.tally is None else facts.tally.limits
    return effective(own, b"" if facts.policy is None else facts.policy.body)


def charge(
    facts: Facts, ask: Ask, now: int, *, tenant: str, user: str, tally_id: bytes
) -> Taken | Refused | None:
    """Take what a submission needs; None where nobody counts: no limits, and nothing was ever reserved."""
    if not tally_id or (facts.tally is None and facts.policy is None and not ask.reservation):
        return None
    limits = limits_in(facts)
    if facts.tally is None and not limits and not ask.reservation:
        return None
    return take(facts.tally or blank(tally_id, tenant, user, now), limits, ask, now)


def preparing(job_id: bytes, *, cost: int, until: int, reservation: str = "", is_new: bool = True) -> Ask:
    """What a job needs while it is prepared: a slot in its own name, until its lease ends."""
    return Ask(
        cost=cost,
        reservation=reservation,
        until=until,
        name=job_id.hex(),
        job_id=text_of(job_id),
        is_new=is_new,
        had=bool(reservation),
    )


def reheld(job: Job | None, facts: Facts, now: int, *, until: int) -> tuple[Tally, ...] | Refused:
    """The slot of a preparing job, prolonged, or taken again if it was lost and there is room."""
    if job is None or not _is_marked(job, facts.tally):
        return ()
    assert facts.tally is not None
    own = job.id.hex()
    ask = preparing(job.id, cost=job.cost_held, until=until, reservation=own, is_new=False)
    ask = ask._replace(again=True)
    taken = take(facts.tally, limits_in(facts), ask, now)
    return (taken.tally,) if isinstance(taken, Taken) else taken


def readied(job: Job, facts: Facts, now: int) -> tuple[Tally, ...] | Refused:
    """The slot of a prepared job that may run from now on; it has no deadline any more."""
    return reheld(job, facts, now, until=0)


def let_go(job: Job | None, facts: Facts, now: int) -> tuple[Tally, ...]:
    """The tally without the slot of a preparing job whose preparation failed."""
    if job is None or job.state is not JobState.PREPARING or not _is_marked(job, facts.tally):
        return ()
    assert facts.tally is not None
    return (noted(facts.tally, now, reservations=without(facts.tally, job, now)),)


def without(tally: Tally, job: Job, now: int) -> dict[str, object]:
    return {name: one for name, one in kept(tally, now).items() if name != job.id.hex()}


def _is_marked(job: Job, tally: Tally | None) -> bool:
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    return bool(job.slot) and tally is not None and tally.id == job.slot
