"""Token buckets: how many new submissions a credential may make, or an address may try."""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import NamedTuple

BUCKETS_MAX = 100_000

BucketKey = tuple[str, str]


class Bucket(NamedTuple):
    tokens: float
    updated_at: float  # on the monotonic clock


class RateLimiter:
    """One bucket per credential, full at first. Above `buckets_max` the least recently used is dropped."""

    def __init__(
        self, *, per_second: float, burst: int, monotonic: Callable[[], float], buckets_max: int = BUCKETS_MAX
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._buckets_max = buckets_max
        self._buckets: OrderedDict[BucketKey, Bucket] = OrderedDict()

    async def prepare(self, bucket_key: BucketKey, wanted: int) -> None:
        """Called before tokens are taken: where others count them, this gets some from there."""

    def take(self, bucket_key: BucketKey, wanted: int) -> int:
        """Take up to this many whole tokens; returns how many were taken."""
        tokens = self._available_tokens(bucket_key)
        taken = min(wanted, int(tokens))
        self._store_tokens(bucket_key, tokens - taken)
        return taken

    def give_back(self, bucket_key: BucketKey, count: int) -> None:
        if count:
            self._store_tokens(bucket_key, min(self._burst, self._available_tokens(bucket_key) + count))

    def retry_after(self, bucket_key: BucketKey) -> int:
        """In how many whole seconds the next token is there."""
        missing = 1 - self._available_tokens(bucket_key)
        return max(1, ceil(missing / self._per_second))

    def __len__(self) -> int:
        return len(self._buckets)

    def _available_tokens(self, bucket_key: BucketKey) -> float:
        bucket = self._load_bucket(bucket_key)
        if bucket is None:
            return self._burst
        return min(self._burst, bucket.tokens + (self._monotonic() - bucket.updated_at) * self._per_second)

    def _store_tokens(self, bucket_key: BucketKey, tokens: float) -> None:
        self._store_bucket(bucket_key, Bucket(tokens, self._monotonic()))

    def _load_bucket(self, bucket_key: BucketKey) -> Bucket | None:
        return self._buckets.get(bucket_key)

    def _store_bucket(self, bucket_key: BucketKey, bucket: Bucket) -> None:
        self._buckets[bucket_key] = bucket
        self._buckets.move_to_end(bucket_key)
        if len(self._buckets) > self._buckets_max:
            self._buckets.popitem(last=False)
