"""One call to a server: repeated only where the same bytes cannot do a second thing, and a few times at most."""

from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from math import inf
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import json

from onejob.client.flow import ATTEMPTS_MAX as RETRIES_MAX
from onejob.client.flow import CallOutcome, RetryPolicy, Send, StepResult, send_with_retries
from onejob.client.judged import (
    NextAction,
    NoResponse,
    ServerResponse,
    classify,
    is_definitive,
    parse_problem,
)
from onejob.clock import SystemClock
from onejob.core.invalid import Invalid
from onejob.errors import Unavailable, Unknown
from onejob.http.problems import Problem
from onejob.http.wire import ProblemOut
from onejob.ids import random_fraction

from .trouble import ServerRefused

ServerReply = ServerResponse

ATTEMPTS_MAX = 4
ANSWER_BYTES_MAX = 16 << 20
# Longer than a server lets a duplicate wait.
_SECONDS_MAX = 60.0
_PAUSE_FIRST = 0.2
_PAUSE_MAX = 5.0
_AWAY = (502, 503, 504)
_CODES = {
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "PAYLOAD_TOO_LARGE",
    429: "RATE_LIMITED",
} | dict.fromkeys(_AWAY, "SERVICE_UNAVAILABLE")


class ServerClient:
    def __init__(self, url: str, api_key: str | None = None, retry: RetryPolicy | None = None) -> None:
        self.url = url.rstrip("/")
        parts = _checked(self.url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path
        self._headers = {"Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {_token(api_key)}"
        self._clock = SystemClock()
        self._retry = retry

    def send(
        self, method: str, path: str, body: bytes = b"", *, repeat: bool, window: float = inf
    ) -> ServerReply:
        """The answer of a call that went well. `repeat`: the same bytes may be sent again without harm."""
        steps = send_with_retries(
            (method, path, body),
            self._retry or _few(),
            begin=self._clock.monotonic(),
            jitter=random_fraction,
            repeat=repeat,
            window_end=self._clock.monotonic() + window,
        )
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                if isinstance(step, Send):
                    heard = StepResult(self._clock.monotonic(), self._once(*step.call, timeout=step.timeout))
                else:
                    self._clock.sleep(step.seconds)
                    heard = StepResult(self._clock.monotonic())
        except StopIteration as end:
            return self._concluded(end.value, changes=method != "GET")

    def _concluded(self, ended: CallOutcome, *, changes: bool) -> ServerReply:
        """What came last, unless an earlier attempt may have done what it does not speak of."""
        said = ended.response
        if isinstance(said, NoResponse):
            raise self._cut(said.reason) if ended.outcome_unknown else self._away(said.reason)
        if (
            changes
            and ended.outcome_unknown
            and classify(said) in (NextAction.FIX, NextAction.GIVE_UP)
            and not is_definitive(parse_problem(said))
        ):
            raise self._cut(f"then it answered {said.status}")
        return _good(said, self.url)

    def send_once(self, method: str, path: str, body: bytes = b"") -> ServerReply:
        """One attempt: Unavailable when nothing was sent, Unknown when no whole answer came back."""
        said = self._once(method, path, body, timeout=_SECONDS_MAX)
        if isinstance(said, NoResponse):
            raise self._away(said.reason) if not said.sent else self._cut(said.reason)
        return said

    def _once(self, method: str, path: str, body: bytes, *, timeout: float) -> ServerReply | NoResponse:
        kind = HTTPSConnection if self.secure else HTTPConnection
        connection = kind(self.host, self._port, timeout=timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                return NoResponse(_reason(error), sent=False)
            try:
                headers = self._headers | ({"Content-Type": "application/json"} if body else {})
                connection.request(method, self._prefix + path, body, headers)
                return _whole(connection.getresponse())
            except (OSError, HTTPException) as error:
                return NoResponse(_reason(error), sent=True)
        finally:
            connection.close()

    def _away(self, reason: str) -> Unavailable:
        return Unavailable(
            f"{self.url} cannot be reached ({reason}): nothing was done; see whether the server runs, then repeat"
        )

    def _cut(self, reason: str) -> Unknown:
        return Unknown(
            f"{self.url} gave no whole answer ({reason}): it may be done; "
            "repeat with the same key, or look at the jobs first if there was none"
        )


def patient(length: timedelta) -> RetryPolicy:
    """For whoever would rather wait than fail: also while the key is in progress, or the rate is exceeded."""
    return RetryPolicy(
        deadline=length.total_seconds(), attempts_max=RETRIES_MAX, attempt_timeout=_SECONDS_MAX
    )


def _few() -> RetryPolicy:
    return RetryPolicy(
        deadline=ATTEMPTS_MAX * (_SECONDS_MAX + _PAUSE_MAX),
        attempts_max=ATTEMPTS_MAX,
        attempt_timeout=_SECONDS_MAX,
        pause_first=_PAUSE_FIRST,
        pause_max=_PAUSE_MAX,
        retry_after_max=_PAUSE_MAX,
        waits=False,
    )


def _whole(response: HTTPResponse) -> ServerReply:
    """An answer that was not cut: with neither a length nor chunks nobody could tell."""
    expected = response.length
    body = response.read(ANSWER_BYTES_MAX)
    if not response.chunked and len(body) != expected:
        raise IncompleteRead(body)
    return ServerReply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _good(said: ServerReply, url: str) -> ServerReply:
    if 200 <= said.status < 300:
        return said
    try:
        error = json.decode(said.body, type=ProblemOut)
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = _CODES.get(said.status, "INTERNAL_ERROR" if said.status >= 500 else "BAD_REQUEST")
        message = f"{url} answered {said.status} in words that are not onejob's; see whether the URL is right"
        raise ServerRefused(Problem(code, said.status, "", message, {}, _retry_after(said))) from None
    inner = error.error
    wait = (_retry_after(said) or 1) if inner.retryable else None
    raise ServerRefused(Problem(inner.code, said.status, error.title, inner.message, inner.details, wait))


def _retry_after(said: ServerReply) -> int | None:
    text = said.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return int(text[:6])
    return 1 if said.status in _AWAY else None


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isascii()
        if known and not (parts.query or parts.fragment or parts.username is not None):
            return parts
    except ValueError:
        pass  # a port that is no number, brackets that do not close
    raise Invalid("url", f"{url!r} names no server; write it as http://127.0.0.1:8001")


def _token(api_key: str) -> str:
    if not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key and api_key):
        raise Invalid("api key", "the API key has characters that no key has; give it as it was printed")
    return api_key


def _reason(error: Exception) -> str:
    if isinstance(error, IncompleteRead):
        return "it was cut"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
