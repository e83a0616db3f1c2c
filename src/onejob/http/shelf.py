"""Buckets of tokens that all workers share, in a file without a name that is mapped into each of them.

A credential belongs to one set of a few places, which is locked for the microseconds of a change.
"""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from mmap import mmap
from struct import Struct as Layout
from typing import IO, Final

from .rates import Bucket, Rates, Who

_PLACE: Final = Layout("=16sdd")  # whose, tokens, since when
_WAYS: Final = 8
_SETS: Final = 16_384
_SET_BYTES: Final = _PLACE.size * _WAYS


def shelf_file() -> IO[bytes]:
    """An empty shelf, gone when the last process has closed it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.truncate(_SETS * _SET_BYTES)
    return file


class SharedRates(Rates):
    """The same rates in every process that has the file. Of a full set the least recently used leaves."""

    def __init__(self, fd: int, *, per_second: float, burst: int, monotonic: Callable[[], float]) -> None:
        super().__init__(per_second=per_second, burst=burst, monotonic=monotonic)
        self._fd = fd
        self._shelf = mmap(fd, _SETS * _SET_BYTES)

    def take(self, who: Who, wanted: int) -> int:
        with self._held(who):
            return super().take(who, wanted)

    def give_back(self, who: Who, count: int) -> None:
        with self._held(who):
            super().give_back(who, count)

    def _bucket(self, who: Who) -> Bucket | None:
        owner, start = _place(who)
        for place in range(start, start + _SET_BYTES, _PLACE.size):
            found, tokens, at = _PLACE.unpack_from(self._shelf, place)
            if found == owner:
                return Bucket(tokens, at)
        return None

    def _put(self, who: Who, bucket: Bucket) -> None:
        owner, start = _place(who)
        places = range(start, start + _SET_BYTES, _PLACE.size)
        held = {place: _PLACE.unpack_from(self._shelf, place) for place in places}
        own = [place for place in places if held[place][0] == owner]
        oldest = min(places, key=lambda place: float(held[place][2]))
        _PLACE.pack_into(self._shelf, own[0] if own else oldest, owner, *bucket)

    @contextmanager
    def _held(self, who: Who) -> Iterator[None]:
        _, start = _place(who)
        # Held for microseconds, and freed by the kernel if its holder dies.
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SET_BYTES, start)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _SET_BYTES, start)


def _place(who: Who) -> tuple[bytes, int]:
    # Framed by lengths, so that no two callers can have the same text.
    digest = blake2b(f"{len(who[0])}:{who[0]}{who[1]}".encode(), digest_size=16).digest()
    return digest, int.from_bytes(digest[:4], "big") % _SETS * _SET_BYTES
