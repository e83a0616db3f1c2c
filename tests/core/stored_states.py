"""Every record and job that can be stored, by name, and every command that can be executed on them."""

from typing import Any

from msgspec.structs import replace

from onejob.core.command import Command
from onejob.core.credentials import DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.facts import U64, Job, Policy, Record
from onejob.core.identity import policy_id
from onejob.core.lookup import DryRun, LookUpAnswer
from onejob.core.maintenance import CountHits
from onejob.core.replies import KeyHeld
from onejob.core.reserve import Verdict
from onejob.core.states import IdempotencyStatus, JobState
from tests.core.world import (
    BOB,
    JOB,
    JOB2,
    LEASE,
    NOW,
    OTHER_FINGERPRINT,
    RECORD_ID,
    SECOND,
    TENANT,
    USAGE_ID,
    a_job,
    a_record,
    cancel,
    expire,
    forget,
    look_up,
    look_up_job,
    maintain,
    purge,
    renew,
    reserve,
    settle,
    submit,
    take_over,
)

# The candidate job id is the holder of a Submit. Reserve uses the same nonce, so that one record is "mine" for both.
ME = JOB
RECEIPT = b'"stored"'
ABSENT = "absent"
POLICY = "limits"
POLICY_ID = policy_id(TENANT, POLICY)
_ON_POLICY: dict[str, Any] = {"tenant": TENANT, "policy_id": POLICY_ID}

_P, _C, _R = IdempotencyStatus.PENDING, IdempotencyStatus.COMMITTED, IdempotencyStatus.REJECTED
_THEIRS = {"holder": BOB, "job_ids": JOB2}
_LEASED = {"status": _P, "lease_until": NOW + LEASE, "expires_at": NOW + LEASE}
_LEASE_EXPIRED = {"status": _P, "lease_until": NOW - 1, "token": 2}
_RELEASED = {"status": _P, "receipt": RECEIPT}
_COMMITTED = {"status": _C, "receipt": RECEIPT}
_REJECTED = {"status": _R, "receipt": RECEIPT}
_EXPIRED = {"expires_at": NOW - 1}
_WITHOUT_JOB = {"job_ids": b""}
_EXTERNAL = {"job_ids": b"", "holder": b"", "token": 0, "fingerprint": b"", "external_id": "ec2-77"}
_SEQUENCED = {"client_id": "a:b", "sequence": U64(2**64 - 1), "holder": BOB}
_OTHER = {"fingerprint": OTHER_FINGERPRINT, **_THEIRS}

RECORDS: dict[str, dict[str, Any] | None] = {
    "absent": None,
    "expired_pending_mine": {**_LEASE_EXPIRED, **_EXPIRED},
    "expired_released_mine": {**_RELEASED, **_EXPIRED},
    "expired_committed_mine": {**_COMMITTED, **_EXPIRED},
    "expired_rejected_mine": {**_REJECTED, **_EXPIRED},
    "expired_pending_theirs": {**_LEASE_EXPIRED, **_THEIRS, **_EXPIRED},
    "expired_committed_theirs": {**_COMMITTED, **_THEIRS, **_EXPIRED},
    "expired_rejected_theirs": {**_REJECTED, **_THEIRS, **_EXPIRED},
    "expired_external": {**_EXTERNAL, **_EXPIRED},
    "expired_sequenced": {**_SEQUENCED, **_THEIRS, **_EXPIRED},
    "expired_bare": {**_LEASE_EXPIRED, **_WITHOUT_JOB, **_EXPIRED},
    "leased_mine": _LEASED,
    "leased_theirs": {**_LEASED, **_THEIRS},
    "leased_past_expiry": {**_LEASED, **_EXPIRED},
    "lease_over_mine": _LEASE_EXPIRED,
    "lease_over_theirs": {**_LEASE_EXPIRED, **_THEIRS},
    "released_mine": _RELEASED,
    "released_theirs": {**_RELEASED, **_THEIRS},
    "committed_mine": _COMMITTED,
    "committed_theirs": {**_COMMITTED, **_THEIRS},
    "rejected_mine": _REJECTED,
    "rejected_theirs": {**_REJECTED, **_THEIRS},
    "external": _EXTERNAL,
    "sequenced": _SEQUENCED,
    "other_leased": {**_LEASED, **_OTHER},
    "other_lease_over": {**_LEASE_EXPIRED, **_OTHER},
    "other_committed": {**_COMMITTED, **_OTHER},
    "other_rejected": {**_REJECTED, **_OTHER},
    "bare_leased_mine": {**_LEASED, **_WITHOUT_JOB},
    "bare_leased_theirs": {**_LEASED, **_WITHOUT_JOB, "holder": BOB},
    "bare_lease_over_mine": {**_LEASE_EXPIRED, **_WITHOUT_JOB},
    "bare_released_mine": {**_RELEASED, **_WITHOUT_JOB},
    "bare_committed_mine": {**_COMMITTED, **_WITHOUT_JOB},
    "bare_committed_theirs": {**_COMMITTED, **_WITHOUT_JOB, "holder": BOB},
    "bare_rejected_mine": {**_REJECTED, **_WITHOUT_JOB},
}

