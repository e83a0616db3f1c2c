"""What the middleware and the FastAPI routes share: acquiring keys, replaying responses, running tasks.

A store in memory is known to one process only. Of the processes that one server has started, the first may use such a
store, and the others are refused: they would run a request that the first has done.
"""

import asyncio
import logging
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypedDict

from onejob.core.errors import Invalid
from onejob.core.key import checked_key
from onejob.core.replies import KeyHeld
from onejob.core.reserve import Verdict
from onejob.core.timestamps import to_utc
from onejob.engine import Durability
from onejob.errors import OnejobError, StoreRefused
from onejob.ledger import Ledger
from onejob.ledger import open as open_ledger
from onejob.ledger.leases import RenewalTimer
from onejob.ledger.parse import parse_lease_ms as checked_lease

from .problems import LayerResponse, error_response, problem_response, replay_response
from .request_fingerprint import RECORD_TYPE, scope_name
from .rules import checked_verdicts, window_ms
from .stored_response import RECEIPT_BYTES_MAX, Headers, unpack_response

BODY_BYTES_MAX = 1 << 20
CLOSE_SECONDS = 10.0
CACHED_REPLAYS_MAX = 1024
CACHED_REPLAY_BYTES_MAX = 1024
CACHED_TIMESTAMPS_MAX = 64
# Headers of the first response that a replay repeats. A cookie may be a session and is never stored.
HEADERS = (
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "vary",
)

_NOT_DONE = "internal error: the request was not done; the server log has the reason"
_SECOND_PROCESS = (
    "another process of this server keeps its keys in memory, and this one cannot see them: a request could run twice; "
    "use sqlite:///keys.db or postgresql://…, or one process"
)

log = logging.getLogger("onejob.middleware")


class LayerOptions(TypedDict, total=False):
    """The options that the middleware and the FastAPI routes share, as keyword arguments."""

    lease: timedelta | None
    headers: Iterable[str]
    body_bytes_max: int
    answer_bytes_max: int
    mismatch_status: int
    verdicts: Mapping[int, Verdict] | None


