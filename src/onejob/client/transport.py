"""An httpx transport that adds an `Idempotency-Key` and safe retries to requests of any API.

    httpx.Client(transport=IdempotentTransport())

Every POST and PATCH has a key: the one of the caller (the header, or `extensions={"idempotency_key": …}`), otherwise a
generated one. The body is read once, before the first attempt, and responses are read completely. A request without a
key is sent once.

Nothing is sent again after the server may have forgotten the key. When that is, is learned from the `Idempotency-Expires`
of its responses, also of those whose body was lost; `window=` states it for a server that does not send the header, or
before its first response.
"""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from threading import Lock
from typing import Final

import httpx

from onejob.clock import Clock, SystemClock
from onejob.errors import AmbiguousOutcome, WindowPassed
from onejob.ids import new_nonce, random_fraction

from .client import UNSENT_ERRORS, add_retry_note, to_no_response
from .flow import (
    CallOutcome,
    NoResponse,
    RetryFlow,
    RetryPolicy,
    Send,
    ServerResponse,
    remaining_window,
    run_async,
    run_blocking,
    send_with_retries,
)
from .requests import checked_window, quote_key

HEADER: Final = "idempotency-key"
METHODS: Final = ("POST", "PATCH")
_KEY_EXTENSION: Final = "idempotency_key"
_ORIGIN_EXTENSION: Final = "onejob.origin"  # httpx copies extensions to the request that follows a redirect
_PLACES_MAX: Final = 1000


