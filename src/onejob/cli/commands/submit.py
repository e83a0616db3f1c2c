"""Runs a command: its options become calls of a backend, whose response has a renderer.

`COMMANDS` has the commands that work on an engine and against a server alike. The arguments are read before a store is
opened, so that a mistake in them touches nothing. Below are waiting for a job, and what `submit` does in CI.
"""

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from msgspec import Raw
from msgspec.structs import replace

from onejob.cli import render
from onejob.cli.backend import Backend, SubmitResult, engine_url, open_backend, open_engine_backend
from onejob.cli.exit_codes import DONE, FAILED, JOB_UNFINISHED, JOB_UNSUCCESSFUL, ServerRefused
from onejob.cli.render import Screen, format_duration, print_error, sanitize, to_json, write
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX, canonical_json
from onejob.core.identity import format_job_id, parse_job_id
from onejob.core.key import KEY_CHARS_MAX, checked_key
from onejob.core.limits import to_micros, to_units
from onejob.core.sequence import checked_sequence
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.core.work import Resolution
from onejob.http.schemas.jobs import EventOut, SingleJobOut, SiteOut
from onejob.http.schemas.sequences import SequenceOut
from onejob.http.schemas.steps import StepOut
from onejob.http.schemas.work import LogsOut
from onejob.ids import new_nonce
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission
from onejob.settings import CiEnvironment, CliSettings

from . import backup, quota, top
from . import jobs as operators
from . import settings as ledger_settings

REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
FOLLOW_SECONDS: Final = 0.5
WAIT_SECONDS_MAX: Final = 10.0  # shorter than the timeouts of proxies
LOG_PAGE_MAX: Final = 1000
GIT_SECONDS: Final = 10
BAR_WIDTH: Final = 24
ERASE_LINE: Final = "\r\x1b[K"
# They take no --url.
_ENGINE_COMMANDS: Final = (
    "apikey",
    "backup",
    "gatekey",
    "migrate",
    "restore",
    "schedules",
    "settings",
    "webhook-secret",
)
_JOB_COMMANDS: Final = ("job", "cancel", "result", "logs", "resolve")
_ESCAPES: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}

Render = Callable[[Screen, Any], str]


class CommandResult(NamedTuple):
    value: Any
    render: Render
    exit_code: int = DONE


class CliCommand(NamedTuple):
    prepare: Callable[[Namespace], Callable[[Backend], Any]]
    render: Render
    creates_store: bool = False


def run_command(options: Namespace, settings: CliSettings, ci: CiEnvironment) -> CommandResult:
    if options.command not in _ENGINE_COMMANDS and options.engine is None and options.url is None:
        options.url = settings.url
    options.color = settings.color
    match options.command:
        case "doctor":
            return _run_doctor(options, settings)
        case "migrate":
            return CommandResult(quota.run_migrate(engine_url(options, settings)), quota.render_migration)
        case "backup" | "restore":
            return CommandResult(backup.run(options, engine_url(options, settings)), backup.render)
        case "apikey":
            with open_engine_backend(options, settings, creates_store=options.subcommand == "create") as engine:
                return CommandResult(quota.run_apikey(engine.ledger, options, engine.url), quota.render_api_keys)
        case "gatekey":
            from . import manager

            with open_engine_backend(options, settings, creates_store=options.subcommand == "create") as engine:
                return CommandResult(manager.run_gatekey(engine.ledger, options), manager.render_gate_keys)
        case "settings":
            return _run_settings(options, settings)
        case "webhook-secret":
            with open_engine_backend(options, settings, creates_store=options.subcommand == "create") as engine:
                return CommandResult(quota.run_webhook_secret(engine.ledger, options), quota.render_webhook_secret)
        case "schedules":
            with open_engine_backend(options, settings, creates_store=False) as engine:
                return CommandResult(quota.run_schedules(engine.ledger, options), quota.render_schedules)
    if options.command == "submit":
        options.key = submission_key(options, ci)
        options.ttl = options.ttl or (settings.window if options.url is None else None)
    if options.command in _JOB_COMMANDS:
        options.id = format_job_id(parse_job_id(options.id))
    command = COMMANDS[options.command]
    call = command.prepare(options)
    with open_backend(options, settings, creates_store=command.creates_store) as backend:
        response = call(backend)
        if isinstance(response, SubmitResult) and _waits_for_end(options):
            return _wait_for_submitted(backend, response, options)
        failed = isinstance(response, operators.BulkReport) and (bool(response.errors) or not response.confirmed)
        return CommandResult(response, command.render, FAILED if failed else DONE)


