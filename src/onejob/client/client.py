"""`onejob.Client` and `onejob.AsyncClient`: the ledger's methods over HTTP, blocking or awaited."""

import inspect
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import wraps
from threading import Lock
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, get_args

import httpx

from onejob.clock import Clock, SystemClock
from onejob.codes import NextAction
from onejob.ids import KeyGenerator, new_nonce

from .flow import NoResponse, Operation, RetryPolicy, Send, ServerResponse, classify, run_async, run_blocking
from .operations import ClientOperations, ServerWindows
from .outbox import Outbox
from .requests import Call, checked_api_key, checked_url

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

RESPONSE_BYTES_MAX: Final = 16 << 20
RESPONSE_IDS_MAX: Final = 4096
UNSENT_ERRORS: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_STALE: Final = NoResponse("the response was to another call", sent=True)
_TOO_LARGE_OR_SLOW: Final = NoResponse("the response was too large or too slow", sent=True)


class ClientOptions(TypedDict, total=False):
    """The options of both clients as keyword arguments."""

    api_key: str | None
    retry: RetryPolicy | None
    client_id: str | None
    outbox: str | os.PathLike[str] | None
    window: timedelta | None
    clock: Clock | None
    tracing: "HeaderInjector | None"


class HeaderInjector(Protocol):
    """`onejob.tracing.Tracing`: adds the trace context of the caller to a request."""

    def inject(self, headers: dict[str, str], /) -> None: ...


