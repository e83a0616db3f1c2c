"""A FUSE file system that simulates power cuts: what was not synced is lost or torn.

`python -m tests.crash.powerfs MOUNT BACKING` mounts a flat directory. BACKING is the disk: it is read at the start
and written at the cut. Content is durable after an fsync of its file, a name after an fsync of the directory.

Commands come on standard input, one line each, and are answered with `ok`:
    cut MODE SEED   cut the power; MODE is drop, prefix or sectors. The program ends.
    fail N          let the next N syncs fail; as on Linux, what they should have written can be read, but counts as clean
    room BYTES      limit the size of all files; -1: no limit
    frozen 0|1      refuse every change, like a disk that was remounted read-only
"""

import errno
import os
import random
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import mfusepy

SECTOR = 512
HIDDEN = ".fuse_hidden"  # libfuse renames an unlinked open file to this prefix; on disk it has no name


class Inode:
    """A file: its visible content, its content on disk, and the unsynced changes in order."""

    def __init__(self, number: int, disk: bytes = b"") -> None:
        self.number = number
        self.live = bytearray(disk)
        self.disk = bytearray(disk)
        self.unsynced: list[tuple[int, bytes | None]] = []  # offset and data, or a new length and None
        self.mode = stat.S_IFREG | 0o600

    def change(self, at: int, data: bytes | None) -> None:
        apply(self.live, at, data)
        self.unsynced.append((at, data))

    def sync(self) -> None:
        for at, data in self.unsynced:
            apply(self.disk, at, data)
        self.unsynced.clear()

    def fail_to_sync(self) -> None:
        """What was written stays visible, but no later sync writes it."""
        self.unsynced = [(length, data) for length, data in self.unsynced if data is None]

    def content_after_cut(self, mode: str, rng: random.Random) -> bytes:
        if mode == "prefix" and self.unsynced:
            complete = rng.randint(0, len(self.unsynced))
            for at, data in self.unsynced[:complete]:
                apply(self.disk, at, data)
            for at, data in self.unsynced[complete : complete + 1]:
                if data is not None:
                    apply(self.disk, at, data[: rng.randint(0, len(data))])
        if mode == "sectors" and self.unsynced:
            return self._sectors(rng)
        return bytes(self.disk)

    def _sectors(self, rng: random.Random) -> bytes:
        """Each unsynced sector is written or not, in any order."""
        size = rng.choice((len(self.disk), len(self.live)))
        torn = bytearray(size)
        for at in range(0, size, SECTOR):
            source = self.live if rng.random() < 0.5 else self.disk
            end = min(at + SECTOR, size)
            part = bytes(source[at:end])
            torn[at : at + len(part)] = part
        return bytes(torn)


class PowerFs(mfusepy.Operations):
    use_ns = True

    def __init__(self, backing: Path) -> None:
        self.backing = backing
        self._guard = Lock()
        self.room = -1
        self.failing_syncs = 0
        self.frozen = False
        self.dead = False
        self.names = {
            path.name: Inode(number, path.read_bytes())
            for number, path in enumerate(sorted(backing.iterdir()), start=2)
        }
        self.synced_names = dict(self.names)
        self.unsynced_names: list[dict[str, Inode]] = []  # the directory after each change since its sync
        self.next_number = len(self.names) + 2

    def read_commands(self, lines: Iterable[str]) -> None:
        for line in lines:
            command, *values = line.split()
            with self._guard:
                if command == "cut":
                    self.cut_power(values[0], random.Random(int(values[1])))
                elif command == "fail":
                    self.failing_syncs = int(values[0])
                elif command == "room":
                    self.room = int(values[0])
                elif command == "frozen":
                    self.frozen = values[0] == "1"
                print("ok", flush=True)
                if self.dead:
                    os._exit(0)
        os._exit(0)  # the process that mounted it has ended

    def cut_power(self, mode: str, rng: random.Random) -> None:
        """Keep what was synced, and of the rest nothing or what a disk may have written."""
        self.dead = True
        if mode != "drop" and self.unsynced_names:
            self.synced_names = rng.choice([self.synced_names, *self.unsynced_names])
        for path in self.backing.iterdir():
            path.unlink()
        for name, inode in self.synced_names.items():
            if not name.startswith(HIDDEN):
                (self.backing / name).write_bytes(inode.content_after_cut(mode, rng))

    # FUSE operations.

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._guard:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2, "st_ino": 1, **_OWNER}
            inode = self._at(path)
            size = len(inode.live)
            return {
                "st_mode": inode.mode,
                "st_nlink": 1,
                "st_ino": inode.number,
                "st_size": size,
                "st_blocks": (size + 511) // 512,
                **_OWNER,
            }

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with self._guard:
            numbers = {".": 1, "..": 1} | {name: inode.number for name, inode in self.names.items()}
            return [(name, {"st_ino": number}, 0) for name, number in numbers.items()]

    def open(self, path: str, flags: int) -> int:
        with self._guard:
            if self.frozen and flags & (os.O_WRONLY | os.O_RDWR):
                raise os_error(errno.EROFS)
            return self._at(path).number

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        with self._guard:
            self._check_writable()
            inode = Inode(self.next_number)
            inode.mode = stat.S_IFREG | (mode & 0o777)
            self.next_number += 1
            self._change_names(lambda names: names.__setitem__(path[1:], inode))
            return inode.number

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._guard:
            return bytes(self._at(path).live[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self._guard:
            self._check_writable()
            inode = self._at(path)
            self._check_room(inode, offset + len(data))
            inode.change(offset, data)
            return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        with self._guard:
            self._check_writable()
            inode = self._at(path)
            self._check_room(inode, length)
            inode.change(length, None)
            return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        with self._guard:
            inode = self._at(path)
            if self.failing_syncs:
                self.failing_syncs -= 1
                inode.fail_to_sync()
                raise os_error(errno.EIO)
            inode.sync()
            return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        with self._guard:
            self._check_power()
            self.synced_names = dict(self.names)
            self.unsynced_names.clear()
            return 0

    def unlink(self, path: str) -> int:
        with self._guard:
            self._check_writable()
            self._change_names(lambda names: names.pop(path[1:]))
            return 0

    def rename(self, old: str, new: str) -> int:
        with self._guard:
            self._check_writable()
            self._change_names(lambda names: names.__setitem__(new[1:], names.pop(old[1:])))
            return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        return 0

    def _at(self, path: str) -> Inode:
        self._check_power()
        inode = self.names.get(path[1:])
        if inode is None:
            raise os_error(errno.ENOENT)
        return inode

    def _check_power(self) -> None:
        if self.dead:
            raise os_error(errno.EIO)

    def _check_writable(self) -> None:
        self._check_power()
        if self.frozen:
            raise os_error(errno.EROFS)

    def _check_room(self, inode: Inode, size: int) -> None:
        if self.room >= 0 and size > len(inode.live):
            used = sum(len(other.live) for other in self.names.values())
            if used - len(inode.live) + size > self.room:
                raise os_error(errno.ENOSPC)

    def _change_names(self, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self.names)
        self.unsynced_names.append(dict(self.names))


_OWNER = {"st_uid": os.getuid(), "st_gid": os.getgid()}


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def apply(content: bytearray, at: int, data: bytes | None) -> None:
    """Write at an offset, or truncate or extend to a size."""
    end = at + len(data or b"")
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at:end] = data


def main(mount: str, backing: str) -> None:
    fs = PowerFs(Path(backing))
    Thread(target=fs.read_commands, args=(sys.stdin,), daemon=True).start()
    mfusepy.FUSE(fs, mount, foreground=True, nothreads=True, use_ino=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
