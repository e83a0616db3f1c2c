"""`onejob.AsyncClient`: the ledger's names over HTTP, for callers with an event loop."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from onejob.errors import OnejobError

from . import wire
from .base import ClientBase, build_sequence_jobs, build_submission
from .calls import JobQuery, KeyQuery, SubmissionLike, SubmitOptions
from .driving import ANSWER_BYTES_MAX, STALE, add_retry_note, build_request, checked_response, to_no_response
from .flow import Send, Sleep
from .judged import NoResponse, ServerResponse
from .quotas import SLOT_TTL_SECONDS, LimitsLike, TenantLimitsLike, UserId
from .verbs import Operation, ResumedIntent

T = TypeVar("T")


class AsyncClient(ClientBase):
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
        **options: Unpack[SubmitOptions],
    ) -> wire.ReceiptModel:
        """Make one job, or get the one that this key already made. Without a key, one is drawn."""
        return await self._run(
            self._operations.submit(build_submission(type, input, idempotency_key, key_from, options))
        )

    async def submit_many(
        self, submissions: Iterable[SubmissionLike]
    ) -> list[wire.ReceiptModel | OnejobError]:
        """Independent submissions, each with a verdict of its own: a receipt, or the error it met."""
        return await self._run(self._operations.submit_many(submissions))

    async def submit_sequence(
        self,
        client_id: str,
        sequence: int,
        idempotency_key: str,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[SubmissionLike] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> wire.SequenceReceiptModel:
        """Execute a client's next number, or get the answer it had."""
        return await self._run(
            self._operations.submit_sequence(
                client_id,
                sequence,
                idempotency_key,
                build_sequence_jobs(type, input, jobs),
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
        jobs: Iterable[SubmissionLike] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> wire.SequenceReceiptModel:
        """Submit under the next number of this client, which the outbox keeps."""
        return await self._run(
            self._operations.submit_next(
                build_sequence_jobs(type, input, jobs), scope=scope, ttl=idempotency_ttl
            )
        )

    async def resume(self) -> list[ResumedIntent]:
        """Finish what earlier processes left in the outbox."""
        return await self._run(self._operations.resume())

    async def get_client_state(self, client_id: str, *, scope: str) -> wire.ClientStateModel:
        return await self._run(self._reads.get_client_state(client_id, scope=scope))

    async def job(self, job_id: str) -> wire.JobModel:
        return await self._run(self._reads.job(job_id))

    async def jobs(self, **query: Unpack[JobQuery]) -> wire.JobPageModel:
        return await self._run(self._reads.jobs(**query))

    async def cancel(self, job_id: str) -> wire.JobModel:
        return await self._run(self._reads.cancel(job_id))

    async def explain(self, key: str, *, scope: str, user: str | None = None) -> wire.KeyHistoryModel:
        return await self._run(self._reads.explain(key, scope=scope, user=user))

    async def keys(self, **query: Unpack[KeyQuery]) -> wire.KeyPageModel:
        return await self._run(self._reads.keys(**query))

    async def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        return await self._run(self._reads.forget(key, scope=scope, user=user))

    async def wait(self, job_id: str, timeout: timedelta | float | None = None) -> wire.JobModel:
        """The job when nothing more happens to it; TimeoutError when that takes longer. The server does the waiting."""
        return await self._run(self._reads.wait(job_id, timeout))

    async def result(self, job_id: str) -> Any:
        """What a job gave, decoded; NotFound while there is nothing."""
        return await self._run(self._reads.result(job_id))

    async def result_json(self, job_id: str) -> bytes:
        """What a job gave, as it is stored; NotFound while there is nothing."""
        return await self._run(self._reads.result_json(job_id))

    async def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> wire.LogPageModel:
        return await self._run(self._reads.log_lines(job_id, offset=offset, limit=limit))

    async def reserve_job_slot(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Take a slot for a while; None when there is none left. Without a user it is the caller's own."""
        return await self._run(
            self._quotas.reserve_job_slot(user_id, max_concurrent, ttl_seconds, idempotency_key)
        )

    async def reserve_job_slot_or_raise(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> wire.HeldSlotModel:
        """`reserve_job_slot` with its deadline and warnings, and a refusal that is raised."""
        return await self._run(
            self._quotas.reserve_job_slot_or_raise(user_id, max_concurrent, ttl_seconds, idempotency_key)
        )

    async def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> None:
        """Turn a slot into that of a job; without one it ends, for the job is counted elsewhere."""
        await self._run(self._quotas.consume_reservation(reservation_id, job_id))

    async def release_reservation(self, reservation_id: str) -> None:
        await self._run(self._quotas.release_reservation(reservation_id))

    async def renew_reservation(self, reservation_id: str, ttl_seconds: float = SLOT_TTL_SECONDS) -> datetime:
        """Prolong a slot that has not expired; returns its new deadline."""
        return await self._run(self._quotas.renew_reservation(reservation_id, ttl_seconds))

    async def reservations(self, user_id: UserId | None = None) -> list[wire.SlotReservationModel]:
        return await self._run(self._quotas.reservations(user_id))

    async def usage(self, user_id: UserId | None = None) -> wire.UsageModel:
        return await self._run(self._quotas.usage(user_id))

    async def quota(self, user_id: UserId) -> wire.QuotaModel:
        return await self._run(self._quotas.quota(user_id))

    async def set_quota(self, user_id: UserId, limits: LimitsLike | wire.LimitsModel) -> wire.QuotaModel:
        """Give a user limits of its own (`onejob.Limits`); none at all: the tenant's defaults hold."""
        return await self._run(self._quotas.set_quota(user_id, limits))

    async def tenant_quota(self) -> wire.TenantQuotaModel:
        return await self._run(self._quotas.tenant_quota())

    async def set_tenant_quota(
        self, limits: TenantLimitsLike | wire.TenantQuotaModel
    ) -> wire.TenantQuotaModel:
        return await self._run(self._quotas.set_tenant_quota(limits))

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

    async def _run(self, steps: Operation[T]) -> T:
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                if isinstance(step, Send):
                    heard = self._step_result(await self._send(step))
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    heard = self._step_result()
                else:
                    heard = await asyncio.to_thread(step.work)
        except StopIteration as end:
            given: T = end.value
            return given
        finally:
            steps.close()

    async def _send(self, send: Send) -> ServerResponse | NoResponse:
        request = build_request(self._http, self.url, send, self._headers)
        try:
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                said = await self._whole(response, send.timeout)
                if self._is_stale(send.call, said):
                    await response.extensions["network_stream"].aclose()
                    return STALE
                return said
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            return to_no_response(error)
        except BaseException as error:
            add_retry_note(error, send.call.key)
            raise

    async def _whole(self, response: httpx.Response, timeout: float) -> ServerResponse | NoResponse:
        """The whole answer within the time of the attempt.

        The clock is looked at, and nothing is cancelled: a pool does not get every connection of a cancelled call back.
        """
        until = self._clock.monotonic() + timeout
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX or self._clock.monotonic() > until:
                return NoResponse("the answer was too large or too slow", sent=True)
        return checked_response(response, body)