class ClientBase:
    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
        client_id: str | None = None,
        outbox: str | os.PathLike[str] | None = None,
        window: timedelta | None = None,
        clock: Clock | None = None,
        tracing: HeaderInjector | None = None,
    ) -> None:
        self._tracing = tracing
        self.url = checked_url(url)
        self._headers = {"accept": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {checked_api_key(api_key)}"
        self._clock = clock or SystemClock()
        self._windows = ServerWindows(window)
        self._operations = ClientOperations(
            retry=retry or RetryPolicy(),
            monotonic=self._clock.monotonic,
            keys=KeyGenerator(client_id or f"client-{new_nonce()}"),
            outbox=None if outbox is None else Outbox(outbox, server=self.url, client_id=client_id, clock=self._clock),
            windows=self._windows,
        )
        self._recent_response_ids = RecentIds(RESPONSE_IDS_MAX)

    @property
    def outbox(self) -> Outbox | None:
        return self._operations.outbox

    def _build_request(self, http: httpx.Client | httpx.AsyncClient, send: Send) -> httpx.Request:
        call: Call[Any] = send.call
        headers = self._headers | ({"content-type": "application/json"} if call.body else {})
        if call.key_header is not None:
            headers["idempotency-key"] = call.key_header
        if self._tracing is not None:
            self._tracing.inject(headers)
        return http.build_request(
            call.method, self.url + call.path, content=call.body or None, headers=headers, timeout=send.timeout
        )

    def _learn_window(self, call: Call[Any], response: httpx.Response, sent_at: float) -> None:
        if response.is_success:
            self._windows.learn(call, response.headers, sent_at=sent_at, wall_ms=self._clock.wall_ms())

    def _is_stale(self, call: Call[Any], response: ServerResponse | NoResponse) -> bool:
        """True if the response belongs to another call or was received before: its connection is out of step."""
        if isinstance(response, NoResponse):
            return False
        # Every response of a server has an id of its own, also a refusal, which names no key.
        is_new = self._recent_response_ids.add(response.headers.get("x-request-id", ""))
        return not is_new or (classify(response) is NextAction.KEEP and not call.accepts(response))


def _blocking(
    operation: Callable[Concatenate[ClientOperations, P], Operation[T]], /
) -> Callable[Concatenate["Client", P], T]:
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(operation(self._operations, *args, **kwargs), self._send, self._clock)

    return _documented(call, operation)


def _asynchronous(
    operation: Callable[Concatenate[ClientOperations, P], Operation[T]], /
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_async(operation(self._operations, *args, **kwargs), self._send, self._clock)

    return _documented(call, operation)


def _documented(call: F, operation: Callable[..., Operation[Any]]) -> F:
    """Give a method the name, docstring and signature of its operation, which returns the last type of Operation."""
    signature = inspect.signature(operation)
    result = get_args(signature.return_annotation)[-1]
    wraps(operation)(call).__dict__["__signature__"] = signature.replace(return_annotation=result)
    return call


class Client(ClientBase):
    """The client whose methods block until they have their result. Safe to use from any number of threads."""

    def __init__(self, url: str, *, http: httpx.Client | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(url, **options)
        self._http = http or httpx.Client()

    submit = _blocking(ClientOperations.submit)
    submit_many = _blocking(ClientOperations.submit_many)
    submit_sequence = _blocking(ClientOperations.submit_sequence)
    submit_next = _blocking(ClientOperations.submit_next)
    resume = _blocking(ClientOperations.resume)
    get_client_state = _blocking(ClientOperations.get_client_state)
    job = _blocking(ClientOperations.job)
    jobs = _blocking(ClientOperations.jobs)
    cancel = _blocking(ClientOperations.cancel)
    explain = _blocking(ClientOperations.explain)
    keys = _blocking(ClientOperations.keys)
    forget = _blocking(ClientOperations.forget)
    wait = _blocking(ClientOperations.wait)
    result = _blocking(ClientOperations.result)
    result_json = _blocking(ClientOperations.result_json)
    log_lines = _blocking(ClientOperations.log_lines)
    input = _blocking(ClientOperations.input)
    sites = _blocking(ClientOperations.sites)
    failures = _blocking(ClientOperations.failures)
    reserve_job_slot = _blocking(ClientOperations.reserve_job_slot)
    reserve_job_slot_or_raise = _blocking(ClientOperations.reserve_job_slot_or_raise)
    consume_reservation = _blocking(ClientOperations.consume_reservation)
    release_reservation = _blocking(ClientOperations.release_reservation)
    renew_reservation = _blocking(ClientOperations.renew_reservation)
    reservations = _blocking(ClientOperations.reservations)
    usage = _blocking(ClientOperations.usage)
    quota = _blocking(ClientOperations.quota)
    set_quota = _blocking(ClientOperations.set_quota)
    tenant_quota = _blocking(ClientOperations.tenant_quota)
    set_tenant_quota = _blocking(ClientOperations.set_tenant_quota)

    def close(self) -> None:
        self._http.close()
        if self.outbox is not None:
            self.outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, send: Send) -> ServerResponse | NoResponse:
        request = self._build_request(self._http, send)
        try:
            sent_at = self._clock.monotonic()
            response = self._http.send(request, stream=True, follow_redirects=False)
            try:
                self._learn_window(send.call, response, sent_at)
                received = self._read(response, send.timeout)
                if self._is_stale(send.call, received):
                    response.extensions["network_stream"].close()
                    return _STALE
                return received
            finally:
                response.close()
        except httpx.HTTPError as error:
            return to_no_response(error)
        except BaseException as error:
            add_retry_note(error, send.call.key)
            raise

    def _read(self, response: httpx.Response, timeout: float) -> ServerResponse | NoResponse:
        """Read the body within the time of the attempt, also if its bytes trickle in."""
        until = self._clock.monotonic() + timeout
        body = b""
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > RESPONSE_BYTES_MAX or self._clock.monotonic() > until:
                return _TOO_LARGE_OR_SLOW
        return checked_response(response, body)


class AsyncClient(ClientBase):
    """The client whose methods are awaited. The disk work of an outbox runs in a thread."""

    def __init__(self, url: str, *, http: httpx.AsyncClient | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(url, **options)
        self._http = http or httpx.AsyncClient()

    submit = _asynchronous(ClientOperations.submit)
    submit_many = _asynchronous(ClientOperations.submit_many)
    submit_sequence = _asynchronous(ClientOperations.submit_sequence)
    submit_next = _asynchronous(ClientOperations.submit_next)
    resume = _asynchronous(ClientOperations.resume)
    get_client_state = _asynchronous(ClientOperations.get_client_state)
    job = _asynchronous(ClientOperations.job)
    jobs = _asynchronous(ClientOperations.jobs)
    cancel = _asynchronous(ClientOperations.cancel)
    explain = _asynchronous(ClientOperations.explain)
    keys = _asynchronous(ClientOperations.keys)
    forget = _asynchronous(ClientOperations.forget)
    wait = _asynchronous(ClientOperations.wait)
    result = _asynchronous(ClientOperations.result)
    result_json = _asynchronous(ClientOperations.result_json)
    log_lines = _asynchronous(ClientOperations.log_lines)
    input = _asynchronous(ClientOperations.input)
    sites = _asynchronous(ClientOperations.sites)
    failures = _asynchronous(ClientOperations.failures)
    reserve_job_slot = _asynchronous(ClientOperations.reserve_job_slot)
    reserve_job_slot_or_raise = _asynchronous(ClientOperations.reserve_job_slot_or_raise)
    consume_reservation = _asynchronous(ClientOperations.consume_reservation)
    release_reservation = _asynchronous(ClientOperations.release_reservation)
    renew_reservation = _asynchronous(ClientOperations.renew_reservation)
    reservations = _asynchronous(ClientOperations.reservations)
    usage = _asynchronous(ClientOperations.usage)
    quota = _asynchronous(ClientOperations.quota)
    set_quota = _asynchronous(ClientOperations.set_quota)
    tenant_quota = _asynchronous(ClientOperations.tenant_quota)
    set_tenant_quota = _asynchronous(ClientOperations.set_tenant_quota)

    async def aclose(self) -> None:
        await self._http.aclose()
        if self.outbox is not None:
            self.outbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, send: Send) -> ServerResponse | NoResponse:
        request = self._build_request(self._http, send)
        try:
            sent_at = self._clock.monotonic()
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                self._learn_window(send.call, response, sent_at)
                received = await self._read(response, send.timeout)
                if self._is_stale(send.call, received):
                    await response.extensions["network_stream"].aclose()
                    return _STALE
                return received
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            return to_no_response(error)
        except BaseException as error:
            add_retry_note(error, send.call.key)
            raise

    async def _read(self, response: httpx.Response, timeout: float) -> ServerResponse | NoResponse:
        """Read the body within the time of the attempt.

        The clock is checked instead of cancelling: a pool does not get every connection of a cancelled call back.
        """
        until = self._clock.monotonic() + timeout
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > RESPONSE_BYTES_MAX or self._clock.monotonic() > until:
                return _TOO_LARGE_OR_SLOW
        return checked_response(response, body)


class RecentIds:
    """The ids of the last responses; an empty id is always new."""

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: dict[str, None] = {}
        self._lock = Lock()

    def add(self, id: str) -> bool:
        """Add an id; True if it is new."""
        if not id:
            return True
        with self._lock:
            if id in self._ids:
                return False
            self._ids[id] = None
            if len(self._ids) > self._ids_max:
                del self._ids[next(iter(self._ids))]
            return True


def checked_response(response: httpx.Response, body: bytes) -> ServerResponse | NoResponse:
    """A response without a length and without chunks may be cut, so it counts as none."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    if body and "content-length" not in headers and "transfer-encoding" not in headers:
        return NoResponse("the response has no length, so it may be cut", sent=True)
    return ServerResponse(response.status_code, headers, body)


def to_no_response(error: httpx.HTTPError) -> NoResponse:
    return NoResponse(str(error) or type(error).__name__, sent=not isinstance(error, UNSENT_ERRORS))


def add_retry_note(error: BaseException, key: str | None) -> None:
    """Say in the notes of an interruption that the request may have arrived."""
    if key:
        error.add_note(f"the submission may have been accepted; retry it with the same body and the key {key}")
