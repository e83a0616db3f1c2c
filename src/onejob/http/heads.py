"""The head of a request: measured, judged, and made into what applications read."""

from typing import Any
from urllib.parse import unquote

import httptools

from .deadlines import TimeoutProtocol
from .request import Scope

HEADERS_MAX = 100

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_LINE_BYTES = len("  HTTP/1.1\r\n\r\n")
_FIELD_BYTES = len(": \r\n")


class UnacceptableRequest(Exception):
    """This request is not read on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HeadReader(TimeoutProtocol):
    url: bytes
    in_head = False
    _host_header_count = 0
    overhead_bytes = 0  # bytes of the head, or between two pieces of the body; up to a slice too many

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._host_header_count = 0
        self.expect_100_continue = False
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer, which comes after everything was judged
        name = name.lower()
        if name == b"host":
            self._host_header_count += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def head_limit_message(self) -> str:
        return f"a head has at most {self.service_config.head_bytes_max} bytes and {HEADERS_MAX} headers; send less"

    def build_scope(self) -> Scope:
        """The scope of the request whose head is complete."""
        self.in_head = False
        method = self.parser.get_method()
        if self.overhead_bytes > self.service_config.head_bytes_max or len(self.headers) > HEADERS_MAX:
            self._check_head_size(len(method))
        self.overhead_bytes = 0
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise UnacceptableRequest(400, "this server speaks HTTP/1.1; send that")
        if self._host_header_count > 1:
            raise UnacceptableRequest(400, "there are two Host headers; send one")
        path, query = self._parse_target()
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": self.scheme,
            "path": unquote(path.decode("ascii")) if b"%" in path else path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
        }
        return scope

    def _check_head_size(self, size: int) -> None:
        size += len(self.url) + _LINE_BYTES
        size += sum(len(name) + len(value) + _FIELD_BYTES for name, value in self.headers)
        if size > self.service_config.head_bytes_max or len(self.headers) > HEADERS_MAX:
            raise UnacceptableRequest(431, self.head_limit_message())

    def _parse_target(self) -> tuple[bytes, bytes]:
        """The path and the query. Nearly always the target is just these two."""
        if self.url.startswith(b"/"):
            path, _, query = self.url.partition(b"?")
            return path, query
        target = httptools.parse_url(self.url)
        if target.path is None:
            raise UnacceptableRequest(400, "the request names no path; send one")
        return target.path, target.query or b""
