"""What both clients are made of."""

import os
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from onejob.clock import Clock, SystemClock
from onejob.errors import Invalid
from onejob.ids import KeyGenerator, new_nonce

from .asking import Asking
from .calls import Call, Said
from .driving import Recent, misplaced
from .flow import Heard, RetryPolicy
from .judged import Answer, Lost
from .outbox import Outbox
from .quotas import Quotas
from .said import Submission
from .verbs import Verbs

ANSWERS_KEPT: Final = 4096


class Base:
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
        self._verbs = Verbs(
            retry=retry or RetryPolicy(),
            monotonic=self._clock.monotonic,
            keys=KeyGenerator(client_id or f"client-{new_nonce()}"),
            outbox=kept,
        )
        self._asking = Asking(self._verbs)
        self._quotas = Quotas(self._verbs, new_nonce)
        self._heard_ids = Recent(ANSWERS_KEPT)

    @property
    def outbox(self) -> Outbox | None:
        return self._verbs.outbox

    def _stale(self, call: Call, said: Answer | Lost) -> bool:
        """An answer to another call, or one that was heard before: its connection is out of step."""
        if isinstance(said, Lost):
            return False
        # Every answer of a server has an id of its own, refusals too, which name no key.
        return not self._heard_ids.add(said.headers.get("x-request-id", "")) or misplaced(call, said)

    def _heard(self, said: Answer | Lost | None = None) -> Heard:
        return Heard(self._clock.monotonic(), said)


def said(type: str, input: Any, key: str | None, key_from: Iterable[str], options: Any) -> Submission:
    names = (key_from,) if isinstance(key_from, str) else tuple(key_from)
    return Submission(type=type, input=input, idempotency_key=key, key_from=names, options=dict(options))


def jobs_of(type: str | None, input: Any, jobs: Iterable[Said] | None) -> list[Said]:
    if (jobs is None) == (type is None) or (jobs is not None and input is not None):
        raise Invalid("jobs", "give the type and input of one job, or a list of jobs")
    return [Submission(type=type, input=input)] if type is not None else list(jobs or ())


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if known and not (parts.query or parts.fragment or parts.username is not None):
            return url.rstrip("/")
    except ValueError:
        pass  # a port that is no number, brackets that do not close
    raise Invalid("url", f"{url!r} names no server; write it as http://127.0.0.1:8001")
