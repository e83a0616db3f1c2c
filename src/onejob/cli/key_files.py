"""Import and export of keys: what a ledger knows of them, and keys of another ledger or of an application's own table.

A line is one key, in CSV or JSON (JSONL), in the columns of the view `idempotency_keys`. An imported key is answered with the
job id of its line, as one of `store_idempotency_key` is; no job is created. A key that is known with the same id is left as
it is, so an import can be repeated from any line. A key that is known with another id or fingerprint, or is held, is reported,
not changed.
"""

import asyncio
import csv
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct, json
from msgspec.structs import asdict, fields, replace

from onejob.core.errors import Invalid
from onejob.core.facts import Kind, Record, is_known, is_live
from onejob.core.identity import GLOBAL_SCOPE, Actor, checked_name, format_job_id
from onejob.core.key import checked_key
from onejob.core.lookup import LookUpKey
from onejob.core.replies import AnyReply, Found, KeySettled, Missing, Reason, Refused
from onejob.core.states import IdempotencyStatus
from onejob.core.submit import TTL_MS_MAX, TTL_MS_MIN, StoreKey
from onejob.core.timestamps import to_ms, to_utc
from onejob.engine import PAGE_MAX, ListFacts
from onejob.errors import StoreRefused, Unavailable, Unknown
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import checked_lookup_scope
from onejob.runtime.callers import Caller, key_record_id
from onejob.runtime.present import to_exception

from .arguments import choices

CHUNK_LINES = 500
LINE_BYTES_MAX = 64 * 1024
_ATTEMPTS_MAX = 6
_PAUSE_SECONDS = 0.25
_FINGERPRINT_BYTES_MAX = 64


class KeyFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class KeyLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key. Only `idempotency_key` and `job_id` are needed for an import; an empty text is the same as none."""

    tenant: str = ""
    scope: str = ""  # the job type, or what the submission named; none: all types
    idempotency_key: str = ""
    job_id: str = ""
    status: str = ""  # none: committed
    user_id: str = ""
    fingerprint: str = ""  # in hex; none: whatever is submitted under the key is a duplicate
    created_at: str = ""  # ISO 8601, with a zone
    expires_at: str = ""  # none: a window after created_at, or after the import
    client_id: str = ""  # the key is a number of this client's sequence


COLUMNS = tuple(field.name for field in fields(KeyLine))


_SUFFIXES = {".csv": KeyFormat.CSV, ".jsonl": KeyFormat.JSONL, ".ndjson": KeyFormat.JSONL}


class LineOutcome(StrEnum):
    STORED = "stored"
    KNOWN = "known"  # with the same job id: unchanged
    CONFLICT = "conflict"  # known with another job id or fingerprint, or held: unchanged
    EXPIRED = "expired"
    SKIPPED = "skipped"  # nothing that can be imported: no job, not settled, or of another tenant
    INVALID = "invalid"


class LineResult(Struct, frozen=True, omit_defaults=True):
    """What became of a line."""

    line: int
    outcome: LineOutcome
    reason: str = ""
    key: KeyLine | None = None


class ImportOptions(Struct, frozen=True, kw_only=True):
    tenant: str | None = None  # only lines of this tenant, or of none; None: a line without one is of `default`
    scope: str = GLOBAL_SCOPE  # of lines without one
    window_ms: int  # of lines without `expires_at`


OnLine = Callable[[LineResult], None]


async def export_keys(ledger: Ledger, *, scope: str | None = None) -> AsyncIterator[KeyLine]:
    """All live keys of the ledger's tenant, page by page. Keys that are stored meanwhile may be missing."""
    tenant, after = ledger.caller.tenant, b""
    while True:
        page = await runtime_of(ledger).gate.scan(
            ListFacts(tenant=tenant, kind=Kind.RECORD, after=after, limit=PAGE_MAX)
        )
        now = await _read_time(ledger)
        for record in page.items:
            assert isinstance(record, Record)
            if is_live(record, now) and scope in (None, record.scope):
                yield _to_line(record)
        if not page.more:
            return
        after = page.scanned_to or page.items[-1].id