class IdempotencyLayer:
    def __init__(
        self,
        ledger: Ledger | str,
        *,
        scope: Callable[[Any], str | None],
        lease: timedelta | None = None,
        headers: Iterable[str] = HEADERS,
        body_bytes_max: int = BODY_BYTES_MAX,
        answer_bytes_max: int = RECEIPT_BYTES_MAX,
        mismatch_status: int = 422,
        verdicts: Mapping[int, Verdict] | None = None,
    ) -> None:
        """`scope` returns the owner of the key, such as the authenticated user; None refuses the request with 401."""
        if not callable(scope):
            raise Invalid(
                "scope",
                "scope is not callable; pass a function that returns the owner of a key, else users would share keys",
            )
        self._ledger = ledger if isinstance(ledger, Ledger) else None
        self._renewal_timer: RenewalTimer | None = None
        self._url = "" if isinstance(ledger, Ledger) else ledger
        self._open_lock = asyncio.Lock()
        self._is_checked = False  # that this process may use the store
        self._scope_of = scope
        self._lease_ms = 0 if lease is None else checked_lease(lease)  # 0: the ledger's default
        self._replayable_headers = frozenset(name.lower().encode() for name in headers)
        if b"set-cookie" in self._replayable_headers:
            raise Invalid("headers", "a cookie may be a session and is never stored; remove set-cookie")
        self.body_bytes_max = body_bytes_max
        self.answer_bytes_max = min(answer_bytes_max, RECEIPT_BYTES_MAX)
        self.mismatch_status = mismatch_status
        self.verdicts = checked_verdicts(verdicts or {})
        self.tasks: set[asyncio.Task[None]] = set()

    async def ensure_open(self) -> Ledger:
        if self._ledger is None:
            async with self._open_lock:
                if self._ledger is None:
                    self._ledger = await open_ledger(self._url)
        if not self._is_checked:
            if self._ledger.durability is Durability.PROCESS:
                refuse_second_process()
            self._is_checked = True
        return self._ledger

    async def aclose(self) -> None:
        """Let running requests finish for a while, then cancel them, which releases their keys before the leases expire."""
        if self.tasks:
            await asyncio.wait(tuple(self.tasks), timeout=CLOSE_SECONDS)
        for task in tuple(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(tuple(self.tasks), timeout=CLOSE_SECONDS)
        if self._renewal_timer is not None:
            self._renewal_timer.close()
            self._renewal_timer = None
        if self._url and self._ledger is not None:
            await self._ledger.aclose()
            self._ledger = None

    @property
    def ledger(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    @property
    def renewal_timer(self) -> RenewalTimer:
        if self._renewal_timer is None:
            self._renewal_timer = RenewalTimer(self.ledger, self._lease_ms or self.ledger.lease_ms)
        return self._renewal_timer

    def start_task(
        self, work: Coroutine[Any, Any, None], on_end: "Callable[[asyncio.Task[None]], object] | None" = None
    ) -> "asyncio.Task[None]":
        """Run work that outlives its request. `on_end` replaces the default callback and must discard the task."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(on_end or self.tasks.discard)
        return task

    def resolve_scope(self, source: Any) -> str | LayerResponse:
        """The scope of a key, or the response that refuses the request."""
        try:
            scope = self._scope_of(source)
        except Exception:
            log.exception("the scope function raised; the request was refused")
            return problem_response("INTERNAL_ERROR", _NOT_DONE)
        if scope is not None and not isinstance(scope, str):
            log.error("the scope function returned %s instead of str; the request was refused", type(scope).__name__)
            return problem_response("INTERNAL_ERROR", _NOT_DONE)
        if not scope:
            message = "an Idempotency-Key requires an authenticated client: the request was not done; authenticate"
            return problem_response("UNAUTHORIZED", message)
        return scope

    async def acquire_key(
        self, key: str, scope: str, fingerprint: bytes, window: timedelta | None
    ) -> KeyHeld | LayerResponse:
        """The held key, or the response for a duplicate or a failure."""
        try:
            ledger = self._ledger if self._ledger is not None and self._is_checked else await self.ensure_open()
            reserved = await ledger.reserve_prepared(
                type=RECORD_TYPE,
                scope=scope_name(scope),
                key=checked_key(key),
                fingerprint=fingerprint,
                ttl_ms=None if window is None else window_ms(window),
                lease_ms=self._lease_ms or ledger.lease_ms,
            )
            if isinstance(reserved, KeyHeld):
                return reserved
            decode = _decode_replay_cached if len(reserved.receipt) <= CACHED_REPLAY_BYTES_MAX else _decode_replay
            return decode(reserved.receipt, reserved.expires_at)
        except OnejobError as error:
            return error_response(error, mismatch_status=self.mismatch_status)

    def replayable_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        replayable = self._replayable_headers
        return tuple([(lower, value) for name, value in headers if (lower := name.lower()) in replayable])


def refuse_second_process() -> None:
    """Warn that keys are kept in memory; refuse if another process of the same server keeps its own."""
    if os.getpid() in _checked_processes:
        return
    _checked_processes[os.getpid()] = _mark_process() if _is_started_by_a_server() else None
    log.warning(
        "idempotency keys are kept in the memory of this process: a retry that reaches another process, or comes after a "
        "restart, runs again; use sqlite:///keys.db or postgresql://… unless this is a test"
    )


# This process, if it has passed the check, and the socket that shows it to the others; a fork inherits that of its parent.
_checked_processes: dict[int, socket.socket | None] = {}


def _is_started_by_a_server() -> bool:
    """True in the processes of `uvicorn --workers` and `--reload`, of hypercorn and of gunicorn."""
    return multiprocessing.parent_process() is not None or "gunicorn.arbiter" in sys.modules


def _mark_process() -> socket.socket | None:
    """Bind a name that only one of the processes with the same parent can have. The system frees it with the process."""
    if sys.platform != "linux":  # no abstract socket names; the warning has to do
        return None
    namespace = os.stat("/proc/self/ns/pid").st_ino
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0onejob-memory-{os.getuid()}-{namespace}-{os.getppid()}")
    except OSError:
        mark.close()
        log.error("refused: %s", _SECOND_PROCESS)  # a server may not show why its worker did not start
        raise StoreRefused(_SECOND_PROCESS) from None
    return mark


@lru_cache(CACHED_TIMESTAMPS_MAX)
def iso_timestamp(ms: int) -> bytes:
    """Cached, because responses that were committed together expire together."""
    return to_utc(ms).isoformat().encode()


def _decode_replay(receipt: bytes, expires_at: int) -> LayerResponse:
    return replay_response(unpack_response(receipt), iso_timestamp(expires_at))


# A retry often replays the response that was replayed just before. The cache is keyed by all that the response depends on.
_decode_replay_cached = lru_cache(CACHED_REPLAYS_MAX)(_decode_replay)
