"""The commands on an engine, without a server."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from onejob.core.states import JobState
from onejob.http.wire import (
    JobsOut,
    KeyOut,
    KeysOut,
    OneJobOut,
    idempotency_out,
    job_out,
    key_line_out,
    key_out,
    warnings_out,
)
from onejob.intake import Submission
from onejob.ledger import Ledger
from onejob.opening import open as open_ledger

from .door import Submitted
from .quota_doors import EngineQuotas

T = TypeVar("T")
_NO_REQUEST = ""  # the wire's answers name their request; here there is none


class EngineDoor(EngineQuotas):
    def __init__(self, url: str, *, tenant: str) -> None:
        self._runner = asyncio.Runner()
        try:
            self.ledger = self._runner.run(_opened(url, tenant))
        except BaseException:
            self._runner.close()
            raise

    def submit(self, submission: Submission) -> Submitted:
        receipt = self.wait(self.ledger.send(submission))
        job = job_out(receipt.job) if receipt.job else None
        return Submitted(receipt.job_id, job, idempotency_out(receipt), warnings_out(receipt.warnings))

    def job(self, job_id: str) -> OneJobOut:
        return OneJobOut(_NO_REQUEST, job_out(self.wait(self.ledger.job(job_id))))

    def jobs(self, *, state: JobState | None, type: str | None, limit: int, cursor: str | None) -> JobsOut:
        found = self.wait(self.ledger.jobs(state=state, type=type, before=cursor, limit=limit))
        following = found[-1].id if len(found) == limit else None
        return JobsOut(_NO_REQUEST, [job_out(one) for one in found], following)

    def cancel(self, job_id: str) -> OneJobOut:
        return OneJobOut(_NO_REQUEST, job_out(self.wait(self.ledger.cancel(job_id))))

    def explain(self, key: str, *, scope: str) -> KeyOut:
        return key_out(self.wait(self.ledger.explain(key, scope=scope)), _NO_REQUEST)

    def keys(self, *, scope: str | None, limit: int, cursor: str | None) -> KeysOut:
        page = self.wait(self.ledger.keys(scope=scope, cursor=cursor, limit=limit))
        return KeysOut(_NO_REQUEST, [key_line_out(story) for story in page.stories], page.next)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        try:
            self.wait(self.ledger.aclose())
        finally:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _opened(url: str, tenant: str) -> Ledger:
    return await open_ledger(url, tenant=tenant, sweep=False)
