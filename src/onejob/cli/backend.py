"""Where a command runs: on an engine, or against a server by the client's requests and retry flow.

Both backends have the same methods and return the response bodies of the HTTP API, which are printed as JSON or as text.
The server backend needs no httpx: it sends the requests with `http.client`, one connection for each.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from onejob import sync
from onejob.client import requests
from onejob.client.decoding import decode_response
from onejob.client.flow import ATTEMPTS_MAX as RETRIES_MAX
from onejob.client.flow import (
    CallOutcome,
    NoResponse,
    ProblemBody,
    RetryPolicy,
    Send,
    ServerResponse,
    classify,
    is_definitive,
    parse_problem,
    retry_after,
    run_blocking,
    send_with_retries,
)
from onejob.client.requests import Call, checked_api_key, checked_url, checked_window
from onejob.clock import SystemClock
from onejob.codes import NextAction
from onejob.core.errors import Invalid
from onejob.core.identity import checked_name, stream_scope
from onejob.core.limits import Limits
from onejob.core.replies import LimitWarning
from onejob.core.states import SlotState
from onejob.errors import NotFound, OnejobError, Unavailable, Unknown
from onejob.http.problems import Problem
from onejob.ids import random_fraction
from onejob.ledger import RETENTION_DEFAULT, URL_DEFAULT
from onejob.ledger.operators import BulkAction, Overview, to_overview_view, to_types
from onejob.ledger.parse import Submission
from onejob.ledger.reads import JobFilter, JobPage, KeyPage
from onejob.ledger.sequences import SequencedSubmission
from onejob.resources.jobs import Failures, Jobs, JobView, SingleJob, SitesOfJob, StepsOfJob
from onejob.resources.keys import Keys
from onejob.resources.operators import BulkResult, OverviewView, TypePaused, Types, Workers
from onejob.resources.quotas import ReservationSettled, SlotReservations, TenantQuotaResponse
from onejob.resources.submissions import ClientState, KeyOutcome, SequenceReceipt
from onejob.runtime.counts import INTERVAL_MS as COUNTS_INTERVAL_MS
from onejob.runtime.quota_views import to_quota_response, to_tenant_quota_response, to_usage_response
from onejob.runtime.receipts import Receipt, to_key_outcome
from onejob.settings import CliSettings
from onejob.sync import SyncLedger

from .exit_codes import ServerRefused
from .render import print_error

TENANT_DEFAULT = "default"
ATTEMPTS_MAX = 4
RESPONSE_BYTES_MAX = 16 << 20
_ATTEMPT_SECONDS_MAX = 60.0  # longer than the server holds a duplicate of a pending key
_COUNT_SECONDS_MAX = 2.0
_COUNT_POLL_SECONDS = 0.05
_PAUSE_FIRST = 0.2
_PAUSE_MAX = 5.0
_AWAY = (502, 503, 504)
# The codes of responses that have no onejob error body.
_CODES = {
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMITED",
} | dict.fromkeys(_AWAY, "SERVICE_UNAVAILABLE")
_SQLITE = "sqlite:///"

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SubmitResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The response to a submission; the id is present also for a job that is known by its id alone."""

    job_id: str
    job: JobView | None
    idempotency: KeyOutcome
    warnings: Sequence[LimitWarning] = ()


