"""Shapes of values in the words of JSON Schema. They tell what the core checks, and check nothing themselves."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from onejob.core.callback import CALLBACK_URL_CHARS_MAX
from onejob.core.identity import CLIENT_ID_CHARS_MAX, NAME_CHARS_MAX, RESERVED_NAMES, UUID_PATTERN
from onejob.core.key import KEY_CHARS_MAX, SEQUENCE_MAX
from onejob.core.limits import LIMIT_MAX, UNITS_MAX
from onejob.core.slots import SLOT_TTL_MS_DEFAULT, SLOT_TTL_MS_MAX, SLOT_TTL_MS_MIN
from onejob.core.submit import TTL_MS_DEFAULT, TTL_MS_MAX, TTL_MS_MIN
from onejob.ledger.parse import ATTEMPTS_MAX, LABELS_BYTES_MAX, PRIORITY_MAX, TIMEOUT_MS_MAX

Schema = dict[str, Any]

BATCH_MAX = 1000

CURSOR: Schema = {"type": "string", "pattern": "^(?:[A-Za-z0-9_-]{4}){0,49}[A-Za-z0-9_-]{2,4}$"}
RESERVATION_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{48}$"}
JOB_ID: Schema = {"type": "string", "pattern": f"^{UUID_PATTERN}$"}
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
CLIENT_ID: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": CLIENT_ID_CHARS_MAX,
    "pattern": NAME["pattern"],
}
# To look one up: also one that nobody may choose, but that is there.
SCOPE: Schema = {word: value for word, value in NAME.items() if word != "not"}
_TIMESTAMP_PATTERN = (
    "^[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    "[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)

Key = Annotated[str, Meta(extra_json_schema=KEY)]
Name = Annotated[str, Meta(extra_json_schema=NAME)]
# In JSON 3.0 is the whole number 3, and some languages write it so.
Priority = Annotated[
    int | float,
    Meta(extra_json_schema={"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX}),
]
# Up to 2^64-1, in full digits.
SequenceNumber = Annotated[
    int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": SEQUENCE_MAX})
]
MaxAttempts = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX})]
KeyTtlSeconds = Annotated[
    float,
    Meta(
        description=f"How long the key is answered with its job; {TTL_MS_DEFAULT // 1000} unless said.",
        extra_json_schema={"minimum": TTL_MS_MIN / 1000, "maximum": TTL_MS_MAX / 1000},
    ),
]
Timestamp = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": _TIMESTAMP_PATTERN})]
UtcTimestamp = Annotated[datetime, Meta(tz=True)]
TimeoutSeconds = Annotated[float, Meta(extra_json_schema={"minimum": 0.001, "maximum": TIMEOUT_MS_MAX / 1000})]
Labels = Annotated[dict[str, str], Meta(description=f"At most {LABELS_BYTES_MAX} bytes as JSON.")]
CallbackUrl = Annotated[
    str,
    Meta(
        description="Told when the job has ended, where the service allows it.",
        extra_json_schema={
            "maxLength": CALLBACK_URL_CHARS_MAX,
            "pattern": '^https?://[A-Za-z0-9.-]+(?::[1-9][0-9]{0,3})?/[!-"$-~]*$',
        },
    ),
]


class CallbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    url: CallbackUrl


ReservationId = Annotated[str, Meta(extra_json_schema=RESERVATION_ID)]
LimitCount = Annotated[int | float, Meta(extra_json_schema={"type": "integer", "minimum": 0, "maximum": LIMIT_MAX})]
Money = Annotated[
    int | float,
    Meta(
        description="In units; rounded to six decimals.",
        extra_json_schema={"type": "number", "minimum": 0, "maximum": UNITS_MAX},
    ),
]
SlotTtlSeconds = Annotated[
    float,
    Meta(
        description=f"How long the slot is held; {SLOT_TTL_MS_DEFAULT // 1000} unless said.",
        extra_json_schema={"minimum": SLOT_TTL_MS_MIN / 1000, "maximum": SLOT_TTL_MS_MAX / 1000},
    ),
]


def round_to_micro(amount: float) -> float:
    """What comes out of a client's arithmetic has more decimals than money. What is below 0 stays so."""
    return round(amount, 6) if amount >= 0 else amount
