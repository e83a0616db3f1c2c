"""Show a job."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from msgspec import Raw

from onejob.cli.arguments import JOB_ID_EXAMPLE, add_job_argument, add_target_arguments, job_id
from onejob.cli.backend import Backend
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.exit_codes import ServerRefused
from onejob.cli.render import Screen, field_lines, key_in_scope, paint_state, sanitize, table_lines
from onejob.cli.wait import wait_for_end
from onejob.resources.jobs import EventView, SingleJob, SiteView, StepView

from .result import render_result

EXAMPLE = f"onejob job {JOB_ID_EXAMPLE}"


def add_arguments(command: ArgumentParser) -> None:
    add_job_argument(command)
    command.add_argument("--wait", action="store_true", help="until it has ended")
    command.add_argument("--input", action="store_true", help="print its input instead, as JSON; for operators")
    command.add_argument(
        "--sites",
        action="store_true",
        help="show how it stands at each of its data centres, and other jobs under its key",
    )
    add_target_arguments(command)


class JobDetails(SingleJob, frozen=True, omit_defaults=True):
    """A job with its steps, and with the messages of its exceptions where the caller may see them."""

    failures: tuple[EventView, ...] = ()
    steps: tuple[StepView, ...] = ()
    sites: tuple[SiteView, ...] = ()


def run(options: Namespace) -> CommandResult:
    wanted = job_id(options)
    if options.input:
        return call_backend(options, lambda backend: backend.input(wanted), render_result)

    def show(backend: Backend) -> JobDetails:
        found = wait_for_end(backend, wanted, timeout=None) if options.wait else backend.job(wanted)
        failures = _find_failures(backend, wanted) if found.job.error else ()
        sites = tuple(backend.sites(wanted).sites) if options.sites else ()
        return JobDetails(found.job, failures, _find_steps(backend, wanted), sites)

    return call_backend(options, show, render)


def _find_failures(backend: Backend, job_id: str) -> tuple[EventView, ...]:
    try:
        return backend.failures(job_id).failures
    except ServerRefused as refused:
        if refused.problem.code in ("FORBIDDEN", "NOT_FOUND"):  # not an operator, or an older server
            return ()
        raise


def _find_steps(backend: Backend, job_id: str) -> tuple[StepView, ...]:
    try:
        return tuple(backend.steps(job_id).steps)
    except ServerRefused as refused:
        if refused.problem.code == "NOT_FOUND":  # an older server
            return ()
        raise


def render(screen: Screen, response: JobDetails) -> str:
    lines = [render_job(screen, response)]
    if response.failures:
        lines += ["", *_failure_lines(screen, response.failures)]
    if response.steps:
        lines += ["", *_step_lines(screen, response.steps)]
    if response.sites:
        lines += ["", *_site_lines(screen, response.sites)]
    return "\n".join(lines)


def render_job(screen: Screen, response: SingleJob) -> str:
    job = response.job
    head = f"job {screen.paint('bold', job.id)} {paint_state(screen, job.state)}"
    rows = [
        ("type", sanitize(job.type)),
        ("key", "none" if job.key is None else key_in_scope(job.key, job.scope)),
        ("by", f"{sanitize(job.actor)} for user {sanitize(job.user)}"),
        ("created", screen.time_ago(job.created_at)),
        ("changed", screen.time_ago(job.changed_at) if job.changed_at != job.created_at else ""),
        ("started", screen.time_ago(job.started_at) if job.started_at else ""),
        ("runs at", screen.time_ago(job.run_at) if job.run_at else ""),
        ("ended", screen.time_ago(job.ended_at) if job.ended_at else ""),
        ("delivery", job.delivery.value),
        ("priority", str(job.priority) if job.priority else ""),
        ("attempts", str(job.attempts)),
        ("progress", sanitize(_progress_text(job.progress_json))),
        ("labels", sanitize(" ".join(f"{name}={value}" for name, value in job.labels.items()))),
        ("error", screen.paint("red", sanitize(job.error)) if job.error else ""),
    ]
    return "\n".join([head, *field_lines(screen, rows)])


def _progress_text(progress: Raw) -> str:
    text = bytes(progress).decode()
    return "" if text == "null" else text


def _failure_lines(screen: Screen, failures: Sequence[EventView]) -> list[str]:
    """The messages of exceptions, which only operators see; a message may have several lines."""
    lines = []
    for failure in failures:
        at, what = screen.paint("dim", screen.time(failure.at)), screen.paint("red", sanitize(failure.what))
        lines.append(f"  {at}  {what}")
        lines += [f"    {sanitize(line)}" for line in failure.detail.splitlines()]
    return lines


def _step_lines(screen: Screen, steps: Sequence[StepView]) -> list[str]:
    rows = [
        (sanitize(step.name), step.state.value, str(step.runs), screen.time(step.began_at), _step_end(screen, step))
        for step in steps
    ]
    return table_lines(screen, ("STEP", "STATE", "RUNS", "BEGAN", "ENDED"), rows)


def _step_end(screen: Screen, step: StepView) -> str:
    return "" if step.ended_at is None else screen.time(step.ended_at)


def _site_lines(screen: Screen, sites: Sequence[SiteView]) -> list[str]:
    rows = [
        (
            site.site,
            sanitize(site.state or "no answer yet"),
            "" if site.at is None else screen.time(site.at),
            site.on_its_way or "",
            sanitize(site.error or ""),
        )
        for site in sites
    ]
    lines = table_lines(screen, ("SITE", "STATE", "ANSWERED", "ON ITS WAY", "ERROR"), rows)
    return [*lines, *(line for site in sites if site.other_job for line in _other_job_lines(site))]


def _other_job_lines(site: SiteView) -> list[str]:
    """The other job under the key at a site, which of the two prevails, and how to cancel the other one."""
    lines = [f"{site.site}: the key belongs to job {sanitize(site.other_job or '')} there"]
    if site.paths:
        lines.append(f"  the submissions differ at {sanitize(', '.join(site.paths))}")
    if site.prevailing_job:
        lines.append(f"  the smaller id prevails: {sanitize(site.prevailing_job)}")
    if site.cancel_command:
        lines.append(f"  to cancel the other one, at {site.cancel_at}: {sanitize(site.cancel_command)}")
    elif site.prevailing_job and site.prevailing_job != site.other_job:
        lines.append("  it was cancelled, failed, or is lost: the other one remains, so do not cancel that")
    return lines
