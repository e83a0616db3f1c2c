"""Examining a store's file and folder: schema, permissions, room, and how fast the disk keeps its word."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from onejob.clock import SystemClock
from onejob.engines.sqlite.schema import SqliteDiagnostics, diagnose
from onejob.errors import OnejobError

from .findings import Finding, fail, ok, warn

FSYNC_SAMPLES = 20
_FSYNC_BYTES = 4096
# No disk answers faster: what does is memory, or does not sync at all.
_FSYNC_MS_MIN = 0.02
_FSYNC_MS_SLOW = 25.0
_FREE_BYTES_MIN = 64 << 20
_FREE_BYTES_LOW = 1 << 30
_WAL_BYTES_LARGE = 64 << 20
_MOUNTS = Path("/proc/self/mounts")
_REMOTE_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
)  # WAL needs memory that all see
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_FILE_SUFFIXES = ("", "-wal", "-shm", "-turn", "-next")


def check_folder(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield fail("folder", f"{folder} is not there", "make it, or name another with --engine")
        return
    yield _check_folder_permissions(folder)
    yield check_file_system(mount_type(folder))
    yield check_free_space(shutil.disk_usage(folder).free)
    yield _check_fsync(folder)


def check_file(file: Path) -> Iterator[Finding]:
    yield _check_file_permissions(file)
    try:
        seen = diagnose(str(file))
    except OnejobError as error:
        yield fail("store", str(error))
        return
    yield ok("sqlite", f"library {seen.sqlite_version}")
    yield _check_schema(seen)
    if seen.is_onejob:
        yield _check_journal_mode(seen)
        yield _check_wal_size(seen)


def _check_folder_permissions(folder: Path) -> Finding:
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        return fail("folder", f"{folder} cannot be written", "give this user the right to write there")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return fail("folder", f"everybody may replace files in {folder}", f"chmod o-w {folder}")
    return ok("folder", f"{folder} can be written, mode {stat.S_IMODE(mode):04o}")


def check_file_system(kind: str) -> Finding:
    if kind.startswith(_REMOTE_FILE_SYSTEMS):
        return fail("file system", f"{kind}: other machines see it too", "put the store on a local disk")
    if kind in _MEMORY_FILE_SYSTEMS:
        return warn("file system", f"{kind}: it is memory", "put the store on a disk, or lose it with the power")
    return ok("file system", kind or "unknown here")


def mount_type(folder: Path) -> str:
    """The kind of file system below a folder, as the kernel names it; empty where it does not tell."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place, kinds = folder.resolve(), {}
    for line in lines:
        _, mount, kind, *_ = line.split(" ")
        kinds[Path(mount.replace("\\040", " "))] = kind
    return next((kinds[above] for above in (place, *place.parents) if above in kinds), "")


def _check_file_permissions(file: Path) -> Finding:
    beside = [Path(f"{file}{ending}") for ending in _FILE_SUFFIXES]
    modes = {path: path.stat().st_mode for path in beside if path.exists()}
    names = " ".join(str(path) for path, mode in modes.items() if stat.S_IMODE(mode) & 0o077)
    if not stat.S_ISREG(modes[file]):
        return fail("permissions", f"{file} is no file", "name another with --engine")
    if not os.access(file, os.R_OK | os.W_OK):
        return fail("permissions", f"{file} cannot be written by this user", f"chown or chmod u+rw {file}")
    if any(mode & (stat.S_IWGRP | stat.S_IWOTH) for mode in modes.values()):
        return fail("permissions", "others may write the store", f"chmod 600 {names}")
    if names:
        return warn("permissions", "others may read the keys and inputs", f"chmod 600 {names}")
    return ok("permissions", f"{stat.S_IMODE(modes[file]):04o}: only its owner reads and writes it")


def check_free_space(free: int) -> Finding:
    found = f"{_format_bytes(free)} free"
    if free < _FREE_BYTES_MIN:
        return fail("disk", found, "make room: without it every submission is refused")
    if free < _FREE_BYTES_LOW:
        return warn("disk", found, "make room soon")
    return ok("disk", found)


def _check_fsync(folder: Path) -> Finding:
    """How long a small write takes until the disk has it: what every lone submission waits for."""
    clock = SystemClock()
    times = []
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(FSYNC_SAMPLES):
                begin = clock.monotonic()
                file.write(bytes(_FSYNC_BYTES))
                os.fsync(file.fileno())
                times.append(clock.monotonic() - begin)
    except OSError as error:
        return fail("fsync", f"a synced write failed ({error.strerror})", "mend the disk or its permissions")
    return fsync_finding(median(times) * 1000)


def fsync_finding(ms: float) -> Finding:
    found = f"{ms:.3g} ms for a synced write (median of {FSYNC_SAMPLES})"
    if ms < _FSYNC_MS_MIN:
        return warn(
            "fsync",
            f"{found}: faster than a disk can be",
            "if this is memory or a disk that lies, a power cut loses answers; put the store on a real disk",
        )
    rate = f"about {1000 / ms:,.0f} lone submissions per second, more when they come together"
    if ms > _FSYNC_MS_SLOW:
        return warn("fsync", f"{found}: {rate}", "a faster disk makes every answer faster")
    return ok("fsync", f"{found}: {rate}")


def _check_schema(diagnostics: SqliteDiagnostics) -> Finding:
    if not diagnostics.is_onejob:
        if diagnostics.is_empty:
            return ok("schema", f"the file is empty; opening it makes schema {diagnostics.schema_version_known}")
        return fail("schema", "this is another program's database", "name another file with --engine")
    if diagnostics.schema_version > diagnostics.schema_version_known:
        return fail(
            "schema",
            f"{diagnostics.schema_version}, newer than the {diagnostics.schema_version_known} known here",
            "upgrade this program",
        )
    if diagnostics.schema_version < diagnostics.schema_version_known:
        return warn(
            "schema",
            f"{diagnostics.schema_version}, this program has {diagnostics.schema_version_known}",
            "it is brought forward when it is opened",
        )
    return ok("schema", f"{diagnostics.schema_version}, the newest")


def _check_journal_mode(diagnostics: SqliteDiagnostics) -> Finding:
    found = f"{diagnostics.journal_mode.upper()}, synchronous={diagnostics.synchronous}"
    if diagnostics.synchronous != "FULL":
        return fail("journal mode", found, "report this: an answer would not survive a power cut")
    if diagnostics.journal_mode != "wal":
        return warn("journal mode", found, "another program changed it; opening the store puts WAL back")
    return ok("journal mode", found)


def _check_wal_size(diagnostics: SqliteDiagnostics) -> Finding:
    found = _format_bytes(diagnostics.journal_bytes)
    if diagnostics.journal_bytes > _WAL_BYTES_LARGE:
        return warn("journal", found, "a program that reads for long keeps it from shrinking; find and end it")
    return ok("journal", found)


def _format_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
