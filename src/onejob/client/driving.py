"""Between calls and httpx: what is sent, what came back whole, and what did not."""

from threading import Lock
from typing import Final

import httpx

from .calls import Call
from .flow import Send
from .judged import NextAction, NoResponse, ServerResponse, classify

ANSWER_BYTES_MAX: Final = 16 << 20

# Of these not a byte of the call was sent.
UNSENT_ERRORS: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


def build_request(
    http: httpx.Client | httpx.AsyncClient, url: str, send: Send, headers: dict[str, str]
) -> httpx.Request:
    call = send.call
    given = headers | {"content-type": "application/json"} if call.body else headers
    if call.header is not None:
        given = given | {"idempotency-key": call.header}
    return http.build_request(
        call.method, url + call.path, content=call.body or None, headers=given, timeout=send.timeout
    )


def checked_response(response: httpx.Response, body: bytes) -> ServerResponse | NoResponse:
    """An answer that was not cut: with neither a length nor chunks nobody could tell."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    if body and "content-length" not in headers and "transfer-encoding" not in headers:
        return NoResponse("the answer has no length, so it may be cut", sent=True)
    return ServerResponse(response.status_code, headers, body)


def is_misdirected(call: Call, response: ServerResponse | NoResponse) -> bool:
    """An answer to another call: whatever else arrives on its connection belongs to nobody."""
    return (
        isinstance(response, ServerResponse)
        and classify(response) is NextAction.KEEP
        and not call.accepts(response)
    )


class RecentIds:
    """The last ids that were heard; those of empty name are not told apart."""

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: dict[str, None] = {}
        self._lock = Lock()

    def add(self, id: str) -> bool:
        """Whether it is new."""
        if not id:
            return True
        with self._lock:
            if id in self._ids:
                return False
            self._ids[id] = None
            if len(self._ids) > self._ids_max:
                del self._ids[next(iter(self._ids))]
            return True


STALE: Final = NoResponse("the answer was to another call", sent=True)


def to_no_response(error: httpx.HTTPError) -> NoResponse:
    return NoResponse(str(error) or type(error).__name__, sent=not isinstance(error, UNSENT_ERRORS))


def add_retry_note(error: BaseException, key: str | None) -> None:
    """Whoever interrupts an attempt is told that it may have arrived all the same."""
    if key:
        error.add_note(
            f"the submission may have been accepted; repeat it with the same body and the key {key}"
        )
