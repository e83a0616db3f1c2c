"""How keys are taken and answers are kept: what the middleware and the routes share."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any

from onejob.core.invalid import Invalid
from onejob.core.moment import utc
from onejob.core.reservation import Verdict
from onejob.core.views import Reservation
from onejob.errors import OnejobError
from onejob.intake import Submission, WorkedOut
from onejob.ledger import Ledger
from onejob.opening import open as open_ledger

from .asked import scope_name
from .refusals import Told, refusal, refused, replay
from .retained import RECEIPT_BYTES_MAX, Headers, unpacked
from .rules import checked_verdicts

TYPE = "http"
BODY_BYTES_MAX = 1 << 20
LEAVE_SECONDS = 10.0
# What a replay shows of the first answer's headers. A cookie is never kept: it may be a session.
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

log = logging.getLogger("onejob.middleware")


class Layer:
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
        """`scope` says whose keys these are, such as the user that was authenticated; None refuses the request."""
        if not callable(scope):
            raise Invalid(
                "scope", "scope is a function that tells whose key it is; without one users share keys"
            )
        self._ledger = ledger if isinstance(ledger, Ledger) else None
        self._url = "" if isinstance(ledger, Ledger) else ledger
        self._opening = asyncio.Lock()
        self._scope = scope
        self._lease = lease
        self._headers = frozenset(name.lower().encode() for name in headers)
        if b"set-cookie" in self._headers:
            raise Invalid("headers", "a cookie may be a session and is never kept; strike set-cookie")
        self.body_bytes_max = body_bytes_max
        self.answer_bytes_max = min(answer_bytes_max, RECEIPT_BYTES_MAX)
        self._mismatch_status = mismatch_status
        self.verdicts = checked_verdicts(verdicts or {})
        self._tasks: set[asyncio.Task[None]] = set()

    async def opened(self) -> Ledger:
        if self._ledger is None:
            async with self._opening:
                if self._ledger is None:
                    self._ledger = await open_ledger(self._url)
        return self._ledger

    async def aclose(self) -> None:
        """Give what is still being done some time, then stop it, so that nobody need wait for a lease."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=LEAVE_SECONDS)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=LEAVE_SECONDS)
        if self._url and self._ledger is not None:
            await self._ledger.aclose()
            self._ledger = None

    def begun(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Work that is the layer's own: a client that hangs up does not stop it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def whose(self, source: Any) -> str | Told:
        """The scope of a request. Where it cannot be told, the request is refused and never done."""
        try:
            given = self._scope(source)
        except Exception:
            log.exception("the scope of a request could not be told")
            return refusal("INTERNAL_ERROR", "the request was not done")
        if given is not None and not isinstance(given, str):
            log.error("the scope of a request is a %s and no text", type(given).__name__)
            return refusal("INTERNAL_ERROR", "the request was not done")
        if not given:
            return refusal(
                "UNAUTHORIZED", "a key is taken only from a client that is known; the request was not done"
            )
        return given

    async def taken(
        self, key: str, whose: str, asked: WorkedOut, window: timedelta | None
    ) -> Reservation | Told:
        """The key for the time of the request, or what its duplicate is told."""
        submission = Submission(
            type=TYPE, input=asked, idempotency_key=key, idempotency_ttl=window, scope=scope_name(whose)
        )
        try:
            ledger = await self.opened()
            found = await ledger.reserve(submission, lease=self._lease, job=False)
            if isinstance(found, Reservation):
                return found
            return replay(unpacked(found.receipt), moment(found.expires_ms))
        except OnejobError as error:
            return refused(error, mismatch_status=self._mismatch_status)

    def shown(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Of an answer's headers those that are kept."""
        return tuple((name.lower(), value) for name, value in headers if name.lower() in self._headers)


def moment(ms: int) -> bytes:
    return utc(ms).isoformat().encode()
