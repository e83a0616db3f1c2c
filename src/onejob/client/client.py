"""`onejob.Client`: the ledger's names over HTTP, for callers without an event loop."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from onejob.clock import SystemClock
from onejob.errors import OnejobError

from . import wire
from .base import Base, jobs_of, said
from .calls import JobQuery, KeyQuery, Options, Said
from .driving import ANSWER_BYTES_MAX, STALE, lost, noted, request_of, whole
from .flow import Send, Sleep
from .judged import Answer, Lost
from .quotas import SLOT_SECONDS, Limits, TenantLimits, User
from .verbs import Resumed, Steps

T = TypeVar("T")


class Client(Base):
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
        **options: Unpack[Options],
    ) -> wire.Receipt:
        """Make one job, or get the one that this key already made. Without a key, one is drawn."""
        return self._run(self._verbs.submit(said(type, input, idempotency_key, key_from, options)))

    def submit_many(self, submissions: Iterable[Said]) -> list[wire.Receipt | OnejobError]:
        """Independent submissions, each with a verdict of its own: a receipt, or the error it met."""
        return self._run(self._verbs.submit_many(submissions))

    def submit_sequence(
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
        return self._run(
            self._verbs.submit_sequence(
                client_id,
                sequence,
                idempotency_key,
                jobs_of(type, input, jobs),
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
        jobs: Iterable[Said] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> wire.SequenceReceipt:
        """Submit under the next number of this client, which the outbox keeps."""
        return self._run(
            self._verbs.submit_next(jobs_of(type, input, jobs), scope=scope, ttl=idempotency_ttl)
        )

    def resume(self) -> list[Resumed]:
        """Finish what earlier processes left in the outbox."""
        return self._run(self._verbs.resume())

    def get_client_state(self, client_id: str, *, scope: str) -> wire.ClientState:
        return self._run(self._asking.get_client_state(client_id, scope=scope))

    def job(self, job_id: str) -> wire.Job:
        return self._run(self._asking.job(job_id))

    def jobs(self, **query: Unpack[JobQuery]) -> wire.JobPage:
        return self._run(self._asking.jobs(**query))

    def cancel(self, job_id: str) -> wire.Job:
        return self._run(self._asking.cancel(job_id))

    def explain(self, key: str, *, scope: str, user: str | None = None) -> wire.Story:
        return self._run(self._asking.explain(key, scope=scope, user=user))

    def keys(self, **query: Unpack[KeyQuery]) -> wire.KeyPage:
        return self._run(self._asking.keys(**query))

    def forget(self, key: str, *, scope: str, user: str | None = None) -> datetime:
        return self._run(self._asking.forget(key, scope=scope, user=user))

    def wait(self, job_id: str, timeout: timedelta | float | None = None) -> wire.Job:
        """The job when nothing more happens to it; TimeoutError when that takes longer. The server does the waiting."""
        return self._run(self._asking.wait(job_id, timeout))

    def result(self, job_id: str) -> Any:
        """What a job gave, decoded; NotFound while there is nothing."""
        return self._run(self._asking.result(job_id))

    def result_json(self, job_id: str) -> bytes:
        """What a job gave, as it is stored; NotFound while there is nothing."""
        return self._run(self._asking.result_json(job_id))

    def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> wire.LogPage:
        return self._run(self._asking.log_lines(job_id, offset=offset, limit=limit))

    def reserve_job_slot(
        self,
        user_id: User | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Take a slot for a while; None when there is none left. Without a user it is the caller's own."""
        return self._run(self._quotas.reserve_job_slot(user_id, max_concurrent, ttl_seconds, idempotency_key))

    def hold(
        self,
        user_id: User | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_SECONDS,
        *,
        idempotency_key: str | None = None,
    ) -> wire.SlotHeld:
        """`reserve_job_slot` with its deadline and warnings, and a refusal that is raised."""
        return self._run(self._quotas.hold(user_id, max_concurrent, ttl_seconds, idempotency_key))

    def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> None:
        """Turn a slot into that of a job; without one it ends, for the job is counted elsewhere."""
        self._run(self._quotas.consume_reservation(reservation_id, job_id))

    def release_reservation(self, reservation_id: str) -> None:
        self._run(self._quotas.release_reservation(reservation_id))

    def renew_reservation(self, reservation_id: str, ttl_seconds: float = SLOT_SECONDS) -> datetime:
        """Prolong a slot that has not expired; returns its new deadline."""
        return self._run(self._quotas.renew_reservation(reservation_id, ttl_seconds))

    def reservations(self, user_id: User | None = None) -> list[wire.Slot]:
        return self._run(self._quotas.reservations(user_id))

    def usage(self, user_id: User | None = None) -> wire.Usage:
        return self._run(self._quotas.usage(user_id))

    def quota(self, user_id: User) -> wire.Quota:
        return self._run(self._quotas.quota(user_id))

    def set_quota(self, user_id: User, limits: Limits | wire.Limits) -> wire.Quota:
        """Give a user limits of its own (`onejob.Limits`); none at all: the tenant's defaults hold."""
        return self._run(self._quotas.set_quota(user_id, limits))

    def tenant_quota(self) -> wire.TenantQuota:
        return self._run(self._quotas.tenant_quota())

    def set_tenant_quota(self, limits: TenantLimits | wire.TenantQuota) -> wire.TenantQuota:
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

    def _run(self, steps: Steps[T]) -> T:
        heard: Any = None
        try:
            while True:
                step = steps.send(heard)
                if isinstance(step, Send):
                    heard = self._heard(self._send(step))
                elif isinstance(step, Sleep):
                    SystemClock().sleep(step.seconds)
                    heard = self._heard()
                else:
                    heard = step.work()
        except StopIteration as end:
            given: T = end.value
            return given
        finally:
            steps.close()

    def _send(self, send: Send) -> Answer | Lost:
        request = request_of(self._http, self.url, send, self._headers)
        try:
            response = self._http.send(request, stream=True, follow_redirects=False)
            try:
                said = self._whole(response, send.timeout)
                if self._stale(send.call, said):
                    response.extensions["network_stream"].close()
                    return STALE
                return said
            finally:
                response.close()
        except httpx.HTTPError as error:
            return lost(error)
        except BaseException as error:
            noted(error, send.call.key)
            raise

    def _whole(self, response: httpx.Response, timeout: float) -> Answer | Lost:
        """The whole answer within the time of the attempt: bytes that trickle in are no answer."""
        until = self._clock.monotonic() + timeout
        body = b""
        for piece in response.iter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX or self._clock.monotonic() > until:
                return Lost("the answer was too large or too slow", sent=True)
        return whole(response, body)
