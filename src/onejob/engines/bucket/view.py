"""The view: each key and each job as a readable JSON object, in the layout of a queue on nothing but a bucket.

    tasks/{shard}/{task_id}.json            the shard is the last hex digit of the id
    idempotency/{scope}/{key_hash}.json     the key hash is SHA-256 of scope, colon and key

It is written from the log and never read for a decision: a deleted, damaged or forged object changes no answer, and
`onejob doctor` repairs it. Tenants other than `default` are below `tenants/{tenant}/`, and keys that belong to one user
below `users/{user}/`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import apsw
from msgspec import Raw, Struct, json

from onejob.core.facts import Job, Kind, Record
from onejob.core.identity import format_job_id, record_id
from onejob.core.states import IdempotencyStatus
from onejob.core.timestamps import to_utc
from onejob.errors import OnejobError, StoreRefused

from .log import LOST, log_name
from .objects import ObjectStore, RequestFailed

log = logging.getLogger("onejob")

TENANT_WITHOUT_FOLDER: Final = "default"
VIEW_FOLDERS: Final = ("tasks", "idempotency", "tenants")
CURSOR_NAME: Final = "view/cursor"
HOLD_SECONDS: Final = 2.0  # an answer waits no longer for the view
PUTS_AT_ONCE: Final = 64
_COALESCE_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 2.0
_PAGE: Final = 256
_DIGITS_MAX: Final = 16  # of the position in a name
_SEGMENT_MAX: Final = 200
_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_OWN_NAME: Final = re.compile(
    r"(?:tenants/[^/]+/)?(?:tasks/[0-9a-f]/[0-9a-f-]{36}|idempotency/(?:users/[^/]+/)?[^/]+/[0-9a-f]{64})\.json"
)
_STATUS: Final = {IdempotencyStatus.PENDING: "creating", IdempotencyStatus.COMMITTED: "ready"}


class IdempotencyObject(Struct, frozen=True, omit_defaults=True):
    key: str
    key_hash: str
    task_id: str | None
    task_key: str | None
    created_at: datetime
    expires_at: datetime
    task_type: str
    input_hash: str
    status: str
    entry: int  # the log entry that it shows


class TaskObject(Struct, frozen=True, omit_defaults=True):
    id: str
    task_type: str
    status: str
    created_at: datetime
    changed_at: datetime
    scope: str
    entry: int
    key: str = ""
    input: Raw | None = None
    input_object: str = ""  # where a large input is
    attempts: int = 0
    run_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""


class ViewObject(NamedTuple):
    name: str
    data: bytes | None  # None: it must not exist
    entry: int


def encode_name(text: str) -> str:
    """One segment of a name: never empty, `.` or `..`, without a slash, at most 200 characters, another for each text."""
    raw = text.encode("utf-8", "surrogatepass")
    encoded = "".join(chr(byte) if byte in _SAFE else f"~{byte:02X}" for byte in raw)
    if len(encoded) > _SEGMENT_MAX:
        return f"~x{sha256(raw).hexdigest()}"
    return encoded if encoded.strip(".") else "~2E" * len(encoded) or "~"


def _tenant_folder(tenant: str) -> str:
    return "" if tenant == TENANT_WITHOUT_FOLDER else f"tenants/{encode_name(tenant)}/"


def task_name(tenant: str, job_id: bytes) -> str:
    task_id = format_job_id(job_id)
    return f"{_tenant_folder(tenant)}tasks/{task_id[-1]}/{task_id}.json"


def record_name(tenant: str, scope: str, key: str, id: bytes, user: str) -> str:
    owner = "" if id == record_id(tenant, scope, key) else f"users/{encode_name(user)}/"
    return f"{_tenant_folder(tenant)}idempotency/{owner}{encode_name(scope)}/{key_hash(scope, key)}.json"


def key_hash(scope: str, key: str) -> str:
    return sha256(f"{scope}:{key}".encode("utf-8", "surrogatepass")).hexdigest()


def render_record(record: Record, job: Job | None, entry: int) -> bytes:
    has_job = len(record.job_ids) > 0
    return json.encode(
        IdempotencyObject(
            key=record.key,
            key_hash=f"sha256:{key_hash(record.scope, record.key)}",
            task_id=format_job_id(record.job_id) if has_job else record.external_id or None,
            task_key=task_name(record.tenant, record.job_id) if has_job else None,
            created_at=to_utc(record.created_at),
            expires_at=to_utc(max(record.expires_at, record.lease_until)),
            task_type=job.type if job is not None else record.scope,
            input_hash=f"sha256:{record.fingerprint[-32:].hex()}" if record.fingerprint else "",
            status=_STATUS.get(record.status, str(record.status)),
            entry=entry,
        )
    )


def render_task(job: Job, input: bytes | None, input_object: str, entry: int) -> bytes:
    return json.encode(
        TaskObject(
            id=format_job_id(job.id),
            task_type=job.type,
            status=str(job.state),
            created_at=to_utc(job.created_at),
            changed_at=to_utc(job.changed_at),
            scope=job.scope,
            entry=entry,
            key=job.key,
            input=_as_json(input),
            input_object=input_object,
            attempts=job.attempts,
            run_at=to_utc(job.run_at) if job.run_at else None,
            started_at=to_utc(job.started_at) if job.started_at else None,
            ended_at=to_utc(job.ended_at) if job.ended_at else None,
            error=job.error,
        )
    )


def _as_json(data: bytes | None) -> Raw | None:
    if not data:
        return None
    try:
        json.decode(data)
    except ValueError:  # not every input is JSON
        return None
    return Raw(data)


class ViewSource(Protocol):
    """The replica, which knows what is not written yet and what it should be."""

    def list_view_names(self, kind: Kind, after: bytes, limit: int) -> list[tuple[str, bytes]]: ...

    def render_fact(self, kind: Kind, id: bytes, entry: int) -> bytes | None: ...

    def list_pending_view(self, limit: int) -> list[str]: ...

    def render_view(self, names: Sequence[str]) -> list[ViewObject]: ...

    def clear_pending_view(self, written: Sequence[ViewObject]) -> None: ...


Run = Callable[..., Coroutine[Any, Any, Any]]
Spawn = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]


class ViewWriter:
    """Writes what the log has changed; one writer per process, so that an object is never overwritten by an older state."""

    def __init__(self, objects: ObjectStore, source: ViewSource, run: Run, spawn: Spawn) -> None:
        self._objects = objects
        self._spawn = spawn
        self._source = source
        self._run = run
        self._busy: set[str] = set()
        self._queue: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(PUTS_AT_ONCE)
        self._failed = False
        self.failures = 0

    async def write_before_reply(self, names: Sequence[str]) -> None:
        """Write the objects of a batch; after a while it goes on behind the reply."""
        await asyncio.wait({self._spawn(self._write(names))}, timeout=HOLD_SECONDS)

    def queue(self, names: Iterable[str]) -> None:
        self._queue.update(dict.fromkeys(names))
        if self._queue:
            self._wake.set()

    async def run(self) -> None:
        """Write later states, coalesced, and again what failed."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(_RETRY_SECONDS if self._failed else _COALESCE_SECONDS)
            self._wake.clear()
            names = list(self._queue)[:_PAGE]
            for name in names:
                del self._queue[name]
            await self._write(names)
            if self._queue:
                self._wake.set()

    async def write_all_pending(self) -> bool:
        """Write everything that is known not to be written; True if nothing is left."""
        while names := await self._run(self._source.list_pending_view, _PAGE):
            if not await self._write(names):
                return False
        return True

    async def _write(self, names: Sequence[str]) -> bool:
        """True if all of them are written. An object that is being written now is written again afterwards."""
        mine = [name for name in names if name not in self._busy]
        self._busy.update(mine)
        written: list[ViewObject] = []
        try:
            rendered: list[ViewObject] = await self._run(self._source.render_view, mine)
            results = await asyncio.gather(*(self._put(view_object) for view_object in rendered))
            written = [view_object for view_object, done in zip(rendered, results, strict=True) if done]
            self._failed = len(written) < len(rendered)
            await self._run(self._source.clear_pending_view, written)
            missing = {view_object.name for view_object in rendered} - {view_object.name for view_object in written}
        except (apsw.Error, OSError, OnejobError) as error:
            log.warning("the view could not be written, will retry: %s", error)
            self._failed, missing = True, set(mine)
        finally:
            self._busy.difference_update(mine)
        missing.update(name for name in names if name not in mine)
        self.queue(missing)
        return not missing

    async def _put(self, view_object: ViewObject) -> bool:
        async with self._slots:
            try:
                if view_object.data is None:
                    await self._objects.delete([view_object.name])
                else:
                    await self._objects.put(view_object.name, view_object.data)
            except RequestFailed as error:
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
                    log.warning("an object of the view could not be written, will retry: %s", error)
                return False
            return True


