"""The WSGI middleware, for Flask, Pyramid, Bottle and others: requests whose path a rule covers take an Idempotency-Key.

The response is durable before its first byte is sent. A response in several parts without a Content-Length is a stream:
its key is settled when the stream begins.
"""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from io import BytesIO
from itertools import chain
from typing import Any, Unpack

from onejob.idempotency_key_header import HEADER_NAME
from onejob.sync import SyncLedger

from .blocking import BlockingLayer, BlockingRequest
from .problems import LayerResponse, problem_response
from .request_fingerprint import COMPARED_HEADERS, compute_fingerprint
from .rules import DEFAULT_RULES, IdempotencyRules, LayerOptions, Need, ResponseBuffer, Rule, read_key
from .stored_response import Headers

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]

# The variables of the headers that matter here. WSGI joins repeated headers with a comma, which no bare key contains.
_VARIABLES = {"CONTENT_TYPE": b"content-type"} | {
    f"HTTP_{name.decode().upper().replace('-', '_')}": name for name in (HEADER_NAME, *sorted(COMPARED_HEADERS))
}
_CHUNK_BYTES = 64 << 10
LENGTH_DIGITS_MAX = 18

BODY_ENDED_EARLY = problem_response(
    "BAD_REQUEST", "the body ended before its Content-Length: nothing was done; send the whole request"
)


class WsgiIdempotencyMiddleware:
    """Runs the application once for each `Idempotency-Key` and replays the first response to duplicates."""

    def __init__(
        self,
        app: WsgiApp,
        ledger: SyncLedger | str,
        *,
        scope: Callable[[Environ], str | None],
        rules: Iterable[Rule] = DEFAULT_RULES,
        **options: Unpack[LayerOptions],
    ) -> None:
        self._app = app
        self._rules = IdempotencyRules(scope=scope, rules=rules, **options)
        self._layer = BlockingLayer(ledger, self._rules)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = request_path(environ)
        rule = self._rules.find_rule(environ["REQUEST_METHOD"], path)
        if rule is None:
            return self._app(environ, start_response)
        headers = request_headers(environ)
        key = read_key(headers, required=rule.key is Need.REQUIRED)
        if key is None:
            return self._app(environ, start_response)
        scope = key if isinstance(key, LayerResponse) else self._rules.resolve_scope(environ)
        body = scope if isinstance(scope, LayerResponse) else read_body(environ, self._rules)
        if isinstance(body, LayerResponse):
            return _respond(start_response, body)
        assert isinstance(key, str)
        assert isinstance(scope, str)
        query = environ.get("QUERY_STRING", "").encode("latin-1")
        fingerprint = compute_fingerprint(environ["REQUEST_METHOD"], path, query, headers, body)
        acquired = self._layer.acquire_key(key, scope, fingerprint, rule.window)
        if isinstance(acquired, LayerResponse):
            return _respond(start_response, acquired)
        return _WsgiExchange(acquired, self._rules, start_response).run(self._app, _with_body(environ, body))

    def close(self) -> None:
        """Close the store in this process, if it was given by its URL. At the end of a process this happens by itself."""
        self._layer.close()


