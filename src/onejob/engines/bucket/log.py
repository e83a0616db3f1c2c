"""The log: one object per batch, created if absent. Its entries, its names, and the store's time that dates them.

An entry holds the changes of a batch as rows, not its commands, so that another version of this program replays it
alike. Its digest covers its position, all of its content and the digest of its predecessor; the first entry continues the
digest of the ledger's id. So an entry that was changed, moved or taken from another log is refused before it is read.

An entry whose body is a text begins another ledger, with that id, in which the loss of later entries was accepted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct, json, msgpack

from onejob.core.facts import Kind
from onejob.engines.codec import RowChanges, complete_row
from onejob.errors import Outdated, StoreRefused
from onejob.ids import new_ledger_id

from .objects import ObjectStore, StoreDate

Get = Callable[[str], Coroutine[Any, Any, bytes | None]]

LOG_FORMAT: Final = 2
PAYLOAD_BYTES_MIN: Final = 64 << 10  # what is larger is an object of its own
LOG_FOLDER: Final = "log"
SNAPSHOT_FOLDER: Final = "snap"
LEDGER_NAME: Final = "onejob.json"
RESTORE: Final = "restore it from a version or a copy of the bucket"
ACCEPT_LOSS: Final = "`onejob restore --accept-loss`"
LOST: Final = f"answered keys would be new; {RESTORE}, or serve what is left as a new ledger: {ACCEPT_LOSS}"
_GETS_AT_ONCE: Final = 32
_DRIFT: Final = 0.0002  # of the monotonic clock, at most
_DRIFT_FREE_SECONDS: Final = 5.0  # in which it drifts by no more than a millisecond
_NEWER: Final = "was written by a newer program; upgrade this one"
_OLDER: Final = (
    "has the format of version 0.2, which this program does not read; "
    "export its keys with that version, and import them under another prefix"
)


class LogPart(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Changes that were decided together. A payload is an attachment whose data is in an object of its own."""

    rows: RowChanges
    payloads: list[tuple[bytes, int, int, bytes, int]] = []  # job id, kind, index, SHA-256, bytes


class LogEntry(NamedTuple):
    position: int
    previous: bytes  # the digest of the entry before
    at: int  # never below the time of the entry before
    digest: bytes
    parts: list[LogPart]
    data: bytes  # as it is stored
    ledger_id: str = ""  # of the ledger that begins with it


class _StoredEntry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: int
    nonce: bytes  # tells apart two entries with the same changes
    previous: bytes
    at: int
    digest: bytes
    body: bytes  # the parts, encoded: they are hashed as they are stored


class _AnyFormat(Struct, array_like=True):
    format: int


_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(_StoredEntry)
_body_decoder = msgpack.Decoder(list[LogPart] | str)
_format_decoder = msgpack.Decoder(_AnyFormat)
# What msgspec raises for bytes that are not what it expects.
_MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def log_name(position: int) -> str:
    return f"{LOG_FOLDER}/{position:016}"


def position_of(name: str) -> int:
    """The position in the name of an entry or a snapshot; 0 if it has none."""
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if len(digits) == 16 and digits.isascii() and digits.isdigit() else 0


def first_digest(ledger_id: str) -> bytes:
    """What the first entry of a ledger's log continues."""
    return sha256(f"onejob log {LOG_FORMAT} {ledger_id}".encode()).digest()


def encode_entry(position: int, nonce: bytes, previous: bytes, at: int, parts: list[LogPart]) -> LogEntry:
    return _encode(position, nonce, previous, at, parts, "")


def encode_new_ledger(position: int, nonce: bytes, previous: bytes, at: int, ledger_id: str) -> LogEntry:
    return _encode(position, nonce, previous, at, [], ledger_id)


def _encode(position: int, nonce: bytes, previous: bytes, at: int, parts: list[LogPart], ledger_id: str) -> LogEntry:
    body = _encoder.encode(ledger_id or parts)
    digest = _digest_of(position, nonce, previous, at, body)
    data = _encoder.encode(_StoredEntry(LOG_FORMAT, nonce, previous, at, digest, body))
    return LogEntry(position, previous, at, digest, parts, data, ledger_id)


def _digest_of(position: int, nonce: bytes, previous: bytes, at: int, body: bytes) -> bytes:
    return sha256(_encoder.encode((LOG_FORMAT, position, nonce, previous, at)) + body).digest()


def decode_entry(position: int, data: bytes) -> LogEntry:
    """Refuse what was not written like this; rows of an older version get the defaults of the fields that were added."""
    entry = verify_entry(position, data)
    try:
        parts = _body_decoder.decode(entry.body)
    except _MALFORMED as error:
        raise _refusal(position, data, str(error)) from None
    if isinstance(parts, str):
        return LogEntry(position, entry.previous, entry.at, entry.digest, [], data, parts)
    for part in parts:
        for kind, inserts in part.rows.inserts.items():
            inserts[:] = [_complete(kind, row) for row in inserts]
        for kind, updates in part.rows.updates.items():
            updates[:] = [(_complete(kind, row), version) for row, version in updates]
    return LogEntry(position, entry.previous, entry.at, entry.digest, parts, data)


def verify_entry(position: int, data: bytes) -> _StoredEntry:
    try:
        entry = _decoder.decode(data)
    except _MALFORMED as error:
        raise _refusal(position, data, str(error)) from None
    if entry.format != LOG_FORMAT:
        raise _refusal(position, data, f"its format is {entry.format}")
    if entry.digest != _digest_of(position, entry.nonce, entry.previous, entry.at, entry.body):
        raise _refusal(position, data, "its digest is wrong")
    return entry