async def import_keys(
    ledger: Ledger, lines: Iterable[tuple[int, KeyLine | Invalid]], options: ImportOptions, on_line: OnLine
) -> None:
    """Store the keys, some hundred at a time; `on_line` is called for every line, in order, once its outcome is durable.

    Raises Unavailable or Unknown if the store stays away: repeat it from the line after the last one that was reported.
    """
    remaining = iter(lines)
    while chunk := list(islice(remaining, CHUNK_LINES)):
        for result in await _import_chunk(ledger, chunk, options):
            on_line(result)


def write_lines(lines: Iterable[KeyLine], file: TextIO, format: KeyFormat, *, header: bool = True) -> None:
    if format is KeyFormat.JSONL:
        file.writelines(json.encode(line).decode() + "\n" for line in lines)
        return
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(asdict(line) for line in lines)


def read_lines(file: TextIO, format: KeyFormat) -> Iterator[tuple[int, KeyLine | Invalid]]:
    """The lines of a file, numbered from 1, the header of a CSV file being the first. A wrong line is its error."""
    return _read_csv(file) if format is KeyFormat.CSV else _read_jsonl(file)


def _read_csv(file: TextIO) -> Iterator[tuple[int, KeyLine | Invalid]]:
    csv.field_size_limit(LINE_BYTES_MAX)
    rows = csv.reader(file, strict=True)
    columns = next(rows, None)
    if columns is None:
        return
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or len(set(columns)) < len(columns) or not {"idempotency_key"} <= set(columns):
        wrong = f"{unknown[0]!r} is not one of them" if unknown else "idempotency_key is missing, or one is there twice"
        raise Invalid("columns", f"the first line names the columns, of {', '.join(COLUMNS)}; {wrong}: correct it")
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise Invalid("file", f"line {rows.line_num} is not CSV ({error}); correct it") from error
        if row is None:
            return
        if len(row) == len(columns):
            yield rows.line_num, KeyLine(**dict(zip(columns, row, strict=True)))
        elif row:  # not an empty line
            yield rows.line_num, Invalid("line", f"it has {len(row)} values, not {len(columns)}; correct it")


def _read_jsonl(file: TextIO) -> Iterator[tuple[int, KeyLine | Invalid]]:
    decoder = json.Decoder(KeyLine)
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), ""), start=1):
        if len(line) == LINE_BYTES_MAX and not line.endswith("\n"):
            raise Invalid("file", f"line {number} is longer than {LINE_BYTES_MAX} bytes; is it JSONL?")
        if not line.strip():
            continue
        try:
            yield number, decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            yield number, Invalid("line", f"it is not the JSON of a key: {error}; correct it")


class _ImportedLine(Struct):
    """A line on its way: a command for the store, or its outcome."""

    line: int
    key: KeyLine | None
    command: StoreKey | None = None
    outcome: LineOutcome = LineOutcome.STORED
    reason: str = ""

    def to_result(self) -> LineResult:
        return LineResult(self.line, self.outcome, self.reason, self.key)


async def _import_chunk(
    ledger: Ledger, chunk: list[tuple[int, KeyLine | Invalid]], options: ImportOptions
) -> list[LineResult]:
    now = await _read_time(ledger)
    entries = [_to_entry(number, line, options, runtime_of(ledger).bind, now) for number, line in chunk]
    commands = [entry.command for entry in entries if entry.command is not None]
    lookups = [LookUpKey(tenant=command.tenant, record_id=command.record_id) for command in commands]
    before = await _execute(ledger, lookups)
    known = {
        lookup.record_id
        for lookup, reply in zip(lookups, before, strict=True)
        if isinstance(reply, Found) and is_known(reply.record, reply.at)
    }
    await _announce(ledger, commands)
    limited = [runtime_of(ledger).key_limit.apply(command) for command in commands]
    retention_ms = runtime_of(ledger).retention_ms
    replies = iter(await _execute(ledger, [replace(command, retention_ms=retention_ms) for command in limited]))
    for entry in entries:
        if entry.command is not None:
            _settle(entry, next(replies), is_known=entry.command.record_id in known)
            known.add(entry.command.record_id)  # of two lines with one key, the first has stored it
    return [entry.to_result() for entry in entries]


