"""Addresses of hosts: HOST:PORT as text and as URL, the loopback test, the network that a client counts as."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from .core.errors import Invalid

PORT_MAX = 65_535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, *, is_tls: bool = False) -> str:
        return f"{'https' if is_tls else 'http'}://{self}"


def parse_address(text: str, *, setting: str, advice: str, host_default: str = "") -> Address:
    """HOST:PORT; with a default host also :PORT and PORT. `setting` and `advice` are for the error."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or host_default
    if not (host and port.isascii() and port.isdigit() and int(port[:6]) <= PORT_MAX):
        raise Invalid(setting, f"{text!r} is not an address; use {advice}")
    return Address(host, int(port))


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """None: it is not the address of a host. One that is mapped into IPv6 is that of IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    address = parse_ip(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def network_of(address: IPv4Address | IPv6Address) -> str:
    """The address; of IPv6 the network of 64 bits, which one host may have to itself."""
    return str(ip_network((address, 64), strict=False) if address.version == 6 else address)