class _WsgiExchange:
    """One request under a held key: its response is passed on only after the key is settled."""

    def __init__(self, held: BlockingRequest, rules: IdempotencyRules, start_response: StartResponse) -> None:
        self._held = held
        self._start_server_response = start_response
        self._buffer = ResponseBuffer(rules)
        self._start_arguments: tuple[Any, ...] = ()
        self._is_settled = False
        self._refusal: LayerResponse | None = None
        self._write_to_server: Callable[[bytes], object] = lambda data: None

    def run(self, app: WsgiApp, environ: Environ) -> Iterable[bytes]:
        parts: Iterable[bytes] = ()
        try:
            parts = app(environ, self._start_response)
            rest = self._collect(parts)
        except BaseException:
            _close(parts)
            if not self._held.is_settled:  # nor is being settled: a release could overtake that
                self._held.release()
            raise
        if self._refusal is not None:
            _close(parts)
            return _respond(self._start_server_response, self._refusal)
        return _ResponseParts(rest, parts)

    def _collect(self, parts: Iterable[bytes]) -> Iterable[bytes]:
        """Take as many parts as are needed to settle the key, and return what is to be sent."""
        if self._is_settled:  # by `write`
            return parts
        is_whole = isinstance(parts, (list, tuple))  # complete, whatever its headers say
        rest = iter((b"".join(parts),) if is_whole else parts)
        for part in rest:
            if self._is_settled:
                return chain((part,), rest)
            if part and (collected := self._buffer.add(part, more=not is_whole)) is not None:
                self._settle(collected, more=not is_whole)
                return chain((collected,), rest)
        if self._is_settled:
            return ()
        collected = self._buffer.add(b"", more=False) or b""
        self._settle(collected, more=False)
        return (collected,) if collected else ()

    def _settle(self, collected: bytes, *, more: bool) -> None:
        if not self._start_arguments:
            raise RuntimeError("the application has not called start_response")
        settled = self._held.settle(self._buffer.receipt(collected, more=more))
        self._is_settled = True
        if isinstance(settled, LayerResponse):
            self._refusal = settled
            return
        status, headers, *error = self._start_arguments
        self._write_to_server = self._start_server_response(status, [*headers, *_native_headers(settled)], *error)

    def _start_response(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:
        if self._is_settled:  # the server knows whether its headers are sent, and what to do with the error
            return self._start_server_response(status, headers, *error)
        self._start_arguments = (status, headers, *error)
        self._buffer.status = int(status[:3])
        self._buffer.headers = tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers])
        return self._write

    def _write(self, data: bytes) -> None:
        """The part of WSGI for applications that push their response."""
        if self._is_settled:
            self._write_to_server(data)
        elif data and (collected := self._buffer.add(data, more=True)) is not None:
            self._settle(collected, more=True)
            self._write_to_server(collected)


class _ResponseParts:
    """What is sent to the server; closing it closes the application's own response."""

    def __init__(self, parts: Iterable[bytes], application_parts: Iterable[bytes]) -> None:
        self._parts = parts
        self._application_parts = application_parts

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        _close(self._application_parts)


def _close(parts: Iterable[bytes]) -> None:
    close = getattr(parts, "close", None)
    if close is not None:
        close()


def request_path(environ: Environ) -> str:
    """The path as an ASGI server gives it: decoded, with the prefix where the application is mounted."""
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return str(path.encode("latin-1").decode("utf-8", "surrogateescape"))


def request_headers(environ: Environ) -> Headers:
    """The headers that matter here: the key, and those that are part of the fingerprint."""
    return tuple(
        [(name, environ[variable].encode("latin-1")) for variable, name in _VARIABLES.items() if variable in environ]
    )


def read_body(environ: Environ, rules: IdempotencyRules) -> bytes | LayerResponse:
    """The whole body; a problem if it is too large, its length is not known, or it ends early."""
    stated = stated_length(environ, rules)
    if isinstance(stated, LayerResponse):
        return stated
    body = _read_at_most(environ["wsgi.input"], rules.body_bytes_max + 1 if stated is None else stated)
    if len(body) > rules.body_bytes_max:
        return rules.refuse_large_body()
    return body if stated is None or len(body) == stated else BODY_ENDED_EARLY


def stated_length(environ: Environ, rules: IdempotencyRules) -> int | LayerResponse | None:
    """The length of the body; None if the server marks its end; a problem if it is too large or not known."""
    stated = environ.get("CONTENT_LENGTH") or ""
    if not stated:
        if "HTTP_TRANSFER_ENCODING" not in environ:
            return 0
        if environ.get("wsgi.input_terminated"):
            return None
        return problem_response("BAD_REQUEST", "a request with a key needs a Content-Length; send one", status=411)
    if not (stated.isascii() and stated.isdigit()):
        return problem_response("BAD_REQUEST", "Content-Length is not a number; send the length of the body")
    if len(stated) > LENGTH_DIGITS_MAX or int(stated) > rules.body_bytes_max:
        return rules.refuse_large_body()
    return int(stated)


def _read_at_most(source: Any, size: int) -> bytes:
    parts = []
    while size > 0 and (part := source.read(min(size, _CHUNK_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _with_body(environ: Environ, body: bytes) -> Environ:
    """The environment with the body that was read. Without file_wrapper: a file sent by the server could not be stored."""
    others = {name: value for name, value in environ.items() if name != "wsgi.file_wrapper"}
    return others | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}


def _respond(start_response: StartResponse, response: LayerResponse) -> Iterable[bytes]:
    phrases = {status.value: status.phrase for status in HTTPStatus}
    start_response(f"{response.status} {phrases.get(response.status, 'Unknown')}", _native_headers(response.headers))
    return [response.body] if response.body else []


def _native_headers(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
