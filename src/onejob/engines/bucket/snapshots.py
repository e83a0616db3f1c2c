"""Snapshots of the replica in the bucket, and the deletion of what nobody needs any more.

A snapshot is the replica's file, compressed; its name has its position in the log and the SHA-256 of the object. The two
newest are kept. An entry is deleted when it is a day old and not newer than the older of the two, and only by a process
that has just read the newest one back. A payload that no entry names is deleted after two days.
"""

import asyncio
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from hashlib import file_digest, sha256
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from onejob.errors import StoreRefused

from .log import LOG_FOLDER, SNAPSHOT_FOLDER, log_name, position_of, verify_entry
from .objects import ObjectStore, open_private
from .replica import LogState, Replica

SNAPSHOTS_KEPT: Final = 2
LOG_BYTES_MIN: Final = 64 << 20
SNAPSHOT_AGE_MS_MAX: Final = 86_400_000
ENTRY_AGE_MS_MIN: Final = 86_400_000
PAYLOAD_AGE_MS_MIN: Final = 2 * 86_400_000
DATE_MS: Final = 1000  # the store's dates are so coarse
_CHUNK_BYTES: Final = 1 << 20
_LEVEL: Final = 1  # of zlib: the file is mostly text, and opening should be fast

Run = Callable[..., Coroutine[Any, Any, Any]]


class Snapshot(NamedTuple):
    position: int
    name: str
    bytes: int
    modified_ms: int


Judge = Callable[[Snapshot, bytes], Awaitable[None]]


class Erasure(NamedTuple):
    """How far the bytes of purged facts are gone."""

    requested_at: int
    gone_at: int  # not before
    remaining: int  # entries and snapshots from before the purge


async def list_names(objects: ObjectStore, folder: str) -> list[str]:
    """The entries of the log, or all snapshots: what has a position in its name."""
    return [info.name async for page in objects.list(folder) for info in page if position_of(info.name)]


async def find_snapshots(objects: ObjectStore) -> list[Snapshot]:
    """All snapshots, the newest last; several of one position count as one."""
    found: dict[int, Snapshot] = {}
    async for page in objects.list(SNAPSHOT_FOLDER):
        for info in page:
            position = position_of(info.name)
            if position:
                found[position] = Snapshot(position, info.name, info.bytes, info.modified_ms)
    return [found[position] for position in sorted(found)]


async def load_snapshot(objects: ObjectStore, replica: Replica, run: Run, snapshot: Snapshot, judge: Judge) -> bool:
    """Begin with a snapshot; False if it is missing or damaged. One that is refused leaves the replica as it is."""
    with tempfile.TemporaryDirectory(dir=replica.path.parent, prefix="onejob-") as folder:
        packed, unpacked = Path(folder) / "packed", Path(folder) / "unpacked"
        if not await objects.download(snapshot.name, packed):
            return False
        if not await asyncio.to_thread(_is_intact, packed, snapshot.name):
            return False
        await asyncio.to_thread(_unpack, packed, unpacked)
        found = await run(replica.verify_snapshot, unpacked, snapshot.name)
        if found.position != snapshot.position:
            raise StoreRefused(f"{snapshot.name} is at entry {found.position} of the log; remove it")
        await judge(snapshot, found.digest)
        await run(lambda: replica.load(unpacked, bytes=snapshot.bytes, at=snapshot.modified_ms))
    return True


