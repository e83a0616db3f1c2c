"""From what a caller hands over to a command: parse once at the edge, then trust it."""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypedDict, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from onejob.core.callback import checked_callback_url
from onejob.core.command import Precondition
from onejob.core.fingerprint import canonical_json, encode_and_canonicalize, encode_input, fingerprint
from onejob.core.identity import (
    TYPE_QUEUE_SCOPE,
    check_caller_text_size,
    checked_name,
    parse_job_id,
    policy_id,
    record_id,
    resolve_scope,
    usage_id,
    usage_id_of_reservation,
)
from onejob.core.key import checked_key
from onejob.core.limits import QUOTA_POLICY_NAME, Amount, to_micros
from onejob.core.reserve import Reserve
from onejob.core.states import Delivery
from onejob.core.submit import TTL_MS_DEFAULT, TTL_MS_MAX, TTL_MS_MIN, Submit
from onejob.core.timestamps import to_ms, to_utc
from onejob.core.views import HeldKey
from onejob.errors import Invalid, NotFound, NotTheOwner

LABELS_BYTES_MAX = 512
PRIORITY_MAX = 1000
ATTEMPTS_MAX = 100
ATTEMPTS_DEFAULT = 3
TIMEOUT_MS_MAX = 30 * 24 * 3600 * 1000
CACHED_INPUT_BYTES_MAX = 2048
FINGERPRINT_CACHE_MAX = 1024

Method = TypeVar("Method", bound=Callable[..., Any])


class Caller(Struct, frozen=True):
    """Who asks: given by the credential, never by the request."""

    tenant: str = "default"
    user: str = "local"
    actor: str = "client:local"
    owns_keys: bool = False  # True: keys are the user's own, not shared in the tenant
    oversees: bool = True  # False: of other users' jobs and keys it is told nothing

    def can_see(self, user: str) -> bool:
        return self.oversees or user == self.user


class Submission(Struct, frozen=True, kw_only=True):
    """One logical submission, as a caller says it. `input` is any JSON value, or `msgspec.Raw` JSON text."""

    type: str
    input: Any = None
    idempotency_key: str | None = None
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
    callback: str | None = None  # a URL that is told when the job has ended


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


def list_options(method: Method) -> Method:
    """Let `help` and `inspect.signature` show what `**options` accepts, with the defaults of `Submission`."""
    signature = inspect.signature(method)
    *parameters, options = signature.parameters.values()
    accepted = options.annotation.__args__[0].__annotations__
    parameters += [one for one in inspect.signature(Submission).parameters.values() if one.name in accepted]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # of functions
    return method


class PreparedInput(Struct, frozen=True):
    """An input whose one form is known already."""

    data: bytes
    canonical_form: bytes


def with_prepared_input(submission: Submission) -> Submission:
    """The same submission with its input worked out: for a large one that is better done beside the loop."""
    raw = submission.input
    data, form = (bytes(raw), canonical_json(bytes(raw))) if isinstance(raw, Raw) else encode_and_canonicalize(raw)
    return replace(submission, input=PreparedInput(data, form))


def build_submit(
    submission: Submission, caller: Caller, job_id: bytes, precondition: Precondition | None = None
) -> Submit:
    """The command of a submission; whatever is wrong with it is said here."""
    type = checked_name("type", submission.type)
    scope = resolve_scope(type, submission.scope)
    data, mark = encode_and_fingerprint(type, submission.input)
    key = submission.idempotency_key
    if key is not None:
        key = checked_key(key)
    labels = _encode_labels(submission.labels) if submission.labels else b""
    check_caller_text_size(caller.tenant, type, scope, key or "", caller.actor, caller.user, labels=labels)
    return Submit(
        job_id=job_id,
        type=type,
        input=data,
        delivery=_parse_delivery(submission.delivery),
        priority=_checked_int("priority", submission.priority, -PRIORITY_MAX, PRIORITY_MAX),
        run_at=0 if submission.run_at is None else _parse_run_at(submission.run_at),
        attempts_max=_checked_int("max_attempts", submission.max_attempts, 1, ATTEMPTS_MAX),
        timeout_ms=0 if submission.timeout is None else _parse_timeout_ms(submission.timeout),
        labels=labels,
        cost=parse_cost(submission.estimated_cost),
        tenant=caller.tenant,
        record_id=b"" if key is None else key_record_id(caller, scope, key),
        scope=scope,
        key=key or "",
        fingerprint=mark,
        actor=caller.actor,
        user=caller.user,
        ttl_ms=parse_ttl_ms(submission),
        usage_id=usage_id(caller.tenant, caller.user),
        policy_id=policy_id(caller.tenant, QUOTA_POLICY_NAME),
        reservation=_checked_own_reservation(submission.reservation, caller)
        if submission.reservation is not None
        else "",
        callback="" if submission.callback is None else checked_callback_url(submission.callback),
        precondition=precondition,
    )


def checked_submission(submission: Submission, location: str = "") -> Submission:
    """What is handed over in a list is looked at first: it may be anything."""
    if not isinstance(submission, Submission):
        raise Invalid("jobs", f"{location}a job in a list is a Submission(type=..., input=...); make it one")
    return submission


def encode_and_fingerprint(type: str, input: Any) -> tuple[bytes, bytes]:
    """An input as it is stored, and the fingerprint of what is asked for."""
    if isinstance(input, Raw):
        data = bytes(input)
        return data, _fingerprint_json(type, data) if len(data) > CACHED_INPUT_BYTES_MAX else _fingerprint_json_cached(
            type, data
        )
    if isinstance(input, PreparedInput):
        return input.data, fingerprint(type, input.canonical_form)
    data, form = encode_and_canonicalize(input)
    return data, fingerprint(type, form)


