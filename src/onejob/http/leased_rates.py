"""Rate limits of a gate: it leases tokens from its manager, so that the limit holds for all gates together.

The manager prescribes the rate. A lease is what is wanted now or a tenth of a second's tokens, whichever is more, and what is
not spent within a second is lost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import ceil
from weakref import WeakValueDictionary

from msgspec.structs import replace

from onejob.clock import SystemClock
from onejob.engine import EngineInfo
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.messages import TokenGrant
from onejob.runtime.rate_limit import Bucket, BucketKey, RateLimiter

from .config import ServiceConfig

LEASE_SECONDS = 0.1
LEASED_TOKENS_SECONDS_MAX = 1.0

TakeTokens = Callable[[str, str, int], Awaitable[TokenGrant]]


def adopt_prescribed_rates(config: ServiceConfig, info: EngineInfo) -> ServiceConfig:
    """The settings of a gate: its manager says which rate all gates share, whatever is configured here."""
    if info.owner is None:
        return config
    prescribed = info.owner.prescribed
    return replace(config, rate_per_second=prescribed.rate_per_second, rate_burst=prescribed.rate_burst)


@asynccontextmanager
async def leased_rate_limiter(config: ServiceConfig, info: EngineInfo) -> AsyncIterator[RateLimiter | None]:
    """The limiter of a gate whose manager prescribes a rate; None: this process counts by itself, or there is no limit."""
    prescribed = info.owner.prescribed if info.owner is not None else None
    if prescribed is None or prescribed.rate_per_second is None:
        yield None
        return
    engine = await RemoteEngine.open(config.engine)
    try:
        yield LeasedRateLimiter(
            engine.take_tokens,
            per_second=prescribed.rate_per_second,
            burst=prescribed.rate_burst,
            monotonic=SystemClock().monotonic,
        )
    finally:
        await engine.aclose()


class LeasedRateLimiter(RateLimiter):
    """Buckets that only a lease fills."""

    def __init__(
        self, take_tokens: TakeTokens, *, per_second: float, burst: int, monotonic: Callable[[], float]
    ) -> None:
        super().__init__(per_second=per_second, burst=burst, monotonic=monotonic)
        self._take_tokens = take_tokens
        self._lease_size = max(1, min(ceil(per_second * LEASE_SECONDS), burst // 4))
        self._locks: WeakValueDictionary[BucketKey, asyncio.Lock] = WeakValueDictionary()
        self._retry_after: dict[BucketKey, int] = {}

    async def prepare(self, bucket_key: BucketKey, wanted: int) -> None:
        """Lease what is missing. One caller at a time asks for a credential; the others find what it got."""
        lock = self._locks.setdefault(bucket_key, asyncio.Lock())
        async with lock:
            tokens = int(self._available_tokens(bucket_key))
            if tokens >= wanted:
                return
            grant = await self._take_tokens(*bucket_key, max(wanted - tokens, self._lease_size))
            if grant.granted:
                self._retry_after.pop(bucket_key, None)
            elif len(self._retry_after) < self._buckets_max:
                self._retry_after[bucket_key] = grant.retry_after
            self._store_tokens(bucket_key, self._available_tokens(bucket_key) + grant.granted)

    def retry_after(self, bucket_key: BucketKey) -> int:
        return self._retry_after.get(bucket_key, 1)

    def give_back(self, bucket_key: BucketKey, count: int) -> None:
        if count:
            self._store_tokens(bucket_key, self._available_tokens(bucket_key) + count)

    def _available_tokens(self, bucket_key: BucketKey) -> float:
        bucket = self._load_bucket(bucket_key)
        if bucket is None or self._monotonic() - bucket.updated_at > LEASED_TOKENS_SECONDS_MAX:
            return 0.0
        return bucket.tokens

    def _store_tokens(self, bucket_key: BucketKey, tokens: float) -> None:
        self._store_bucket(bucket_key, Bucket(tokens, self._monotonic()))
