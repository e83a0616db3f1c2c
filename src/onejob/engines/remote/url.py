"""Parses the URL of managers: `http://m1:8002,m2:8002`, with a gate credential and the files for TLS where needed."""

import ssl
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from onejob.addresses import Address
from onejob.core.errors import Invalid

PORT_DEFAULT: Final = 8002
MANAGERS_MAX: Final = 64
_SCHEMES: Final = ("http", "https")
_OPTIONS: Final = ("ca", "cert", "key")


class ManagersUrl(Struct, frozen=True):
    addresses: tuple[Address, ...]
    is_tls: bool
    gate_key: str = ""
    ca: str | None = None  # PEM files: the authorities that signed the managers' certificates
    cert: str | None = None  # and the gate's own certificate, with its key
    key: str | None = None

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.is_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ValueError) as error:
            raise Invalid(
                "manager", f"the files for TLS cannot be used ({error}); name PEM files that belong together"
            ) from error
        return context

    def display(self, address: Address) -> str:
        return address.url(is_tls=self.is_tls)


def is_managers_url(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def parse_managers_url(url: str, gate_key: str = "") -> ManagersUrl:
    """Parse a list of managers; each may repeat the scheme. A credential in the URL goes before the given one."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, _, hosts = place.rpartition("@")
    addresses = tuple(_parse_address(scheme, text) for text in hosts.rstrip("/").split(","))
    if scheme not in _SCHEMES or len(addresses) > MANAGERS_MAX:
        raise _invalid_url()
    if len(set(addresses)) < len(addresses):
        raise Invalid("manager", "a manager is named twice; name each one once")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise Invalid("manager", f"{', '.join(unknown)} is not an option of this URL; it takes {', '.join(_OPTIONS)}")
    if options and scheme != "https":
        raise Invalid("manager", "the files for TLS need https:// in the URL; write it")
    return ManagersUrl(addresses, scheme == "https", login or gate_key, **options)


def _parse_address(scheme: str, text: str) -> Address:
    own_scheme, found, rest = text.partition("://")
    if found and own_scheme != scheme:
        raise Invalid("manager", "all managers have the same scheme; write http:// or https:// for all of them")
    try:
        parts = urlsplit(f"//{rest if found else text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid_url() from None
    if not host or parts.path not in ("", "/") or parts.username is not None:
        raise _invalid_url()
    return Address(host, PORT_DEFAULT if port is None else port)


def _invalid_url() -> Invalid:
    return Invalid("manager", "managers are named as http://m1:8002,m2:8002; write them like this")
