"""A job, and what belongs to it: its steps, its log, the messages of its exceptions, how it stands at its data centres."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Raw, field, json

from onejob.core.facts import TRACEPARENT_LABEL, Job
from onejob.core.identity import format_job_id
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.core.timestamps import to_utc

from . import Items, Resource, UtcTimestamp

_NULL = Raw(b"null")


class JobView(Resource, frozen=True):
    """A job, as it was when the answer was made."""

    id: str
    type: str
    state: JobState
    key: str | None
    scope: str
    actor: str
    user: str
    delivery: Delivery
    priority: int
    attempts: int
    labels: dict[str, str]  # those that the submitter chose; the reserved one for traces is left out
    created_at: UtcTimestamp
    changed_at: UtcTimestamp
    run_at: UtcTimestamp | None
    started_at: UtcTimestamp | None  # of the latest attempt
    ended_at: UtcTimestamp | None
    progress_json: Raw = field(name="progress")
    error: str | None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.state}>"

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def progress(self) -> Any:
        """The latest progress of the latest attempt; None: none."""
        return json.decode(self.progress_json)


def to_job_view(row: Job) -> JobView:
    # By position, which takes a third of the time: every answer to a submission has a job.
    return JobView(
        format_job_id(row.id),
        row.type,
        row.state,
        row.key or None,
        row.scope,
        row.actor,
        row.user,
        row.delivery,
        row.priority,
        row.attempts,
        _public_labels(row.labels) if row.labels else {},
        to_utc(row.created_at),
        to_utc(row.changed_at),
        to_utc(row.run_at) if row.run_at else None,
        to_utc(row.started_at) if row.started_at else None,
        to_utc(row.ended_at) if row.ended_at else None,
        Raw(row.progress) if row.progress else _NULL,
        row.error or None,
    )


def _public_labels(data: bytes) -> dict[str, str]:
    labels = json.decode(data, type=dict[str, str])
    labels.pop(TRACEPARENT_LABEL, None)
    return labels


class SingleJob(Resource, frozen=True):
    job: JobView


class Jobs(Resource, Items[JobView], frozen=True):
    """Jobs, newest first. A page may be short, even empty: continue while there is a `next`."""

    jobs: list[JobView]
    next: str | None  # the cursor of the next page

    def _items(self) -> Sequence[JobView]:
        return self.jobs


class EventView(Resource, frozen=True):
    at: UtcTimestamp
    what: str
    actor: str
    detail: str


class Failures(Resource, frozen=True):
    """The failed attempts of a job, oldest first; `detail` is the message of the exception."""

    failures: tuple[EventView, ...]


class SiteView(Resource, frozen=True, kw_only=True):
    """How a job stands at one of its data centres, as far as this service has heard."""

    site: str
    state: str | None  # of the job there, `other job`, `refused` or `unknown`; None: it has not answered
    at: UtcTimestamp | None  # when it answered
    on_its_way: str | None  # `submission` or `cancel`, until the site has confirmed it
    error: str | None  # why the latest attempt to reach it failed
    error_at: UtcTimestamp | None
    other_job: str | None = None  # of `other job`: the id of the job that the key belongs to there
    prevailing_job: str | None = None  # of that job and this one, the one with the smaller id
    cancel_at: str | None = None  # the site at which the other one of the two is to be cancelled
    cancel_command: str | None = None  # which cancels it there, with `--url` if the settings name the address
    paths: Sequence[str] = ()  # where the two submissions differ


class SitesOfJob(Resource, frozen=True):
    sites: list[SiteView]


class LogPage(Resource, frozen=True):
    """Log lines from an offset on; only the newest thousand are kept."""

    offset: int  # of the first line in this page; earlier lines that were asked for are gone
    lines: Sequence[str]
    next: int  # offset of the following page
    total: int  # number of lines written so far
    state: JobState


class StepState(StrEnum):
    BEGUN = "begun"  # it runs, or was interrupted
    FINISHED = "finished"


class StepView(Resource, frozen=True):
    """A step of a job's handler, as it was when the answer was made."""

    name: str
    state: StepState
    runs: int
    began_at: UtcTimestamp  # its latest run
    ended_at: UtcTimestamp | None
    token: int  # of the attempt that began it last

    def __repr__(self) -> str:
        return f"<Step {self.name!r} {self.state}>"


class SingleStep(Resource, frozen=True):
    step: StepView


class BegunStepResult(SingleStep, frozen=True):
    """If the step is `finished`, `result` is what it returned: do not run it again."""

    result: Raw | None = None


class StepsOfJob(Resource, frozen=True):
    steps: list[StepView]
