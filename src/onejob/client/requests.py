"""Every request that a client sends. Key and bytes are fixed here, before anything is sent or stored."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Raw, Struct, json

from onejob.core.fingerprint import canonical_json, encode_input, fingerprint
from onejob.core.key import KeyLike, checked_key
from onejob.core.timestamps import checked_timedelta
from onejob.errors import Invalid
from onejob.resources.jobs import Failures, Jobs, LogPage, SingleJob, SitesOfJob, StepsOfJob
from onejob.resources.keys import KeyForgotten, KeyHistory, Keys
from onejob.resources.operators import BulkResult, OverviewView, TypePaused, Types, Workers
from onejob.resources.quotas import (
    LimitsView,
    QuotaResponse,
    ReservationHeld,
    ReservationRenewed,
    ReservationSettled,
    SlotReservations,
    TenantQuotaResponse,
    UsageResponse,
)
from onejob.resources.submissions import BatchResponse, ClientState, SequenceReceipt, SubmitResponse

from .decoding import UNREADABLE, decode_response
from .flow import ServerResponse

WINDOW_DEFAULT: Final = timedelta(hours=24)
_MICRO: Final = 1_000_000
_encode = json.Encoder(decimal_format="number").encode

T = TypeVar("T")
UserId = str | int


class SubmitOptions(TypedDict, total=False):
    """The options of a submission besides type, input and key; see `Ledger.submit`."""

    idempotency_ttl: timedelta | None
    idempotency_ttl_days: float | None
    scope: str | None
    delivery: str
    priority: int
    run_at: datetime | None
    max_attempts: int
    timeout: timedelta | None
    labels: Mapping[str, str] | None
    estimated_cost: int | float | Decimal | None
    reservation: str | None
    callback: str | None
    sites: Sequence[str] | None


class SubmissionLike(Protocol):
    """A submission such as `onejob.Submission`."""

    @property
    def type(self) -> str: ...
    @property
    def input(self) -> Any: ...
    @property
    def idempotency_key(self) -> KeyLike | None: ...


class CostLimitLike(Protocol):
    """A cost limit such as `onejob.CostLimit`, in micro-units."""

    @property
    def amount(self) -> int: ...
    @property
    def period(self) -> str: ...
    @property
    def action(self) -> str: ...


class LimitsLike(Protocol):
    """The limits of a user, such as `onejob.Limits`; None means unlimited."""

    @property
    def max_concurrent(self) -> int | None: ...
    @property
    def jobs_per_hour(self) -> int | None: ...
    @property
    def jobs_per_day(self) -> int | None: ...
    @property
    def cost_limit(self) -> CostLimitLike | None: ...


class ClientSequenceReceipt(SequenceReceipt, frozen=True):
    """The result of a submission under a sequence number."""

    attempts: int = 1


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One HTTP request, the same on every attempt, and the type of its response."""

    method: str
    path: str
    response_type: type[T]
    body: bytes = b""
    key: str | None = None
    window_ms: int = 0  # how long the server remembers the key; 0: the call may be retried at any time
    server_window_type: str | None = None  # the job type whose window the server chooses; None: the caller chose it
    sequenced: bool = False  # under a sequence number, which is executed once regardless of the window
    key_header: str | None = None  # a key in the Idempotency-Key header, of a call that may be retried at any time

    def accepts(self, response: ServerResponse) -> bool:
        """True if the response is complete and belongs to this call; a broken proxy may deliver another one's."""
        try:
            body = decode_response(response.body, self.response_type)
        except UNREADABLE:
            return False
        match body:
            case SubmitResponse():
                return body.idempotency.key == self.key
            case ClientSequenceReceipt():
                return body.key == self.key
            case SingleJob():
                return body.job.id in self.path
        return True


def checked_window(window: timedelta | None) -> timedelta:
    """How long a server remembers a key whose submission does not say; 24 hours unless the caller knows better."""
    if window is not None and checked_timedelta("window", window) <= timedelta(0):
        raise Invalid("window", "a window is longer than 0; say how long the server remembers a key")
    return WINDOW_DEFAULT if window is None else window


def submit_call(submission: SubmissionLike, key: str | None) -> Call[SubmitResponse]:
    body, ttl = _job_body(submission), _ttl(submission)
    return Call(
        method="POST",
        path="/api/jobs",
        response_type=SubmitResponse,
        body=_encode(body if key is None else body | {"idempotencyKey": key}),
        key=key,
        window_ms=(ttl or WINDOW_DEFAULT) // timedelta(milliseconds=1),
        server_window_type=submission.type if ttl is None else None,
    )