def _settle(entry: _ImportedLine, reply: AnyReply, *, is_known: bool) -> None:
    if isinstance(reply, KeySettled):
        entry.outcome = LineOutcome.KNOWN if is_known else LineOutcome.STORED
    elif isinstance(reply, Refused) and reply.reason in (Reason.IDEMPOTENCY_KEY_REUSED, Reason.IN_PROGRESS):
        entry.outcome, entry.reason = LineOutcome.CONFLICT, reply.message
    else:
        raise to_exception(reply, "")


async def _announce(ledger: Ledger, commands: list[StoreKey]) -> None:
    """Let submissions of every type look for keys of the scope of all types."""
    longest: dict[str, int] = {}
    for command in commands:
        if command.scope == GLOBAL_SCOPE and not command.fingerprint:
            longest[command.tenant] = max(command.ttl_ms, longest.get(command.tenant, 0))
    for tenant, ttl_ms in longest.items():
        await runtime_of(ledger).external_keys.announce(tenant, ttl_ms=ttl_ms)


async def _execute(ledger: Ledger, commands: Sequence[StoreKey | LookUpKey]) -> list[AnyReply]:
    """Every command recognises its own effect, so that a chunk whose outcome is unknown is executed again."""
    if not commands:
        return []
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return list(await runtime_of(ledger).gate.execute(commands))
        except StoreRefused:
            raise
        except (Unavailable, Unknown):
            if attempt == _ATTEMPTS_MAX - 1:
                raise
            await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def _to_entry(
    number: int, line: KeyLine | Invalid, options: ImportOptions, bind: Callable[[Caller], Caller], now: int
) -> _ImportedLine:
    if isinstance(line, Invalid):
        return _ImportedLine(number, None, outcome=LineOutcome.INVALID, reason=str(line))
    try:
        if reason := _reason_to_skip(line, options):
            return _ImportedLine(number, line, outcome=LineOutcome.SKIPPED, reason=reason)
        command = _to_command(line, options, bind, now)
    except Invalid as error:
        return _ImportedLine(number, line, outcome=LineOutcome.INVALID, reason=str(error))
    if command.ttl_ms < TTL_MS_MIN:
        return _ImportedLine(number, line, outcome=LineOutcome.EXPIRED)
    return _ImportedLine(number, line, command)


def _reason_to_skip(line: KeyLine, options: ImportOptions) -> str:
    if options.tenant is not None and line.tenant not in ("", options.tenant):
        return "it is of another tenant"
    if line.status not in ("", IdempotencyStatus.COMMITTED):
        return f"its status is {line.status}, not committed"
    if line.client_id:
        return "it is a number of a client's sequence"
    if not line.job_id and line.idempotency_key:
        return "it has no job id: it is the key of a stored response"
    return ""


def _to_command(line: KeyLine, options: ImportOptions, bind: Callable[[Caller], Caller], now: int) -> StoreKey:
    caller = bind(
        Caller(
            checked_name("tenant", line.tenant or options.tenant or Caller().tenant),
            checked_name("user", line.user_id) if line.user_id else Caller().user,
            str(Actor.system("import")),
        )
    )
    if caller.owns_keys and not line.user_id:
        raise Invalid("user_id", "every user has its own keys, and the line names none; add the user")
    scope, key = checked_lookup_scope(line.scope or options.scope), checked_key(line.idempotency_key)
    return StoreKey(
        tenant=caller.tenant,
        record_id=key_record_id(caller, scope, key),
        scope=scope,
        key=key,
        external_id=_checked_job_id(line.job_id),
        actor=caller.actor,
        user=caller.user,
        ttl_ms=_expires_at(line, options, now) - now,
        fingerprint=_parse_fingerprint(line.fingerprint),
        settings=caller.settings,
    )


