"""`onejob.Client`: the ledger's names over HTTP, for callers without an event loop."""

import asyncio
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from urllib.parse import urlsplit

import httpx

from onejob.clock import Clock, SystemClock
from onejob.codes import NextAction
from onejob.errors import Invalid, OnejobError
from onejob.ids import KeyGenerator, new_nonce

from . import models
from .flow import NoResponse, RetryPolicy, Send, ServerResponse, Sleep, StepResult, classify
from .operations import (
    SLOT_TTL_SECONDS,
    ClientOperations,
    ClientQuotas,
    ClientReads,
    ClientSubmission,
    LimitsLike,
    Operation,
    ResumedIntent,
    TenantLimitsLike,
    UserId,
)
from .outbox import Outbox
from .requests import Call, JobQuery, KeyQuery, SubmissionLike, SubmitOptions

# Between calls and httpx: what is sent, what came back whole, and what did not.


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
    if call.key_header is not None:
        given = given | {"idempotency-key": call.key_header}
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
    return isinstance(response, ServerResponse) and classify(response) is NextAction.KEEP and not call.accepts(response)


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
        error.add_note(f"the submission may have been accepted; repeat it with the same body and the key {key}")


# What both clients are made of.


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


def build_submission(type: str, input: Any, key: str | None, key_from: Iterable[str], options: Any) -> ClientSubmission:
    names = (key_from,) if isinstance(key_from, str) else tuple(key_from)
    return ClientSubmission(type=type, input=input, idempotency_key=key, key_from=names, options=dict(options))


def build_sequence_jobs(type: str | None, input: Any, jobs: Iterable[SubmissionLike] | None) -> list[SubmissionLike]:
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


