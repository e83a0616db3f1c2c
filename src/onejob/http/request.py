"""A request: who asks, for what, and a body that is read within limits."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct, json

from onejob.core.fingerprint import DEPTH_MAX, refuse_hidden
from onejob.core.invalid import Invalid
from onejob.core.malformed import why
from onejob.core.roles import Act, Role, may
from onejob.core.step import Warrant
from onejob.intake import Caller
from onejob.key_header import key_of
from onejob.ledger import Ledger

from .config import ServiceConfig
from .problems import Unauthorized

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Allowed = Callable[[], Awaitable[bool]]
WholeBody = Callable[[], bytes | None]
T = TypeVar("T")

QUERY_FIELDS_MAX = 50
SMALL_BYTES = 2048
BESIDE_BYTES = 64 << 10
REPEATED_MAX = 1024

_LIMITS = ServiceConfig()
_MEMBERS = json.Decoder(dict[str, Raw])


async def _always() -> bool:
    return True


def no_body() -> None:
    return None


class TooLarge(Exception):
    """The body, or the input in it, is beyond its limit."""


class Credential(Struct, frozen=True):
    """Who asks, as the server found out."""

    caller: Caller
    roles: frozenset[Role]
    name: str  # of the API key or the token's subject; rate limits are counted by it

    def may(self, act: Act) -> bool:
        return may(self.roles, act)


# Nobody is authenticated: then there is only the machine itself, and it may do everything.
LOCAL = Credential(Caller(), frozenset(Role), "local")
# Of an open route: no tenant has this name, so that nothing of any tenant can be read with it.
ANONYMOUS = Credential(Caller(tenant="", user="", actor=""), frozenset(), "anonymous")


class Request:
    __slots__ = (
        "_receive", "allowed", "credential", "headers", "id", "ledger", "limits", "path", "scope", "warrant",
        "whole",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        *,
        id: str,
        credential: Credential,
        ledger: Ledger,
        path: Sequence[str] = (),
        limits: ServiceConfig = _LIMITS,
    ) -> None:
        self.scope = scope
        self.headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self.id = id
        self.credential = credential
        self.ledger = ledger  # acting for the credential's caller
        self.path = path  # what the pattern's placeholders stand for
        self._receive = receive
        self.whole: WholeBody = no_body  # the body, where all of it is here already
        self.limits = limits
        self.warrant: Warrant | None = None  # what a credential that was not looked at must be proved by
        self.allowed: Allowed = _always  # whether the credential still opens, for whoever has waited

    async def gone(self) -> None:
        """Returns when the client has gone away; only for a request whose body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def header(self, name: bytes) -> str | None:
        """The value of a header that may be sent once."""
        found = [value for key, value in self.headers if key == name]
        if len(found) > 1:
            raise Invalid(name.decode(), f"there are two {name.decode()} headers; send one")
        return found[0].decode("latin-1") if found else None

    def key(self) -> str | None:
        return key_of(self.headers)

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
                raise Invalid(
                    "query", f"this path takes only {', '.join(known) or 'no query'}; leave the rest out"
                )
        return fields

    async def body(self) -> bytes:
        """The whole body, within the limits of size and time."""
        body = self.whole()
        if body is None:
            body = await self._received()
            # It may have taken its time, and the credential was looked at before it.
            if not await self.allowed():
                raise Unauthorized("the credential is not valid any more; get another one")
        if len(body) > self.limits.body_bytes_max:
            raise TooLarge(f"a body has at most {self.limits.body_bytes_max} bytes; send less")
        return body

    async def decoded(self, kind: type[T]) -> T:
        """The body as this kind of Struct; two members of one name are refused anywhere in it."""
        data = await self.body()
        if not data and getattr(kind, "may_be_left_out", False):
            return kind()
        if len(data) > SMALL_BYTES:
            return await beside(len(data), _decoded, data, kind)
        known: T = _decoded_again(data, kind)  # type: ignore[arg-type]  # a class can be hashed
        return known

    async def no_body(self) -> None:
        if await self.body():
            raise Invalid("body", "this path takes no body; leave it out")

    async def _received(self) -> bytes:
        try:
            body, more = await self._piece()
            # Most bodies come in one piece: the timer is for the others. Until the first, the connection has its own.
            if not more:
                return body
            async with asyncio.timeout(self.limits.body_seconds_max):
                return await self._rest(bytearray(body))
        except TimeoutError as error:
            seconds = self.limits.body_seconds_max
            raise Invalid("body", f"the body took longer than {seconds:g} s; send it faster") from error

    async def _rest(self, body: bytearray) -> bytes:
        more = True
        while more and len(body) <= self.limits.body_bytes_max:
            piece, more = await self._piece()
            body += piece
        return bytes(body)

    async def _piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Invalid("body", "the connection closed before the body was complete; send it again")
        return message.get("body", b""), message.get("more_body", False)


async def beside(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do what takes long for so many bytes in a thread, so that other requests go on meanwhile."""
    if size <= BESIDE_BYTES:
        return work(*args)
    return await asyncio.to_thread(work, *args)


def shaped(data: bytes, kind: type[T]) -> T:
    """A body as this kind of Struct, which may still hide something."""
    try:
        return json.decode(data, type=kind)
    except RecursionError as error:
        raise Invalid("body", f"the body is nested deeper than {DEPTH_MAX} levels; flatten it") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid("body", f"the body cannot be taken: {why(data, error)}") from error


def unbent(what: str, data: bytes) -> None:
    """Refuse a JSON text of which a parser drops or bends something, wherever that is."""
    try:
        refuse_hidden(data)
    except Invalid as error:
        raise Invalid(what, str(error).replace("the input", f"the {what}")) from error


def unbent_around(what: str, data: bytes, apart: str) -> None:
    """The same for an object of known members, one of which is judged by itself and may be large."""
    members = {name: bytes(text) for name, text in _MEMBERS.decode(data).items()}
    # A dropped member takes the two quotes of its name along. Known names have none inside.
    if data.count(b'"') != sum(len('""') + text.count(b'"') for text in members.values()):
        raise Invalid(what, f"the {what} has two members of one name in an object; send each name once")
    for name, text in members.items():
        if name != apart and text[:1] in (b"{", b"["):
            unbent(what, text)


def _decoded(data: bytes, kind: type[T]) -> T:
    value = shaped(data, kind)
    apart = getattr(kind, "apart", "")
    if apart:
        unbent_around("body", data, apart)
    else:
        unbent("body", data)
    return value


# Retries send the very same bytes: what they say is worked out once.
_decoded_again = lru_cache(REPEATED_MAX)(_decoded)
