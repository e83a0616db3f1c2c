"""JSON bodies of the console's lists: search results, a job's details, callbacks, users with their usage, clients, schedules."""

import re

from onejob.core.facts import Job
from onejob.core.limits import MICROS_PER_UNIT
from onejob.core.timestamps import to_utc
from onejob.ledger.listings import CallbackView, JobHistory, SequencedClient, UserUsage
from onejob.ledger.schedules import ScheduleView

from .jobs import EventOut, JobOut, KeySummaryOut, event_out, job_out
from .quotas import LimitsOut, ReservationOut, UsageOut, limits_out, usage_out
from .types import ResponseBody, UtcTimestamp

# A holder that was drawn for a named worker: the name is shown, the nonce is part of what authorises it.
_NAMED_HOLDER = re.compile(r"(.+):[0-9a-f]{16,}")


class SearchOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    job: JobOut | None
    keys: list[KeySummaryOut]


class CallbackJobOut(ResponseBody, frozen=True, rename="camel"):
    """A callback is a job of its own; it is `preparing` until the job that it reports has ended."""

    job: JobOut
    reported_job_id: str
    url: str | None  # may contain a secret, so null for callers who may not inspect


class JobDetailsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    job: JobOut
    attempts_max: int
    timeout_seconds: float | None
    estimated_cost: float | None
    lease_until: UtcTimestamp | None  # null: no worker has it
    worker: str | None  # the name of the worker that has or had it last, if it gave one
    delete_after: UtcTimestamp | None  # null: it has not ended
    log_lines: int
    events: list[EventOut]
    events_total: int
    callback: CallbackJobOut | None


class CallbacksOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    callbacks: list[CallbackJobOut]
    next: str | None


class UserOut(ResponseBody, frozen=True, rename="camel"):
    usage: UsageOut
    limits: LimitsOut  # the user's own


class UsersOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    users: list[UserOut]
    next: str | None


class UserReservationsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    reservations: list[ReservationOut]
    next: str | None


class ClientOut(ResponseBody, frozen=True, rename="camel"):
    client_id: str
    scope: str
    owner: str
    last_committed_sequence: int
    last_seen: UtcTimestamp
    expires_at: UtcTimestamp
    is_idle: bool


class ClientsOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    clients: list[ClientOut]
    next: str | None


class ScheduleListOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    schedules: list[ScheduleView]


class ScheduleOut(ResponseBody, frozen=True, rename="camel"):
    request_id: str
    schedule: ScheduleView


def job_details_out(details: JobHistory, request_id: str, *, show_url: bool) -> JobDetailsOut:
    row = details.job.row
    return JobDetailsOut(
        request_id=request_id,
        job=job_out(details.job),
        attempts_max=row.attempts_max,
        timeout_seconds=row.timeout_ms / 1000 if row.timeout_ms else None,
        estimated_cost=row.cost_held / MICROS_PER_UNIT if row.cost_held else None,
        lease_until=to_utc(row.lease_until) if row.lease_until else None,
        worker=_worker_name(row),
        delete_after=to_utc(max(row.due_at, row.keep_until)) if row.ended_at and row.due_at else None,
        log_lines=row.logs,
        events=[event_out(event) for event in details.events],
        events_total=row.events,
        callback=None if details.callback is None else callback_job_out(details.callback, show_url=show_url),
    )


def callback_job_out(callback: CallbackView, *, show_url: bool) -> CallbackJobOut:
    return CallbackJobOut(job_out(callback.job), callback.of, callback.url if show_url else None)


def user_out(user: UserUsage, request_id: str) -> UserOut:
    return UserOut(usage_out(user.usage, request_id), limits_out(user.limits))


def client_out(client: SequencedClient) -> ClientOut:
    return ClientOut(
        client.client_id,
        client.scope,
        client.owner,
        client.last_committed_sequence,
        client.last_seen,
        client.expires_at,
        client.is_idle,
    )


def _worker_name(row: Job) -> str | None:
    found = _NAMED_HOLDER.fullmatch(row.holder.decode(errors="replace"))
    return found[1] if found else None