def _run_doctor(options: Namespace, settings: CliSettings) -> CommandResult:
    from . import doctor  # imported here, because only this command needs its dependencies

    examination = doctor.examine(options, settings)
    return CommandResult(examination, doctor.render_examination, examination.exit_code)


def _run_settings(options: Namespace, settings: CliSettings) -> CommandResult:
    with open_engine_backend(options, settings, creates_store=False) as engine:
        response = ledger_settings.run_settings(engine.ledger, options)
    refused = isinstance(response, ledger_settings.SettingsChangeOut) and bool(response.live_keys)
    return CommandResult(response, ledger_settings.render_settings, FAILED if refused else DONE)


def _wait_for_submitted(backend: Backend, submitted: SubmitResult, options: Namespace) -> CommandResult:
    if submitted.job is None:
        raise Invalid("wait", f"job {submitted.job_id} is known by its id alone; wait for it where it runs")
    job = wait_for_end(backend, submitted.job_id, timeout=options.wait_for).job
    code = DONE if job.state is JobState.SUCCESS else JOB_UNSUCCESSFUL if job.state in ENDED_STATES else JOB_UNFINISHED
    return CommandResult(replace(submitted, job=job), render.render_submission, code)


def submit(options: Namespace) -> Callable[[Backend], SubmitResult | SequenceOut]:
    submission = Submission(
        type=options.type,
        input=_read_job_input(options.input),
        idempotency_key=options.key,
        idempotency_ttl=options.ttl,
        scope=options.scope,
        delivery=Delivery(options.delivery),
        priority=options.priority,
        run_at=options.run_at,
        labels=dict(options.label) or None,
        estimated_cost=None if options.cost is None else to_units(to_micros("estimated_cost", options.cost)),
        reservation=options.reservation,
        sites=options.site,
    )
    if options.client is not None or options.sequence is not None:
        sequenced = _sequenced_submission(options, submission)
        return lambda backend: backend.submit_sequence(sequenced)
    return lambda backend: backend.submit(submission)


def _sequenced_submission(options: Namespace, submission: Submission) -> SequencedSubmission:
    if _waits_for_end(options):
        raise Invalid("wait", "a sequence number may be many jobs; wait for each with its id")
    if None in (options.client, options.sequence, options.scope, options.key):
        raise Invalid("sequence", "a sequence number needs --client, --sequence, --scope and --key")
    return SequencedSubmission(
        client_id=options.client,
        sequence=checked_sequence(options.sequence),
        idempotency_key=options.key,
        scope=options.scope,
        jobs=(replace(submission, idempotency_key=None, idempotency_ttl=None, scope=None),),
        idempotency_ttl=options.ttl,
    )


def _read_job_input(text: str) -> Raw:
    """The JSON of an input: the text itself, a file (`@file`), or standard input (`-`)."""
    if text in ("-", "@-"):
        if sys.stdin is None:
            raise Invalid("input", "standard input is closed; give the input as JSON or @file")
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    elif text.startswith("@"):
        data = _read_file(Path(text[1:]))
    else:
        data = text.encode()
    # Checked before it is put into a request body: text that is no JSON value could add members to that body.
    canonical_json(data)
    return Raw(data)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid("input", f"{path} cannot be read ({error.strerror}); name a file of JSON") from error


class JobDetails(SingleJobOut, frozen=True, rename="camel", omit_defaults=True):
    """A job with its steps, and with the messages of its exceptions where the caller may see them."""

    failures: list[EventOut] = []  # noqa: RUF012 - never changed
    steps: list[StepOut] = []  # noqa: RUF012 - never changed
    sites: list[SiteOut] = []  # noqa: RUF012 - never changed


