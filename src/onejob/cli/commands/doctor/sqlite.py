"""Doctor checks of a SQLite store: folder, permissions, free space, sync latency, schema, damage and journal."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from onejob.clock import SystemClock
from onejob.engines.sqlite.schema import SqliteDiagnostics, diagnose, refuse_emptied
from onejob.errors import OnejobError

from .findings import Finding, fail, ok, warn

FSYNC_SAMPLES = 20
_FSYNC_BYTES = 4096
_FSYNC_MS_MIN = 0.02  # faster than any disk: memory, or a device that does not sync
_FSYNC_MS_SLOW = 25.0
_FREE_BYTES_MIN = 64 << 20
_FREE_BYTES_LOW = 1 << 30
_WAL_BYTES_LARGE = 64 << 20
_MOUNTS = Path("/proc/self/mounts")
# WAL needs shared memory, which machines do not share.
_REMOTE_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "fuse.sshfs")
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_FILE_SUFFIXES = ("", "-wal", "-shm", "-turn", "-next")


def check_folder(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield fail("folder", f"{folder} does not exist", "create it, or name another with --engine")
        return
    yield _check_folder_permissions(folder)
    yield check_file_system(mount_type(folder))
    yield check_free_space(shutil.disk_usage(folder).free)
    yield _check_fsync(folder)


def check_file(file: Path) -> Iterator[Finding]:
    yield _check_file_permissions(file)
    try:
        diagnostics = diagnose(str(file))
    except OnejobError as error:
        yield fail("store", str(error))
        return
    yield ok("sqlite", f"library {diagnostics.sqlite_version}")
    yield _check_schema(diagnostics)
    if diagnostics.is_onejob:
        yield _check_damage(diagnostics)
        yield _check_commits(diagnostics)
        yield _check_journal_mode(diagnostics)
        yield _check_wal_size(diagnostics)


def check_missing_file(file: Path) -> Finding:
    try:
        refuse_emptied(str(file))
    except OnejobError as error:
        return fail("store", str(error))
    return warn("store", f"there is none at {file} yet", "`onejob serve` or a submission creates it")


def _check_folder_permissions(folder: Path) -> Finding:
    mode = folder.stat().st_mode
    if not os.access(folder, os.W_OK | os.X_OK):
        return fail("folder", f"{folder} is not writable", "give this user write permission")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return fail("folder", f"every user may replace files in {folder}", f"chmod o-w {folder}")
    return ok("folder", f"{folder} is writable, mode {stat.S_IMODE(mode):04o}")


def check_file_system(kind: str) -> Finding:
    if kind.startswith(_REMOTE_FILE_SYSTEMS):
        return fail("file system", f"{kind}: a network file system", "put the store on a local disk")
    if kind in _MEMORY_FILE_SYSTEMS:
        return warn("file system", f"{kind}: kept in memory", "put the store on a disk, or lose it in a power failure")
    return ok("file system", kind or "unknown here")


def mount_type(folder: Path) -> str:
    """The type of the file system that has the folder; empty if the kernel does not list mounts."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    path, kinds = folder.resolve(), {}
    for line in lines:
        _, mount, kind, *_ = line.split(" ")
        kinds[Path(mount.replace("\\040", " "))] = kind
    return next((kinds[parent] for parent in (path, *path.parents) if parent in kinds), "")


def _check_file_permissions(file: Path) -> Finding:
    paths = [Path(f"{file}{suffix}") for suffix in _FILE_SUFFIXES]
    modes = {path: path.stat().st_mode for path in paths if path.exists()}
    names = " ".join(str(path) for path, mode in modes.items() if stat.S_IMODE(mode) & 0o077)
    if not stat.S_ISREG(modes[file]):
        return fail("permissions", f"{file} is not a regular file", "name another with --engine")
    if not os.access(file, os.R_OK | os.W_OK):
        return fail("permissions", f"{file} is not writable by this user", f"chown or chmod u+rw {file}")
    if any(mode & (stat.S_IWGRP | stat.S_IWOTH) for mode in modes.values()):
        return fail("permissions", "other users may write the store", f"chmod 600 {names}")
    if names:
        return warn("permissions", "other users may read the keys and inputs", f"chmod 600 {names}")
    return ok("permissions", f"{stat.S_IMODE(modes[file]):04o}: only its owner reads and writes it")


