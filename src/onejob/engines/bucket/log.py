"""The log: one object per batch, created if absent. Its entries, its names, and the store's time that dates them.

An entry holds the changes of a batch as rows, not its commands, so that another version of this program replays it
alike. It names the nonce of its predecessor: a replica that does not continue the log is noticed.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct, json, msgpack

from onejob.core.facts import Kind
from onejob.engines.codec import RowChanges, complete_row
from onejob.errors import Outdated, StoreRefused
from onejob.ids import new_ledger_id

from .objects import ObjectStore, StoreDate

LOG_FORMAT: Final = 1
NONCE_BYTES: Final = 16
PAYLOAD_BYTES_MIN: Final = 64 << 10  # what is larger is an object of its own
LOG_FOLDER: Final = "log"
LEDGER_NAME: Final = "onejob.json"
_DRIFT: Final = 0.0002  # of the monotonic clock, at most
_DRIFT_FREE_SECONDS: Final = 5.0  # in which it drifts by no more than a millisecond
_NEWER: Final = "was written by a newer program; upgrade this one"


class LogPart(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Changes that were decided together. A payload is an attachment whose data is in an object of its own."""

    rows: RowChanges
    payloads: list[tuple[bytes, int, int, bytes, int]] = []  # job id, kind, index, SHA-256, bytes


class LogEntry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: int
    nonce: bytes
    previous: bytes  # the nonce of the entry before
    at: int  # never below the time of the entry before
    parts: list[LogPart]


class _EntryFormat(Struct, array_like=True):
    format: int
    nonce: bytes


_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(LogEntry)
_format_decoder = msgpack.Decoder(_EntryFormat)


def log_name(position: int) -> str:
    return f"{LOG_FOLDER}/{position:016}"


def position_of(name: str) -> int:
    """The position in the name of an entry or a snapshot; 0 if it has none."""
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if len(digits) == 16 and digits.isascii() and digits.isdigit() else 0


def encode_entry(nonce: bytes, previous: bytes, at: int, parts: list[LogPart]) -> bytes:
    return _encoder.encode(LogEntry(LOG_FORMAT, nonce, previous, at, parts))


def nonce_of(data: bytes) -> bytes:
    """The nonce of an entry, whatever its format; empty if it is no entry."""
    try:
        return _format_decoder.decode(data).nonce
    except msgspec.MsgspecError:
        return b""


def decode_entry(position: int, data: bytes) -> LogEntry:
    """Rows of an older version get the defaults of the fields that were added since."""
    try:
        if _format_decoder.decode(data).format > LOG_FORMAT:
            raise Outdated(f"{log_name(position)} {_NEWER}")
        entry = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StoreRefused(
            f"{log_name(position)} is damaged ({error}); restore the object from a version or a copy of the bucket"
        ) from None
    for part in entry.parts:
        for kind, inserts in part.rows.inserts.items():
            inserts[:] = [_complete(kind, row) for row in inserts]
        for kind, updates in part.rows.updates.items():
            updates[:] = [(_complete(kind, row), version) for row, version in updates]
    return entry


def _complete(kind: Kind, row: Any) -> Any:
    return complete_row(kind, row)


class _LedgerObject(Struct):
    format: int
    ledger: str
    made_by: str = "onejob"


async def read_or_create_ledger(objects: ObjectStore) -> str:
    """The id of the ledger in this bucket, which is made with its first opening."""
    await objects.create(LEDGER_NAME, json.encode(_LedgerObject(LOG_FORMAT, new_ledger_id())))
    try:
        found = json.decode(await objects.get(LEDGER_NAME) or b"", type=_LedgerObject)
    except msgspec.MsgspecError:
        raise StoreRefused(f"{LEDGER_NAME} is missing or damaged; restore it, or choose another prefix") from None
    if found.format > LOG_FORMAT:
        raise Outdated(f"{LEDGER_NAME} {_NEWER}")
    return found.ledger


class StoreTime:
    """The time of the store, from the dates of its answers, which are a second coarse.

    Each answer bounds the offset between the monotonic clock and the store's clock from both sides; the bounds are
    intersected. A batch is dated with the latest that the time can be. The clocks of this machine's wall do not matter.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lower = self._upper = 0.0  # of the offset in milliseconds, when the last answer came
        self._updated_at = 0.0
        self.agreeing = 0  # how many answers in a row agree

    def add(self, date: StoreDate, sent: float, received: float) -> None:
        lower, upper = date.ms - received * 1000, date.ms + date.resolution_ms - sent * 1000
        drift = self._drift_ms(received)
        if self.agreeing and lower <= self._upper + drift and self._lower - drift <= upper:
            self._lower, self._upper = max(lower, self._lower - drift), min(upper, self._upper + drift)
            self.agreeing += 1
        else:
            self._lower, self._upper, self.agreeing = lower, upper, 1
        self._updated_at = received

    def latest_ms(self) -> int:
        """The last whole millisecond before the upper bound."""
        now = self._monotonic()
        microseconds = round((self._upper + now * 1000 + self._drift_ms(now)) * 1000)
        return -(-microseconds // 1000) - 1

    def _drift_ms(self, now: float) -> float:
        return max(0.0, now - self._updated_at - _DRIFT_FREE_SECONDS) * 1000 * _DRIFT
