"""What the commands need, whether an engine or a server stands behind it. Answers have the shapes of the wire."""

import asyncio
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Coroutine
from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec
from msgspec import Raw, Struct, json
from msgspec.structs import replace

from onejob.client.flow import ATTEMPTS_MAX as RETRIES_MAX
from onejob.client.flow import (
    CallOutcome,
    NoResponse,
    RetryPolicy,
    Send,
    ServerResponse,
    StepResult,
    classify,
    is_definitive,
    parse_problem,
    send_with_retries,
)
from onejob.client.requests import WINDOW_DEFAULT
from onejob.clock import SystemClock
from onejob.codes import NextAction
from onejob.core.errors import Invalid
from onejob.core.identity import (
    Actor,
    checked_client_id,
    checked_name,
    format_job_id,
    parse_job_id,
    usage_id_of_reservation,
)
from onejob.core.key import checked_key
from onejob.core.limits import Limits, to_micros, to_units
from onejob.core.states import JobState, SlotState
from onejob.core.views import JobView
from onejob.core.work import Resolution
from onejob.errors import NotFound, OnejobError, Unavailable, Unknown
from onejob.http.problems import Problem
from onejob.http.schemas.jobs import (
    IdempotencyOut,
    JobOut,
    JobsOut,
    KeyOut,
    KeysOut,
    ProblemOut,
    SingleJobOut,
    SubmitOut,
    WarningOut,
    idempotency_out,
    job_out,
    key_out,
    key_summary_out,
    warnings_out,
)
from onejob.http.schemas.quotas import (
    QuotaOut,
    ReservationSettledOut,
    ReservationsOut,
    TenantQuotaOut,
    UsageOut,
    limits_out,
    quota_out,
    reservation_out,
    tenant_quota_out,
    usage_out,
)
from onejob.http.schemas.sequences import ClientStateOut, SequenceOut, client_state_out, sequence_out
from onejob.http.schemas.work import LogsOut
from onejob.ids import random_fraction
from onejob.ledger import Ledger
from onejob.ledger.opening import URL_DEFAULT
from onejob.ledger.opening import open as open_ledger
from onejob.ledger.parse import Submission, checked_lookup_scope
from onejob.ledger.quotas import user_name
from onejob.ledger.sequences import SequencedSubmission
from onejob.settings import CliSettings

from .exit_codes import ServerRefused

# One call to a server: repeated only where the same bytes cannot do a second thing, and a few times at most.


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

    def send(self, method: str, path: str, body: bytes = b"", *, repeat: bool, window: float = inf) -> ServerReply:
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
    return RetryPolicy(deadline=length.total_seconds(), attempts_max=RETRIES_MAX, attempt_timeout=_SECONDS_MAX)


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


# Quotas behind the two doors: an engine, and a server.


T = TypeVar("T")
_NO_REQUEST = ""


class QuotaBackend(Protocol):
    """The part of a door that is about quotas."""

    def quota(self, user: str) -> QuotaOut: ...

    def set_quota(self, user: str, limits: Limits) -> QuotaOut: ...

    def tenant_quota(self) -> TenantQuotaOut: ...

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut: ...

    def usage(self, user: str | None) -> UsageOut: ...

    def reservations(self, user: str | None) -> ReservationsOut: ...

    def release(self, reservation_id: str) -> ReservationSettledOut: ...


