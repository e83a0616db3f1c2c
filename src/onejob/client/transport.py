"""An httpx transport for any API that honours `Idempotency-Key`: a key on every POST and PATCH, and safe retries.

    httpx.Client(transport=IdempotentTransport())

A key that the caller gave (the header, or `extensions={"idempotency_key": …}`) is kept; otherwise one is drawn for each
request. Bytes are read once, before the first attempt, and answers are read whole. What has no key is sent once.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Final

import httpx

from onejob.clock import Clock, SystemClock
from onejob.core.key import checked_key
from onejob.errors import AmbiguousOutcome, Invalid
from onejob.ids import new_nonce, random_fraction

from .client import UNSENT_ERRORS, add_retry_note, to_no_response
from .flow import (
    CallOutcome,
    NoResponse,
    RetryFlow,
    RetryPolicy,
    Send,
    ServerResponse,
    Sleep,
    StepResult,
    send_with_retries,
)

HEADER: Final = "idempotency-key"
METHODS: Final = ("POST", "PATCH")
_KEY_EXTENSION: Final = "idempotency_key"
_ORIGIN_EXTENSION: Final = "onejob.origin"  # httpx hands extensions on to the request that follows a redirect
_ASCII = re.compile(r"[\x20-\x7e]+")


class _IdempotentTransportBase:
    """What both transports share: the key of a request, and how often it may be sent."""

    def __init__(
        self,
        retry: RetryPolicy | None,
        methods: Iterable[str],
        key_factory: Callable[[], str] | None,
        clock: Clock | None,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._methods = frozenset(method.upper() for method in methods)
        self._key_factory = key_factory
        self._clock = clock or SystemClock()

    def _assign_key(self, request: httpx.Request) -> bool:
        """Give the request its key; False: it has none, and is sent once."""
        if request.method not in self._methods:
            return False
        origin = f"{request.url.scheme}://{request.url.netloc.decode()}"
        if request.extensions.get(_ORIGIN_EXTENSION, origin) != origin:
            # A redirect to somebody else: the key is a secret between the caller and the first.
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

    def _retry_flow(self, request: httpx.Request) -> RetryFlow:
        return send_with_retries(request, self._retry, begin=self._clock.monotonic(), jitter=random_fraction)

    def _step_result(self, response: ServerResponse | NoResponse | None = None) -> StepResult:
        return StepResult(self._clock.monotonic(), response)


class IdempotentTransport(_IdempotentTransportBase, httpx.BaseTransport):
    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        methods: Iterable[str] = METHODS,
        key_factory: Callable[[], str] | None = new_nonce,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(retry, methods, key_factory, clock)
        self._inner = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._assign_key(request):
            return self._inner.handle_request(request)
        request.read()  # a file or an iterator can be read once only
        steps = self._retry_flow(request)
        heard: StepResult | None = None
        last: httpx.Response | httpx.HTTPError | None = None
        try:
            while True:
                step = steps.send(heard)  # type: ignore[arg-type]  # None starts it
                if isinstance(step, Sleep):
                    SystemClock().sleep(step.seconds)
                    heard = self._step_result()
                else:
                    last = self._send_once(step)
                    heard = self._step_result(to_server_response(last))
        except StopIteration as end:
            return response_or_raise(end.value, last, request)

    def close(self) -> None:
        self._inner.close()

    def _send_once(self, send: Send) -> httpx.Response | httpx.HTTPError:
        request = request_with_timeouts(send)
        try:
            response = self._inner.handle_request(request)
            try:
                response.read()
            finally:
                response.close()
            return response
        except httpx.HTTPError as error:
            return error
        except BaseException as error:
            add_retry_note(error, unquote_key(request.headers[HEADER]))
            raise


class AsyncIdempotentTransport(_IdempotentTransportBase, httpx.AsyncBaseTransport):
    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        retry: RetryPolicy | None = None,
        methods: Iterable[str] = METHODS,
        key_factory: Callable[[], str] | None = new_nonce,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(retry, methods, key_factory, clock)
        self._inner = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._assign_key(request):
            return await self._inner.handle_async_request(request)
        await request.aread()
        steps = self._retry_flow(request)
        heard: StepResult | None = None
        last: httpx.Response | httpx.HTTPError | None = None
        try:
            while True:
                step = steps.send(heard)  # type: ignore[arg-type]  # None starts it
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    heard = self._step_result()
                else:
                    last = await self._send_once(step)
                    heard = self._step_result(to_server_response(last))
        except StopIteration as end:
            return response_or_raise(end.value, last, request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send_once(self, send: Send) -> httpx.Response | httpx.HTTPError:
        request = request_with_timeouts(send)
        try:
            response = await self._inner.handle_async_request(request)
            try:
                await response.aread()
            finally:
                await response.aclose()
            return response
        except httpx.HTTPError as error:
            return error
        except BaseException as error:
            add_retry_note(error, unquote_key(request.headers[HEADER]))
            raise


def quote_key(key: str) -> str:
    """A key as the header carries it: a structured-field string."""
    key = checked_key(key)
    if not _ASCII.fullmatch(key):
        raise Invalid("key", "a header carries only ASCII; choose another key")
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquote_key(header: str) -> str:
    """The key in a header that this file or the caller wrote, quoted or bare."""
    if len(header) > 1 and header[0] == header[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", header[1:-1])
    return header


def request_with_timeouts(send: Send) -> httpx.Request:
    """The same request, with no more time for any step than the attempt has; a shorter time of the caller's stays."""
    request: httpx.Request = send.call
    own = request.extensions.get("timeout") or {}
    limits = {step: min(own.get(step) or send.timeout, send.timeout) for step in ("connect", "read", "write", "pool")}
    request.extensions = {**request.extensions, "timeout": limits}
    return request


def to_server_response(last: httpx.Response | httpx.HTTPError) -> ServerResponse | NoResponse:
    if isinstance(last, httpx.HTTPError):
        return to_no_response(last)
    headers = {name.lower(): value for name, value in last.headers.items()}
    return ServerResponse(last.status_code, headers, last.content)


def response_or_raise(
    outcome: CallOutcome, last: httpx.Response | httpx.HTTPError | None, request: httpx.Request
) -> httpx.Response:
    """The last answer, whatever it says. Without one the outcome is open, unless nothing was ever sent."""
    if isinstance(last, httpx.Response):
        return last
    assert last is not None
    if not outcome.outcome_unknown and isinstance(last, UNSENT_ERRORS):
        raise last
    raise AmbiguousOutcome(
        f"no answer after {outcome.attempts} attempts ({last}): it may be done; repeat with the same key and body",
        key=unquote_key(request.headers[HEADER]),
        attempts=outcome.attempts,
    ) from last
