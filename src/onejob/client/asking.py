"""Acts that need no key: to look, to cancel, to forget. Each may be repeated without harm."""

from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Raw, json

from onejob.core.key import checked_key

from . import calls, wire
from .calls import Call
from .flow import Sleep
from .said import client_state_call
from .verbs import ClientOperations, Operation

# No longer than a server lets anybody wait, nor than most proxies do.
LONG_POLL_SECONDS: Final = 20.0
JOB_POLL_SECONDS: Final = 1.0


class ClientReads:
    def __init__(self, operations: ClientOperations) -> None:
        self._operations = operations

    def get_client_state(self, client_id: str, *, scope: str) -> Operation[wire.ClientStateModel]:
        state: wire.ClientStateModel = yield from self._operations.send_idempotent(
            client_state_call(client_id, scope)
        )
        return state

    def job(self, job_id: str) -> Operation[wire.JobModel]:
        return (yield from self._fetch_job(calls.get_call(_job_path(job_id), wire.JobResponseModel)))

    def jobs(
        self,
        *,
        state: str | None = None,
        type: str | None = None,
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Operation[wire.JobPageModel]:
        call = calls.get_call(
            "/api/jobs", wire.JobPageModel, state=state, type=type, user=user, cursor=before, limit=limit
        )
        page: wire.JobPageModel = yield from self._operations.send_idempotent(call)
        return page

    def cancel(self, job_id: str) -> Operation[wire.JobModel]:
        return (
            yield from self._fetch_job(
                Call(method="POST", path=f"{_job_path(job_id)}/cancel", response_type=wire.JobResponseModel)
            )
        )

    def explain(self, key: str, *, scope: str, user: str | None) -> Operation[wire.KeyHistoryModel]:
        story: wire.KeyHistoryModel = yield from self._operations.send_idempotent(
            calls.get_call(_key_path(key), wire.KeyHistoryModel, scope=scope, user=user)
        )
        return story

    def keys(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Operation[wire.KeyPageModel]:
        page: wire.KeyPageModel = yield from self._operations.send_idempotent(
            calls.get_call("/api/keys", wire.KeyPageModel, scope=scope, user=user, cursor=cursor, limit=limit)
        )
        return page

    def forget(self, key: str, *, scope: str, user: str | None) -> Operation[datetime]:
        target = calls.get_call(_key_path(key), wire.ForgetResponseModel, scope=scope, user=user)
        forgotten: wire.ForgetResponseModel = yield from self._operations.send_idempotent(
            Call(method="DELETE", path=target.path, response_type=wire.ForgetResponseModel)
        )
        return forgotten.usable_after

    def wait(self, job_id: str, timeout: timedelta | float | None) -> Operation[wire.JobModel]:
        """The server lets each question wait. Where it does not, being full or going down, it is asked now and then."""
        now = self._operations.now
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        end = float("inf") if seconds is None else now() + seconds
        longest = min(LONG_POLL_SECONDS, self._operations.attempt_timeout / 2)
        while True:
            begun = now()
            asked = max(0.0, min(longest, end - begun))
            found = yield from self._fetch_job(
                calls.get_call(_job_path(job_id), wire.JobResponseModel, wait=f"{asked:.3f}")
            )
            if found.has_ended:
                return found
            if now() >= end:
                raise TimeoutError(f"job {job_id} is {found.state} after {seconds:g} s; look again later")
            if now() - begun < asked / 2:
                yield Sleep(min(JOB_POLL_SECONDS, end - now()))

    def result(self, job_id: str) -> Operation[Any]:
        return json.decode((yield from self.result_json(job_id)))

    def result_json(self, job_id: str) -> Operation[bytes]:
        found: Raw = yield from self._operations.send_idempotent(
            calls.get_call(f"{_job_path(job_id)}/result", Raw)
        )
        return bytes(found)

    def log_lines(self, job_id: str, *, offset: int, limit: int) -> Operation[wire.LogPageModel]:
        call = calls.get_call(f"{_job_path(job_id)}/logs", wire.LogPageModel, offset=offset, limit=limit)
        page: wire.LogPageModel = yield from self._operations.send_idempotent(call)
        return page

    def _fetch_job(self, call: Call) -> Operation[wire.JobModel]:
        found: wire.JobResponseModel = yield from self._operations.send_idempotent(call)
        return found.job


def _job_path(job_id: str) -> str:
    return f"/api/jobs/{calls.quote_path_segment(job_id).lower()}"


def _key_path(key: str) -> str:
    return f"/api/keys/{calls.quote_path_segment(checked_key(key))}"