def _ledger_method(
    method: Callable[Concatenate[SyncLedger, P], T], present: Callable[[T], R]
) -> Callable[Concatenate["EngineBackend", P], R]:
    """Call a method of the ledger and present its result as a response body."""

    def call(self: "EngineBackend", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return present(method(self.ledger, *args, **kwargs))

    return call


def _request_method(build: Callable[P, Call[R]]) -> Callable[Concatenate["ServerBackend", P], R]:
    """Send a request, which has the same effect when it is sent again, and decode its response body."""

    def call(self: "ServerBackend", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.send(build(*args, **kwargs))

    return call


def _submit_result(receipt: Receipt) -> SubmitResult:
    return SubmitResult(receipt.job_id, receipt.job, to_key_outcome(receipt), receipt.warnings)


def _jobs(page: JobPage) -> Jobs:
    return Jobs(page, page.next)


def _keys(page: KeyPage) -> Keys:
    return Keys(page, page.next)


def _same(resource: T) -> T:
    return resource


def _filter_members(wanted: JobFilter) -> dict[str, str]:
    return requests.job_filter(**asdict(wanted))


class EngineBackend:
    def __init__(self, url: str, *, tenant: str, settings: CliSettings) -> None:
        self.url = url
        self._tenant = tenant
        retention = RETENTION_DEFAULT if settings.job_retention is None else settings.job_retention
        self.ledger = sync.open(url, tenant=tenant, sweep=False, retention=retention)

    submit = _ledger_method(SyncLedger.submit_prepared, _submit_result)
    submit_sequence = _ledger_method(SyncLedger.submit_sequence_prepared, _same)
    job = _ledger_method(SyncLedger.job, SingleJob)
    wait = _ledger_method(SyncLedger.wait_at_most, SingleJob)
    jobs = _ledger_method(SyncLedger.jobs, _jobs)
    cancel = _ledger_method(SyncLedger.cancel, SingleJob)
    resolve = _ledger_method(SyncLedger.resolve, SingleJob)
    input = _ledger_method(SyncLedger.input, Raw)
    sites = _ledger_method(SyncLedger.sites, SitesOfJob)
    failures = _ledger_method(SyncLedger.failures, Failures)
    result = _ledger_method(SyncLedger.result_json, Raw)
    logs = _ledger_method(SyncLedger.log_lines, _same)
    steps = _ledger_method(SyncLedger.steps, StepsOfJob)
    keys = _ledger_method(SyncLedger.keys, _keys)
    explain = _ledger_method(SyncLedger.explain, _same)
    quota = _ledger_method(SyncLedger.quota, to_quota_response)
    set_quota = _ledger_method(SyncLedger.set_quota, to_quota_response)
    usage = _ledger_method(SyncLedger.usage, to_usage_response)
    reservations = _ledger_method(SyncLedger.reservations, SlotReservations)

    def overview(self) -> OverviewView:
        stats = self.ledger.admin.runtime_stats()
        return to_overview_view(
            self._current_overview(),
            self.ledger.admin.paused_types(),
            engine=stats.engine,
            durability=self.ledger.durability,
            caveat=stats.durability_warning,
        )

    def types(self) -> Types:
        return to_types(self._current_overview(), self.ledger.admin.paused_types())

    def _current_overview(self) -> Overview:
        """This process ends soon, and the count that it has started with it; so it waits for the new counts."""
        clock = SystemClock()
        until = clock.monotonic() + _COUNT_SECONDS_MAX
        overview = self.ledger.admin.overview()
        while overview.now - overview.counts.at > COUNTS_INTERVAL_MS and clock.monotonic() < until:
            clock.sleep(_COUNT_POLL_SECONDS)
            overview = self.ledger.admin.overview()
        return overview

    def pause_type(self, type: str) -> TypePaused:
        self.ledger.admin.pause_type(type)
        return TypePaused(type, paused=True)

    def resume_type(self, type: str) -> TypePaused:
        self.ledger.admin.resume_type(type)
        return TypePaused(type, paused=False)

    def count_jobs(self, _: BulkAction, wanted: JobFilter) -> BulkResult:
        matched, more = self.ledger.admin.count_jobs(wanted)
        return BulkResult(matched, 0, [], None, more)

    def bulk_action(
        self, action: BulkAction, wanted: JobFilter, *, before: str | None, idempotency_key: str
    ) -> BulkResult:
        return self.ledger.admin.bulk_action(action, wanted, before=before, idempotency_key=idempotency_key)

    def client_state(self, client_id: str, *, scope: str) -> ClientState:
        return self.ledger.get_client_state(client_id, scope=scope, any_owner=True)

    def workers(self) -> Workers:
        return Workers(self.ledger.admin.workers())

    def tenant_quota(self) -> TenantQuotaResponse:
        return to_tenant_quota_response(self.ledger.admin.tenant_quota())

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaResponse:
        halves = replace(self.ledger.admin.tenant_quota(), **{half: limits})
        return to_tenant_quota_response(self.ledger.admin.set_tenant_quota(halves))

    def release(self, reservation_id: str) -> ReservationSettled:
        was_known = self.ledger.release_reservation_or_raise(reservation_id)
        return ReservationSettled(reservation_id, SlotState.RELEASED, was_known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ledger.close()


class ServerBackend:
    def __init__(
        self, url: str, api_key: str | None = None, retry_for: timedelta | None = None, window: timedelta | None = None
    ) -> None:
        if not url.isascii():
            raise Invalid("url", "the URL is not ASCII; write its host as xn--… and its path in percent-encoding")
        self.url = checked_url(url)
        self.parts = urlsplit(self.url)
        self._headers = {"Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {checked_api_key(api_key)}"
        self._clock = SystemClock()
        self._retry = _retry_policy(retry_for)
        self._window = checked_window(window)

    client_state = _request_method(requests.client_state_call)
    job = _request_method(requests.job_call)
    jobs = _request_method(requests.jobs_call)
    cancel = _request_method(requests.cancel_call)
    resolve = _request_method(requests.resolve_call)
    input = _request_method(requests.input_call)
    sites = _request_method(requests.sites_call)
    failures = _request_method(requests.failures_call)
    result = _request_method(requests.result_call)
    logs = _request_method(requests.logs_call)
    steps = _request_method(requests.steps_call)
    explain = _request_method(requests.key_call)
    keys = _request_method(requests.keys_call)
    quota = _request_method(requests.quota_call)
    set_quota = _request_method(requests.set_quota_call)
    tenant_quota = _request_method(requests.tenant_quota_call)
    usage = _request_method(requests.usage_call)
    reservations = _request_method(requests.slots_call)
    release = _request_method(requests.release_slot_call)
    overview = _request_method(requests.overview_call)
    workers = _request_method(requests.workers_call)
    types = _request_method(requests.types_call)
    pause_type = _request_method(requests.pause_type_call)
    resume_type = _request_method(requests.resume_type_call)

    def count_jobs(self, action: BulkAction, wanted: JobFilter) -> BulkResult:
        return self.send(requests.act_on_jobs_call(action, _filter_members(wanted), dry_run=True))

    def bulk_action(
        self, action: BulkAction, wanted: JobFilter, *, before: str | None, idempotency_key: str
    ) -> BulkResult:
        call = requests.act_on_jobs_call(
            action, _filter_members(wanted), before=before, idempotency_key=idempotency_key
        )
        return self.send(call)

    def submit(self, submission: Submission) -> SubmitResult:
        key = submission.idempotency_key and str(submission.idempotency_key)
        call = requests.submit_call(submission, key)
        # Without a key, a retry could create a second job.
        response = self.send(call, may_retry=call.key is not None)
        job_id = response.job.id if response.job else response.job_id or ""
        return SubmitResult(job_id, response.job, response.idempotency, response.warnings)

    def submit_sequence(self, submission: SequencedSubmission) -> SequenceReceipt:
        call = requests.sequence_call(
            submission.client_id,
            submission.sequence,
            str(submission.idempotency_key),
            submission.jobs,
            scope=stream_scope(submission.scope),
            ttl=submission.idempotency_ttl,
        )
        return self.send(call)

    def wait(self, job_id: str, timeout: timedelta) -> SingleJob:
        """The job when it has ended, or as it is after the timeout, or at once if the server cannot wait."""
        return self.send(requests.job_call(job_id, wait_seconds=timeout.total_seconds()))

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaResponse:
        before = self.send(requests.tenant_quota_call())
        halves: Any = {"default": before.default, "ceiling": before.ceiling} | {half: limits}
        return self.send(requests.set_tenant_quota_call(**halves))

    def send(self, call: Call[R], *, may_retry: bool = True) -> R:
        begin = self._clock.monotonic()
        chosen_by_server = call.server_window_type is not None
        window_seconds = self._window.total_seconds() if chosen_by_server else call.window_ms / 1000 or inf
        steps = send_with_retries(
            call,
            self._retry,
            begin=begin,
            jitter=random_fraction,
            may_retry=may_retry,
            window_end=begin + window_seconds,
        )
        response = self._response_or_raise(call, run_blocking(steps, self._send_once, self._clock))
        try:
            return decode_response(response.body, call.response_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OnejobError(f"{self.url} answered without a onejob response body; check the URL") from error

    def probe(self, path: str) -> ServerResponse:
        """GET a path once, and return its response whatever its status."""
        response = self._send_once(Send(Call(method="GET", path=path, response_type=Raw), _ATTEMPT_SECONDS_MAX))
        if isinstance(response, NoResponse):
            raise self._no_response(response.reason, outcome_unknown=response.sent)
        return response

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass  # every request has its own connection

    def _response_or_raise(self, call: Call[Any], outcome: CallOutcome) -> ServerResponse:
        response, unknown = outcome.response, outcome.outcome_unknown
        if isinstance(response, NoResponse):
            raise self._no_response(response.reason, outcome_unknown=unknown, key_header=call.key_header)
        action, problem = classify(response), parse_problem(response)
        if action is NextAction.KEEP:
            return response
        refused = action in (NextAction.FIX, NextAction.GIVE_UP)
        if unknown and refused and call.method != "GET" and not is_definitive(problem):
            # The refusal does not say what an earlier attempt did.
            reason = f"then it answered {response.status}"
            raise self._no_response(reason, outcome_unknown=True, key_header=call.key_header)
        if problem is None:
            code = _CODES.get(response.status, "INTERNAL_ERROR" if response.status >= 500 else "BAD_REQUEST")
            message = f"{self.url} answered {response.status} without a onejob error body; check the URL"
            problem = ProblemBody(code, message, response.status in _AWAY or retry_after(response) is not None)
        elif problem.code == "UNAUTHORIZED":
            problem = replace(problem, message=self._unauthorized_message())
        wait = 1 if problem.retryable else None
        raise ServerRefused(Problem(problem.code, response.status, "", problem.message, problem.details, wait))

    def _unauthorized_message(self) -> str:
        if "Authorization" in self._headers:
            return f"{self.url} does not accept this API key; correct --api-key or ONEJOB_API_KEY"
        return f"{self.url} needs an API key; give one with --api-key or ONEJOB_API_KEY"

    def _no_response(self, reason: str, *, outcome_unknown: bool, key_header: str | None = None) -> OnejobError:
        if outcome_unknown:
            next_act = "retry with the same key, or look at the jobs first if there was none"
            if key_header is not None:  # quoted, as a shell takes it
                next_act = f"retry with --idempotency-key {key_header}"
            return Unknown(f"{self.url} gave no complete response ({reason}): it may be done; {next_act}")
        return Unavailable(
            f"{self.url} cannot be reached ({reason}): nothing was done; check that the server runs, then retry"
        )

    def _send_once(self, send: Send) -> ServerResponse | NoResponse:
        call: Call[Any] = send.call
        connect = HTTPSConnection if self.parts.scheme == "https" else HTTPConnection
        connection = connect(self.parts.hostname or "", self.parts.port, timeout=send.timeout)
        sent = False
        try:
            connection.connect()
            sent = True
            headers = self._headers | ({"Content-Type": "application/json"} if call.body else {})
            if call.key_header is not None:
                headers["Idempotency-Key"] = call.key_header
            connection.request(call.method, self.parts.path + call.path, call.body, headers)
            return _read_response(connection.getresponse())
        except (OSError, HTTPException) as error:
            return NoResponse(_reason(error), sent=sent)
        finally:
            connection.close()


Backend = EngineBackend | ServerBackend


def open_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> Backend:
    """The backend that the options name. `creates_store`: a store that does not exist may be created."""
    if (url := server_url(options, settings)) is not None:
        return open_server_backend(url, options, settings)
    return open_engine_backend(options, settings, creates_store=creates_store)


def open_engine_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> EngineBackend:
    if options.api_key is not None:
        raise Invalid("api key", "an engine takes no API key; name a server with --url, or leave it out")
    # An empty name is a variable that was not set, not the default.
    tenant = TENANT_DEFAULT if options.tenant is None else checked_name("tenant", options.tenant)
    url = engine_url(options, settings)
    file = sqlite_file(url)
    # A read must not create a store: in a wrong folder, an empty one would answer that there is nothing.
    if not creates_store and file is not None and not file.exists():
        raise NotFound(f"there is no store at {file}; name another with --engine, or create it by a submission")
    return EngineBackend(url, tenant=tenant, settings=settings)


def server_url(options: Namespace, settings: CliSettings) -> str | None:
    """The server that a command works against; None: it works on an engine."""
    url: str | None = options.url if options.engine or options.url else settings.url
    return url


def open_server_backend(url: str, options: Namespace, settings: CliSettings) -> ServerBackend:
    if options.tenant is not None:
        raise Invalid("tenant", "a server knows the tenant from the API key; leave --tenant out")
    retry_for = getattr(options, "retry_for", None)
    return ServerBackend(url, options.api_key or settings.api_key, retry_for, settings.window)


def engine_url(options: Namespace, settings: CliSettings) -> str:
    """The engine that a command works on. One that takes no `--url` says so, if a server is named all the same."""
    url: str | None = options.engine or settings.engine
    if url is None and settings.url is not None:
        print_error(f"this command does not use ONEJOB_URL, it works on {URL_DEFAULT}; name another with --engine")
    return url or URL_DEFAULT


def sqlite_file(url: str) -> Path | None:
    """The file of an engine that has one."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) and url != _SQLITE else None


def _retry_policy(retry_for: timedelta | None) -> RetryPolicy:
    """A few attempts, or as many as fit into `--retry-for`, also while the key is in progress elsewhere."""
    if retry_for is not None:
        return RetryPolicy(
            deadline=retry_for.total_seconds(), attempts_max=RETRIES_MAX, attempt_timeout=_ATTEMPT_SECONDS_MAX
        )
    return RetryPolicy(
        deadline=ATTEMPTS_MAX * (_ATTEMPT_SECONDS_MAX + _PAUSE_MAX),
        attempts_max=ATTEMPTS_MAX,
        attempt_timeout=_ATTEMPT_SECONDS_MAX,
        pause_first=_PAUSE_FIRST,
        pause_max=_PAUSE_MAX,
        retry_after_max=_PAUSE_MAX,
        waits=False,
    )


def _read_response(response: HTTPResponse) -> ServerResponse:
    """A response with neither a length nor chunks may be cut, so it counts as incomplete."""
    expected = response.length
    body = response.read(RESPONSE_BYTES_MAX)
    if not response.chunked and len(body) != expected:
        raise IncompleteRead(body)
    return ServerResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _reason(error: Exception) -> str:
    if isinstance(error, IncompleteRead):
        return "it was cut"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
