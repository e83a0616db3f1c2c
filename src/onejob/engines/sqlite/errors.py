"""Translates SQLite's and the file system's errors into `Unavailable` or `StoreRefused`, with the next act."""

import apsw

from onejob.errors import StoreRefused, Unavailable


def to_engine_error(path: str, error: Exception) -> Unavailable | StoreRefused:
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return StoreRefused(
            f"{path} is damaged, or another program wrote it: a page has a wrong checksum; "
            "restore a copy made page by page (sqlite3's .backup, not VACUUM INTO), then open it again"
        )
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreRefused(f"{path} is damaged ({error}); restore it from a backup, then open it again")
        case apsw.FullError():
            return Unavailable(f"the disk of {path} is full: nothing was done; free some space, then repeat")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{path} is locked by another program: nothing was done; stop it, then repeat")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | PermissionError():
            return Unavailable(
                f"{path} cannot be written ({error}): nothing was done; fix its permissions, then repeat"
            )
    return Unavailable(f"{path} cannot be used ({error}): nothing was done; fix it, then repeat")
