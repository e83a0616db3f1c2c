"""What the commands need, whether an engine or a server stands behind it. Answers have the shapes of the wire."""

from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from onejob.core.states import JobState
from onejob.http.sequence_wire import ClientStateOut, SequenceOut
from onejob.http.wire import IdempotencyOut, JobOut, JobsOut, KeyOut, KeysOut, SingleJobOut, WarningOut
from onejob.intake import Submission
from onejob.sequences import SequencedSubmission

from .quota_doors import QuotaBackend
from .work_doors import WorkBackend


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
