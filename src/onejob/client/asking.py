"""Acts that need no key: to look, to cancel, to forget. Each may be repeated without harm."""

from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Raw, json

from onejob.core.key import checked_key

from . import calls, wire
from .calls import Call
from .flow import Sleep
from .said import state_call
from .verbs import Steps, Verbs

# No longer than a server lets anybody wait, nor than most proxies do.
WAIT_SECONDS: Final = 20.0
POLL_SECONDS: Final = 1.0


class Asking:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def get_client_state(self, client_id: str, *, scope: str) -> Steps[wire.ClientState]:
        state: wire.ClientState = yield from self._verbs.ask(state_call(client_id, scope))
        return state

    def job(self, job_id: str) -> Steps[wire.Job]:
        return (yield from self._job(calls.get(_path(job_id), wire.OneJob)))

    def jobs(
        self,
        *,
        state: str | None = None,
        type: str | None = None,
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Steps[wire.JobPage]:
        call = calls.get(
            "/api/jobs", wire.JobPage, state=state, type=type, user=user, cursor=before, limit=limit
        )
        page: wire.JobPage = yield from self._verbs.ask(call)
        return page

    def cancel(self, job_id: str) -> Steps[wire.Job]:
        return (yield from self._job(Call(method="POST", path=f"{_path(job_id)}/cancel", gives=wire.OneJob)))

    def explain(self, key: str, *, scope: str, user: str | None) -> Steps[wire.Story]:
        story: wire.Story = yield from self._verbs.ask(
            calls.get(_key_path(key), wire.Story, scope=scope, user=user)
        )
        return story

    def keys(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Steps[wire.KeyPage]:
        page: wire.KeyPage = yield from self._verbs.ask(
            calls.get("/api/keys", wire.KeyPage, scope=scope, user=user, cursor=cursor, limit=limit)
        )
        return page

    def forget(self, key: str, *, scope: str, user: str | None) -> Steps[datetime]:
        target = calls.get(_key_path(key), wire.Forgotten, scope=scope, user=user)
        forgotten: wire.Forgotten = yield from self._verbs.ask(
            Call(method="DELETE", path=target.path, gives=wire.Forgotten)
        )
        return forgotten.usable_after

    def wait(self, job_id: str, timeout: timedelta | float | None) -> Steps[wire.Job]:
        """The server lets each question wait. Where it does not, being full or going down, it is asked now and then."""
        now = self._verbs.now
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        end = float("inf") if seconds is None else now() + seconds
        longest = min(WAIT_SECONDS, self._verbs.patience / 2)
        while True:
            begun = now()
            asked = max(0.0, min(longest, end - begun))
            found = yield from self._job(calls.get(_path(job_id), wire.OneJob, wait=f"{asked:.3f}"))
            if found.ended:
                return found
            if now() >= end:
                raise TimeoutError(f"job {job_id} is {found.state} after {seconds:g} s; look again later")
            if now() - begun < asked / 2:
                yield Sleep(min(POLL_SECONDS, end - now()))

    def result(self, job_id: str) -> Steps[Any]:
        return json.decode((yield from self.result_json(job_id)))

    def result_json(self, job_id: str) -> Steps[bytes]:
        found: Raw = yield from self._verbs.ask(calls.get(f"{_path(job_id)}/result", Raw))
        return bytes(found)

    def log_lines(self, job_id: str, *, offset: int, limit: int) -> Steps[wire.LogPage]:
        call = calls.get(f"{_path(job_id)}/logs", wire.LogPage, offset=offset, limit=limit)
        page: wire.LogPage = yield from self._verbs.ask(call)
        return page

    def _job(self, call: Call) -> Steps[wire.Job]:
        found: wire.OneJob = yield from self._verbs.ask(call)
        return found.job


def _path(job_id: str) -> str:
    return f"/api/jobs/{calls.quoted(job_id).lower()}"


def _key_path(key: str) -> str:
    return f"/api/keys/{calls.quoted(checked_key(key))}"