class LearnedWindows:
    """The shortest window that each path has shown, and each origin for the paths that have not been seen."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], float] = {}
        self._lock = Lock()

    def seconds_for(self, url: httpx.URL) -> float:
        origin, path = _place(url)
        return self._seconds.get((origin, path), self._seconds.get((origin, ""), float("inf")))

    def learn(self, url: httpx.URL, seconds: float) -> None:
        origin, path = _place(url)
        with self._lock:
            for place in ((origin, ""), (origin, path)):
                known = self._seconds.pop(place, float("inf"))
                self._seconds[place] = min(known, seconds)
            while len(self._seconds) > _PLACES_MAX:
                del self._seconds[next(iter(self._seconds))]


def _place(url: httpx.URL) -> tuple[str, str]:
    return f"{url.scheme}://{url.netloc.decode()}", url.path


class _IdempotentTransportBase:
    """The key of a request, and how often it may be sent."""

    def __init__(
        self,
        retry: RetryPolicy | None,
        methods: Iterable[str],
        key_factory: Callable[[], str] | None,
        window: timedelta | None,
        clock: Clock | None,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._methods = frozenset(method.upper() for method in methods)
        self._key_factory = key_factory
        self._window_seconds = checked_window(window).total_seconds()
        self._learned = LearnedWindows()
        self._clock = clock or SystemClock()

    def _assign_key(self, request: httpx.Request) -> bool:
        """Give the request its key; False if it has none and is sent once."""
        if request.method not in self._methods:
            return False
        origin, _ = _place(request.url)
        if request.extensions.get(_ORIGIN_EXTENSION, origin) != origin:
            # A redirect to another origin: the key is a secret between the caller and the first one.
            request.headers.pop(HEADER, None)
            return False
        given = request.extensions.get(_KEY_EXTENSION)
        if given is not None or HEADER not in request.headers:
            key = given if given is not None else self._key_factory() if self._key_factory else None
            if key is None:
                return False
            request.headers[HEADER] = quote_key(key)
        request.extensions = {**request.extensions, _ORIGIN_EXTENSION: origin}
        return True

    def _retry_flow(self, attempts: "_Attempts") -> RetryFlow:
        begin = self._clock.monotonic()
        return send_with_retries(
            attempts,
            self._retry,
            begin=begin,
            jitter=random_fraction,
            window_end=begin + min(self._window_seconds, self._learned.seconds_for(attempts.url)),
            learned_window_end=lambda: attempts.window_end,
        )


class IdempotentTransport(_IdempotentTransportBase, httpx.BaseTransport):
    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        methods: Iterable[str] = METHODS,
        key_factory: Callable[[], str] | None = new_nonce,
        window: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(retry, methods, key_factory, window, clock)
        self._inner = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._assign_key(request):
            return self._inner.handle_request(request)
        request.read()  # a file or an iterator can be read only once
        attempts = _Attempts(request, self._learned, self._clock)
        return attempts.response(run_blocking(self._retry_flow(attempts), self._send, self._clock))

    def close(self) -> None:
        self._inner.close()

    def _send(self, send: Send) -> ServerResponse | NoResponse:
        attempts: _Attempts = send.call
        try:
            response = self._inner.handle_request(attempts.next_request(send.timeout))
            attempts.learn_window(response)
            try:
                response.read()
            finally:
                response.close()
            return attempts.received(response)
        except httpx.HTTPError as error:
            return attempts.failed(error)
        except BaseException as error:
            add_retry_note(error, attempts.key)
            raise


class AsyncIdempotentTransport(_IdempotentTransportBase, httpx.AsyncBaseTransport):
    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        methods: Iterable[str] = METHODS,
        key_factory: Callable[[], str] | None = new_nonce,
        window: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(retry, methods, key_factory, window, clock)
        self._inner = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._assign_key(request):
            return await self._inner.handle_async_request(request)
        await request.aread()
        attempts = _Attempts(request, self._learned, self._clock)
        return attempts.response(await run_async(self._retry_flow(attempts), self._send, self._clock))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send(self, send: Send) -> ServerResponse | NoResponse:
        attempts: _Attempts = send.call
        try:
            response = await self._inner.handle_async_request(attempts.next_request(send.timeout))
            attempts.learn_window(response)
            try:
                await response.aread()
            finally:
                await response.aclose()
            return attempts.received(response)
        except httpx.HTTPError as error:
            return attempts.failed(error)
        except BaseException as error:
            add_retry_note(error, attempts.key)
            raise


class _Attempts:
    """The attempts of one request, and what the last of them ended with."""

    def __init__(self, request: httpx.Request, learned: LearnedWindows, clock: Clock) -> None:
        self._request = request
        self._learned = learned
        self._clock = clock
        self._sent_at = 0.0
        self.url = request.url
        self.window_end = float("inf")  # as far as the responses to these attempts have told
        self._timeouts = request.extensions.get("timeout") or {}
        self._last: httpx.Response | httpx.HTTPError | None = None

    def next_request(self, timeout: float) -> httpx.Request:
        """The same request; no step may take longer than the attempt. A shorter timeout of the caller is kept."""
        steps = ("connect", "read", "write", "pool")
        limits = {step: min(self._timeouts.get(step) or timeout, timeout) for step in steps}
        self._request.extensions = {**self._request.extensions, "timeout": limits}
        self._sent_at = self._clock.monotonic()
        return self._request

    def learn_window(self, response: httpx.Response) -> None:
        """Read Idempotency-Expires from the head of a response, before its body, which may never come."""
        seconds = remaining_window(response.headers, wall_ms=self._clock.wall_ms())
        if seconds is None:
            return
        self.window_end = min(self.window_end, self._sent_at + seconds)
        if "idempotent-replayed" not in response.headers:  # otherwise a part of the window was over
            self._learned.learn(self.url, seconds)

    def received(self, response: httpx.Response) -> ServerResponse:
        self._last = response
        headers = {name.lower(): value for name, value in response.headers.items()}
        return ServerResponse(response.status_code, headers, response.content)

    def failed(self, error: httpx.HTTPError) -> NoResponse:
        self._last = error
        return to_no_response(error)

    def response(self, outcome: CallOutcome) -> httpx.Response:
        """The last response, whatever its status. Without one the outcome is unknown, unless nothing was sent."""
        last = self._last
        if isinstance(last, httpx.Response):
            return last
        assert last is not None
        if not outcome.outcome_unknown and isinstance(last, UNSENT_ERRORS):
            raise last
        if outcome.window_passed:
            raise WindowPassed(
                f"no answer after {outcome.attempts} attempts ({last}), and the window of the key may be over: it may be "
                "done, and a retry could do it a second time; look for its effect first",
                key=self.key,
                attempts=outcome.attempts,
            ) from last
        raise AmbiguousOutcome(
            f"no answer after {outcome.attempts} attempts ({last}): it may be done; retry with the same key and body",
            key=self.key,
            attempts=outcome.attempts,
        ) from last

    @property
    def key(self) -> str:
        return unquote_key(self._request.headers[HEADER])


def unquote_key(header: str) -> str:
    """The key in a header, quoted or bare."""
    if len(header) > 1 and header[0] == header[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", header[1:-1])
    return header
