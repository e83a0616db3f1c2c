"""Posting to an address that a stranger chose: looked up once, refused where it is not public, never redirected."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from urllib.parse import SplitResult, urlsplit

POST_SECONDS_MAX = 15.0
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_LINE_BYTES_MAX = 4096
# All that is routed to the world. What lies outside of it leads elsewhere, whatever else it may be called.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class PostFailed(Exception):
    """Why, in words that may be shown to whoever chose the address."""


async def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> int:
    """The status of the answer, whose body is not read."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(POST_SECONDS_MAX):
            address = await _resolve_address(parts, allow_private=allow_private)
            return await _send_request(parts, address, body, headers)
    except TimeoutError:
        raise PostFailed(f"no answer within {POST_SECONDS_MAX:g} s") from None
    except ssl.SSLError as error:
        raise PostFailed(f"no secure connection ({error.reason or 'TLS'})") from None
    except OSError:
        raise PostFailed("no connection") from None


async def _resolve_address(parts: SplitResult, *, allow_private: bool) -> str:
    """The one that is connected to: what a second look-up would say does not matter."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, _port(parts), type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        raise PostFailed("the name of the host is not known") from None
    for *_, where in found:
        address = str(where[0])
        if allow_private or is_public(address):
            return address
    raise PostFailed("the address is not a public one, and such are not allowed here")


def is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        # One inside the other: what counts is where it leads.
        inner = address.ipv4_mapped or address.sixtofour or _nat64_target(address)
        if inner is not None:
            return is_public(str(inner))
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


def _nat64_target(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address that a translator (NAT64) makes of this one."""
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


async def _send_request(parts: SplitResult, address: str, body: bytes, headers: Mapping[str, str]) -> int:
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        address,
        _port(parts),
        limit=_LINE_BYTES_MAX,
        ssl=_tls_context() if secure else None,
        server_hostname=parts.hostname if secure else None,
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("ascii") + body)
        await writer.drain()
        try:
            found = _STATUS.match(await reader.readline())
        except ValueError:
            found = None
        if not found:
            raise PostFailed("the answer is not HTTP")
        return int(found[1])
    finally:
        writer.transport.abort()


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