def check_free_space(free: int) -> Finding:
    found = f"{_format_bytes(free)} free"
    if free < _FREE_BYTES_MIN:
        return fail("disk", found, "free some space: without it every submission is refused")
    if free < _FREE_BYTES_LOW:
        return warn("disk", found, "free some space soon")
    return ok("disk", found)


def _check_fsync(folder: Path) -> Finding:
    """Measure a small synced write, which every single submission waits for."""
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
        return fail("fsync", f"a synced write failed ({error.strerror})", "repair the disk or its permissions")
    return fsync_finding(median(times) * 1000)


def fsync_finding(ms: float) -> Finding:
    found = f"{ms:.3g} ms for a synced write (median of {FSYNC_SAMPLES})"
    if ms < _FSYNC_MS_MIN:
        return warn(
            "fsync",
            f"{found}: faster than any disk",
            "if this is memory, or a disk that ignores syncs, a power failure loses jobs; put the store on a real disk",
        )
    rate = f"about {1000 / ms:,.0f} single submissions per second, more when they are concurrent"
    if ms > _FSYNC_MS_SLOW:
        return warn("fsync", f"{found}: {rate}", "a faster disk makes every response faster")
    return ok("fsync", f"{found}: {rate}")


def _check_schema(diagnostics: SqliteDiagnostics) -> Finding:
    if not diagnostics.is_onejob:
        if diagnostics.is_empty:
            return ok("schema", f"the file is empty; opening it creates schema {diagnostics.schema_version_known}")
        return fail("schema", "this is another program's database", "name another file with --engine")
    if diagnostics.schema_version > diagnostics.schema_version_known:
        return fail(
            "schema",
            f"{diagnostics.schema_version}, newer than the {diagnostics.schema_version_known} of this program",
            "upgrade this program",
        )
    if diagnostics.schema_version < diagnostics.schema_version_known:
        return warn(
            "schema",
            f"{diagnostics.schema_version}, this program has {diagnostics.schema_version_known}",
            "it is upgraded when it is opened",
        )
    return ok("schema", f"{diagnostics.schema_version}, the newest")


def _check_damage(diagnostics: SqliteDiagnostics) -> Finding:
    if diagnostics.damage:
        return fail("content", f"damaged: {diagnostics.damage}", "restore the file from a backup")
    return ok("content", "every page has its checksum, every index its rows")


def _check_commits(diagnostics: SqliteDiagnostics) -> Finding:
    if diagnostics.loss:
        return fail(
            "commits",
            f"the file {diagnostics.loss}",
            "put the file and journal that were served last back; `onejob restore --accept-loss` serves this one as a new "
            "ledger, and makes new jobs for keys that are not in it",
        )
    return ok("commits", "all that were acknowledged are there")


def _check_journal_mode(diagnostics: SqliteDiagnostics) -> Finding:
    found = f"{diagnostics.journal_mode.upper()}, synchronous={diagnostics.synchronous}"
    if diagnostics.synchronous != "FULL":
        return fail("journal mode", found, "report this: acknowledged jobs would not survive a power failure")
    if diagnostics.journal_mode != "wal":
        return warn("journal mode", found, "another program changed it; opening the store restores WAL")
    return ok("journal mode", found)


def _check_wal_size(diagnostics: SqliteDiagnostics) -> Finding:
    found = _format_bytes(diagnostics.journal_bytes)
    if diagnostics.journal_bytes > _WAL_BYTES_LARGE:
        return warn("journal", found, "a long-running reader keeps it from shrinking; find and end it")
    return ok("journal", found)


def _format_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
