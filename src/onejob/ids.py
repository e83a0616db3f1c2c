"""Random ids of jobs, holders, requests, keys and ledgers, and secrets; no other file draws randomness."""

import os
import random
from collections.abc import Iterator
from struct import Struct
from threading import Lock
from typing import Final, NoReturn, Protocol, final

from onejob.clock import SystemClock
from onejob.core.identity import encode_base64url
from onejob.core.key import NONCE_CHARS, SEQUENCE_MAX, IdempotencyKey

HOLDER_BYTES: Final = 16
SECRET_BYTES: Final = 32
REQUEST_IDS_PER_DRAW: Final = 256

_LEDGER_ID_BYTES: Final = 16
_TAIL_BITS: Final = 62
_TAIL_MASK: Final = (1 << _TAIL_BITS) - 1
# The counter starts in its lower half, so at least 2048 ids fit before it overflows into the next millisecond.
_COUNTER_BITS: Final = 12
_RANDOM_LAYOUT: Final = Struct(">QH")
_UUID_LAYOUT: Final = Struct(">QQ")
_POOL_IDS: Final = 32
_NS_PER_MS: Final = 1_000_000

_wall_ns = SystemClock().wall_ns
_lock = Lock()
_last_stamp = 0
_pool: Iterator[tuple[int, ...]] = iter(())
_pool_owner = 0, 0  # the process and the millisecond it was drawn in
_request_ids: list[str] = []


class Ids(Protocol):
    """A source of unique ids and secrets."""

    def job_id(self) -> bytes: ...

    def holder(self) -> bytes: ...

    def nonce(self) -> str: ...

    def secret(self) -> str: ...

    def request_id(self) -> str: ...

    def fraction(self) -> float:
        """A number from 0 to 1, for jitter."""
        ...


class SystemIds:
    def __init__(self) -> None:
        # Attributes, so that a submission reaches the functions directly.
        self.job_id, self.request_id = new_job_id, new_request_id
        self.fraction = random_fraction

    def holder(self) -> bytes:
        return new_holder()

    def nonce(self) -> str:
        return new_nonce()

    def secret(self) -> str:
        return new_secret()


class SeededIds:
    """Ids for simulations: the same seed gives the same ids, in the format of real ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stamp = 0

    def job_id(self) -> bytes:
        self._stamp += 1
        return _uuid7(self._stamp, self._rng.getrandbits(_TAIL_BITS))

    def holder(self) -> bytes:
        return self._rng.randbytes(HOLDER_BYTES)

    def nonce(self) -> str:
        return self._rng.randbytes(NONCE_CHARS // 2).hex()

    def secret(self) -> str:
        return encode_base64url(self._rng.randbytes(SECRET_BYTES))

    def request_id(self) -> str:
        return self.nonce()

    def fraction(self) -> float:
        return self.holder()[0] / 255


@final
class KeyGenerator:
    """Keys of one client: the sequence grows, and the nonce distinguishes this generator from every other."""

    def __init__(self, client_id: str, *, first: int = 1) -> None:
        self._nonce = new_nonce()
        self._pid = os.getpid()
        # Fails now rather than later on an invalid first number, or a client id too long for the last number.
        IdempotencyKey(client_id, first, self._nonce)
        IdempotencyKey(client_id, SEQUENCE_MAX, self._nonce)
        self._client_id = client_id
        self._sequence = first - 1

    def __iter__(self) -> Iterator[IdempotencyKey]:
        return self

    def __next__(self) -> IdempotencyKey:
        with _lock:
            if self._pid != os.getpid():
                # A forked child and its parent draw the same numbers; a new nonce keeps their keys distinct.
                self._nonce = new_nonce()
                self._pid = os.getpid()
            self._sequence += 1
            return IdempotencyKey(self._client_id, self._sequence, self._nonce)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a copy of a KeyGenerator would repeat its keys; make a new one from the client id")


def new_job_id() -> bytes:
    """A time-ordered UUID (version 7), greater than every one that this process has drawn before."""
    global _last_stamp  # noqa: PLW0603 - ids are ordered within the process
    with _lock:
        now_ns = _wall_ns()
        now_ms = now_ns // _NS_PER_MS
        tail, start = _draw_from_pool(now_ms)
        stamp = now_ms << _COUNTER_BITS | start >> 5
        # Within a millisecond, or after the wall clock stepped back, the stamp is counted up.
        if stamp <= _last_stamp:
            stamp = _last_stamp + 1
        _last_stamp = stamp
    return _uuid7(stamp, (tail ^ now_ns) & _TAIL_MASK)


def _draw_from_pool(now_ms: int) -> tuple[int, ...]:
    """Random bits for one id; the lock is held.

    Asking the system for every id would release the GIL for every id, and a thread that waits for it would take it
    each time. A pool must not give a copy of this process the same bits. After a fork it is dropped, and
    one that another process id drew is not used. A copy of the whole machine has the same memory and the same process
    id: it can use what is left of the pool only within the millisecond in which the pool was drawn, by its own clock. There
    the nanosecond of every id, which is added to its bits, tells the two apart.
    """
    global _pool, _pool_owner  # noqa: PLW0603 - one pool for all threads
    owner = os.getpid(), now_ms
    if owner == _pool_owner:
        for drawn in _pool:
            return drawn
    _pool = _RANDOM_LAYOUT.iter_unpack(os.urandom(_POOL_IDS * _RANDOM_LAYOUT.size))
    _pool_owner = owner
    return next(_pool)


def new_nonce() -> str:
    return os.urandom(NONCE_CHARS // 2).hex()


def random_fraction() -> float:
    """A random number in [0, 1), for jitter."""
    return int.from_bytes(os.urandom(6), "big") / 2**48


def new_request_id() -> str:
    """An id for log lines. Many are drawn at once: nothing is decided by them."""
    while True:
        try:
            return _request_ids.pop()  # atomic across threads
        except IndexError:
            drawn = os.urandom(REQUEST_IDS_PER_DRAW * NONCE_CHARS // 2).hex()
            _request_ids.extend(drawn[at : at + NONCE_CHARS] for at in range(0, len(drawn), NONCE_CHARS))


def new_holder() -> bytes:
    return os.urandom(HOLDER_BYTES)


def new_ledger_id() -> str:
    return os.urandom(_LEDGER_ID_BYTES).hex()


def new_secret() -> str:
    """256 random bits in 43 base64url characters."""
    return encode_base64url(os.urandom(SECRET_BYTES))


def _uuid7(stamp: int, tail: int) -> bytes:
    """A UUID: 48 bits milliseconds and a 12-bit counter (`stamp`), the version, the variant and 62 random bits."""
    head = stamp >> _COUNTER_BITS << 16 | 0x7000 | stamp & 0xFFF
    return _UUID_LAYOUT.pack(head, 0x8000_0000_0000_0000 | tail)


def _reset_after_fork() -> None:
    # The lock may have been held by a thread that does not exist in the child.
    global _lock, _pool  # noqa: PLW0603 - see above
    _lock = Lock()
    _pool = iter(())  # the parent uses these
    _request_ids.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
