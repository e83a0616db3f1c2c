"""The few requests that the bucket engine makes of an object store, and the store behind obstore that answers them.

Only create-if-absent is asked of the store beyond plain puts, gets, lists and deletes. obstore's own retries are off: the
engine must know which request may still be under way.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from onejob.clock import Clock, make_engine_clock, wall_offset_ms
from onejob.core.timestamps import to_ms
from onejob.errors import StoreRefused
from onejob.ids import Ids

_LIST_PAGE = 1000
_DELETES_AT_ONCE = 1000
_CHUNK_BYTES = 8 << 20
_DATE_SECONDS = 5.0
_HEAD_BYTES_MAX = 64 << 10
# obstore raises one exception for nearly every failure, and tells them apart only in its details: a Rust value, one field
# per line. What a server wrote is quoted there in one line, so whole lines are compared, and nothing is searched for.
_DETAILS = "\nDebug source:\n"
_NEVER_SENT = tuple(
    [
        "inner: Http(",
        "HttpError {",
        f"kind: {kind},",
        "source: reqwest::Error {",
        "kind: Request,",
        "source: hyper_util::client::legacy::Error(",
        "Connect,",
    ]
    for kind in ("Connect", "Timeout")
)
_SLOW_DOWN = ("status: 429,", "status: 503,")
_REFUSED = ("status: 400,", "status: 401,", "status: 403,", "status: 404,", "status: 405,", "status: 501,")
_NO_BUCKET = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")  # a name cannot hold a bracket
_FAILURES = (BaseError, OSError, ValueError)


class RequestFailed(Exception):
    """No answer, or one that does not tell whether the request was executed: it may be, now or later."""


class NothingSent(RequestFailed):
    """The request certainly did nothing: no connection was made, or the store refused it."""


class SlowDown(RequestFailed):
    """The store asks for fewer requests."""


class ObjectInfo(NamedTuple):
    name: str
    bytes: int
    modified_ms: int  # by the clock of the store


class StoreDate(NamedTuple):
    """A moment on the clock of the store: it lies in the `resolution_ms` milliseconds that begin with `ms`."""

    ms: int
    resolution_ms: int


class ObjectStore(Protocol):
    """Names have no leading slash. Every method may raise RequestFailed."""

    async def create(self, name: str, data: bytes) -> bool:
        """Create the object; False if there is one of that name."""

    async def put(self, name: str, data: bytes) -> None: ...

    async def get(self, name: str) -> bytes | None: ...

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        """All objects below a folder, in the order of their names, in pages."""

    async def delete(self, names: Sequence[str]) -> None:
        """In any order; those that do not exist count as deleted."""

    async def upload(self, name: str, file: Path) -> None:
        """Put a large object from a file."""

    async def download(self, name: str, file: Path) -> bool:
        """Write a large object to a file; False if there is none of that name."""

    async def read_date(self) -> StoreDate: ...

    async def aclose(self) -> None: ...


async def prove_create_if_absent(objects: ObjectStore, ids: Ids) -> None:
    """Refuse a store that would let two processes create the same object: nothing else here holds without it."""
    name = f"probe/{ids.holder().hex()}"
    bodies = [ids.holder() for _ in range(3)]
    created = list(await asyncio.gather(*(objects.create(name, body) for body in bodies[:2])))
    created.append(await objects.create(name, bodies[2]))
    winners = [body for body, was_created in zip(bodies, created, strict=True) if was_created]
    found = await objects.get(name)
    await objects.delete([name])
    if len(winners) != 1 or created[2] or found != winners[0]:
        raise StoreRefused(
            "the store ignores If-None-Match (two creations of one object were not told apart), so that two processes "
            "could make two jobs for one key; use a store that honours it, such as S3, R2, GCS, Azure, MinIO or SeaweedFS"
        )


class DateSource(Protocol):
    async def read_date(self) -> StoreDate: ...

    async def aclose(self) -> None: ...


def open_private(path: str, flags: int) -> int:
    """An `opener` of `open`: a file that is created is its owner's alone, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class LocalFolder:
    """The folder of a `file://` store: what is written there is its owner's, and its group's if that may write the folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        Path(root).mkdir(parents=True, exist_ok=True, mode=0o700)
        is_shared = os.stat(root).st_mode & 0o020
        self._file_mode, self._folder_mode = (0o660, 0o2770) if is_shared else (0o600, 0o700)

    def make_parent(self, name: str) -> None:
        path = self._root
        for part in name.split("/")[:-1]:
            path = f"{path}/{part}"
            if not os.path.isdir(path):
                with suppress(FileExistsError):
                    os.mkdir(path, 0o700)
                with suppress(OSError):
                    os.chmod(path, self._folder_mode)

    def set_mode(self, name: str) -> None:
        with suppress(
            FileNotFoundError, PermissionError
        ):  # by now it is deleted, or written by another user of the group
            os.chmod(f"{self._root}/{name}", self._file_mode)


class ObstoreObjects:
    """Objects of S3, Google Cloud Storage, Azure or a folder."""

    def __init__(
        self, store: Any, dates: DateSource, *, patient: Any = None, folder: LocalFolder | None = None
    ) -> None:
        self._store = store
        self._folder = folder  # of a `file://` store, which gives files and folders the modes of the umask
        self._patient = patient or store  # with longer timeouts, for large objects
        self._dates = dates

    async def create(self, name: str, data: bytes) -> bool:
        try:
            if self._folder is not None:
                self._folder.make_parent(name)
            await obstore.put_async(self._store, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except _FAILURES as error:
            raise _to_failure(error) from None
        if self._folder is not None:
            self._folder.set_mode(name)
        return True

    async def put(self, name: str, data: bytes) -> None:
        try:
            if self._folder is not None:
                self._folder.make_parent(name)
            await obstore.put_async(self._store, name, data, use_multipart=False)
        except _FAILURES as error:
            raise _to_failure(error) from None
        if self._folder is not None:
            self._folder.set_mode(name)

    async def get(self, name: str) -> bytes | None:
        try:
            found = await obstore.get_async(self._store, name)
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            if any(code in str(error) for code in _NO_BUCKET):
                raise _to_failure(error) from None
            return None
        except _FAILURES as error:
            raise _to_failure(error) from None

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        try:
            # Some stores return pages that are not sorted, so the names are sorted here; a folder is listed at once.
            pages = obstore.list(self._store, prefix, offset=after or None, chunk_size=_LIST_PAGE)
            found: list[ObjectInfo] = []
            async for page in pages:
                found += (ObjectInfo(meta["path"], meta["size"], to_ms(meta["last_modified"])) for meta in page)
        except FileNotFoundError:
            return
        except _FAILURES as error:
            raise _to_failure(error) from None
        found.sort()
        for start in range(0, len(found), _LIST_PAGE):
            yield found[start : start + _LIST_PAGE]

    async def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETES_AT_ONCE):
            try:
                await obstore.delete_async(self._store, list(names[start : start + _DELETES_AT_ONCE]))
            except FileNotFoundError:
                await self._delete_each(names[start : start + _DELETES_AT_ONCE])
            except _FAILURES as error:
                raise _to_failure(error) from None

    async def _delete_each(self, names: Sequence[str]) -> None:
        """A folder stops at the first name that does not exist."""
        for name in names:
            try:
                await obstore.delete_async(self._store, name)
            except FileNotFoundError:
                continue
            except _FAILURES as error:
                raise _to_failure(error) from None

    async def upload(self, name: str, file: Path) -> None:
        try:
            if self._folder is not None:
                self._folder.make_parent(name)
            await obstore.put_async(self._patient, name, file, chunk_size=_CHUNK_BYTES)
        except _FAILURES as error:
            raise _to_failure(error) from None
        if self._folder is not None:
            self._folder.set_mode(name)

    async def download(self, name: str, file: Path) -> bool:
        try:
            found = await obstore.get_async(self._patient, name)
            with os.fdopen(open_private(str(file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as target:
                async for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                    target.write(chunk)
        except FileNotFoundError:
            return False
        except _FAILURES as error:
            raise _to_failure(error) from None
        return True

    async def read_date(self) -> StoreDate:
        return await self._dates.read_date()

    async def aclose(self) -> None:
        await self._dates.aclose()


def _to_failure(error: Exception) -> RequestFailed:
    """What is not known for certain to have done nothing may be done."""
    text = str(error).partition("\n")[0]  # names the request and its failure; the details repeat it
    end = _end_of_request(str(error))
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return NothingSent(f"the store refused the credentials or the permission ({text})")
    if end[:7] in _NEVER_SENT:
        return NothingSent(f"the store cannot be reached ({text})")
    match end:
        case ["inner: Status {", status, *_] if status in _SLOW_DOWN:
            return SlowDown(text)
        case ["inner: Status {", status, *_] if status in _REFUSED:
            return NothingSent(text)
    return NothingSent(text) if isinstance(error, FileNotFoundError) else RequestFailed(text)


def _end_of_request(text: str) -> list[str]:
    """The lines of the details from the one on that says how the request ended; none if they have another form."""
    _, has_details, details = text.rpartition(_DETAILS)
    lines = [line.strip() for line in details.split("\n")] if has_details else []
    starts = [n for n, line in enumerate(lines) if line.startswith("inner: ")]
    return lines[starts[0] :] if len(starts) == 1 else []


class LocalDates:
    """The clock of a folder is that of its machine, tied to the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._now = make_engine_clock(clock, wall_offset_ms(clock))

    async def read_date(self) -> StoreDate:
        return StoreDate(self._now(), 1)

    async def aclose(self) -> None:
        pass