def _refusal(position: int, data: bytes, reason: str) -> Outdated | StoreRefused:
    try:
        format = _format_decoder.decode(data).format
    except _MALFORMED:
        format = 0
    if format > LOG_FORMAT:
        return Outdated(f"{log_name(position)} {_NEWER}")
    if format == 1:
        return StoreRefused(f"{log_name(position)} {_OLDER}")
    return StoreRefused(f"{log_name(position)} is damaged ({reason}); {RESTORE}")


def _complete(kind: Kind, row: Any) -> Any:
    return complete_row(kind, row)


async def find_damaged_entries(names: Sequence[str], get: Get, ledger_id: str, covered: int) -> list[str]:
    """Verify the whole chain; returns what is wrong with which entries.

    Those up to `covered`, the position of the newest snapshot, may be missing; but that one is deleted after all before it.
    """
    damage: list[str] = []
    last, digest = 0, first_digest(ledger_id)  # of the entry before; an empty digest is not known
    async for position, data in _read_entries(names, get, covered):
        if position > last + 1:
            damage += _describe_gap(max(last, covered) + 1, position)
            digest = b""
        last, digest = position, _check_entry(position, data, digest, damage)
    if last:
        damage += _describe_gap(last + 1, covered + 1)
    return damage


async def _read_entries(names: Sequence[str], get: Get, covered: int) -> AsyncIterator[tuple[int, bytes]]:
    """Those that were listed and are still there, and those that the list has overlooked because they were just put."""
    last = 0
    for start in range(0, len(names), _GETS_AT_ONCE):
        some = names[start : start + _GETS_AT_ONCE]
        for name, data in zip(some, await asyncio.gather(*map(get, some)), strict=True):
            if data is None or position_of(name) <= last:  # deleted since its name was listed
                continue
            async for entry in _read_unlisted(max(last, covered) + 1, position_of(name), get):
                yield entry
            last = position_of(name)
            yield last, data
    if last:
        async for entry in _read_unlisted(last + 1, covered + 1, get):
            yield entry


async def _read_unlisted(first: int, after: int, get: Get) -> AsyncIterator[tuple[int, bytes]]:
    for start in range(first, after, _GETS_AT_ONCE):
        some = range(start, min(start + _GETS_AT_ONCE, after))
        found = await asyncio.gather(*(get(log_name(position)) for position in some))
        for position, data in zip(some, found, strict=True):
            if data is not None:
                yield position, data
        if all(data is None for data in found):  # they are gone, and there may be many
            return


def _describe_gap(first: int, after: int) -> Sequence[str]:
    return [f"{log_name(first)} is missing ({after - first} entries in a row)"] if first < after else []


def _check_entry(position: int, data: bytes, previous: bytes, damage: list[str]) -> bytes:
    """The digest of an entry; empty if it is damaged."""
    try:
        entry = verify_entry(position, data)
    except (Outdated, StoreRefused) as error:
        damage.append(str(error).partition(";")[0])
        return b""
    if previous and entry.previous != previous:
        damage.append(describe_break(position))
    return entry.digest


def describe_break(position: int) -> str:
    return f"{log_name(position)} does not continue {log_name(position - 1) if position > 1 else LEDGER_NAME}"


class _LedgerObject(Struct, omit_defaults=True):
    format: int
    ledger: str
    digest: str = ""
    made_by: str = ""
    earlier: list[str] = []


async def read_or_create_ledger(objects: ObjectStore, *, create: bool = True) -> list[str]:
    """The bucket's ledger ids, the last of which is served: each loss that was accepted began another.

    The first is made when the bucket is opened for the first time, and never beside a log. None: it is not created.
    """
    data = await objects.get(LEDGER_NAME)
    if data is None and not await _has_log(objects):
        if not create:
            return []
        await objects.create(LEDGER_NAME, encode_ledger([new_ledger_id()]))
    data = data or await objects.get(LEDGER_NAME)  # another process may have made it meanwhile, and a log with it
    if data is None:
        raise StoreRefused(f"{LEDGER_NAME} is missing; {RESTORE}")
    try:
        found = json.decode(data, type=_LedgerObject)
    except _MALFORMED:
        raise StoreRefused(f"{LEDGER_NAME} is damaged; {RESTORE}") from None
    if found.format > LOG_FORMAT:
        raise Outdated(f"{LEDGER_NAME} {_NEWER}")
    if found.format == 1:
        raise StoreRefused(f"{LEDGER_NAME} {_OLDER}")
    ids = [*found.earlier, found.ledger]
    if found.format != LOG_FORMAT or found.digest != _digest_of_ids(ids):
        raise StoreRefused(f"{LEDGER_NAME} is damaged; {RESTORE}")
    return ids


async def _has_log(objects: ObjectStore) -> bool:
    for folder in (LOG_FOLDER, SNAPSHOT_FOLDER):
        async for page in objects.list(folder):
            if any(position_of(info.name) for info in page):
                return True
    return False


def encode_ledger(ids: Sequence[str]) -> bytes:
    return json.encode(_LedgerObject(LOG_FORMAT, ids[-1], _digest_of_ids(ids), "onejob", list(ids[:-1])))


def _digest_of_ids(ids: Sequence[str]) -> str:
    return first_digest(" ".join(ids)).hex()


def next_ledger_id(ledger_id: str) -> str:
    """The id of the ledger that continues the log of another: it begins like that of the first."""
    return f"{origin_of(ledger_id)}-{new_ledger_id()}"


def origin_of(ledger_id: str) -> str:
    return ledger_id.partition("-")[0]


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