def job(options: Namespace) -> Callable[[Backend], JobDetails | Raw]:
    def show(backend: Backend) -> JobDetails | Raw:
        if options.input:
            return backend.input(options.id)
        found = wait_for_end(backend, options.id, timeout=None) if options.wait else backend.job(options.id)
        failures = _find_failures(backend, options.id) if found.job.error else []
        sites = backend.sites(options.id).sites if options.sites else []
        return JobDetails(found.request_id, found.job, failures, _find_steps(backend, options.id), sites)

    return show


def _find_failures(backend: Backend, job_id: str) -> list[EventOut]:
    try:
        return backend.failures(job_id).failures
    except ServerRefused as refused:
        if refused.problem.code in ("FORBIDDEN", "NOT_FOUND"):  # not an operator, or an older server
            return []
        raise


def _find_steps(backend: Backend, job_id: str) -> list[StepOut]:
    try:
        return backend.steps(job_id).steps
    except ServerRefused as refused:
        if refused.problem.code == "NOT_FOUND":  # an older server
            return []
        raise


def render_job_or_input(screen: Screen, response: JobDetails | Raw) -> str:
    if isinstance(response, Raw):
        return render.render_result(screen, response)
    lines = [render.render_job(screen, response)]
    if response.failures:
        lines += ["", *render.failure_lines(screen, response.failures)]
    if response.steps:
        lines += ["", *render.step_lines(screen, response.steps)]
    if response.sites:
        lines += ["", *render.site_lines(screen, response.sites)]
    return "\n".join(lines)


def resolve(options: Namespace) -> Callable[[Backend], SingleJobOut]:
    key, resolution = _verb_key(options), Resolution(options.resolution)
    return lambda backend: backend.resolve(options.id, resolution, note=options.note, idempotency_key=key)


def cancel(options: Namespace) -> Callable[[Backend], SingleJobOut]:
    key = _verb_key(options)
    return lambda backend: backend.cancel(options.id, idempotency_key=key)


def _verb_key(options: Namespace) -> str:
    """The key of this invocation, so that all attempts to send it are one."""
    if options.idempotency_key is None:
        return f"cli-{new_nonce()}"
    return checked_key(options.idempotency_key)


def logs(options: Namespace) -> Callable[[Backend], LogsOut]:
    """Every page but the last is printed here, as soon as it is received."""

    def follow(backend: Backend) -> LogsOut:
        page = backend.logs(options.id, offset=options.offset, limit=LOG_PAGE_MAX)
        while page.next < page.total or (options.follow and page.state not in ENDED_STATES):
            if page.lines:
                write(to_json(page) if options.json else render.render_logs(Screen.from_stdout(color=False), page))
            else:
                SystemClock().sleep(FOLLOW_SECONDS)
            page = backend.logs(options.id, offset=page.next, limit=LOG_PAGE_MAX)
        return page

    return follow


COMMANDS = {
    "submit": CliCommand(submit, render.render_submission, creates_store=True),
    "job": CliCommand(job, render_job_or_input),
    "result": CliCommand(lambda options: lambda backend: backend.result(options.id), render.render_result),
    "logs": CliCommand(logs, render.render_logs),
    "resolve": CliCommand(resolve, render.render_job),
    "jobs": CliCommand(operators.jobs, operators.render_jobs_or_report),
    "types": CliCommand(operators.types, operators.render_types),
    "workers": CliCommand(lambda _: lambda backend: backend.workers(), operators.render_workers),
    "stats": CliCommand(lambda _: lambda backend: backend.overview(), operators.render_stats),
    "top": CliCommand(top.top, top.render_live_stats),
    "cancel": CliCommand(cancel, render.render_job),
    "client": CliCommand(
        lambda options: lambda backend: backend.client_state(options.client, scope=options.scope),
        render.render_client_state,
    ),
    "explain": CliCommand(
        lambda options: lambda backend: backend.explain(options.key, scope=options.scope, user=options.user),
        render.render_key_history,
    ),
    "keys": CliCommand(
        lambda options: (
            lambda backend: backend.keys(
                scope=options.scope, user=options.user, cursor=options.cursor, limit=options.limit
            )
        ),
        render.render_keys,
    ),
    "quota": CliCommand(quota.quota, quota.render_quota, creates_store=True),
    "usage": CliCommand(lambda options: lambda backend: backend.usage(options.user), quota.render_usage),
    "reservations": CliCommand(quota.reservations, quota.render_reservations),
}