LIVE_JOBS = ("preparing", "scheduled", "pending", "running")
ENDED_JOBS = ("success", "failed", "cancelled", "lost")

# A record and its job are stored, settled and dropped together, so the job of a live record of each status has one of
# these states, and every other pair is impossible. A job leaves `preparing` in the step that settles its record, or by
# being cancelled; it is dropped only after its record. (An expired or absent record says nothing about the job.)
JOB_STATES_BY_STATUS = {
    _P: ("preparing", "cancelled"),
    _C: ("scheduled", "pending", "running", *ENDED_JOBS),
    _R: ("failed", "cancelled", "pending", "scheduled", "running", "success", "lost"),  # rerun by an operator
}


def record_named(shape: str) -> Record | None:
    changes = RECORDS[shape]
    return None if changes is None else replace(a_record(holder=ME), **changes)


def job_states_of(shape: str) -> tuple[str, ...]:
    """The states that the job of a record of this shape can have."""
    record = record_named(shape)
    if record is not None and not record.job_ids:
        return (ABSENT,)
    if record is None or shape.startswith("expired"):
        return (ABSENT, *LIVE_JOBS, *ENDED_JOBS)
    return JOB_STATES_BY_STATUS[record.status]


def job_named(shape: str, state: str) -> Job | None:
    """The record's job, else the candidate. A live one has a slot, and every one is due for maintenance."""
    if state == ABSENT:
        return None
    record = record_named(shape)
    id = JOB if record is None else record.job_id
    due = {"due_at": NOW - SECOND, "keep_until": NOW - SECOND} if state == "preparing" else {"due_at": NOW - SECOND}
    return a_job(JobState(state), id=id, usage_id=USAGE_ID if state in LIVE_JOBS else b"", **due)


def policy_named(shape: str) -> Policy | None:
    """There is a policy where there is a record."""
    if shape == ABSENT:
        return None
    return Policy(POLICY_ID, TENANT, POLICY, b"old", NOW - SECOND, version=3)


def commands_for(shape: str) -> dict[str, Command[Any]]:
    """Every command; the holder's ones name what the record names, so that only the holder can be wrong."""
    record = record_named(shape)
    job_id, token = (JOB, 1) if record is None else (record.job_id, record.token)
    held = KeyHeld(RECORD_ID, job_id, token, ME, NOW, False, NOW)
    with_job, without = reserve(holder=ME), reserve(b"", holder=ME)
    return {
        "submit": submit(),
        "reserve": with_job,
        "bare": without,
        "renew": renew(held),
        "commit": settle(held, Verdict.COMMIT, RECEIPT),
        "reject": settle(held, Verdict.REJECT, RECEIPT),
        "fail": settle(held, Verdict.FAIL, RECEIPT),
        "take_over": take_over(ME),
        "look_up": look_up(),
        "expire": expire(),
        "forget": forget(LEASE),
        "count": CountHits(tenant=TENANT, record_id=RECORD_ID, hits=2, conflicts=1),
        "purge": purge(),
        "dry_run_submit": DryRun(tenant=TENANT, command=submit()),
        "dry_run_reserve": DryRun(tenant=TENANT, command=with_job),
        "dry_run_bare": DryRun(tenant=TENANT, command=without),
        "answer_submit": LookUpAnswer(tenant=TENANT, command=submit()),
        "look_up_policy": LookUpPolicy(**_ON_POLICY),
        "set_policy": SetPolicy(**_ON_POLICY, name=POLICY, body=b"new"),
        "set_first": SetPolicy(**_ON_POLICY, name=POLICY, body=b"new", expected_version=0),
        "set_over": SetPolicy(**_ON_POLICY, name=POLICY, body=b"new", expected_version=3),
        "set_again": SetPolicy(**_ON_POLICY, name=POLICY, body=b"old", expected_version=2),
        "drop_policy": DropPolicy(**_ON_POLICY),
        "drop_stale": DropPolicy(**_ON_POLICY, expected_version=2),
        "look_up_job": look_up_job(job_id or JOB),
        "cancel": cancel(job_id or JOB),
        "maintain": maintain(job_id or JOB),
    }