def _expires_at(line: KeyLine, options: ImportOptions, now: int) -> int:
    if line.expires_at:
        until = _parse_time("expires_at", line.expires_at)
    elif line.created_at:
        until = min(_parse_time("created_at", line.created_at), now) + options.window_ms
    else:
        until = now + options.window_ms
    if until - now > TTL_MS_MAX:
        raise Invalid("expires_at", "it is more than 365 days ahead; shorten it")
    return until


def _parse_time(what: str, text: str) -> int:
    try:
        return to_ms(datetime.fromisoformat(text.strip()))
    except (ValueError, Invalid):
        raise Invalid(what, f"{text[:40]!r} is not a time with a zone; use e.g. 2030-01-31T12:00:00Z") from None


def _parse_fingerprint(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = bytes(_FINGERPRINT_BYTES_MAX + 1)
    if len(found) > _FINGERPRINT_BYTES_MAX:
        raise Invalid("fingerprint", "it is not a fingerprint in hex; leave it out unless onejob made it")
    return found


def _checked_job_id(text: str) -> str:
    try:
        return checked_key(text)
    except Invalid:
        raise Invalid("job_id", "a job id has 1 to 255 characters without control characters; correct it") from None


def _to_line(record: Record) -> KeyLine:
    until = record.lease_until if record.status is IdempotencyStatus.PENDING else record.expires_at
    return KeyLine(
        tenant=record.tenant,
        scope=record.scope,
        idempotency_key=record.key,
        job_id=format_job_id(record.job_id) if record.job_ids else record.external_id,
        status=record.status.value,
        user_id=record.user,
        fingerprint=record.fingerprint.hex(),
        created_at=_format_time(record.created_at),
        expires_at=_format_time(max(until, record.expires_at)),
        client_id=record.client_id,
    )


def _format_time(ms: int) -> str:
    return to_utc(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _read_time(ledger: Ledger) -> int:
    """The store's time: that of the answer to a look-up of nothing."""
    (reply,) = await _execute(ledger, [LookUpKey(tenant=ledger.caller.tenant, record_id=b"none")])
    assert isinstance(reply, Found | Missing)
    return reply.at


def parse_window_ms(window: timedelta) -> int:
    ms = window // timedelta(milliseconds=1)
    if not TTL_MS_MIN <= ms <= TTL_MS_MAX:
        raise Invalid("window", "a window is 1 second to 365 days; choose one inside")
    return ms


def encode_result(result: LineResult) -> str:
    """A result as a line of JSON: the key with its outcome. A byte of the file that was not UTF-8 is written as \\udcff."""
    given = {} if result.key is None else {name: text for name, text in asdict(result.key).items() if text}
    texts = {"outcome": result.outcome, "reason": result.reason, **given}
    encodable = {name: text.encode(errors="backslashreplace").decode() for name, text in texts.items()}
    return json.encode({"line": result.line, **encodable}).decode()


def add_format_argument(command: ArgumentParser) -> None:
    command.add_argument(
        "--format", choices=choices(KeyFormat), metavar="WORD", help="csv or jsonl; default: by the file's name"
    )


def choose_format(options: Namespace) -> KeyFormat:
    if options.format is not None:
        return KeyFormat(options.format)
    if options.file == "-":
        return KeyFormat.JSONL
    found = _SUFFIXES.get(Path(options.file).suffix.lower())
    if found is None:
        raise Invalid("format", f"the name of {options.file} does not say what it is; add --format csv or jsonl")
    return found
