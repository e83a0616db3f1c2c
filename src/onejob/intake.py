"""From what a caller hands over to a command: parse once at the edge, then trust it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct

from .core.arrival import TTL_MS_DEFAULT, TTL_MS_MAX, TTL_MS_MIN
from .core.fingerprint import canonical, encode_input, fingerprint
from .core.identity import checked_name, record_id, scope_of
from .core.invalid import Invalid
from .core.key import checked_key
from .core.moment import ms_of
from .core.states import Delivery

LABELS_BYTES_MAX = 512
PRIORITY_MAX = 1000
ATTEMPTS_MAX = 100
ATTEMPTS_DEFAULT = 3
TIMEOUT_MS_MAX = 30 * 24 * 3600 * 1000


class Caller(Struct, frozen=True):
    """Who asks: given by the credential, never by the request."""

    tenant: str = "default"
    user: str = "local"
    actor: str = "client:local"
    owns_keys: bool = False  # True: keys are the user's own, not shared in the tenant


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


def parsed(submission: Submission, caller: Caller) -> dict[str, Any]:
    """The fields of a Submit or Reserve, checked; whatever is wrong with them is said here."""
    type = checked_name("type", submission.type)
    scope = scope_of(type, submission.scope)
    raw = submission.input
    data = bytes(raw) if isinstance(raw, Raw) else encode_input(raw)
    fields: dict[str, Any] = {
        "tenant": caller.tenant,
        "user": caller.user,
        "actor": caller.actor,
        "type": type,
        "scope": scope,
        "input": data,
        "fingerprint": fingerprint(type, canonical(data)),
        "ttl_ms": ttl_ms(submission),
        **_options(submission),
    }
    if submission.idempotency_key is not None:
        key = checked_key(submission.idempotency_key)
        fields["key"] = key
        fields["record_id"] = key_id(caller, scope, key)
    return fields


def key_id(caller: Caller, scope: str, key: str) -> bytes:
    return record_id(caller.tenant, scope, key, caller.user if caller.owns_keys else "")


def ttl_ms(submission: Submission) -> int:
    """The window of a key: 1 s to 365 days, 24 hours unless said."""
    ttl, days = submission.idempotency_ttl, submission.idempotency_ttl_days
    if ttl is None and days is None:
        return TTL_MS_DEFAULT
    if ttl is not None and days is not None:
        raise Invalid("ttl", "give idempotency_ttl or idempotency_ttl_days, not both")
    ms = _ms("idempotency_ttl", ttl if ttl is not None else days)
    if not TTL_MS_MIN <= ms <= TTL_MS_MAX:
        raise Invalid("ttl", "a key's window is 1 second to 365 days; choose one in between")
    return ms


def lease_ms(lease: timedelta) -> int:
    ms = _ms("lease", lease)
    if not 1 <= ms <= TTL_MS_MAX:
        raise Invalid("lease", "a lease is 1 millisecond to 365 days; choose one in between")
    return ms


def _options(submission: Submission) -> dict[str, Any]:
    options: dict[str, Any] = {"attempts_max": submission.max_attempts}
    if not _whole(submission.max_attempts, 1, ATTEMPTS_MAX):
        raise Invalid("max_attempts", f"max_attempts is a whole number from 1 to {ATTEMPTS_MAX}")
    if submission.priority:
        if not _whole(submission.priority, -PRIORITY_MAX, PRIORITY_MAX):
            raise Invalid("priority", f"priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}")
        options["priority"] = submission.priority
    if submission.delivery is not Delivery.AT_LEAST_ONCE:
        options["delivery"] = _delivery(submission.delivery)
    if submission.run_at is not None:
        options["run_at"] = ms_of(submission.run_at)
    if submission.timeout is not None:
        options["timeout_ms"] = _ms("timeout", submission.timeout)
        if not 1 <= options["timeout_ms"] <= TIMEOUT_MS_MAX:
            raise Invalid("timeout", "a timeout is 1 millisecond to 30 days; choose one in between")
    if submission.labels:
        options["labels"] = _labels(submission.labels)
    return options


def _delivery(word: str) -> Delivery:
    try:
        return Delivery(word)
    except ValueError:
        raise Invalid("delivery", f"delivery is {' or '.join(Delivery)}") from None


def _labels(labels: Mapping[str, str]) -> bytes:
    if not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise Invalid("labels", "labels are texts by name; turn their values into texts")
    data = encode_input(dict(labels))
    if len(data) > LABELS_BYTES_MAX:
        raise Invalid(
            "labels", f"labels take at most {LABELS_BYTES_MAX} bytes as JSON; put more into the input"
        )
    return data


def _ms(what: str, length: timedelta | float | None) -> int:
    if isinstance(length, timedelta):
        return length // timedelta(milliseconds=1)
    if isinstance(length, bool) or not isinstance(length, (int, float)) or not 0 <= length <= 366:
        raise Invalid(what, f"{what} is a timedelta, or a number of days up to 365")
    return round(length * 86_400_000)


def _whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