class EngineQuotas(ABC):
    ledger: Ledger

    @abstractmethod
    def wait(self, work: Coroutine[Any, Any, T]) -> T: ...

    def quota(self, user: str) -> QuotaOut:
        return quota_out(self.wait(self.ledger.quota(user)), _NO_REQUEST)

    def set_quota(self, user: str, limits: Limits) -> QuotaOut:
        return quota_out(self.wait(self.ledger.set_quota(user, limits)), _NO_REQUEST)

    def tenant_quota(self) -> TenantQuotaOut:
        return tenant_quota_out(self.wait(self.ledger.tenant_quota()), _NO_REQUEST)

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut:
        both = replace(self.wait(self.ledger.tenant_quota()), **{half: limits})
        return tenant_quota_out(self.wait(self.ledger.set_tenant_quota(both)), _NO_REQUEST)

    def usage(self, user: str | None) -> UsageOut:
        return usage_out(self.wait(self.ledger.usage(user)), _NO_REQUEST)

    def reservations(self, user: str | None) -> ReservationsOut:
        found = self.wait(self.ledger.reservations(user))
        return ReservationsOut(_NO_REQUEST, [reservation_out(slot) for slot in found])

    def release(self, reservation_id: str) -> ReservationSettledOut:
        self.wait(self.ledger.release_reservation(reservation_id))
        return ReservationSettledOut(_NO_REQUEST, reservation_id, SlotState.RELEASED)


class ServerQuotas(ABC):
    """Each of these changes nothing more when it is repeated."""

    _server: ServerClient

    @abstractmethod
    def _get(self, path: str, kind: type[T], **query: object) -> T: ...

    @abstractmethod
    def _read(self, said: ServerReply, kind: type[T]) -> T: ...

    def quota(self, user: str) -> QuotaOut:
        return self._get(_quota_path(user), QuotaOut)

    def set_quota(self, user: str, limits: Limits) -> QuotaOut:
        if limits == Limits():
            return self._read(self._server.send("DELETE", _quota_path(user), repeat=True), QuotaOut)
        return self._put(_quota_path(user), limits_out(limits), QuotaOut)

    def tenant_quota(self) -> TenantQuotaOut:
        return self._get("/api/quotas", TenantQuotaOut)

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut:
        before = msgspec.to_builtins(self.tenant_quota())
        both = {name: before[name] for name in ("default", "ceiling")} | {half: limits_out(limits)}
        return self._put("/api/quotas", both, TenantQuotaOut)

    def usage(self, user: str | None) -> UsageOut:
        return self._get("/api/usage", UsageOut, user=user)

    def reservations(self, user: str | None) -> ReservationsOut:
        return self._get("/api/reservations", ReservationsOut, user=user)

    def release(self, reservation_id: str) -> ReservationSettledOut:
        usage_id_of_reservation("", reservation_id)  # checked here, as an engine would
        path = f"/api/reservations/{reservation_id}/release"
        return self._read(self._server.send("POST", path, repeat=True), ReservationSettledOut)

    def _put(self, path: str, body: Any, kind: type[T]) -> T:
        return self._read(self._server.send("PUT", path, json.encode(body), repeat=True), kind)


def _quota_path(user: str) -> str:
    return f"/api/quotas/{quote(user_name(user), safe='')}"


# What becomes of jobs, on an engine or against a server.


PAGE = 1000
# Less than a call may take, whatever stands in between.
WAIT_SECONDS_MAX = 10.0


class WorkBackend(Protocol):
    def result(self, job_id: str) -> Raw: ...

    def logs(self, job_id: str, offset: int) -> LogsOut: ...

    def resolve(self, job_id: str, resolution: Resolution, note: str) -> SingleJobOut: ...

    def wait_for_job(self, job_id: str, seconds: float) -> SingleJobOut:
        """The job once it has ended, or as it is after so many seconds, at most `AWAIT_SECONDS`."""


