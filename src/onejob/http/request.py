"""A request: its credential, headers, query, and its body, which is read and decoded within limits."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct, json

from onejob.clock import SystemClock
from onejob.core.command import Precondition
from onejob.core.credentials import Permission, Role, has_permission
from onejob.core.errors import Invalid
from onejob.core.fingerprint import DEPTH_MAX, LONE_SURROGATE, explain_decode_error
from onejob.core.fingerprint import check_strict_json as check_strict_input
from onejob.core.large_json import Pause, do_not_pause
from onejob.errors import OnejobError
from onejob.idempotency_key_header import HEADER_NAME, parse_key_header
from onejob.ledger.service import ServiceLedger
from onejob.runtime.callers import Caller
from onejob.server.exchange import Scope as Scope

from .config import ServiceConfig
from .problems import MalformedBody, Unauthorized

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AuthorizationCheck = Callable[[], Awaitable[bool]]
BufferedBody = Callable[[], bytes | None]
T = TypeVar("T")

QUERY_FIELDS_MAX = 50
DECODE_CACHE_BODY_BYTES_MAX = 2048
INLINE_BYTES_MAX = 16 << 10
WORK_SECONDS = 0.0005
PAUSE_SECONDS = 0.0005
DECODE_CACHE_MAX = 1024

_DEFAULT_LIMITS = ServiceConfig()
_MEMBERS_DECODER = json.Decoder(dict[str, Raw])


class LargeBodies:
    """Runs CPU-bound work on large bodies in one thread; the tenants that wait have their turns one after the other.

    With more threads the event loop would have to wait for the interpreter lock behind each of them.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="onejob-large-bodies")
        self._lock = Lock()
        # By tenant, in the order of their turns.
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(tenant, deque()).append((future, work))
        self._executor.submit(self._run_next)
        return await asyncio.wrap_future(future)

    def _run_next(self) -> None:
        with self._lock:
            tenant = next(iter(self._waiting))
            queue = self._waiting.pop(tenant)
            future, work = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # behind all others
        if not future.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)


_LARGE_BODIES = LargeBodies()


async def _always_authorized() -> bool:
    return True


def _no_buffered_body() -> None:
    return None


class BodyTooLarge(Exception):
    """The body, or the input in it, exceeds its limit."""


class BodyTooSlow(OnejobError):
    """The body did not arrive in time."""


class UnsupportedBody(Exception):
    """The body has an encoding that is not decoded here, or a page of another site sent it as something else than JSON."""


class Credential(Struct, frozen=True):
    """An authenticated caller and its roles."""

    caller: Caller
    roles: frozenset[Role]
    name: str  # of the API key, or the subject of the token

    def may(self, permission: Permission) -> bool:
        return has_permission(self.roles, permission)


# Of a server without authentication: every client on this machine has every role.
LOCAL = Credential(Caller(), frozenset(Role), "local")
# Of an open route. No tenant has an empty name, so it can read nothing of any tenant.
ANONYMOUS = Credential(Caller(tenant="", user="", actor=""), frozenset(), "anonymous")


class Request:
    __slots__ = (
        "_receive",
        "body_is_complete",
        "buffered_body",
        "credential",
        "headers",
        "id",
        "ledger",
        "limits",
        "path_params",
        "precondition",
        "scope",
        "still_authorized",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        *,
        id: str,
        credential: Credential,
        ledger: ServiceLedger,
        path_params: Sequence[str] = (),
        limits: ServiceConfig = _DEFAULT_LIMITS,
    ) -> None:
        self.scope = scope
        self.headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self.id = id
        self.credential = credential
        self.ledger = ledger  # acting for the credential's caller
        self.path_params = path_params  # the values of the placeholders
        self._receive = receive
        self.body_is_complete = False  # it was when the request was routed
        self.buffered_body: BufferedBody = _no_buffered_body  # returns a complete body without ASGI messages
        self.limits = limits
        self.precondition: Precondition | None = None  # of an unchecked credential: a submission must carry it
        self.still_authorized: AuthorizationCheck = _always_authorized  # to be called after a long wait

    async def wait_for_disconnect(self) -> None:
        """Only for a request whose body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def header(self, name: bytes) -> str | None:
        """The value of a header that may be sent once."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise Invalid(name.decode(), f"there are two {name.decode()} headers; send one")
        return values[0].decode("latin-1") if values else None

    def key(self) -> str | None:
        return parse_key_header(self.headers)

    def query(self, *known: str) -> dict[str, str]:
        """The fields of the query; one that is unknown or given twice is refused."""
        try:
            pairs = parse_qsl(
                self.scope["query_string"].decode("ascii"),
                keep_blank_values=True,
                strict_parsing=bool(self.scope["query_string"]),
                max_num_fields=QUERY_FIELDS_MAX,
                errors="strict",
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise Invalid("query", "the query cannot be read; send name=value pairs in UTF-8") from error
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise Invalid("query", "a field of the query is given twice; send each once")
        for name in fields:
            if name not in known:
                raise Invalid("query", f"this path takes only {', '.join(known) or 'no query'}; leave the rest out")
        return fields

    def complete_body(self) -> bytes | None:
        """The whole body, if it came with the request; else ask for the `body`."""
        body = self.buffered_body()
        if body is not None and len(body) > self.limits.body_bytes_max:
            raise self._body_too_large()
        return body

    async def body(self) -> bytes:
        """The whole body, within the limits of size and time."""
        body = self.complete_body()
        if body is None:
            body = await self._receive_body()
            # The credential was checked before the body came, which may have taken long.
            if not await self.still_authorized():
                raise Unauthorized("the credential is not valid any more; get another one")
            if len(body) > self.limits.body_bytes_max:
                raise self._body_too_large()
        return body

    async def decode_body(self, body_type: type[T]) -> T:
        """The body as a Struct of this type; duplicate members are refused at any depth."""
        return await decode_data(await self.body(), body_type, self.credential.caller.tenant)

    async def require_no_body(self) -> None:
        """An empty object is ignored: many clients send one with every POST."""
        if (await self.body()).translate(None, b" \t\r\n") not in (b"", b"{}"):
            raise Invalid("body", "this path takes no body; leave it out")

    async def _receive_body(self) -> bytes:
        # Before the first `receive`, which sends `100 Continue` to a client that waits for it.
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > self.limits.body_bytes_max:
            raise self._body_too_large()
        try:
            body, more = await self._receive_chunk()
            # Most bodies come in one piece and need no timer. Before the first piece the connection has a deadline.
            if not more:
                return body
            async with asyncio.timeout(self.limits.body_seconds_max):
                return await self._receive_rest(bytearray(body))
        except TimeoutError as error:
            seconds = self.limits.body_seconds_max
            raise BodyTooSlow(f"the body did not arrive within {seconds:g} s; send it faster") from error

    def _body_too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"a body has at most {self.limits.body_bytes_max} bytes; send less")

    async def _receive_rest(self, body: bytearray) -> bytes:
        more = True
        while more and len(body) <= self.limits.body_bytes_max:
            chunk, more = await self._receive_chunk()
            body += chunk
        return bytes(body)

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Invalid("body", "the connection closed before the body was complete; send it again")
        return message.get("body", b""), message.get("more_body", False)