class ViewRepair(Struct):
    """What was wrong with the view, and is right again."""

    objects: int = 0  # that it should have
    missing: int = 0
    changed: int = 0
    left_over: int = 0  # of keys and jobs that are gone


class _Comparison(NamedTuple):
    """What differs between the log and the objects that are there, each with the digest of what was read of it."""

    wanted: int
    wrong: list[tuple[str, Kind, bytes, bytes]]
    left_over: dict[str, bytes]
    last: int  # the latest entry that an object shows


FindEnd = Callable[[], Awaitable[int]]


async def repair_view(objects: ObjectStore, source: ViewSource, run: Run, find_end: FindEnd) -> ViewRepair:
    """Compare every object of the view with the log, and write or delete what differs.

    Nothing is changed if one of them shows a later entry than the log has: it may be the last that tells of an answer.
    """
    found = await _compare_view(objects, source, run, find_end)
    end = await find_end()  # it may have grown meanwhile
    if found.last > end:
        raise StoreRefused(
            f"{log_name(end + 1)} is missing: the log ends before it, and readable objects show entries up to {found.last}, "
            f"so that {LOST}"
        )
    return await _write_differences(objects, source, run, found, end)


async def accept_view_of_log(objects: ObjectStore, source: ViewSource, run: Run, find_end: FindEnd) -> int:
    """Make the view as the log says; returns the latest entry that an object showed."""
    found = await _compare_view(objects, source, run, find_end)
    end = await find_end()
    await _write_differences(objects, source, run, found, end)
    await objects.put(CURSOR_NAME, b"%d" % end)
    return found.last


