"""What becomes of jobs, on an engine or against a server."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from msgspec import Raw, json

from onejob.core.finish import Resolution
from onejob.core.ids import format_job_id, parse_job_id
from onejob.core.views import JobView
from onejob.http.wire import SingleJobOut, job_out
from onejob.http.work_wire import LogsOut
from onejob.ledger import Ledger

from .calls import ServerClient, ServerReply

T = TypeVar("T")
PAGE = 1000
# Less than a call may take, whatever stands in between.
WAIT_SECONDS_MAX = 10.0
_NO_REQUEST = ""


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
