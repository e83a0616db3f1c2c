"""What is sent: key and bytes are fixed here, once, before anything is sent or written down."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol, TypedDict
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct, json

from onejob.core.fingerprint import canonical_json, encode_input, fingerprint
from onejob.core.key import checked_key
from onejob.errors import Invalid

from . import models
from .flow import ServerResponse

WINDOW_DEFAULT: Final = timedelta(hours=24)
_encode = json.Encoder(decimal_format="number").encode


class SubmitOptions(TypedDict, total=False):
    """What else a submission may say; see the ledger."""

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


class JobQuery(TypedDict, total=False):
    """Which jobs a page is of; `before` is `next` of the page before."""

    state: str | None
    type: str | None
    user: str | None
    before: str | None
    limit: int


class KeyQuery(TypedDict, total=False):
    """Which keys a page is of; `cursor` is `next` of the page before."""

    scope: str | None
    user: str | None
    cursor: str | None
    limit: int


class SubmissionLike(Protocol):
    """A submission as a caller says it: `onejob.Submission` is one."""

    @property
    def type(self) -> str: ...
    @property
    def input(self) -> Any: ...
    @property
    def idempotency_key(self) -> str | None: ...


class Call(Struct, frozen=True, kw_only=True):
    """One request of the wire, the same on every attempt."""

    method: str
    path: str
    response_type: Any
    body: bytes = b""
    key: str | None = None
    window_ms: int = 0  # how long the server knows the key; 0: a repetition is harmless for ever
    sequenced: bool = False  # by a sequence, which executes no number twice, whatever the window
    key_header: str | None = None  # a key that travels in the header, for acts whose repetition is harmless for ever

    def accepts(self, response: ServerResponse) -> bool:
        """Whether this is a whole answer, and to this call: a connection may hand over another one's."""
        try:
            read = json.decode(response.body, type=self.response_type)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        match read:
            case models.SubmitResponseModel():
                return read.idempotency.key == self.key
            case models.SequenceReceiptModel():
                return read.key == self.key
            case models.JobResponseModel():
                return read.job.id in self.path
        return True


def submit_call(submission: SubmissionLike, key: str) -> Call:
    data = job_body(submission) | {"idempotencyKey": key}
    return Call(
        method="POST",
        path="/api/jobs",
        response_type=models.SubmitResponseModel,
        body=_encode(data),
        key=key,
        window_ms=window_ms(submission),
    )


def reserve_slot_call(path: str, body: bytes, key: str) -> Call:
    """An act under a key in the header, of which nobody need be told: it is asked for until there is an answer."""
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return Call(method="POST", path=path, response_type=models.HeldSlotModel, body=body, key_header=f'"{quoted}"')


def sequence_call(
    client_id: str, scope: str, sequence: int, key: str, jobs: Iterable[SubmissionLike], ttl: Any
) -> Call:
    bodies = [job_body(job) for job in jobs]
    data: dict[str, Any] = {"scope": scope, "sequence": sequence, "idempotencyKey": key}
    if ttl is not None:
        data["idempotencyTtlSeconds"] = ttl.total_seconds()
    data |= bodies[0] if len(bodies) == 1 else {"jobs": bodies}
    return Call(
        method="POST",
        path=f"/api/clients/{quote_path_segment(client_id)}/jobs",
        response_type=models.SequenceReceiptModel,
        body=_encode(data),
        key=key,
        sequenced=True,
    )


def batch_call(calls: Iterable[Call]) -> Call:
    """Many submissions in one request, each in its own bytes."""
    body = b'{"jobs":[' + b",".join(call.body for call in calls) + b"]}"
    return Call(method="POST", path="/api/jobs/batch", response_type=models.BatchResponseModel, body=body, key="")


def get_call(path: str, response_type: Any, **query: object) -> Call:
    fields = {name: value for name, value in query.items() if value is not None}
    return Call(method="GET", path=f"{path}?{urlencode(fields)}" if fields else path, response_type=response_type)


def quote_path_segment(text: str) -> str:
    if not isinstance(text, str) or not text:
        raise Invalid("path", "an id or key is empty; name one")
    return quote(text, safe="")


def derived_key(type: str, input: Any, names: Iterable[str]) -> str:
    """The key that follows from these members of an input: the same values give the same key, in any order.

    A name is that of a member, or a path to one: `order_id`, `/order/id`. All must be there.
    """
    value = json.decode(bytes(input)) if isinstance(input, Raw) else msgspec.to_builtins(input)
    chosen = {name: _member_at(value, name) for name in _as_list(names)}
    if not chosen:
        raise Invalid("key_from", "key_from names no member; name those that tell one submission from another")
    return fingerprint(type, canonical_json(encode_input(chosen))).hex()


def job_body(submission: SubmissionLike) -> dict[str, Any]:
    """Only what was said; the server knows the rest. An input that JSON would bend is refused."""
    raw = submission.input
    data = bytes(raw) if isinstance(raw, Raw) else encode_input(raw)
    canonical_json(data)
    timeout, run_at = getattr(submission, "timeout", None), getattr(submission, "run_at", None)
    labels, ttl = getattr(submission, "labels", None), _ttl(submission)
    callback = getattr(submission, "callback", None)
    body = {
        "type": submission.type,
        "input": Raw(data),
        "scope": getattr(submission, "scope", None),
        "idempotencyTtlSeconds": None if ttl is None else ttl.total_seconds(),
        "delivery": getattr(submission, "delivery", None),
        "priority": getattr(submission, "priority", None),
        "runAt": run_at,
        "maxAttempts": getattr(submission, "max_attempts", None),
        "timeoutSeconds": None if timeout is None else timeout.total_seconds(),
        "labels": dict(labels) if labels else None,
        "estimatedCost": getattr(submission, "estimated_cost", None),
        "reservation": getattr(submission, "reservation", None),
        "callback": None if callback is None else {"url": callback},
    }
    return {name: value for name, value in body.items() if value is not None}


def window_ms(submission: SubmissionLike) -> int:
    return (_ttl(submission) or WINDOW_DEFAULT) // timedelta(milliseconds=1)


def checked(key: str) -> str:
    return checked_key(key)


def _ttl(submission: SubmissionLike) -> timedelta | None:
    ttl: timedelta | None = getattr(submission, "idempotency_ttl", None)
    days: float | None = getattr(submission, "idempotency_ttl_days", None)
    if ttl is not None and days is not None:
        raise Invalid("idempotency_ttl", "give idempotency_ttl or idempotency_ttl_days, not both")
    return ttl if days is None else timedelta(days=days)


def _as_list(names: Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _member_at(value: Any, name: str) -> Any:
    steps = name[1:].split("/") if name.startswith("/") else [name]
    for step in steps:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or step not in value:
            # A key made of what is not there would be the same for every submission.
            raise Invalid("key_from", f"the input has no member {name}; name only what every input has")
        value = value[step]
    return value