class EngineWork:
    ledger: Ledger
    wait: Callable[[Coroutine[Any, Any, Any]], Any]

    def result(self, job_id: str) -> Raw:
        return Raw(self.wait(self.ledger.result_json(job_id)))

    def logs(self, job_id: str, offset: int) -> LogsOut:
        page = self.wait(self.ledger.log_lines(job_id, offset=offset, limit=PAGE))
        return LogsOut(_NO_REQUEST, page.offset, list(page.lines), page.next, page.total, page.state)

    def resolve(self, job_id: str, resolution: Resolution, note: str) -> SingleJobOut:
        return self._shown(self.ledger.resolve(job_id, resolution, note=note))

    def wait_for_job(self, job_id: str, seconds: float) -> SingleJobOut:
        return self._shown(self.ledger.wait(job_id, timedelta(seconds=seconds)))

    def _shown(self, asking: Coroutine[Any, Any, JobView]) -> SingleJobOut:
        job: JobView = self.wait(asking)
        return SingleJobOut(_NO_REQUEST, job_out(job))


class ServerWork:
    _server: ServerClient
    _read: Callable[[ServerReply, type[Any]], Any]

    def result(self, job_id: str) -> Raw:
        said = self._server.send("GET", f"{_work_path(job_id)}/result", repeat=True)
        json.decode(said.body)  # what a server says is not printed unread
        return Raw(said.body)

    def logs(self, job_id: str, offset: int) -> LogsOut:
        path = f"{_work_path(job_id)}/logs?offset={offset}&limit={PAGE}"
        found: LogsOut = self._read(self._server.send("GET", path, repeat=True), LogsOut)
        return found

    def resolve(self, job_id: str, resolution: Resolution, note: str) -> SingleJobOut:
        body = json.encode({"resolution": resolution, "note": note})
        # A second try would find the job resolved, and be refused.
        said = self._server.send("POST", f"{_work_path(job_id)}/resolve", body, repeat=False)
        found: SingleJobOut = self._read(said, SingleJobOut)
        return found

    def wait_for_job(self, job_id: str, seconds: float) -> SingleJobOut:
        said = self._server.send("GET", f"{_work_path(job_id)}?wait={seconds:.3f}", repeat=True)
        found: SingleJobOut = self._read(said, SingleJobOut)
        return found


def _work_path(job_id: str) -> str:
    return f"/api/jobs/{format_job_id(parse_job_id(job_id))}"


# The file behind an engine's URL.


_SQLITE = "sqlite:///"


def sqlite_file(url: str) -> Path | None:
    """The file of an engine that has one."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) and url != _SQLITE else None


def require_store(url: str) -> None:
    """To look must not make a store: in a wrong folder an empty one would answer that there is nothing."""
    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise NotFound(f"there is no store at {file}; name another with --engine, or make it by a submission")


class SubmitResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A submission's answer; the id is there even where the job is not ours to show."""

    job_id: str
    job: JobOut | None
    idempotency: IdempotencyOut
    warnings: list[WarningOut] = []


class Backend(QuotaBackend, WorkBackend, Protocol):
    def submit(self, submission: Submission) -> SubmitResult: ...

    def submit_sequence(self, submission: SequencedSubmission) -> SequenceOut: ...

    def client_state(self, client_id: str, *, scope: str) -> ClientStateOut: ...

    def job(self, job_id: str) -> SingleJobOut: ...

    def jobs(
        self, *, state: JobState | None, type: str | None, user: str | None, limit: int, cursor: str | None
    ) -> JobsOut: ...

    def cancel(self, job_id: str) -> SingleJobOut: ...

    def explain(self, key: str, *, scope: str, user: str | None) -> KeyOut: ...

    def keys(self, *, scope: str | None, user: str | None, limit: int, cursor: str | None) -> KeysOut: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# The commands on an engine, without a server.