def wait_for_end(backend: Backend, job_id: str, *, timeout: timedelta | None) -> SingleJobOut:
    """Show a progress bar until the job has ended or the timeout is over; the job as it is then."""
    clock, bar = SystemClock(), ProgressBar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    wait_max = REPAINT_SECONDS if bar.is_animated else WAIT_SECONDS_MAX
    wait = 0.0  # the first state is shown at once
    try:
        while True:
            response, before, now = backend.wait(job_id, timedelta(seconds=wait)), now, clock.monotonic()
            bar.show(response.job.state, now - begin)
            if response.job.state in ENDED_STATES or now >= end:
                return response
            if now - before < wait / 2:  # a server that is full or shutting down answers at once
                clock.sleep(min(POLL_SECONDS, end - now))
                now = clock.monotonic()
            wait = max(0.001, min(wait_max, end - now))
    finally:
        bar.clear()


class ProgressBar:
    """A bar on a terminal, elsewhere a line for every change of state; on standard error."""

    def __init__(self) -> None:
        self.is_animated = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        if self.is_animated:
            elapsed = format_duration(timedelta(seconds=seconds))
            sys.stderr.write(f"{ERASE_LINE}[{_bar_text(seconds)}] {sanitize(state)} for {elapsed}")
        elif state != self._state:
            sys.stderr.write(f"onejob: state of the job: {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self.is_animated and sys.stderr is not None:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def _bar_text(seconds: float) -> str:
    """The remaining time is not known, so the bar moves back and forth."""
    room = BAR_WIDTH - 3
    position = int(seconds * 4) % (2 * room)
    position = min(position, 2 * room - position)
    return "-" * position + "===" + "-" * (room - position)


def _waits_for_end(options: Namespace) -> bool:
    return options.command == "submit" and (options.wait or options.wait_for is not None)


def submission_key(options: Namespace, ci: CiEnvironment) -> str | None:
    """The key of `--key`, or with `--key-from-ci` the one of the commit."""
    if not options.key_from_ci:
        if options.key_part:
            raise Invalid("key", "--key-part belongs to --key-from-ci; put it into --key, or add that")
        key: str | None = options.key
        return key
    if options.key is not None:
        raise Invalid("key", "give --key or --key-from-ci, not both")
    if ci.missing:
        raise Invalid(
            "key", f"{', '.join(ci.missing)} is not set, so the key would not be this job's; set it, or give --key"
        )
    system, parts = (ci.system, ci.parts) if ci.system else ("git", (_git_commit(),))
    return _join_key_parts(system, [*parts, *options.key_part])


def report_to_ci(options: Namespace, ci: CiEnvironment, response: Any) -> str:
    """Write outputs and annotations for the CI system; returns the last line of standard output."""
    job_id = getattr(response, "job_id", "")
    if options.command != "submit" or not job_id:
        return ""
    outcome, key = response.idempotency.outcome, response.idempotency.key
    if ci.annotates:
        annotate("notice", f"onejob: {outcome} job {job_id}")
    if ci.output is not None:
        _append_outputs(ci.output, {"job_id": job_id, "outcome": outcome, "key": key or ""})
    return f"JOB_ID={job_id}" if options.key_from_ci and not options.json else ""


def annotate(level: str, text: str) -> None:
    """Write an annotation of GitHub Actions; to standard error, because standard output may be JSON."""
    print_error(f"::{level}::" + "".join(_ESCAPES.get(letter, letter) for letter in text), without_prefix=True)


def _join_key_parts(system: str, parts: list[str]) -> str:
    # Each part is encoded, so that no two lists of parts give the same key.
    text = ":".join([system, *(quote(part, safe="/._-") for part in parts)])
    return text if len(text) <= KEY_CHARS_MAX else f"{system}:sha256:{sha256(text.encode()).hexdigest()}"


def _git_commit() -> str:
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"], capture_output=True, text=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Invalid("key", "there is neither a known CI system nor a git commit here; give --key") from error
    return git.stdout.strip()


def _append_outputs(path: str, outputs: dict[str, str]) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={sanitize(value)}\n" for name, value in outputs.items())
    except OSError as error:
        # The exit code stays 0, because the job exists.
        print_error(f"{path} cannot be written ({error.strerror}); the job was created all the same")
