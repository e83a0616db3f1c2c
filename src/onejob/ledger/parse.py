"""Parse a caller's arguments into commands: checked once here, trusted afterwards."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import NoneType
from typing import Any, TypedDict, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from onejob.core.callback import checked_callback_url
from onejob.core.command import Precondition
from onejob.core.facts import TRACEPARENT_LABEL
from onejob.core.fingerprint import canonical_json, encode_and_canonicalize, encode_input, fingerprint
from onejob.core.identity import (
    CALLER_TEXT_BYTES_MAX,
    TYPE_QUEUE_SCOPE,
    check_caller_text_size,
    check_key_owner,
    checked_name,
    is_tick_key,
    parse_job_id,
    plain_str,
    policy_id,
    record_id,
    resolve_scope,
    usage_id,
    usage_id_of_reservation,
)
from onejob.core.key import KeyLike, checked_key
from onejob.core.large_json import Pause, do_not_pause
from onejob.core.ledger_settings import parse_key_owner
from onejob.core.limits import QUOTA_POLICY_NAME, Amount, to_micros
from onejob.core.reserve import Reserve
from onejob.core.sites import NO_SITES, Sites
from onejob.core.states import Delivery
from onejob.core.submit import (
    ATTEMPTS_MAX,
    LABELS_BYTES_MAX,
    PRIORITY_MAX,
    TIMEOUT_MS_MAX,
    TTL_MS_MAX,
    TTL_MS_MIN,
    Submit,
)
from onejob.core.timestamps import to_duration_ms, to_ms, to_utc
from onejob.core.work import RETENTION_MS_MAX, verb_key_digest
from onejob.errors import Invalid, NotFound, NotTheOwner
from onejob.runtime.callers import STANDARD_WINDOWS, Caller, DefaultWindows, key_record_id
from onejob.runtime.receipts import HeldKey

ATTEMPTS_DEFAULT = 3
CACHED_INPUT_BYTES_MAX = 2048
FINGERPRINT_CACHE_MAX = 1024
OPTIONS_CACHE_MAX = 1024

Method = TypeVar("Method", bound=Callable[..., Any])


class Submission(Struct, frozen=True, kw_only=True):
    """One logical submission, unchecked. `input` is any JSON value, or `msgspec.Raw` JSON text."""

    type: str
    input: Any = None
    idempotency_key: KeyLike | None = None
    idempotency_ttl: timedelta | None = None
    idempotency_ttl_days: float | None = None
    scope: str | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: int = 0
    run_at: datetime | None = None
    max_attempts: int = ATTEMPTS_DEFAULT
    timeout: timedelta | None = None
    labels: Mapping[str, str] | None = None
    estimated_cost: Amount | None = None
    reservation: str | None = None
    callback: str | None = None  # the URL to notify when the job has ended
    sites: Sequence[str] | None = None  # the data centres that run it; None: this ledger alone


class JobOptions(TypedDict, total=False):
    """The options of one job as keyword arguments; `Submission` has their defaults."""

    delivery: Delivery
    priority: int
    run_at: datetime | None
    max_attempts: int
    timeout: timedelta | None
    labels: Mapping[str, str] | None
    estimated_cost: Amount | None


class SubmissionOptions(JobOptions, total=False):
    """The options of a submission as keyword arguments: the fields of `Submission` but for type, input and key."""

    idempotency_ttl: timedelta | None
    idempotency_ttl_days: float | None
    scope: str | None
    reservation: str | None
    callback: str | None
    sites: Sequence[str] | None


def list_options(method: Method) -> Method:
    """Let `help` and `inspect.signature` show what `**options` accepts, with the defaults of `Submission`."""
    signature = inspect.signature(method)
    *parameters, options = signature.parameters.values()
    accepted = options.annotation.__args__[0].__annotations__
    parameters += [
        parameter for parameter in inspect.signature(Submission).parameters.values() if parameter.name in accepted
    ]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # of functions
    return method


class PreparedInput(Struct, frozen=True):
    """An input with its canonical form."""

    data: bytes
    canonical_form: bytes


def with_prepared_input(submission: Submission, *, pause: Pause = do_not_pause) -> Submission:
    """Encode and canonicalize the input now; for a large one, call this off the event loop."""
    raw = submission.input
    if isinstance(raw, Raw):
        data = bytes(raw)
        form = canonical_json(data, pause=pause)
    else:
        data, form = encode_and_canonicalize(raw)
    return replace(submission, input=PreparedInput(data, form))


def said_settings(key_owner: str | None, window: timedelta | None) -> dict[str, object]:
    """The fields of `LedgerSettings` that a process names."""
    said: dict[str, object] = {}
    if key_owner is not None:
        said["key_owner"] = parse_key_owner("key_owner", key_owner)
    if window is not None:
        said["window_ms"] = parse_window_ms("window", window)
    return said


def parse_default_windows(window: timedelta | None, windows: Mapping[str, timedelta]) -> DefaultWindows:
    """`window` for all job types but those that `windows` names; without it, `ttl_ms` is 0: the engine's own."""
    by_type = {
        checked_name("type", type): parse_window_ms("windows", type_window) for type, type_window in windows.items()
    }
    return DefaultWindows(0 if window is None else parse_window_ms("window", window), by_type)