def is_retryable(scope: Scope) -> bool:
    """True if the same request can be sent again whether or not it was done."""
    return scope["method"] in ("GET", "HEAD") or any(name == HEADER_NAME for name, _ in scope["headers"])


async def run_in_thread_if_large(tenant: str, size: int, work: Callable[..., T], *args: Any) -> T:
    """Run CPU-bound work off the event loop when the payload is large; it is given a function `pause`, to be called often."""
    if size <= INLINE_BYTES_MAX:
        return work(*args)
    polite_work = partial(work, *args, pause=RegularPauses())
    return await _LARGE_BODIES.run(tenant, polite_work)


class RegularPauses:
    """Called by CPU-bound work in a thread: sleeps a little whenever the work has gone on for a while.

    A thread that waits for the interpreter lock gets it after 5 ms otherwise, and the one that writes to SQLite needs
    it a dozen times for a batch: beside 16 large bodies a small submission waited for 70 to 140 ms of processor time.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._until = self._clock.monotonic() + WORK_SECONDS

    def __call__(self) -> None:
        if self._clock.monotonic() >= self._until:
            self._clock.sleep(PAUSE_SECONDS)
            self._until = self._clock.monotonic() + WORK_SECONDS


async def decode_data(data: bytes, body_type: type[T], tenant: str) -> T:
    """A body as a Struct of this type; duplicate members are refused at any depth."""
    if not data and getattr(body_type, "is_optional", False):
        return body_type()
    if len(data) > DECODE_CACHE_BODY_BYTES_MAX:
        return await run_in_thread_if_large(tenant, len(data), _decode_strict, data, body_type)
    return decode_cached(data, body_type)


def decode_struct(data: bytes, body_type: type[T]) -> T:
    """The body as a Struct of this type; duplicate members are not noticed."""
    try:
        return json.decode(data, type=body_type)
    except RecursionError as error:
        raise MalformedBody("body", f"the body is nested deeper than {DEPTH_MAX} levels; flatten it") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _body_error(data, error) from error


def _body_error(data: bytes, error: Exception) -> Invalid:
    if not data.strip():
        return MalformedBody("body", "the body is empty; send a JSON object")
    text = explain_decode_error(data, error)
    # A lone surrogate is a value that JSON can spell and no text can have.
    if text != LONE_SURROGATE:
        try:
            json.decode(data)  # the first error may have been a wrong value, with broken JSON behind it
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
            return MalformedBody("body", f"the body is not JSON ({broken}); correct it")
    return Invalid("body", f"the body is not valid: {text}")


def check_strict_json(what: str, data: bytes, *, pause: Pause = do_not_pause) -> None:
    """Refuse JSON that a parser would change: duplicate members, numbers it cannot represent."""
    try:
        check_strict_input(data, pause=pause)
    except Invalid as error:
        raise Invalid(what, str(error).replace("the input", f"the {what}")) from error


def check_strict_json_except(what: str, data: bytes, large_member: str) -> None:
    """The same for an object of known members, one of which may be large and is checked elsewhere."""
    members = {name: bytes(text) for name, text in _MEMBERS_DECODER.decode(data).items()}
    # The decoder drops a duplicate member together with the two quotes of its name. Known names contain no quotes.
    if data.count(b'"') != sum(len('""') + text.count(b'"') for text in members.values()):
        raise Invalid(what, f"the {what} has two members of one name in an object; send each name once")
    for name, text in members.items():
        if name != large_member and text[:1] in (b"{", b"["):
            check_strict_json(what, text)


def _decode_strict(data: bytes, body_type: type[T], *, pause: Pause = do_not_pause) -> T:
    value = decode_struct(data, body_type)
    large_member = getattr(body_type, "large_member", "")
    if large_member:
        check_strict_json_except("body", data, large_member)
    else:
        check_strict_json("body", data, pause=pause)
    return value


_decode_cached = lru_cache(DECODE_CACHE_MAX)(_decode_strict)


def decode_cached(data: bytes, body_type: type[T]) -> T:
    """A small body as a Struct of this type. Cached, because retries send the same bytes."""
    value: T = _decode_cached(data, body_type)  # type: ignore[arg-type]  # a class can be hashed
    return value