def batch_call(calls: Iterable[Call[SubmitResponse]]) -> Call[BatchResponse]:
    """Many submissions in one request, each with its own bytes."""
    body = b'{"jobs":[' + b",".join(call.body for call in calls) + b"]}"
    return Call(method="POST", path="/api/jobs/batch", response_type=BatchResponse, body=body, key="")


def sequence_call(
    client_id: str, sequence: int, key: str, jobs: Iterable[SubmissionLike], *, scope: str, ttl: timedelta | None
) -> Call[ClientSequenceReceipt]:
    bodies = [_job_body(job) for job in jobs]
    data: dict[str, Any] = {"scope": scope, "sequence": sequence, "idempotencyKey": key}
    if ttl is not None:
        data["idempotencyTtlSeconds"] = checked_timedelta("idempotency_ttl", ttl).total_seconds()
    data |= bodies[0] if len(bodies) == 1 else {"jobs": bodies}
    return Call(
        method="POST",
        path=f"/api/clients/{_segment(client_id)}/jobs",
        response_type=ClientSequenceReceipt,
        body=_encode(data),
        key=key,
        sequenced=True,
    )


def client_state_call(client_id: str, *, scope: str) -> Call[ClientState]:
    return _get(f"/api/clients/{_segment(client_id)}/state", ClientState, scope=scope)


def job_call(job_id: str, *, wait_seconds: float | None = None) -> Call[SingleJob]:
    wait = None if wait_seconds is None else f"{wait_seconds:.3f}"
    return _get(_job_path(job_id), SingleJob, wait=wait)


def jobs_call(
    *,
    state: str | None = None,
    type: str | None = None,
    user: str | None = None,
    label: tuple[str, str] | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    before: str | None = None,
    limit: int,
) -> Call[Jobs]:
    wanted = job_filter(state, type, user, label, created_after, created_before)
    return _get("/api/jobs", Jobs, **wanted, cursor=before, limit=limit)