def parse_retention_ms(what: str, retention: timedelta) -> int:
    ms = to_duration_ms(what, retention)
    if not 0 <= ms <= RETENTION_MS_MAX:
        raise Invalid(what, "ended jobs are kept for 0 seconds to 3650 days; choose one in between")
    return ms


def build_submit(
    submission: Submission, caller: Caller, job_id: bytes, precondition: Precondition | None = None, *,
    windows: DefaultWindows = STANDARD_WINDOWS, traceparent: str = "", sites: Sites = NO_SITES,
) -> Submit:  # fmt: skip
    """Check a submission and make its command; raises Invalid for the first value that is wrong."""
    type, scope, delivery, priority, attempts_max = _checked_options_cached(submission)
    data, digest = encode_and_fingerprint(type, submission.input)
    key = None if submission.idempotency_key is None else checked_key(submission.idempotency_key)
    check_key_owner(scope, key or "", caller.actor)
    labels = _encode_labels(submission.labels) if submission.labels else b""
    check_caller_text_size(caller.tenant, type, scope, key or "", caller.actor, caller.user, labels=labels)
    command = Submit(  # the fields of JobSpec by position: 21 arguments by name would take five times as long
        job_id,
        type,
        data,
        delivery,
        priority,
        0 if submission.run_at is None else _parse_run_at(submission.run_at),
        attempts_max,
        0 if submission.timeout is None else _parse_timeout_ms(submission.timeout),
        _with_traceparent(labels, traceparent, caller, type, scope, key) if traceparent else labels,
        0 if submission.estimated_cost is None else to_micros("estimated_cost", submission.estimated_cost),
        tenant=caller.tenant,
        record_id=b"" if key is None else record_id(caller.tenant, scope, key, caller.user if caller.owns_keys else ""),
        scope=scope,
        key=key or "",
        fingerprint=digest,
        actor=caller.actor,
        user=caller.user,
        ttl_ms=parse_ttl_ms(submission, type, windows),
        usage_id=usage_id(caller.tenant, caller.user),
        policy_id=policy_id(caller.tenant, QUOTA_POLICY_NAME),
        reservation="" if submission.reservation is None else _checked_own_reservation(submission.reservation, caller),
        callback="" if submission.callback is None else checked_callback_url(submission.callback),
        settings=b"" if key is None else caller.settings,
        precondition=precondition,
    )
    return command if submission.sites is None else sites.apply(command, submission.sites)


def _checked_options(
    type: str, scope: str | None, delivery: Delivery, priority: int, max_attempts: int
) -> tuple[str, str, Delivery, int, int]:
    """The type, the scope of its keys, and the options that most submissions of a type share."""
    type = checked_name("type", type)
    scope = resolve_scope(type, scope)
    priority = _checked_int("priority", priority, -PRIORITY_MAX, PRIORITY_MAX)
    return type, scope, _parse_delivery(delivery), priority, _checked_int("max_attempts", max_attempts, 1, ATTEMPTS_MAX)


_PLAIN_SCOPES = (str, NoneType)  # an instance of a subclass may be equal to another text
# Typed, because 1 == True == 1.0, and only the first is a number of attempts.
_remembered_options = lru_cache(OPTIONS_CACHE_MAX, typed=True)(_checked_options)


