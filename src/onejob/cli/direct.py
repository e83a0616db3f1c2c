"""The commands on an engine, without a server."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from onejob.core.actor import Actor
from onejob.core.states import JobState
from onejob.http.sequence_wire import ClientStateOut, SequenceOut, client_state_out, sequence_out
from onejob.http.wire import (
    JobsOut,
    KeyOut,
    KeysOut,
    SingleJobOut,
    idempotency_out,
    job_out,
    key_out,
    key_summary_out,
    warnings_out,
)
from onejob.intake import Submission
from onejob.ledger import Ledger
from onejob.opening import open as open_ledger
from onejob.sequences import SequencedSubmission

from .door import Backend, SubmitResult
from .quota_doors import EngineQuotas
from .work_doors import EngineWork

T = TypeVar("T")
_NO_REQUEST = ""  # the wire's answers name their request; here there is none


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
        caller = self.ledger._caller
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
