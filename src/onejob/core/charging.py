"""How jobs come to their slots: the one place where a submission meets the tally of its user.

A job that may run has a slot without a deadline, and bears its mark. One that is being prepared has a
reservation under its own name, which ends with the lease of its key, so that a crash frees it.
"""

from .facts import Job, Usage
from .ids import format_job_id
from .limits import EffectiveLimits, effective_limits
from .quota import QuotaCharge, QuotaRequest, charge_usage
from .receipt import Refused
from .states import JobState
from .step import Facts
from .tally import new_usage, unexpired_reservations, updated_usage


def limits_from_facts(facts: Facts) -> EffectiveLimits:
    own = b"" if facts.usage is None else facts.usage.limits
    return effective_limits(own, b"" if facts.policy is None else facts.policy.body)


def charge(
    facts: Facts, request: QuotaRequest, now: int, *, tenant: str, user: str, usage_id: bytes
) -> QuotaCharge | Refused | None:
    """Take what a submission needs; None where nobody counts: no limits, and nothing was ever reserved."""
    if not usage_id or (facts.usage is None and facts.policy is None and not request.reservation):
        return None
    limits = limits_from_facts(facts)
    if facts.usage is None and not limits and not request.reservation:
        return None
    return charge_usage(facts.usage or new_usage(usage_id, tenant, user, now), limits, request, now)


def preparation_request(
    job_id: bytes, *, cost: int, until: int, reservation: str = "", is_new: bool = True
) -> QuotaRequest:
    """What a job needs while it is prepared: a slot in its own name, until its lease ends."""
    return QuotaRequest(
        cost=cost,
        reservation=reservation,
        reserve_until=until,
        reserve_id=job_id.hex(),
        job_id=format_job_id(job_id),
        is_new=is_new,
        had_slot=bool(reservation),
    )


def renew_job_slot(job: Job | None, facts: Facts, now: int, *, until: int) -> tuple[Usage, ...] | Refused:
    """The slot of a preparing job, prolonged, or taken again if it was lost and there is room."""
    if job is None or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    own = job.id.hex()
    ask = preparation_request(job.id, cost=job.cost_held, until=until, reservation=own, is_new=False)
    ask = ask._replace(renew=True)
    taken = charge_usage(facts.usage, limits_from_facts(facts), ask, now)
    return (taken.usage,) if isinstance(taken, QuotaCharge) else taken


def confirm_job_slot(job: Job, facts: Facts, now: int) -> tuple[Usage, ...] | Refused:
    """The slot of a prepared job that may run from now on; it has no deadline any more."""
    return renew_job_slot(job, facts, now, until=0)


def release_job_slot(job: Job | None, facts: Facts, now: int) -> tuple[Usage, ...]:
    """The tally without the slot of a preparing job whose preparation failed."""
    if job is None or job.state is not JobState.PREPARING or not _is_counted_by(job, facts.usage):
        return ()
    assert facts.usage is not None
    return (updated_usage(facts.usage, now, reservations=reservations_without_job(facts.usage, job, now)),)


def reservations_without_job(usage: Usage, job: Job, now: int) -> dict[str, object]:
    return {name: one for name, one in unexpired_reservations(usage, now).items() if name != job.id.hex()}


def _is_counted_by(job: Job, usage: Usage | None) -> bool:
    # A tally may be gone: a tenant that is being purged loses it before its jobs.
    return bool(job.slot) and usage is not None and usage.id == job.slot