def _checked_options_cached(submission: Submission) -> tuple[str, str, Delivery, int, int]:
    """`_checked_options`: two calls instead of eight, if the same were checked before."""
    if (
        type(submission.type) is not str
        or type(submission.scope) not in _PLAIN_SCOPES
        or type(submission.delivery) is not Delivery
    ):
        return _checked_options(
            submission.type, submission.scope, submission.delivery, submission.priority, submission.max_attempts
        )
    try:
        return _remembered_options(
            submission.type, submission.scope, submission.delivery, submission.priority, submission.max_attempts
        )
    except TypeError:  # the priority or the number of attempts is something that cannot be hashed
        return _checked_options(
            submission.type, submission.scope, submission.delivery, submission.priority, submission.max_attempts
        )


def checked_submission(submission: Submission, location: str = "") -> Submission:
    """A list of jobs may contain anything, so each element is checked first."""
    if not isinstance(submission, Submission):
        raise Invalid("jobs", f"{location}a job in a list is a Submission(type=..., input=...); make it one")
    return submission


def encode_and_fingerprint(type: str, input: Any) -> tuple[bytes, bytes]:
    """An input as it is stored, and the fingerprint of type and input."""
    if isinstance(input, Raw):
        data = bytes(input)
        cached = len(data) <= CACHED_INPUT_BYTES_MAX
        return data, (_fingerprint_json_cached if cached else _fingerprint_json)(type, data)
    if isinstance(input, PreparedInput):
        return input.data, fingerprint(type, input.canonical_form)
    data, form = encode_and_canonicalize(input)
    return data, fingerprint(type, form)


def _fingerprint_json(type: str, data: bytes) -> bytes:
    return fingerprint(type, canonical_json(data))


# A retry sends the same bytes again, so their fingerprint is computed once.
_fingerprint_json_cached = lru_cache(FINGERPRINT_CACHE_MAX)(_fingerprint_json)


def build_reserve(
    submission: Submission,
    caller: Caller,
    job_id: bytes,
    *,
    holder: bytes,
    lease_ms: int,
    wait_if_held: bool = True,
    windows: DefaultWindows = STANDARD_WINDOWS,
    traceparent: str = "",
) -> Reserve:
    """The same checks and the same fingerprint as for `build_submit`."""
    if submission.sites is not None:
        raise Invalid("sites", "the job of a held key runs here alone; leave its sites out, or use submit")
    fields = asdict(build_submit(submission, caller, job_id, windows=windows, traceparent=traceparent))
    del fields["precondition"]
    if fields.pop("callback"):
        raise Invalid("callback", "a held key cannot have a callback; leave it out, or use submit")
    del fields["sites"]
    return Reserve(**fields, holder=holder, lease_ms=lease_ms, wait_if_held=wait_if_held)


def fence_fields(held_key: HeldKey, caller: Caller) -> dict[str, Any]:
    """The fields by which a command proves that its sender holds the key."""
    return {
        "tenant": caller.tenant,
        "record_id": held_key.record_id,
        "job_id": parse_job_id(held_key.job_id) if held_key.job_id else b"",
        "token": held_key.token,
        "holder": held_key.holder,
        "policy_id": policy_id(caller.tenant, QUOTA_POLICY_NAME),
    }


def build_verb_key(key: str | None) -> bytes:
    """The digest of a verb's key on a job, whichever caller acts; empty without a key."""
    return b"" if key is None else verb_key_digest(checked_key(key))


def caller_for_user(caller: Caller, user: str | None) -> Caller:
    """The caller with the key ownership of `user`; NotFound if it may not see that user's keys."""
    if user is None or user == caller.user or not caller.owns_keys:
        return caller
    if not caller.sees_all_users:
        raise NotFound("no such key; it may have expired, or belong to another user")
    return replace(caller, user=user)


def lookup_record_id(caller: Caller, key: KeyLike, scope: str) -> bytes:
    """The record id of a key; its scope must be named, since a lookup has no job type to derive it from."""
    scope, key = checked_lookup_scope(scope), checked_key(key)
    if not caller.sees_all_users and is_tick_key(scope, key):  # it belongs to no user
        raise NotFound("no such key; it may have expired, or belong to another user")
    return key_record_id(caller, scope, key)


def record_id_prefix(caller: Caller, scope: str) -> bytes:
    """The common prefix of a scope's record ids."""
    return key_record_id(caller, checked_lookup_scope(scope), "")[:-1]


