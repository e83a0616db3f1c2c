"""The wire between gates and managers: batches of commands as msgpack over kept HTTP/1.1 connections.

    POST /hello      the versions, the ledger, its settings and its time; sent first on every connection
    POST /execute    an array of commands      →  an array of replies, one for each
    POST /scan       a query                   →  a page
    POST /barrier    a tenant and a user       →  nothing, when their writes have ended
    POST /tokens     a credential and a count  →  tokens of its rate limit
    POST /subscribe                            →  a stream of records that were settled

Every request but the first names the version it is written in (`Onejob-Wire`) and the ledger it is meant for
(`Onejob-Ledger`), and carries a credential (`Authorization: Bearer ojg_…`) unless the certificate of the client is one. A
response is a sequence of frames, each of which begins with one byte: `.` is a sign of life, which is sent each second
while a request is executed, `R` a result and `F` a failure.

A command is decoded strictly and alone: one with a field or a name that the manager does not know is answered
`UnsupportedCommand`, is not executed, and goes to another manager; the others of its batch are executed. What has its default
is not sent, so a new field is seen by older managers only when it is used, and no default may ever change. The manager
answers in the version of the request. A program speaks its own version and the one before.
"""

from typing import Final

from msgspec import Struct

from onejob.engine import Durability, GateSettings

WIRE_VERSION: Final = 2
WIRE_VERSION_OLDEST: Final = 2  # commands of version 1 do not prove the settings of the ledger

VERSION_HEADER: Final = b"onejob-wire"
LEDGER_HEADER: Final = b"onejob-ledger"
KEEPALIVE_FRAME: Final = b"."
RESULT: Final = b"R"
FAILURE: Final = b"F"
KEEPALIVE_SECONDS: Final = 1.0
SILENCE_SECONDS_MAX: Final = 2.0
BODY_BYTES_MAX: Final = 64 << 20
SITE_BODY_BYTES_MAX: Final = 8 << 20  # of the requests of another data centre


STATUS_OK: Final = 200
STATUS_BAD_REQUEST: Final = 400
STATUS_UNAUTHORIZED: Final = 401
STATUS_FORBIDDEN: Final = 403
STATUS_NOT_FOUND: Final = 404
STATUS_OTHER_LEDGER: Final = 409
STATUS_OTHER_VERSION: Final = 426
STATUS_UNAVAILABLE: Final = 503


def describe_versions(oldest: int, newest: int) -> str:
    return f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"


class HelloRequest(Struct, frozen=True):
    """The versions that a gate speaks."""

    oldest: int
    newest: int


class Hello(Struct, frozen=True, kw_only=True):
    """What a manager is: sent at the begin of every connection."""

    oldest: int  # the versions that it speaks
    newest: int
    ledger_id: str
    engine: str
    durability: Durability
    durability_warning: str
    batch_max: int
    store_ms: float  # how long a point read of the store takes: the distance to it
    at: int  # the store's time
    prescribed: GateSettings
    settings: bytes  # of the ledger, as they are stored (core/ledger_settings.py)
    window_ms: int  # how long a key is remembered if nobody says otherwise
    erasure_ms: int = 0  # how long a purge takes to remove bytes from the store's own history
    generation: int | None = None  # how many commits the store has now; None: it does not count them


class Failure(Struct, frozen=True):
    """Why a request as a whole was not answered."""

    message: str
    is_unknown: bool = False  # True: it may have been executed


class UnsupportedCommand(Struct, frozen=True, tag="NotUnderstood", tag_field="is"):
    """In the place of a reply: the manager does not know this command or a field of it, and has not executed it."""

    message: str


class NotExecuted(Struct, frozen=True, tag=True, tag_field="is"):
    """In the place of a reply: this command failed alone, and nothing of it was done."""

    message: str
    is_locked: bool = False  # another transaction holds its facts
    is_forbidden: bool = False  # the credential may not send it


class OutcomeUnknown(Struct, frozen=True, tag=True, tag_field="is"):
    """In the place of a reply: this command may have been executed."""

    message: str


class BarrierRequest(Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str | None  # None: all
    user: str | None = None


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens for new submissions of one credential, of the manager's share of its rate."""

    tenant: str
    actor: str
    wanted: int
    managers: int  # how many the gate knows: they divide the rate


class TokenGrant(Struct, frozen=True):
    granted: int
    retry_after: int = 0  # in seconds, if none was granted
