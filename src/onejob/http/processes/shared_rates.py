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

from onejob.http.rate_limit import Bucket, BucketKey, RateLimiter

_ENTRY: Final = Layout("=16sdd")  # whose, tokens, since when
_ENTRIES_PER_SET: Final = 8
_SETS: Final = 16_384
_SET_BYTES: Final = _ENTRY.size * _ENTRIES_PER_SET


def open_buckets_file() -> IO[bytes]:
    """An empty shelf, gone when the last process has closed it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.truncate(_SETS * _SET_BYTES)
    return file


class SharedRateLimiter(RateLimiter):
    """The same rates in every process that has the file. Of a full set the least recently used leaves."""

    def __init__(self, fd: int, *, per_second: float, burst: int, monotonic: Callable[[], float]) -> None:
        super().__init__(per_second=per_second, burst=burst, monotonic=monotonic)
        self._fd = fd
        self._buckets_map = mmap(fd, _SETS * _SET_BYTES)

    def take(self, bucket_key: BucketKey, wanted: int) -> int:
        with self._lock_set(bucket_key):
            return super().take(bucket_key, wanted)

    def give_back(self, bucket_key: BucketKey, count: int) -> None:
        with self._lock_set(bucket_key):
            super().give_back(bucket_key, count)

    def _load_bucket(self, bucket_key: BucketKey) -> Bucket | None:
        owner, start = _locate_set(bucket_key)
        for place in range(start, start + _SET_BYTES, _ENTRY.size):
            found, tokens, at = _ENTRY.unpack_from(self._buckets_map, place)
            if found == owner:
                return Bucket(tokens, at)
        return None

    def _store_bucket(self, bucket_key: BucketKey, bucket: Bucket) -> None:
        owner, start = _locate_set(bucket_key)
        places = range(start, start + _SET_BYTES, _ENTRY.size)
        held = {place: _ENTRY.unpack_from(self._buckets_map, place) for place in places}
        own = [place for place in places if held[place][0] == owner]
        oldest = min(places, key=lambda place: float(held[place][2]))
        _ENTRY.pack_into(self._buckets_map, own[0] if own else oldest, owner, *bucket)

    @contextmanager
    def _lock_set(self, bucket_key: BucketKey) -> Iterator[None]:
        _, start = _locate_set(bucket_key)
        # Held for microseconds, and freed by the kernel if its holder dies.
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SET_BYTES, start)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _SET_BYTES, start)


def _locate_set(bucket_key: BucketKey) -> tuple[bytes, int]:
    # Framed by lengths, so that no two callers can have the same text.
    digest = blake2b(f"{len(bucket_key[0])}:{bucket_key[0]}{bucket_key[1]}".encode(), digest_size=16).digest()
    return digest, int.from_bytes(digest[:4], "big") % _SETS * _SET_BYTES