def parse_ttl_ms(submission: Submission, type: str, windows: DefaultWindows) -> int:
    ttl, days = submission.idempotency_ttl, submission.idempotency_ttl_days
    if ttl is None and days is None:
        return windows.by_type.get(type, windows.ttl_ms)
    if ttl is not None and days is not None:
        raise Invalid("ttl", "give idempotency_ttl or idempotency_ttl_days, not both")
    return parse_window_ms("idempotency_ttl", ttl) if ttl is not None else _checked_window_ms("ttl", _days_to_ms(days))


def parse_window_ms(what: str, window: timedelta) -> int:
    return _checked_window_ms(what, to_duration_ms(what, window))


def _checked_window_ms(what: str, ms: int) -> int:
    if not TTL_MS_MIN <= ms <= TTL_MS_MAX:
        raise Invalid(what, "a key's window is 1 second to 365 days; choose one in between")
    return ms


def parse_lease_ms(lease: timedelta) -> int:
    ms = to_duration_ms("lease", lease)
    if not 1 <= ms <= TTL_MS_MAX:
        raise Invalid("lease", "a lease is 1 millisecond to 365 days; choose one in between")
    return ms


def _checked_own_reservation(reservation: str, caller: Caller) -> str:
    """The usage of another user is not read, so a slot must be the caller's own."""
    reservation = plain_str(reservation)
    if usage_id_of_reservation(caller.tenant, reservation) != usage_id(caller.tenant, caller.user):
        raise NotTheOwner("reservation", "this reservation is another user's; reserve a slot of your own")
    return reservation


def checked_lookup_scope(scope: str) -> str:
    # Jobs of the type "queue" are displayed with this scope, which no submission may choose.
    scope = plain_str(scope)
    return scope if scope == TYPE_QUEUE_SCOPE else checked_name("scope", scope)


def _parse_run_at(moment: datetime) -> int:
    ms = to_ms(moment)
    to_utc(ms)  # raises for a time that its zone moves out of the calendar: it could be stored, but never displayed
    return ms


def _parse_delivery(value: Delivery) -> Delivery:
    if isinstance(value, Delivery):
        return value
    try:
        return Delivery(value)
    except ValueError:
        raise Invalid("delivery", f"delivery is {' or '.join(Delivery)}; choose one") from None


def _parse_timeout_ms(timeout: timedelta) -> int:
    ms = to_duration_ms("timeout", timeout)
    if not 1 <= ms <= TIMEOUT_MS_MAX:
        raise Invalid("timeout", "a timeout is 1 millisecond to 30 days; choose one in between")
    return ms


def _encode_labels(labels: Mapping[str, str]) -> bytes:
    if not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise Invalid("labels", "labels map strings to strings; convert their values to strings")
    if TRACEPARENT_LABEL in labels:
        raise Invalid("labels", f"the label {TRACEPARENT_LABEL} is reserved; send the trace context as a header")
    data = encode_input(dict(labels))
    if len(data) > LABELS_BYTES_MAX:
        raise Invalid("labels", f"labels take at most {LABELS_BYTES_MAX} bytes as JSON; put more into the input")
    return data


def _with_traceparent(labels: bytes, traceparent: str, caller: Caller, type: str, scope: str, key: str | None) -> bytes:
    """The labels with the trace context; without it where there is no room, because a trace refuses no submission."""
    member = b'"%b":"%b"}' % (TRACEPARENT_LABEL.encode(), traceparent.encode("ascii"))
    added = labels[:-1] + b"," + member if labels else b"{" + member
    names = "".join((caller.tenant, type, scope, key or "", caller.actor, caller.user))
    fits = len(added) <= LABELS_BYTES_MAX and len(names.encode()) + len(added) <= CALLER_TEXT_BYTES_MAX
    return added if fits else labels


def _days_to_ms(days: float | None) -> int:
    if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 <= days <= 366:
        raise Invalid(
            "idempotency_ttl_days",
            "idempotency_ttl_days is a number of days up to 365; a timedelta is given as idempotency_ttl",
        )
    return round(days * 86_400_000)


def _checked_int(what: str, value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Invalid(what, f"{what} is a whole number from {least} to {most}; choose one")
    return value