async def _compare_view(objects: ObjectStore, source: ViewSource, run: Run, find_end: FindEnd) -> _Comparison:
    """The list comes before the end of the log: whatever it has is then of an entry that is known, or was lost."""
    there = {info.name for folder in VIEW_FOLDERS async for page in objects.list(folder) for info in page}
    last = parse_cursor(await objects.get(CURSOR_NAME))
    entry = await find_end()
    wanted: set[str] = set()
    wrong: list[tuple[str, Kind, bytes, bytes]] = []
    slots = asyncio.Semaphore(PUTS_AT_ONCE)

    async def read(name: str) -> bytes | None:
        nonlocal last
        async with slots:
            data = await objects.get(name) if name in there else None
        last = max(last, _shown_entry(data))
        return data

    async for kind, names in _list_wanted(source, run):
        bodies = await asyncio.gather(*(read(name) for name, _ in names))
        for (name, id), body in zip(names, bodies, strict=True):
            expected = await run(source.render_fact, kind, id, entry)
            if expected is not None and not _is_same(body, expected):
                wrong.append((name, kind, id, _digest_of(body)))
        wanted.update(name for name, _ in names)
    left_over: dict[str, bytes] = {}
    others = [name for name in there - wanted if _OWN_NAME.fullmatch(name)]
    for start in range(0, len(others), _PAGE):
        some = others[start : start + _PAGE]
        left_over.update(zip(some, map(_digest_of, await asyncio.gather(*map(read, some))), strict=True))
    return _Comparison(len(wanted), wrong, left_over, last)


async def _list_wanted(source: ViewSource, run: Run) -> AsyncIterator[tuple[Kind, list[tuple[str, bytes]]]]:
    for kind in (Kind.RECORD, Kind.JOB):
        after = b""
        while names := await run(source.list_view_names, kind, after, _PAGE):
            yield kind, names
            after = names[-1][1]


async def _write_differences(
    objects: ObjectStore, source: ViewSource, run: Run, found: _Comparison, entry: int
) -> ViewRepair:
    """At an end of the log that was read after the objects. One that has changed since is somebody's who writes it now."""
    repair = ViewRepair(objects=found.wanted)
    slots = asyncio.Semaphore(PUTS_AT_ONCE)

    async def write(name: str, kind: Kind, id: bytes, read: bytes) -> None:
        async with slots:
            data, expected = await objects.get(name), await run(source.render_fact, kind, id, entry)
            if expected is not None and _digest_of(data) == read and not _is_same(data, expected):
                repair.missing += data is None
                repair.changed += data is not None
                await objects.put(name, expected)

    async def delete(name: str) -> None:
        async with slots:
            data = await objects.get(name)
            if data is not None and _digest_of(data) == found.left_over[name]:
                repair.left_over += 1
                await objects.delete([name])

    for start in range(0, len(found.wrong), _PAGE):
        await asyncio.gather(*(write(*wrong) for wrong in found.wrong[start : start + _PAGE]))
    if found.left_over:
        wanted = {name async for _, names in _list_wanted(source, run) for name, _ in names}
        left_over = [name for name in found.left_over if name not in wanted]
        for start in range(0, len(left_over), _PAGE):
            await asyncio.gather(*map(delete, left_over[start : start + _PAGE]))
    return repair


def _digest_of(data: bytes | None) -> bytes:
    return b"" if data is None else sha256(data).digest()


def parse_cursor(data: bytes | None) -> int:
    """Up to which entry the view is known to be written; 0 if the object is not one of ours."""
    return int(data) if data is not None and data.isdigit() and len(data) <= _DIGITS_MAX else 0


def _shown_entry(data: bytes | None) -> int:
    try:
        entry = json.decode(data or b"", type=_AnyObject).entry
    except (ValueError, RecursionError):  # somebody has scribbled on it
        return 0
    return entry


class _AnyObject(Struct):
    entry: int = 0


def _is_same(found: bytes | None, expected: bytes) -> bool:
    """Equal but for the number of the entry: an object shows the entry that changed it last."""
    try:
        old, new = (json.decode(data) for data in (found or b"", expected))
        return isinstance(old, dict) and isinstance(old.pop("entry"), int) and bool(new.pop("entry")) and old == new
    except (ValueError, KeyError):
        return False
