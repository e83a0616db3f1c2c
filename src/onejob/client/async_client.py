"""`onejob.AsyncClient`: the ledger's names over HTTP, for callers with an event loop."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from onejob.errors import OnejobError

from . import wire
from .base import Base, jobs_of, said
from .calls import JobQuery, KeyQuery, Options, Said
from .driving import ANSWER_BYTES_MAX, STALE, lost, noted, request_of, whole
from .flow import Send, Sleep
from .judged import Answer, Lost
from .verbs import Resumed, Steps

T = TypeVar("T")


class AsyncClient(Base):
    """Every method is awaited; disk work of an outbox is done in a thread."""

    def __init__(self, url: str, *, http: httpx.AsyncClient | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._http = http or httpx.AsyncClient()

    async def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        key_from: Iterable[str] = (),
        **options: Unpack[Options],
    ) -> wire.Receipt:
        """Make one job, or get the one that this key already made. Without a key, one is drawn."""
        return await self._run(self._verbs.submit(said(type, input, idempotency_key, key_from, options)))

    async def submit_many(self, submissions: Iterable[Said]) -> list[wire.Receipt | OnejobError]:
        """Independent submissions, each with a verdict of its own: a receipt, or the error it met."""
        return await self._run(self._verbs.submit_many(submissions))

    async def submit_sequence(
        self,
        client_id: str,
        sequence: int,
        idempotency_key: str,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[Said] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> wire.SequenceReceipt:
        """Execute a client's next number, or get the answer it had."""
        return await self._run(
            self._verbs.submit_sequence(
                client_id,
                sequence,
                idempotency_key,
                jobs_of(type, input, jobs),
                scope=scope,
                ttl=idempotency_ttl,
            )
        )

    async def submit_next(
        self,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[Said] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> wire.SequenceReceipt:
        """Submit under the next number of this client, which the outbox keeps."""
        return await self._run(
            self._verbs.submit_next(jobs_of(type, input, jobs), scope=scope, ttl=idempotency_ttl)
        )

    async def resume(self) -> list[Resumed]:
        """Finish what earlier processes left in the outbox."""
        return await self._run(self._verbs.resume())

    async def get_client_state(self, client_id: str, *, scope: str) -> wire.ClientState:
        return await self._run(self._asking.get_client_state(client_id, scope=scope))

    async def job(self, job_id: str) -> wire.Job:
        return await self._run(self._asking.job(job_id))

    async def jobs(self, **query: Unpack[JobQuery]) -> wire.JobPage:
        return await self._run(self._asking.jobs(**query))

    async def cancel(self, job_id: str) -> wire.Job:
        return await self._run(self._asking.cancel(job_id))

    async def explain(self, key: str, *, scope: str, user: str | None = None) -> wire.Story:
        return await self._run(self._asking.explain(key, scope=scope, user=user))

    async def keys(self, **query: Unpack[KeyQuery]) -> wire.KeyPage:
        return await self._run(self._asking.keys(**query))

    async def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        return await self._run(self._asking.forget(key, scope=scope, user=user))

    async def wait(self, job_id: str, *, timeout: float | None = None, poll: float = 1.0) -> wire.Job:
        """Look at a job until nothing more happens to it; TimeoutError when that takes too long."""
        return await self._run(self._asking.wait(job_id, timeout=timeout, poll=poll))

    async def aclose(self) -> None:
        await self._http.aclose()
        if self.outbox is not None:
            self.outbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                if isinstance(step, Send):
                    heard = self._heard(await self._send(step))
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    heard = self._heard()
                else:
                    heard = await asyncio.to_thread(step.work)
        except StopIteration as end:
            given: T = end.value
            return given
        finally:
            steps.close()

    async def _send(self, send: Send) -> Answer | Lost:
        request = request_of(self._http, self.url, send, self._headers)
        try:
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                said = await self._whole(response, send.timeout)
                if self._stale(send.call, said):
                    await response.extensions["network_stream"].aclose()
                    return STALE
                return said
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            return lost(error)
        except BaseException as error:
            noted(error, send.call.key)
            raise

    async def _whole(self, response: httpx.Response, timeout: float) -> Answer | Lost:
        """The whole answer within the time of the attempt.

        The clock is looked at, and nothing is cancelled: a pool does not get every connection of a cancelled call back.
        """
        until = self._clock.monotonic() + timeout
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX or self._clock.monotonic() > until:
                return Lost("the answer was too large or too slow", sent=True)
        return whole(response, body)
