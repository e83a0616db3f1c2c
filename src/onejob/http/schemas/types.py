"""Base classes of JSON bodies and the value types they share; the types describe what the core checks."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from onejob.core.callback import CALLBACK_URL_CHARS_MAX
from onejob.core.credentials import KEY_ID_CHARS
from onejob.core.errors import Invalid
from onejob.core.identity import CLIENT_ID_CHARS_MAX, NAME_CHARS_MAX, RESERVED_NAMES, UUID_PATTERN
from onejob.core.key import KEY_CHARS_MAX, SEQUENCE_MAX
from onejob.core.limits import LIMIT_MAX, UNITS_MAX
from onejob.core.sites import SITES_MAX
from onejob.core.slots import SLOT_TTL_MS_DEFAULT, SLOT_TTL_MS_MAX, SLOT_TTL_MS_MIN
from onejob.core.submit import ATTEMPTS_MAX, LABELS_BYTES_MAX, PRIORITY_MAX, TIMEOUT_MS_MAX, TTL_MS_MAX, TTL_MS_MIN
from onejob.resources.submissions import ErrorBody

Schema = dict[str, Any]

BATCH_MAX = 1000
FLOAT_INTEGER_MAX = 2**53  # above it a double skips integers, so 1e16 does not say which one is meant

CURSOR: Schema = {"type": "string", "pattern": "^(?:[A-Za-z0-9_-]{4}){0,49}[A-Za-z0-9_-]{2,4}$"}
RESERVATION_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{48}$"}
API_KEY_ID: Schema = {"type": "string", "pattern": f"^[0-9a-f]{{{KEY_ID_CHARS}}}$"}
JOB_ID: Schema = {"type": "string", "pattern": f"^{UUID_PATTERN}$"}
LABEL: Schema = {"type": "string", "pattern": "^[^=]+="}
KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": KEY_CHARS_MAX,
    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
}
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_CHARS_MAX,
    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069]+$",
    "not": {"enum": list(RESERVED_NAMES)},
}
CLIENT_ID: Schema = {"type": "string", "minLength": 1, "maxLength": CLIENT_ID_CHARS_MAX, "pattern": NAME["pattern"]}
# Reads also accept the reserved names: a client cannot choose such a scope, but it exists.
SCOPE: Schema = {word: value for word, value in NAME.items() if word != "not"}
_TIMESTAMP_PATTERN = (
    "^[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    "[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)

Key = Annotated[str, Meta(extra_json_schema=KEY)]
Name = Annotated[str, Meta(extra_json_schema=NAME)]
# Integers are decoded as `int | float` and pass through `to_integer`.
Priority = Annotated[
    int | float, Meta(extra_json_schema={"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX})
]
# Not `to_integer`: 1.0 and 2e0 are refused, because a client that counts in doubles skips numbers above 2^53.
SequenceNumber = Annotated[
    int | float,
    Meta(
        description="In plain digits, without a point or an exponent.",
        extra_json_schema={"type": "integer", "minimum": 1, "maximum": SEQUENCE_MAX},
    ),
]
MaxAttempts = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX})]
LimitCount = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 0, "maximum": LIMIT_MAX})]
Money = Annotated[
    int | float,
    Meta(
        description="In units; rounded to six decimals.",
        extra_json_schema={"type": "number", "minimum": 0, "maximum": UNITS_MAX},
    ),
]
KeyTtlSeconds = Annotated[
    float,
    Meta(
        description="How long the key returns its job; the default is published at `/api/idempotency-policy`.",
        extra_json_schema={"minimum": TTL_MS_MIN / 1000, "maximum": TTL_MS_MAX / 1000},
    ),
]
SlotTtlSeconds = Annotated[
    float,
    Meta(
        description=f"How long the slot is held; default {SLOT_TTL_MS_DEFAULT // 1000}.",
        extra_json_schema={"minimum": SLOT_TTL_MS_MIN / 1000, "maximum": SLOT_TTL_MS_MAX / 1000},
    ),
]
TimeoutSeconds = Annotated[float, Meta(extra_json_schema={"minimum": 0.001, "maximum": TIMEOUT_MS_MAX / 1000})]
TIMESTAMP: Schema = {"type": "string", "format": "date-time", "pattern": _TIMESTAMP_PATTERN}
Timestamp = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": _TIMESTAMP_PATTERN})]
UtcTimestamp = Annotated[datetime, Meta(tz=True)]
Labels = Annotated[dict[str, str], Meta(description=f"At most {LABELS_BYTES_MAX} bytes as JSON.")]
ReservationId = Annotated[str, Meta(extra_json_schema=RESERVATION_ID)]
CallbackUrl = Annotated[
    str,
    Meta(
        description="Receives a POST when the job has ended, if the service allows callbacks.",
        extra_json_schema={
            "maxLength": CALLBACK_URL_CHARS_MAX,
            "pattern": '^https?://[A-Za-z0-9.-]+(?::[1-9][0-9]{0,3})?/[!-"$-~]*$',
        },
    ),
]


SiteNames = Annotated[
    list[str],
    Meta(
        description="The data centres that run the job, if the service has some; with an idempotency key.",
        extra_json_schema={"minItems": 1, "maxItems": SITES_MAX, "uniqueItems": True},
    ),
]


class ResponseBody(Struct, frozen=True, rename="camel"):
    """The JSON body of a response."""


class RequestBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The JSON body of a request; an unknown member is an error, so that a misspelling does not go unnoticed."""


class OptionalRequestBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request body that may be left out; all its members have defaults."""

    is_optional: ClassVar[bool] = True


class CallbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    url: CallbackUrl


def to_integer(name: str, number: float) -> int:
    """Convert an integral float to an int: in JSON 3.0 is the integer 3, and some languages write it so."""
    if isinstance(number, float) and not (number.is_integer() and abs(number) <= FLOAT_INTEGER_MAX):
        raise Invalid(name, f"{name} is an integer in full digits; send one")
    return int(number)


def to_optional_integer(name: str, number: float | None) -> int | None:
    return None if number is None else to_integer(name, number)


def round_to_micro(amount: float) -> float:
    """Round what a client's float arithmetic left; a negative amount stays, so that it is refused, not rounded to 0."""
    return round(amount, 6) if amount >= 0 else amount


class ProblemOut(ResponseBody, frozen=True, rename="camel"):
    """application/problem+json; `error.code` is authoritative."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    error: ErrorBody
