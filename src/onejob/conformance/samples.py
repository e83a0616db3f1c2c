"""Sample facts, commands and queries for the tests of an engine."""

from hashlib import sha256
from typing import Any

from onejob.core.credentials import SetPolicy
from onejob.core.facts import (
    U64,
    Attachment,
    AttachmentKind,
    Fact,
    Job,
    JobSpec,
    Kind,
    Memo,
    Policy,
    Record,
    Reservation,
    Stream,
    Usage,
)
from onejob.core.identity import memo_id, policy_id, record_id, stream_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, encode_limits
from onejob.core.replies import KeyHeld
from onejob.core.reserve import Reserve, Settle, Verdict
from onejob.core.sequence import SubmitSequence
from onejob.core.slots import SetLimits
from onejob.core.states import IdempotencyStatus, JobState, SlotState
from onejob.core.submit import Submit
from onejob.engine import (
    CountCommits,
    CountJobs,
    CountKeys,
    CountLiveKeys,
    CountReadyJobs,
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    Query,
)
from onejob.ids import new_holder, new_job_id

TENANT = "acme"
OTHER = "globex"
TYPE = "mail"
USER = "ann"
CLIENT = "till-7"
ACTOR = "client:suite"
FAR_FUTURE = 4_000_000_000_000  # later than any test run
LEASE_MS = 500
TTL_MS = 2_000
U64_MAX = 2**64 - 1


def key_id(key: str = "k", tenant: str = TENANT) -> bytes:
    return record_id(tenant, TYPE, key)


def submit(key: str = "k", *, tenant: str = TENANT, input: bytes = b'{"n":1}', **options: Any) -> Submit:
    """A submission; with an empty key it has no record."""
    fields: dict[str, Any] = _submission_fields(key, tenant, input) | options
    return Submit(**fields)


def reserve(
    key: str = "k", *, tenant: str = TENANT, input: bytes = b'{"n":1}', lease_ms: int = LEASE_MS, **options: Any
) -> Reserve:
    fields: dict[str, Any] = _submission_fields(key, tenant, input) | {"holder": new_holder()} | options
    return Reserve(**fields, lease_ms=lease_ms)


def settle(held: KeyHeld, verdict: Verdict = Verdict.COMMIT, *, tenant: str = TENANT, **options: Any) -> Settle:
    return Settle(**fence(held, tenant), verdict=verdict, actor=ACTOR, **options)


def quota_ids(tenant: str = TENANT, user: str = USER) -> dict[str, Any]:
    """The ids that a command with quotas has."""
    return {"tenant": tenant, "usage_id": usage_id(tenant, user), "policy_id": policy_id(tenant, QUOTA_POLICY_NAME)}


def submit_counted(key: str = "k", *, tenant: str = TENANT, **options: Any) -> Submit:
    """A submission of a user with quotas."""
    return submit(key, **quota_ids(tenant) | options)


def set_limit(max_concurrent: int, tenant: str = TENANT, user: str = USER) -> SetLimits:
    return SetLimits(**quota_ids(tenant, user), user=user, limits=encode_limits(Limits(max_concurrent=max_concurrent)))


def submit_sequence(
    sequence: int, *, tenant: str = TENANT, key: str = "", jobs: int = 1, input: bytes = b"{}"
) -> SubmitSequence:
    """One number of a client's sequence."""
    key = key or f"n{sequence}"
    return SubmitSequence(
        **quota_ids(tenant),
        stream_id=stream_id(tenant, TYPE, CLIENT),
        record_id=key_id(key, tenant),
        scope=TYPE,
        client_id=CLIENT,
        sequence=U64(sequence),
        key=key,
        fingerprint=sha256(input).digest(),
        items=tuple(JobSpec(new_job_id(), TYPE, input) for _ in range(jobs)),
        actor=ACTOR,
        user=USER,
        owner=ACTOR,
        ttl_ms=TTL_MS,
    )


def fence(held: KeyHeld, tenant: str = TENANT) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "record_id": held.record_id,
        "job_id": held.job_id,
        "token": held.token,
        "holder": held.holder,
    }


def a_record(key: str = "k", tenant: str = TENANT, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "id": key_id(key, tenant),
        "tenant": tenant,
        "scope": TYPE,
        "key": key,
        "status": IdempotencyStatus.COMMITTED,
        "fingerprint": sha256(key.encode()).digest(),
        "job_ids": b"",
        "holder": new_holder(),
        "token": 1,
        "lease_until": 0,
        "created_at": 1,
        "changed_at": 1,
        "expires_at": FAR_FUTURE,
        "ttl_ms": TTL_MS,
        "actor": ACTOR,
        "user": USER,
    }
    return Record(**fields | changes)


def a_job(tenant: str = TENANT, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        "id": new_job_id(),
        "tenant": tenant,
        "type": TYPE,
        "state": JobState.PENDING,
        "scope": TYPE,
        "key": "",
        "actor": ACTOR,
        "user": USER,
        "created_at": 1,
        "changed_at": 1,
        "keep_until": FAR_FUTURE,
    }
    return Job(**fields | changes)


