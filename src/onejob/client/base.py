"""What both clients are made of."""

import os
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from onejob.clock import Clock, SystemClock
from onejob.errors import Invalid
from onejob.ids import KeyGenerator, new_nonce

from .asking import ClientReads
from .calls import Call, SubmissionLike
from .driving import RecentIds, is_misdirected
from .flow import RetryPolicy, StepResult
from .judged import NoResponse, ServerResponse
from .outbox import Outbox
from .quotas import ClientQuotas
from .said import ClientSubmission
from .verbs import ClientOperations

RESPONSE_IDS_MAX: Final = 4096


class ClientBase:
    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
        client_id: str | None = None,
        outbox: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._headers = {"accept": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._clock = clock or SystemClock()
        kept = None
        if outbox is not None:
            kept = Outbox(outbox, server=self.url, client_id=client_id, clock=self._clock)
        self._operations = ClientOperations(
            retry=retry or RetryPolicy(),
            monotonic=self._clock.monotonic,
            keys=KeyGenerator(client_id or f"client-{new_nonce()}"),
            outbox=kept,
        )
        self._reads = ClientReads(self._operations)
        self._quotas = ClientQuotas(self._operations, new_nonce)
        self._recent_response_ids = RecentIds(RESPONSE_IDS_MAX)

    @property
    def outbox(self) -> Outbox | None:
        return self._operations.outbox

    def _is_stale(self, call: Call, response: ServerResponse | NoResponse) -> bool:
        """An answer to another call, or one that was heard before: its connection is out of step."""
        if isinstance(response, NoResponse):
            return False
        # Every answer of a server has an id of its own, refusals too, which name no key.
        return not self._recent_response_ids.add(response.headers.get("x-request-id", "")) or is_misdirected(
            call, response
        )

    def _step_result(self, response: ServerResponse | NoResponse | None = None) -> StepResult:
        return StepResult(self._clock.monotonic(), response)


def build_submission(
    type: str, input: Any, key: str | None, key_from: Iterable[str], options: Any
) -> ClientSubmission:
    names = (key_from,) if isinstance(key_from, str) else tuple(key_from)
    return ClientSubmission(
        type=type, input=input, idempotency_key=key, key_from=names, options=dict(options)
    )


def build_sequence_jobs(
    type: str | None, input: Any, jobs: Iterable[SubmissionLike] | None
) -> list[SubmissionLike]:
    if (jobs is None) == (type is None) or (jobs is not None and input is not None):
        raise Invalid("jobs", "give the type and input of one job, or a list of jobs")
    return [ClientSubmission(type=type, input=input)] if type is not None else list(jobs or ())


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if known and not (parts.query or parts.fragment or parts.username is not None):
            return url.rstrip("/")
    except ValueError:
        pass  # a port that is no number, brackets that do not close
    raise Invalid("url", f"{url!r} names no server; write it as http://127.0.0.1:8001")
