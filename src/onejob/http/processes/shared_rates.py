"""Token buckets that all workers share, in an unnamed file that is mapped into each of them.

The file is a hash table: a credential belongs to one set of a few entries, which is locked for the
microseconds of a change.
"""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from mmap import mmap
from struct import Struct as Layout
from typing import IO, Final

from onejob.runtime.rate_limit import Bucket, BucketKey, RateLimiter

_ENTRY: Final = Layout("=16sdd")  # digest of the bucket key, tokens, updated_at
_ENTRIES_PER_SET: Final = 8
_SETS: Final = 16_384
_SET_BYTES: Final = _ENTRY.size * _ENTRIES_PER_SET


def open_buckets_file() -> IO[bytes]:
    """An empty file, which is deleted when the last process has closed it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.truncate(_SETS * _SET_BYTES)
    return file


class SharedRateLimiter(RateLimiter):
    """One limit for all processes that map the file. In a full set the least recently used entry is replaced."""

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
        digest, start = _locate_set(bucket_key)
        for offset in range(start, start + _SET_BYTES, _ENTRY.size):
            owner, tokens, updated_at = _ENTRY.unpack_from(self._buckets_map, offset)
            if owner == digest:
                return Bucket(tokens, updated_at)
        return None

    def _store_bucket(self, bucket_key: BucketKey, bucket: Bucket) -> None:
        digest, start = _locate_set(bucket_key)
        offsets = range(start, start + _SET_BYTES, _ENTRY.size)
        entries = {offset: _ENTRY.unpack_from(self._buckets_map, offset) for offset in offsets}
        matching = [offset for offset in offsets if entries[offset][0] == digest]
        oldest = min(offsets, key=lambda offset: float(entries[offset][2]))
        _ENTRY.pack_into(self._buckets_map, matching[0] if matching else oldest, digest, *bucket)

    @contextmanager
    def _lock_set(self, bucket_key: BucketKey) -> Iterator[None]:
        _, start = _locate_set(bucket_key)
        # Held for microseconds, and released by the kernel if the process dies.
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SET_BYTES, start)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _SET_BYTES, start)


def _locate_set(bucket_key: BucketKey) -> tuple[bytes, int]:
    # The length of the tenant is part of the text, so that no two callers have the same one.
    digest = blake2b(f"{len(bucket_key[0])}:{bucket_key[0]}{bucket_key[1]}".encode(), digest_size=16).digest()
    return digest, int.from_bytes(digest[:4], "big") % _SETS * _SET_BYTES