def job_filter(
    state: str | None,
    type: str | None,
    user: str | None,
    label: tuple[str, str] | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> dict[str, str]:
    """The members of a filter that are given, as in a query and in a body."""
    members = {
        "state": state,
        "type": type,
        "user": user,
        "label": None if label is None else "=".join(label),
        "createdAfter": None if created_after is None else created_after.isoformat(),
        "createdBefore": None if created_before is None else created_before.isoformat(),
    }
    return {name: value for name, value in members.items() if value is not None}


def act_on_jobs_call(
    action: str,
    wanted: Mapping[str, str],
    *,
    before: str | None = None,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[BulkResult]:
    body = {"action": action, "filter": wanted, "cursor": before, "dryRun": dry_run}
    call = _change("POST", "/api/jobs/actions", BulkResult, body)
    return call if idempotency_key is None else msgspec.structs.replace(call, key_header=quote_key(idempotency_key))


def overview_call() -> Call[OverviewView]:
    return _get("/api/overview", OverviewView)


def workers_call() -> Call[Workers]:
    return _get("/api/workers", Workers)


def types_call() -> Call[Types]:
    return _get("/api/types", Types)


def pause_type_call(type: str) -> Call[TypePaused]:
    return _change("POST", f"/api/types/{_segment(type)}/pause", TypePaused)


def resume_type_call(type: str) -> Call[TypePaused]:
    return _change("POST", f"/api/types/{_segment(type)}/resume", TypePaused)


def cancel_call(job_id: str, idempotency_key: str | None = None) -> Call[SingleJob]:
    call = _change("POST", f"{_job_path(job_id)}/cancel", SingleJob)
    return call if idempotency_key is None else msgspec.structs.replace(call, key_header=quote_key(idempotency_key))


def resolve_call(job_id: str, resolution: str, *, note: str, idempotency_key: str) -> Call[SingleJob]:
    """The key makes a retry the same answer; without it, a second attempt would find the job resolved and be refused."""
    body = {"resolution": resolution, "note": note}
    call = _change("POST", f"{_job_path(job_id)}/resolve", SingleJob, body)
    return msgspec.structs.replace(call, key_header=quote_key(idempotency_key))


def input_call(job_id: str) -> Call[Raw]:
    return _get(f"{_job_path(job_id)}/input", Raw)


def sites_call(job_id: str) -> Call[SitesOfJob]:
    return _get(f"{_job_path(job_id)}/sites", SitesOfJob)


def failures_call(job_id: str) -> Call[Failures]:
    return _get(f"{_job_path(job_id)}/failures", Failures)


def result_call(job_id: str) -> Call[Raw]:
    return _get(f"{_job_path(job_id)}/result", Raw)


def steps_call(job_id: str) -> Call[StepsOfJob]:
    return _get(f"{_job_path(job_id)}/steps", StepsOfJob)


def logs_call(job_id: str, *, offset: int, limit: int) -> Call[LogPage]:
    return _get(f"{_job_path(job_id)}/logs", LogPage, offset=offset, limit=limit)


def key_call(key: KeyLike, *, scope: str, user: str | None) -> Call[KeyHistory]:
    return _get(_key_path(key), KeyHistory, scope=scope, user=user)


def keys_call(*, scope: str | None, user: str | None, cursor: str | None, limit: int) -> Call[Keys]:
    return _get("/api/keys", Keys, scope=scope, user=user, cursor=cursor, limit=limit)


def forget_call(key: KeyLike, *, scope: str, user: str | None) -> Call[KeyForgotten]:
    path = _with_query(_key_path(key), scope=scope, user=user)
    return _change("DELETE", path, KeyForgotten)


def reserve_slot_call(
    key: KeyLike, *, user: UserId | None, max_concurrent: int | None, ttl_seconds: float
) -> Call[ReservationHeld]:
    fields = {"user": _user_name(user), "maxConcurrent": max_concurrent, "ttlSeconds": ttl_seconds}
    call = _change("POST", "/api/reservations", ReservationHeld, fields)
    return msgspec.structs.replace(call, key_header=quote_key(key))


def consume_slot_call(reservation_id: str, job_id: str | None) -> Call[ReservationSettled]:
    return _change("POST", _slot_path(reservation_id, "consume"), ReservationSettled, {"jobId": job_id})


def release_slot_call(reservation_id: str) -> Call[ReservationSettled]:
    return _change("POST", _slot_path(reservation_id, "release"), ReservationSettled)


def renew_slot_call(reservation_id: str, ttl_seconds: float) -> Call[ReservationRenewed]:
    return _change("POST", _slot_path(reservation_id, "renew"), ReservationRenewed, {"ttlSeconds": ttl_seconds})


def slots_call(user: UserId | None) -> Call[SlotReservations]:
    return _get("/api/reservations", SlotReservations, user=_user_name(user))


def usage_call(user: UserId | None) -> Call[UsageResponse]:
    return _get("/api/usage", UsageResponse, user=_user_name(user))


def quota_call(user: UserId) -> Call[QuotaResponse]:
    return _get(_quota_path(user), QuotaResponse)


def set_quota_call(user: UserId, limits: LimitsLike | LimitsView) -> Call[QuotaResponse]:
    return _change("PUT", _quota_path(user), QuotaResponse, _limits_body(limits))


def tenant_quota_call() -> Call[TenantQuotaResponse]:
    return _get("/api/quotas", TenantQuotaResponse)


def set_tenant_quota_call(
    *, default: LimitsLike | LimitsView, ceiling: LimitsLike | LimitsView
) -> Call[TenantQuotaResponse]:
    halves = {"default": _limits_body(default), "ceiling": _limits_body(ceiling)}
    return _change("PUT", "/api/quotas", TenantQuotaResponse, halves)


def checked_url(url: str) -> str:
    """The URL of a server, without a slash at its end."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if known and not (parts.query or parts.fragment or parts.username is not None):
            return url.rstrip("/")
    except ValueError:
        pass  # a port that is not a number, brackets that do not close
    if "@" in url or "?" in url or "#" in url:  # it may hold a secret, so it is not quoted
        raise Invalid(
            "url", "the URL has credentials or parameters; write it as http://127.0.0.1:8001 and use an API key"
        )
    raise Invalid("url", f"{url!r} names no server; write it as http://127.0.0.1:8001")


def checked_api_key(api_key: str) -> str:
    if not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key and api_key):
        raise Invalid("api key", "the API key has characters that no key has; give it as it was printed")
    return api_key


def quote_key(key: KeyLike) -> str:
    """A key as the Idempotency-Key header has it: a structured-field string."""
    text = str(key)
    if not (checked_key(key).isascii() and text.isprintable()):
        raise Invalid("key", "a header carries only ASCII; choose another key")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def derived_key(type: str, input: Any, names: Iterable[str]) -> str:
    """The key that follows from these members of an input: the same values give the same key, in any order.

    A name is that of a member, or a JSON pointer to one: `order_id`, `/order/id`. All must be present.
    """
    value = json.decode(bytes(input) if isinstance(input, Raw) else encode_input(input))
    chosen = {name: _member_at(value, name) for name in ([names] if isinstance(names, str) else names)}
    if not chosen:
        raise Invalid("key_from", "key_from names no member; name those that tell one submission from another")
    return fingerprint(type, canonical_json(encode_input(chosen))).hex()


def _get(path: str, response_type: type[T], **query: object) -> Call[T]:
    return Call(method="GET", path=_with_query(path, **query), response_type=response_type)


def _change(method: str, path: str, response_type: type[T], fields: Mapping[str, Any] | None = None) -> Call[T]:
    """A change that has the same effect however often it is made. Members that are None are left out."""
    body = {name: value for name, value in (fields or {}).items() if value is not None}
    data = json.encode(body) if body or method == "PUT" else b""
    return Call(method=method, path=path, response_type=response_type, body=data)


def _with_query(path: str, **query: object) -> str:
    fields = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(fields)}" if fields else path


def _segment(text: str) -> str:
    if not isinstance(text, str) or not text:
        raise Invalid("path", "an id or key is empty; name one")
    return quote(text, safe="")


def _job_path(job_id: str) -> str:
    return f"/api/jobs/{_segment(job_id).lower()}"


def _key_path(key: KeyLike) -> str:
    return f"/api/keys/{_segment(checked_key(key))}"


def _slot_path(reservation_id: str, verb: str) -> str:
    return f"/api/reservations/{_segment(reservation_id)}/{verb}"


def _quota_path(user: UserId) -> str:
    return f"/api/quotas/{_segment(_user_name(user) or '')}"


def _user_name(user: UserId | None) -> str | None:
    if isinstance(user, bool) or not isinstance(user, (str, int, type(None))):
        raise Invalid("user", "a user is named by a text or a number; give one")
    return str(user) if isinstance(user, int) else user


def _limits_body(limits: LimitsLike | LimitsView) -> dict[str, Any]:
    cost = limits.cost_limit
    # onejob.Limits has micro-units; a model from the server has units, as the request does.
    unit = 1 if isinstance(limits, LimitsView) else _MICRO
    return {
        "maxConcurrent": limits.max_concurrent,
        "jobsPerHour": limits.jobs_per_hour,
        "jobsPerDay": limits.jobs_per_day,
        "costLimit": None
        if cost is None
        else {"amount": cost.amount / unit, "period": cost.period, "action": cost.action},
    }


def _job_body(submission: SubmissionLike) -> dict[str, Any]:
    """Only the options that are set; the server has the defaults. An input that is not exact in JSON is refused."""
    raw = submission.input
    data = bytes(raw) if isinstance(raw, Raw) else encode_input(raw)
    canonical_json(data)
    timeout: timedelta | None = getattr(submission, "timeout", None)
    run_at = getattr(submission, "run_at", None)
    labels, ttl = getattr(submission, "labels", None), _ttl(submission)
    callback, sites = getattr(submission, "callback", None), getattr(submission, "sites", None)
    body = {
        "type": submission.type,
        "input": Raw(data),
        "scope": getattr(submission, "scope", None),
        "idempotencyTtlSeconds": None if ttl is None else ttl.total_seconds(),
        "delivery": getattr(submission, "delivery", None),
        "priority": getattr(submission, "priority", None),
        "runAt": run_at,
        "maxAttempts": getattr(submission, "max_attempts", None),
        "timeoutSeconds": None if timeout is None else checked_timedelta("timeout", timeout).total_seconds(),
        "labels": dict(labels) if labels else None,
        "estimatedCost": getattr(submission, "estimated_cost", None),
        "reservation": getattr(submission, "reservation", None),
        "callback": None if callback is None else {"url": callback},
        "sites": None if sites is None else list(sites),
    }
    return {name: value for name, value in body.items() if value is not None}


def _ttl(submission: SubmissionLike) -> timedelta | None:
    ttl: timedelta | None = getattr(submission, "idempotency_ttl", None)
    days: float | None = getattr(submission, "idempotency_ttl_days", None)
    if ttl is not None and days is not None:
        raise Invalid("idempotency_ttl", "give idempotency_ttl or idempotency_ttl_days, not both")
    if days is not None:
        return timedelta(days=days)
    return None if ttl is None else checked_timedelta("idempotency_ttl", ttl)


def _member_at(value: Any, name: str) -> Any:
    steps = name[1:].split("/") if name.startswith("/") else [name]
    for step in steps:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or step not in value:
            # A key derived from missing members would be the same for every submission.
            raise Invalid("key_from", f"the input has no member {name}; name only what every input has")
        value = value[step]
    return value