def _fingerprint_json(type: str, data: bytes) -> bytes:
    return fingerprint(type, canonical_json(data))


# Retries bring the very same text: its fingerprint is worked out once.
_fingerprint_json_cached = lru_cache(FINGERPRINT_CACHE_MAX)(_fingerprint_json)


def build_reserve(
    submission: Submission,
    caller: Caller,
    job_id: bytes,
    *,
    holder: bytes,
    lease_ms: int,
    wait_if_held: bool = True,
) -> Reserve:
    """The same submission as a reservation: what is asked for does not depend on how."""
    plain = asdict(build_submit(submission, caller, job_id))
    del plain["precondition"]
    if plain.pop("callback"):
        raise Invalid("callback", "a key that is held cannot have a callback; leave it out, or submit at once")
    return Reserve(**plain, holder=holder, lease_ms=lease_ms, wait_if_held=wait_if_held)


def fence_fields(held_key: HeldKey, caller: Caller) -> dict[str, Any]:
    """What a holder's command must name to be let through."""
    return {
        "tenant": caller.tenant,
        "record_id": held_key.record_id,
        "job_id": parse_job_id(held_key.job_id) if held_key.job_id else b"",
        "token": held_key.token,
        "holder": held_key.holder,
        "policy_id": policy_id(caller.tenant, QUOTA_POLICY_NAME),
    }


def key_record_id(caller: Caller, scope: str, key: str) -> bytes:
    return record_id(caller.tenant, scope, key, caller.user if caller.owns_keys else "")


def caller_for_user(caller: Caller, user: str | None) -> Caller:
    """The caller, looking at the keys of a user: where they are shared, these are the same for all.

    NotFound for whoever may not see them.
    """
    if user is None or user == caller.user or not caller.owns_keys:
        return caller
    if not caller.oversees:
        raise NotFound("no such key here; it may have expired, or belong to somebody else")
    return replace(caller, user=user)


def lookup_record_id(caller: Caller, key: str, scope: str) -> bytes:
    """The identity of a key that is looked up: its scope is named, since nothing else tells it."""
    return key_record_id(caller, checked_lookup_scope(scope), checked_key(key))


def record_id_prefix(caller: Caller, scope: str) -> bytes:
    """What the identities of all keys of a scope begin with."""
    return key_record_id(caller, checked_lookup_scope(scope), "")[:-1]


def parse_ttl_ms(submission: Submission) -> int:
    """The window of a key: 1 s to 365 days, 24 hours unless said."""
    ttl, days = submission.idempotency_ttl, submission.idempotency_ttl_days
    if ttl is None and days is None:
        return TTL_MS_DEFAULT
    if ttl is not None and days is not None:
        raise Invalid("ttl", "give idempotency_ttl or idempotency_ttl_days, not both")
    ms = _to_ms("idempotency_ttl", ttl if ttl is not None else days)
    if not TTL_MS_MIN <= ms <= TTL_MS_MAX:
        raise Invalid("ttl", "a key's window is 1 second to 365 days; choose one in between")
    return ms


def parse_lease_ms(lease: timedelta) -> int:
    ms = _to_ms("lease", lease)
    if not 1 <= ms <= TTL_MS_MAX:
        raise Invalid("lease", "a lease is 1 millisecond to 365 days; choose one in between")
    return ms


def parse_cost(amount: Amount | None) -> int:
    return 0 if amount is None else to_micros("estimated_cost", amount)


def _checked_own_reservation(reservation: str, caller: Caller) -> str:
    """A slot of the caller's own: the tally of another user is not looked at."""
    if usage_id_of_reservation(caller.tenant, reservation) != usage_id(caller.tenant, caller.user):
        raise NotTheOwner("reservation", "this reservation is another user's; reserve a slot of your own")
    return reservation


def checked_lookup_scope(scope: str) -> str:
    # Jobs of the type "queue" are shown with this scope, which no submission may choose.
    return scope if scope == TYPE_QUEUE_SCOPE else checked_name("scope", scope)


def _parse_run_at(moment: datetime) -> int:
    ms = to_ms(moment)
    to_utc(ms)  # a moment that its zone moves out of the calendar could be stored, but never be shown
    return ms


def _parse_delivery(word: Delivery) -> Delivery:
    if isinstance(word, Delivery):
        return word
    try:
        return Delivery(word)
    except ValueError:
        raise Invalid("delivery", f"delivery is {' or '.join(Delivery)}; choose one") from None


def _parse_timeout_ms(timeout: timedelta) -> int:
    ms = _to_ms("timeout", timeout)
    if not 1 <= ms <= TIMEOUT_MS_MAX:
        raise Invalid("timeout", "a timeout is 1 millisecond to 30 days; choose one in between")
    return ms


def _encode_labels(labels: Mapping[str, str]) -> bytes:
    if not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise Invalid("labels", "labels are texts by name; turn their values into texts")
    data = encode_input(dict(labels))
    if len(data) > LABELS_BYTES_MAX:
        raise Invalid("labels", f"labels take at most {LABELS_BYTES_MAX} bytes as JSON; put more into the input")
    return data


def _to_ms(what: str, length: timedelta | float | None) -> int:
    if isinstance(length, timedelta):
        return length // timedelta(milliseconds=1)
    if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 <= length <= 366:
        raise Invalid(what, f"{what} is a timedelta, or a number of days up to 365")
    return round(length * 86_400_000)


def _checked_int(what: str, value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Invalid(what, f"{what} is a whole number from {least} to {most}; choose one")
    return value