class EngineBackend(EngineQuotas, EngineWork, Backend):
    def __init__(self, url: str, *, tenant: str) -> None:
        self._runner = asyncio.Runner()
        try:
            self.ledger = self._runner.run(_opened(url, tenant))
        except BaseException:
            self._runner.close()
            raise

    def submit(self, submission: Submission) -> SubmitResult:
        receipt = self.wait(self.ledger.submit_prepared(submission))
        job = job_out(receipt.job) if receipt.job else None
        return SubmitResult(receipt.job_id, job, idempotency_out(receipt), warnings_out(receipt.warnings))

    def submit_sequence(self, submission: SequencedSubmission) -> SequenceOut:
        return sequence_out(self.wait(self.ledger.submit_sequence_prepared(submission)), _NO_REQUEST)

    def client_state(self, client_id: str, *, scope: str) -> ClientStateOut:
        found = self.wait(self.ledger.get_client_state(client_id, scope=scope, any_owner=True))
        return client_state_out(found, _NO_REQUEST)

    def job(self, job_id: str) -> SingleJobOut:
        return SingleJobOut(_NO_REQUEST, job_out(self.wait(self.ledger.job(job_id))))

    def jobs(
        self, *, state: JobState | None, type: str | None, user: str | None, limit: int, cursor: str | None
    ) -> JobsOut:
        found = self.wait(self.ledger.jobs(state=state, type=type, user=user, before=cursor, limit=limit))
        return JobsOut(_NO_REQUEST, [job_out(one) for one in found], found.next)

    def cancel(self, job_id: str) -> SingleJobOut:
        return SingleJobOut(_NO_REQUEST, job_out(self.wait(self.ledger.cancel(job_id))))

    def explain(self, key: str, *, scope: str, user: str | None) -> KeyOut:
        # An engine does not know whether its keys belong to users: whoever names one says so.
        ledger = self.ledger if user is None else self._of_user(user)
        return key_out(self.wait(ledger.explain(key, scope=scope)), _NO_REQUEST)

    def keys(self, *, scope: str | None, user: str | None, limit: int, cursor: str | None) -> KeysOut:
        page = self.wait(self.ledger.keys(scope=scope, user=user, cursor=cursor, limit=limit))
        return KeysOut(_NO_REQUEST, [key_summary_out(story) for story in page.histories], page.next)

    def _of_user(self, user: str) -> Ledger:
        caller = self.ledger.caller
        actor = Actor.parse(caller.actor)
        return self.ledger.acting_as(tenant=caller.tenant, user=user, actor=actor, owns_keys=True)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        try:
            self.wait(self.ledger.aclose())
        finally:
            self._runner.close()


async def _opened(url: str, tenant: str) -> Ledger:
    return await open_ledger(url, tenant=tenant, sweep=False)


# The commands against a server. The answers are decoded, so that only what is known here is shown.


_encode = json.Encoder(decimal_format="number").encode