class SnapshotManager:
    """Makes snapshots when they are due, and cleans the bucket after each."""

    def __init__(
        self, objects: ObjectStore, replica: Replica, run: Run, run_current: Run, latest_ms: Callable[[], int]
    ) -> None:
        self._objects = objects
        self._replica = replica
        self._run = run
        self._run_current = run_current
        self._latest_ms = latest_ms
        self._busy = False

    def is_due(self, state: LogState) -> bool:
        if self._busy or not state.log_bytes:
            return False
        return (
            state.log_bytes > max(LOG_BYTES_MIN, state.snapshot_bytes // 2)
            or self._latest_ms() - state.snapshot_at > SNAPSHOT_AGE_MS_MAX
        )

    async def snapshot_and_prune(self, lock: asyncio.Lock, *, force: bool = False) -> None:
        """Make a snapshot, unless another process just did, and clean. The lock is held only to note it."""
        if self._busy:
            return
        self._busy = True
        try:
            newest = (await find_snapshots(self._objects))[-1:]
            if newest and newest[0].position > self._replica.state.snapshot and not force:
                made, grown = newest[0], self._replica.state.log_bytes
            else:
                made, grown = await self._make()
            async with lock:
                await self._run(self._replica.note_snapshot, made.position, made.bytes, self._latest_ms(), grown)
            await self.clean()
        finally:
            self._busy = False

    async def erase(self, lock: asyncio.Lock, requested_at: int) -> Erasure:
        """Remove what the bucket still has of facts that were purged: entries and snapshots from before.

        The first snapshot is made at once. What it replaces is deleted a day later, when nobody can need it any more.
        """
        state = await self.examine_erasure(requested_at)
        if state.remaining:
            newest = (await find_snapshots(self._objects))[-1:]
            if not newest or newest[0].modified_ms <= requested_at + DATE_MS:
                await self.snapshot_and_prune(lock, force=True)
            elif self._latest_ms() > state.gone_at:
                await self.clean(purged_before=requested_at)
            state = await self.examine_erasure(requested_at)
        return state

    async def examine_erasure(self, requested_at: int) -> Erasure:
        old = 0
        for folder in (LOG_FOLDER, SNAPSHOT_FOLDER):
            async for page in self._objects.list(folder):
                old += sum(info.modified_ms <= requested_at + DATE_MS for info in page)
        return Erasure(requested_at, requested_at + ENTRY_AGE_MS_MIN + DATE_MS, old)

    async def _make(self) -> tuple[Snapshot, int]:
        with tempfile.TemporaryDirectory(dir=self._replica.path.parent, prefix="onejob-") as folder:
            copy, packed = Path(folder) / "copy", Path(folder) / "packed"
            state = await asyncio.to_thread(self._replica.copy_to, copy)
            digest = await asyncio.to_thread(_pack, copy, packed)
            await self._refuse_other_history(state)
            name = f"{SNAPSHOT_FOLDER}/{state.position:016}-{digest}"
            await self._objects.upload(name, packed)
            return Snapshot(state.position, name, packed.stat().st_size, self._latest_ms()), state.log_bytes

    async def _refuse_other_history(self, state: LogState) -> None:
        """A snapshot of entries that were removed, or that others have replaced, would hide that from everybody."""
        name = log_name(state.position)
        data = await self._objects.get(name)
        if data is None:
            newest = (await find_snapshots(self._objects))[-1:]
            if not newest or newest[0].position < state.position:
                raise StoreRefused(f"{name} is missing, so no snapshot is made")
        elif verify_entry(state.position, data).digest != state.digest:
            raise StoreRefused(f"{name} is another entry than this process has seen there, so no snapshot is made")

    async def clean(self, *, purged_before: int = 0) -> None:
        """Delete what two readable snapshots make needless; after a purge, what one makes needless that is newer."""
        snapshots = await find_snapshots(self._objects)
        old = [snapshot for snapshot in snapshots if snapshot.modified_ms <= purged_before + DATE_MS] or snapshots[
            :-SNAPSHOTS_KEPT
        ]
        is_enough = len(snapshots) >= SNAPSHOTS_KEPT or purged_before
        if snapshots and is_enough and snapshots[-1] not in old and await self.is_readable(snapshots[-1].name):
            last = snapshots[-1 if purged_before else -SNAPSHOTS_KEPT].position
            await self._delete_entries(last, self._latest_ms() - ENTRY_AGE_MS_MIN)
            if old:
                await self._objects.delete([snapshot.name for snapshot in old])
        await self.delete_unnamed_payloads()

    async def is_readable(self, name: str) -> bool:
        """True if there is a snapshot of this name, and it is what was put."""
        with tempfile.TemporaryDirectory(dir=self._replica.path.parent, prefix="onejob-") as folder:
            packed = Path(folder) / "packed"
            return await self._objects.download(name, packed) and await asyncio.to_thread(_is_intact, packed, name)

    async def _delete_entries(self, last: int, modified_before_ms: int) -> None:
        """The last one after all others: whoever finds it missing beside an earlier one knows that it was lost."""
        async for page in self._objects.list(LOG_FOLDER):
            entries = [info for info in page if 0 < position_of(info.name) < last]
            names = [entry.name for entry in entries if entry.modified_ms < modified_before_ms]
            if names:
                await self._objects.delete(names)
            if len(names) < len(entries):
                return
            for info in page:
                if info.name == log_name(last) and info.modified_ms < modified_before_ms:
                    await self._objects.delete([info.name])
            if page and page[-1].name >= log_name(last):
                return

    async def delete_unnamed_payloads(self) -> None:
        """Payloads that were put for an entry that never came, or whose job is gone."""
        before = self._latest_ms() - PAYLOAD_AGE_MS_MIN
        old = [info.name async for page in self._objects.list("payload") for info in page if info.modified_ms < before]
        if old:
            # After the list, and at the end of the log: whatever an entry names by now is in the replica.
            named = {payload.name for payload in await self._run_current(self._replica.list_payloads)}
            unnamed: Sequence[str] = [name for name in old if name not in named]
            if unnamed:
                await self._objects.delete(unnamed)


def _pack(source: Path, target: Path) -> str:
    """Compress a file; returns the SHA-256 of the result."""
    digest, packer = sha256(), zlib.compressobj(_LEVEL)
    with source.open("rb") as data, open(target, "wb", opener=open_private) as packed:
        for chunk in _chunks(data):
            part = packer.compress(chunk)
            digest.update(part)
            packed.write(part)
        rest = packer.flush()
        digest.update(rest)
        packed.write(rest)
    return digest.hexdigest()


def _unpack(source: Path, target: Path) -> None:
    unpacker = zlib.decompressobj()
    with source.open("rb") as packed, open(target, "wb", opener=open_private) as data:
        data.writelines(unpacker.decompress(chunk) for chunk in _chunks(packed))
        data.write(unpacker.flush())


def _is_intact(packed: Path, name: str) -> bool:
    with packed.open("rb") as data:
        return has_digest_of_name(data, name)


def has_digest_of_name(data: BufferedReader | BytesIO, name: str) -> bool:
    return file_digest(data, "sha256").hexdigest() == name.rpartition("-")[2]


def _chunks(file: Any) -> Any:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")
