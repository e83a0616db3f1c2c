"""What the commands need, whether an engine or a server stands behind it. Answers have the shapes of the wire."""

from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from onejob.core.states import JobState
from onejob.http.wire import IdempotencyOut, JobOut, JobsOut, KeyOut, KeysOut, OneJobOut, WarningOut
from onejob.intake import Submission

from .quota_doors import QuotaDoor


class Submitted(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A submission's answer; the id is there even where the job is not ours to show."""

    job_id: str
    job: JobOut | None
    idempotency: IdempotencyOut
    warnings: list[WarningOut] = []


class Door(QuotaDoor, Protocol):
    def submit(self, submission: Submission) -> Submitted: ...

    def job(self, job_id: str) -> OneJobOut: ...

    def jobs(
        self, *, state: JobState | None, type: str | None, limit: int, cursor: str | None
    ) -> JobsOut: ...

    def cancel(self, job_id: str) -> OneJobOut: ...

    def explain(self, key: str, *, scope: str) -> KeyOut: ...

    def keys(self, *, scope: str | None, limit: int, cursor: str | None) -> KeysOut: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