class ServerBackend(ServerQuotas, ServerWork, Backend):
    def __init__(self, server: ServerClient) -> None:
        self._server = server

    def submit(self, submission: Submission) -> SubmitResult:
        # Encoded once: a repetition sends the very same bytes. Without a key it could make a second job.
        body = _encode(_body(submission))
        window = (submission.idempotency_ttl or WINDOW_DEFAULT).total_seconds()
        keyed = submission.idempotency_key is not None
        said = self._server.send("POST", "/api/jobs", body, repeat=keyed, window=window)
        answer = self._read(said, SubmitOut)
        named = answer.job.id if answer.job else answer.job_id or ""
        return SubmitResult(named, answer.job, answer.idempotency, answer.warnings)

    def submit_sequence(self, submission: SequencedSubmission) -> SequenceOut:
        (one,) = submission.jobs
        ttl = submission.idempotency_ttl
        number = {
            "scope": submission.scope,
            "sequence": submission.sequence,
            "idempotencyKey": submission.idempotency_key,
        }
        window = {} if ttl is None else {"idempotencyTtlSeconds": ttl.total_seconds()}
        body = _encode(_body(one) | number | window)
        path = f"{_client_path(submission.client_id)}/jobs"
        return self._read(self._server.send("POST", path, body, repeat=True), SequenceOut)

    def client_state(self, client_id: str, *, scope: str) -> ClientStateOut:
        return self._get(f"{_client_path(client_id)}/state", ClientStateOut, scope=checked_name("scope", scope))

    def job(self, job_id: str) -> SingleJobOut:
        return self._get(_job_path(job_id), SingleJobOut)

    def jobs(
        self, *, state: JobState | None, type: str | None, user: str | None, limit: int, cursor: str | None
    ) -> JobsOut:
        return self._get("/api/jobs", JobsOut, state=state, type=type, user=user, limit=limit, cursor=cursor)

    def cancel(self, job_id: str) -> SingleJobOut:
        # To cancel what is cancelled changes nothing.
        return self._read(self._server.send("POST", f"{_job_path(job_id)}/cancel", repeat=True), SingleJobOut)

    def explain(self, key: str, *, scope: str, user: str | None) -> KeyOut:
        path = f"/api/keys/{quote(checked_key(key), safe='')}"
        return self._get(path, KeyOut, scope=checked_lookup_scope(scope), user=user)

    def keys(self, *, scope: str | None, user: str | None, limit: int, cursor: str | None) -> KeysOut:
        return self._get("/api/keys", KeysOut, scope=scope, user=user, limit=limit, cursor=cursor)

    def close(self) -> None:
        pass  # every call has its own connection

    def _get(self, path: str, kind: type[T], **query: object) -> T:
        fields = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(fields)}" if fields else path
        return self._read(self._server.send("GET", target, repeat=True), kind)

    def _read(self, said: ServerReply, kind: type[T]) -> T:
        try:
            return json.decode(said.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OnejobError(
                f"{self._server.url} answered in words that are not onejob's; see whether the URL is right"
            ) from error


def _job_path(job_id: str) -> str:
    """Checked here, as an engine would: an empty id would name another path."""
    return f"/api/jobs/{format_job_id(parse_job_id(job_id))}"


def _client_path(client_id: str) -> str:
    return f"/api/clients/{quote(checked_client_id(client_id), safe='')}"


def _body(submission: Submission) -> dict[str, Any]:
    """Only what was said; the server knows the rest."""
    ttl, timeout, cost = submission.idempotency_ttl, submission.timeout, submission.estimated_cost
    body = {
        "type": submission.type,
        "input": submission.input,
        "idempotencyKey": submission.idempotency_key,
        "scope": submission.scope,
        "idempotencyTtlSeconds": None if ttl is None else ttl.total_seconds(),
        "delivery": submission.delivery,
        "priority": submission.priority,
        "runAt": submission.run_at,
        "maxAttempts": submission.max_attempts,
        "timeoutSeconds": None if timeout is None else timeout.total_seconds(),
        "labels": dict(submission.labels) if submission.labels else None,
        "estimatedCost": None if cost is None else to_units(to_micros("estimated_cost", cost)),
        "reservation": submission.reservation,
    }
    return {name: value for name, value in body.items() if value is not None}


# Where a command works: on an engine, or against a server.


TENANT_DEFAULT = "default"


def open_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> Backend:
    """The door that the options name. `makes`: a store that is not there may be made."""
    if options.url is not None:
        return ServerBackend(build_server_client(options, settings))
    return open_engine_backend(options, settings, creates_store=creates_store)


def open_engine_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> EngineBackend:
    if options.api_key is not None:
        raise Invalid("api key", "an engine takes no API key; name a server with --url, or leave it out")
    url = engine_url(options, settings)
    if not creates_store:
        require_store(url)
    return EngineBackend(url, tenant=options.tenant or TENANT_DEFAULT)


def engine_url(options: Namespace, settings: CliSettings) -> str:
    return options.engine or settings.engine or URL_DEFAULT


def build_server_client(options: Namespace, settings: CliSettings) -> ServerClient:
    if options.tenant is not None:
        raise Invalid("tenant", "a server knows the tenant from the API key; leave --tenant out")
    retry_for = getattr(options, "retry_for", None)
    retry = None if retry_for is None else patient(retry_for)
    return ServerClient(options.url, options.api_key or settings.api_key, retry)