def a_stream(client_id: str = "till-7", tenant: str = TENANT, **changes: Any) -> Stream:
    fields: dict[str, Any] = {
        "id": stream_id(tenant, TYPE, client_id),
        "tenant": tenant,
        "scope": TYPE,
        "client_id": client_id,
        "last": U64(U64_MAX),
        "last_seen": 1,
        "owner": ACTOR,
        "changed_at": 1,
        "expires_at": FAR_FUTURE,
    }
    return Stream(**fields | changes)


def a_usage(user: str = USER, tenant: str = TENANT, **changes: Any) -> Usage:
    fields: dict[str, Any] = {
        "id": usage_id(tenant, user),
        "tenant": tenant,
        "user": user,
        "live": 3,
        "changed_at": 1,
        "cost_held": 2**62,
        "spent": (1, 2**62, 3),
        "minutes": tuple(range(60)),
        "hours": tuple(range(24)),
        "reservations": {
            "r-1": Reservation(1, FAR_FUTURE, SlotState.ACTIVE),
            "ünï/\"'": Reservation(1, 2, SlotState.CONSUMED),
        },
    }
    return Usage(**fields | changes)


def a_policy(name: str = "limits", tenant: str = TENANT, **changes: Any) -> Policy:
    fields: dict[str, Any] = {
        "id": policy_id(tenant, name),
        "tenant": tenant,
        "name": name,
        "body": b'{"maxConcurrent":5}',
        "changed_at": 1,
    }
    return Policy(**fields | changes)


def a_memo(name: str = "charge", tenant: str = TENANT, *, job_id: bytes = b"", **changes: Any) -> Memo:
    """The memo of a step; without a job id, of a job that is not stored."""
    job_id = job_id or sha256(name.encode()).digest()[:16]
    fields: dict[str, Any] = {
        "id": memo_id(tenant, job_id, name),
        "tenant": tenant,
        "job_id": job_id,
        "name": name,
        "fingerprint": sha256(name.encode()).digest(),
        "token": 1,
        "holder": new_holder(),
        "began_at": 1,
        "changed_at": 1,
        "result": bytes(range(256)),
    }
    return Memo(**fields | changes)


def set_policy(name: str = "limits", tenant: str = TENANT, **options: Any) -> SetPolicy:
    fields: dict[str, Any] = {"body": b'{"maxConcurrent":5}'} | options
    return SetPolicy(tenant=tenant, policy_id=policy_id(tenant, name), name=name, **fields)


def policy_ids(name: str = "limits", tenant: str = TENANT) -> dict[str, Any]:
    """The ids of a command that reads or deletes a policy."""
    return {"tenant": tenant, "policy_id": policy_id(tenant, name)}


def one_of_each(tenant: str = TENANT) -> tuple[Fact, ...]:
    """A record, its job, a stream, a usage, a policy and the memo of another job, with the largest values of their fields."""
    job = a_job(
        tenant, usage_id=usage_id(tenant, USER), cost_held=2**63 - 1, priority=-(2**63), labels=b'{"a":"\xc3\xa4"}'
    )
    record = a_record(
        tenant=tenant, job_ids=job.id, client_id="till-7", sequence=U64(U64_MAX), receipt=bytes(range(256))
    )
    return record, job, a_stream(tenant=tenant), a_usage(tenant=tenant), a_policy(tenant=tenant), a_memo(tenant=tenant)


def an_attachment(
    job_id: bytes, data: bytes = b"x", *, kind: AttachmentKind = AttachmentKind.INPUT, index: int = 0
) -> Attachment:
    return Attachment(job_id, kind, U64(index), data)


def every_query(job_id: bytes) -> list[Query[Any]]:
    """Each query of the closed list, for the suite's tenant."""
    return [
        ListJobs(tenant=TENANT),
        ListJobs(tenant=TENANT, state=JobState.PENDING, label=b'"a":"b"', created_from=1, created_to=FAR_FUTURE),
        CountJobs(),
        CountJobs(tenant=TENANT),
        CountReadyJobs(),
        CountReadyJobs(tenant=TENANT),
        CountKeys(),
        CountKeys(tenant=TENANT),
        CountLiveKeys(),
        CountCommits(),
        *(ListFacts(tenant=TENANT, kind=kind) for kind in Kind),
        *(ListAttachments(tenant=TENANT, job_id=job_id, kind=kind) for kind in AttachmentKind),
        *(ListDueFacts(kind=kind) for kind in (Kind.RECORD, Kind.JOB, Kind.STREAM, Kind.POLICY)),
        ListReadyJobs(types=(TYPE,)),
        ListReadyJobs(types=(TYPE,), tenant=TENANT),
        ListBacklogs(types=(TYPE,)),
        ListInputs(job_ids=(job_id,)),
        ListLeasedJobs(tenant=TENANT, holder=b"h"),
    ]


def _submission_fields(key: str, tenant: str, input: bytes) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "job_id": new_job_id(),
        "type": TYPE,
        "input": input,
        "record_id": key_id(key, tenant) if key else b"",
        "scope": TYPE,
        "key": key,
        "fingerprint": sha256(input).digest(),
        "actor": ACTOR,
        "user": USER,
        "ttl_ms": TTL_MS,
    }
