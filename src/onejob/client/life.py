"""Whether a holder still lives, told by the system: a lock on a file, which ends with the process that has it."""

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there a lease must run out
    fcntl = None  # type: ignore[assignment]  # the one word for "not here"


class LivenessLock:
    """A file beside an outbox, locked for as long as its process lives."""

    def __init__(self, path: Path, holder: bytes) -> None:
        self._path = _lock_path(path, holder)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)


def is_holder_dead(path: Path, holder: bytes) -> bool:
    """Whether this holder has surely ended; its file is removed then."""
    if fcntl is None:
        return False
    place = _lock_path(path, holder)
    try:
        file = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        with suppress(OSError):
            place.unlink()
        return True
    finally:
        os.close(file)


def _lock_path(path: Path, holder: bytes) -> Path:
    return path.with_name(f"{path.name}-{holder.hex()}.life")
