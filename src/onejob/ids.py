"""The only file that draws randomness."""

import os
import random
from collections.abc import Iterator
from struct import Struct
from threading import Lock
from typing import Final, NoReturn, Protocol, final

from onejob.clock import SystemClock
from onejob.core.key import NONCE_CHARS, SEQUENCE_MAX, IdempotencyKey

from .core import identity
from .core.identity import ID_BYTES

SECRET_BYTES: Final = 32
REQUEST_IDS_PER_DRAW: Final = 256

_TAIL_BITS: Final = 62
# The counter starts in its lower half: at least 2048 ids before it runs into the next millisecond.
_COUNTER_BITS: Final = 12
_RANDOM_LAYOUT: Final = Struct(">QH")
_UUID_LAYOUT: Final = Struct(">QQ")

_wall_ms = SystemClock().wall_ms
_lock = Lock()
_last_stamp = 0
_request_ids: list[str] = []


class Ids(Protocol):
    """Where names come from that nobody else may have."""

    def job_id(self) -> bytes: ...

    def holder(self) -> bytes: ...

    def nonce(self) -> str: ...

    def secret(self) -> str: ...

    def request_id(self) -> str: ...


class SystemIds:
    """Names from the system's randomness."""

    def job_id(self) -> bytes:
        return new_job_id()

    def holder(self) -> bytes:
        return new_holder()

    def nonce(self) -> str:
        return new_nonce()

    def secret(self) -> str:
        return new_secret()

    def request_id(self) -> str:
        return new_request_id()


class SeededIds:
    """Names for simulation: the same seed gives the same names, and they have the shape of real ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stamp = 0

    def job_id(self) -> bytes:
        self._stamp += 1
        return _uuid7(self._stamp, self._rng.getrandbits(_TAIL_BITS))

    def holder(self) -> bytes:
        return self._rng.randbytes(ID_BYTES)

    def nonce(self) -> str:
        return self._rng.randbytes(NONCE_CHARS // 2).hex()

    def secret(self) -> str:
        return identity.encode_base64url(self._rng.randbytes(SECRET_BYTES))

    def request_id(self) -> str:
        return self.nonce()


@final
class KeyGenerator:
    """Keys of one client: the sequence grows, and the nonce tells this life of it from every other."""

    def __init__(self, client_id: str, *, first: int = 1) -> None:
        self._nonce = new_nonce()
        self._pid = os.getpid()
        # Made to fail now rather than later: on a bad first number, or a client id too long for the last.
        IdempotencyKey(client_id, first, self._nonce)
        IdempotencyKey(client_id, SEQUENCE_MAX, self._nonce)
        self._client_id = client_id
        self._sequence = first - 1

    def __iter__(self) -> Iterator[IdempotencyKey]:
        return self

    def __next__(self) -> IdempotencyKey:
        with _lock:
            if self._pid != os.getpid():
                # A forked child has its parent's numbers still to come; the nonce keeps their keys apart.
                self._nonce = new_nonce()
                self._pid = os.getpid()
            self._sequence += 1
            return IdempotencyKey(self._client_id, self._sequence, self._nonce)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a copy of a KeyGenerator would repeat its keys; make a new one from the client id")


def new_job_id() -> bytes:
    """Draw a time-ordered UUID (version 7), greater than every one this process has drawn before."""
    global _last_stamp  # noqa: PLW0603 - the order of ids is a fact of the process
    # Drawn anew for every id, so that neither a fork nor a cloned machine can repeat one.
    tail, start = _RANDOM_LAYOUT.unpack(os.urandom(_RANDOM_LAYOUT.size))
    with _lock:
        stamp = _wall_ms() << _COUNTER_BITS | start >> 5
        # Within a millisecond, or after the wall clock stepped back, the stamp counts on by itself.
        if stamp <= _last_stamp:
            stamp = _last_stamp + 1
        _last_stamp = stamp
    return _uuid7(stamp, tail >> 2)


def new_nonce() -> str:
    """Draw the nonce of a key."""
    return os.urandom(NONCE_CHARS // 2).hex()


def random_fraction() -> float:
    """Draw from 0 up to but not including 1, so that many who wait do not come back at once."""
    return int.from_bytes(os.urandom(6), "big") / 2**48


def new_request_id() -> str:
    """Draw the name of a request: many at once, for it only tells log lines apart, and nothing is decided by it."""
    while True:
        try:
            return _request_ids.pop()  # one step for every thread
        except IndexError:
            drawn = os.urandom(REQUEST_IDS_PER_DRAW * NONCE_CHARS // 2).hex()
            _request_ids.extend(drawn[at : at + NONCE_CHARS] for at in range(0, len(drawn), NONCE_CHARS))


def new_holder() -> bytes:
    """Draw the name under which something is held."""
    return os.urandom(ID_BYTES)


def new_secret() -> str:
    """Draw what only its owner may know: 256 bits, as 43 base64url characters."""
    return identity.encode_base64url(os.urandom(SECRET_BYTES))


def _uuid7(stamp: int, tail: int) -> bytes:
    """Lay out 48 bits of milliseconds and 12 of counter, the version, the variant and 62 bits of chance."""
    head = stamp >> _COUNTER_BITS << 16 | 0x7000 | stamp & 0xFFF
    return _UUID_LAYOUT.pack(head, 0x8000_0000_0000_0000 | tail)


def _reset_after_fork() -> None:
    # The lock may have been held by a thread that does not exist in the child.
    global _lock  # noqa: PLW0603 - see above
    _lock = Lock()
    _request_ids.clear()  # the parent goes on with these


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