class HttpDates:
    """Reads `Date` from the answers to HEAD requests on a connection of its own, since obstore does not show it.

    The request is not signed: a refusal has a date too.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._request = (
            f"HEAD / HTTP/1.1\r\nHost: {shown}{f':{parts.port}' if parts.port else ''}\r\nUser-Agent: onejob\r\n\r\n"
        ).encode("ascii")
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def read_date(self) -> StoreDate:
        try:
            async with asyncio.timeout(_DATE_SECONDS):
                return StoreDate(await self._ask(), 1000)
        except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise RequestFailed(f"the store at {self._host} did not tell the time ({error!r})") from None

    async def _ask(self) -> int:
        if self._idle:
            connection = self._idle.pop()
            with suppress(OSError, EOFError):  # the server may have closed it while it was idle
                return await self._exchange(*connection)
        return await self._exchange(
            *await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_HEAD_BYTES_MAX)
        )

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        keep = False
        try:
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}
            date = parsedate_to_datetime(headers.get("date", ""))
            keep = headers.get("connection", "").lower() != "close" and head[0].startswith("HTTP/1.1")
            return to_ms(date if date.tzinfo else date.replace(tzinfo=UTC))
        finally:
            if keep:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def aclose(self) -> None:
        connections, self._idle = self._idle, []
        for _, writer in connections:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