# `onejob.AsyncClient`: the ledger's names over HTTP, for callers with an event loop.


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
    ) -> models.ReceiptModel:
        """Make one job, or get the one that this key already made. Without a key, one is drawn."""
        return await self._run(
            self._operations.submit(build_submission(type, input, idempotency_key, key_from, options))
        )

    async def submit_many(self, submissions: Iterable[SubmissionLike]) -> list[models.ReceiptModel | OnejobError]:
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
    ) -> models.SequenceReceiptModel:
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
    ) -> models.SequenceReceiptModel:
        """Submit under the next number of this client, which the outbox keeps."""
        return await self._run(
            self._operations.submit_next(build_sequence_jobs(type, input, jobs), scope=scope, ttl=idempotency_ttl)
        )

    async def resume(self) -> list[ResumedIntent]:
        """Finish what earlier processes left in the outbox."""
        return await self._run(self._operations.resume())

    async def get_client_state(self, client_id: str, *, scope: str) -> models.ClientStateModel:
        return await self._run(self._reads.get_client_state(client_id, scope=scope))

    async def job(self, job_id: str) -> models.JobModel:
        return await self._run(self._reads.job(job_id))

    async def jobs(self, **query: Unpack[JobQuery]) -> models.JobPageModel:
        return await self._run(self._reads.jobs(**query))

    async def cancel(self, job_id: str) -> models.JobModel:
        return await self._run(self._reads.cancel(job_id))

    async def explain(self, key: str, *, scope: str, user: str | None = None) -> models.KeyHistoryModel:
        return await self._run(self._reads.explain(key, scope=scope, user=user))

    async def keys(self, **query: Unpack[KeyQuery]) -> models.KeyPageModel:
        return await self._run(self._reads.keys(**query))

    async def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        return await self._run(self._reads.forget(key, scope=scope, user=user))

    async def wait(self, job_id: str, timeout: timedelta | float | None = None) -> models.JobModel:
        """The job when nothing more happens to it; TimeoutError when that takes longer. The server does the waiting."""
        return await self._run(self._reads.wait(job_id, timeout))

    async def result(self, job_id: str) -> Any:
        """What a job gave, decoded; NotFound while there is nothing."""
        return await self._run(self._reads.result(job_id))

    async def result_json(self, job_id: str) -> bytes:
        """What a job gave, as it is stored; NotFound while there is nothing."""
        return await self._run(self._reads.result_json(job_id))

    async def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> models.LogPageModel:
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
        return await self._run(self._quotas.reserve_job_slot(user_id, max_concurrent, ttl_seconds, idempotency_key))

    async def reserve_job_slot_or_raise(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> models.HeldSlotModel:
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

    async def reservations(self, user_id: UserId | None = None) -> list[models.SlotReservationModel]:
        return await self._run(self._quotas.reservations(user_id))

    async def usage(self, user_id: UserId | None = None) -> models.UsageModel:
        return await self._run(self._quotas.usage(user_id))

    async def quota(self, user_id: UserId) -> models.QuotaModel:
        return await self._run(self._quotas.quota(user_id))

    async def set_quota(self, user_id: UserId, limits: LimitsLike | models.LimitsModel) -> models.QuotaModel:
        """Give a user limits of its own (`onejob.Limits`); none at all: the tenant's defaults hold."""
        return await self._run(self._quotas.set_quota(user_id, limits))

    async def tenant_quota(self) -> models.TenantQuotaModel:
        return await self._run(self._quotas.tenant_quota())

    async def set_tenant_quota(self, limits: TenantLimitsLike | models.TenantQuotaModel) -> models.TenantQuotaModel:
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


class Client(ClientBase):
    """Every method waits for its answer. May be used from any number of threads."""

    def __init__(self, url: str, *, http: httpx.Client | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._http = http or httpx.Client()

    def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: str | None = None,
        key_from: Iterable[str] = (),
        **options: Unpack[SubmitOptions],
    ) -> models.ReceiptModel:
        """Make one job, or get the one that this key already made. Without a key, one is drawn."""
        return self._run(self._operations.submit(build_submission(type, input, idempotency_key, key_from, options)))

    def submit_many(self, submissions: Iterable[SubmissionLike]) -> list[models.ReceiptModel | OnejobError]:
        """Independent submissions, each with a verdict of its own: a receipt, or the error it met."""
        return self._run(self._operations.submit_many(submissions))

    def submit_sequence(
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
    ) -> models.SequenceReceiptModel:
        """Execute a client's next number, or get the answer it had."""
        return self._run(
            self._operations.submit_sequence(
                client_id,
                sequence,
                idempotency_key,
                build_sequence_jobs(type, input, jobs),
                scope=scope,
                ttl=idempotency_ttl,
            )
        )

    def submit_next(
        self,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[SubmissionLike] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> models.SequenceReceiptModel:
        """Submit under the next number of this client, which the outbox keeps."""
        return self._run(
            self._operations.submit_next(build_sequence_jobs(type, input, jobs), scope=scope, ttl=idempotency_ttl)
        )

    def resume(self) -> list[ResumedIntent]:
        """Finish what earlier processes left in the outbox."""
        return self._run(self._operations.resume())

    def get_client_state(self, client_id: str, *, scope: str) -> models.ClientStateModel:
        return self._run(self._reads.get_client_state(client_id, scope=scope))

    def job(self, job_id: str) -> models.JobModel:
        return self._run(self._reads.job(job_id))

    def jobs(self, **query: Unpack[JobQuery]) -> models.JobPageModel:
        return self._run(self._reads.jobs(**query))

    def cancel(self, job_id: str) -> models.JobModel:
        return self._run(self._reads.cancel(job_id))

    def explain(self, key: str, *, scope: str, user: str | None = None) -> models.KeyHistoryModel:
        return self._run(self._reads.explain(key, scope=scope, user=user))

    def keys(self, **query: Unpack[KeyQuery]) -> models.KeyPageModel:
        return self._run(self._reads.keys(**query))

    def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        return self._run(self._reads.forget(key, scope=scope, user=user))

    def wait(self, job_id: str, timeout: timedelta | float | None = None) -> models.JobModel:
        """The job when nothing more happens to it; TimeoutError when that takes longer. The server does the waiting."""
        return self._run(self._reads.wait(job_id, timeout))

    def result(self, job_id: str) -> Any:
        """What a job gave, decoded; NotFound while there is nothing."""
        return self._run(self._reads.result(job_id))

    def result_json(self, job_id: str) -> bytes:
        """What a job gave, as it is stored; NotFound while there is nothing."""
        return self._run(self._reads.result_json(job_id))

    def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> models.LogPageModel:
        return self._run(self._reads.log_lines(job_id, offset=offset, limit=limit))

    def reserve_job_slot(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Take a slot for a while; None when there is none left. Without a user it is the caller's own."""
        return self._run(self._quotas.reserve_job_slot(user_id, max_concurrent, ttl_seconds, idempotency_key))

    def reserve_job_slot_or_raise(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> models.HeldSlotModel:
        """`reserve_job_slot` with its deadline and warnings, and a refusal that is raised."""
        return self._run(self._quotas.reserve_job_slot_or_raise(user_id, max_concurrent, ttl_seconds, idempotency_key))

    def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> None:
        """Turn a slot into that of a job; without one it ends, for the job is counted elsewhere."""
        self._run(self._quotas.consume_reservation(reservation_id, job_id))

    def release_reservation(self, reservation_id: str) -> None:
        self._run(self._quotas.release_reservation(reservation_id))

    def renew_reservation(self, reservation_id: str, ttl_seconds: float = SLOT_TTL_SECONDS) -> datetime:
        """Prolong a slot that has not expired; returns its new deadline."""
        return self._run(self._quotas.renew_reservation(reservation_id, ttl_seconds))

    def reservations(self, user_id: UserId | None = None) -> list[models.SlotReservationModel]:
        return self._run(self._quotas.reservations(user_id))

    def usage(self, user_id: UserId | None = None) -> models.UsageModel:
        return self._run(self._quotas.usage(user_id))

    def quota(self, user_id: UserId) -> models.QuotaModel:
        return self._run(self._quotas.quota(user_id))

    def set_quota(self, user_id: UserId, limits: LimitsLike | models.LimitsModel) -> models.QuotaModel:
        """Give a user limits of its own (`onejob.Limits`); none at all: the tenant's defaults hold."""
        return self._run(self._quotas.set_quota(user_id, limits))

    def tenant_quota(self) -> models.TenantQuotaModel:
        return self._run(self._quotas.tenant_quota())

    def set_tenant_quota(self, limits: TenantLimitsLike | models.TenantQuotaModel) -> models.TenantQuotaModel:
        return self._run(self._quotas.set_tenant_quota(limits))

    def close(self) -> None:
        self._http.close()
        if self.outbox is not None:
            self.outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Operation[T]) -> T:
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                if isinstance(step, Send):
                    heard = self._step_result(self._send(step))
                elif isinstance(step, Sleep):
                    SystemClock().sleep(step.seconds)
                    heard = self._step_result()
                else:
                    heard = step.work()
        except StopIteration as end:
            given: T = end.value
            return given
        finally:
            steps.close()

    def _send(self, send: Send) -> ServerResponse | NoResponse:
        request = build_request(self._http, self.url, send, self._headers)
        try:
            response = self._http.send(request, stream=True, follow_redirects=False)
            try:
                said = self._whole(response, send.timeout)
                if self._is_stale(send.call, said):
                    response.extensions["network_stream"].close()
                    return STALE
                return said
            finally:
                response.close()
        except httpx.HTTPError as error:
            return to_no_response(error)
        except BaseException as error:
            add_retry_note(error, send.call.key)
            raise

    def _whole(self, response: httpx.Response, timeout: float) -> ServerResponse | NoResponse:
        """The whole answer within the time of the attempt: bytes that trickle in are no answer."""
        until = self._clock.monotonic() + timeout
        body = b""
        for piece in response.iter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX or self._clock.monotonic() > until:
                return NoResponse("the answer was too large or too slow", sent=True)
        return checked_response(response, body)
