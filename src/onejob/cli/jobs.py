"""From what was asked for to an answer and its text; the same for an engine and a server."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from msgspec import Raw, json
from msgspec.structs import replace

from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.limits import to_micros, to_units
from onejob.core.sequence import checked_sequence
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.core.work import Resolution
from onejob.http.schemas.jobs import JobsOut, KeyOut, KeysOut, SingleJobOut
from onejob.http.schemas.sequences import SequenceOut
from onejob.http.schemas.work import LogsOut
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission
from onejob.settings import CiEnvironment, CliSettings

from . import admin
from . import render as show
from .backend import Backend, SubmitResult, engine_url, open_backend, open_engine_backend
from .exit_codes import DONE, JOB_UNFINISHED, JOB_UNSUCCESSFUL
from .render import Screen, format_duration, print_error, sanitize, to_json, write
from .values import parse_duration, read_job_input

# Waiting for the end of a job: a bar on a terminal, a line for every change elsewhere.


REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
BAR_WIDTH: Final = 24
LOG_PAGE_MAX: Final = 1000
WAIT_SECONDS_MAX: Final = 10.0  # shorter than the timeouts of proxies
ERASE_LINE: Final = "\r\x1b[K"


def wait_for_end(backend: Backend, job_id: str, *, timeout: timedelta | None) -> SingleJobOut:
    """Wait behind the door until a job has ended, or the time is over; the job as it is then."""
    clock, shown = SystemClock(), ProgressBar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    longest = REPAINT_SECONDS if shown.is_animated else WAIT_SECONDS_MAX
    asked = 0.0  # how it stands is shown at once
    try:
        while True:
            found, before, now = backend.wait(job_id, timedelta(seconds=asked)), now, clock.monotonic()
            shown.show(found.job.state, now - begin)
            if found.job.state in ENDED_STATES or now >= end:
                return found
            if now - before < asked / 2:  # nobody waits there now: it is full, or goes down
                clock.sleep(min(POLL_SECONDS, end - now))
                now = clock.monotonic()
            asked = max(0.001, min(longest, end - now))
    finally:
        shown.clear()


class ProgressBar:
    """Written to standard error, so that standard output stays what it is."""

    def __init__(self) -> None:
        self.is_animated = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        told = f"{sanitize(state)} for {format_duration(timedelta(seconds=seconds))}"
        if self.is_animated:
            sys.stderr.write(f"{ERASE_LINE}[{_bar_text(seconds)}] {told}")
        elif state != self._state:
            sys.stderr.write(f"onejob: the job is {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self.is_animated and sys.stderr is not None:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def _bar_text(seconds: float) -> str:
    """How long it will take is not known, so the bar walks to and fro."""
    room = BAR_WIDTH - 3
    place = int(seconds * 4) % (2 * room)
    place = min(place, 2 * room - place)
    return "-" * place + "===" + "-" * (room - place)


# Results, logs and resolutions on the command line.


FOLLOW_SECONDS = 0.5
_EXAMPLE = "onejob {} 01a1e305-b1fa-7420-b68b-a05f87952eb0"


class CommandFactory(Protocol):
    def __call__(self, commands: Any, name: str, text: str, example: str) -> ArgumentParser: ...


def add_outcome_commands(
    commands: Any, make_command: CommandFactory, add_target: Callable[[ArgumentParser], None]
) -> None:
    result = make_command(commands, "result", "Print the result of a job, as JSON.", _EXAMPLE.format("result"))
    logs = make_command(commands, "logs", "Print the log lines of a job.", _EXAMPLE.format("logs") + " --follow")
    logs.add_argument("--follow", action="store_true", help="go on until the job has ended")
    logs.add_argument("--offset", type=int, default=0, metavar="N", help="leave out so many lines; default: 0")
    resolve = make_command(
        commands,
        "resolve",
        "Decide about a lost job, or run a failed one again.",
        _EXAMPLE.format("resolve") + " rerun --note 'the bank never got it'",
    )
    for one in (result, logs, resolve):
        one.add_argument("id", metavar="ID", help="the id of the job")
    resolve.add_argument(
        "resolution",
        choices=[word.value for word in Resolution],
        metavar="WORD",
        help=f"{', '.join(Resolution)}",
    )
    resolve.add_argument("--note", default="", metavar="TEXT", help="why, for its history")
    for one in (result, logs, resolve):
        add_target(one)


def job(options: Namespace) -> Callable[[Any], SingleJobOut]:
    if not options.wait:
        return lambda door: door.job(options.id)
    return lambda door: wait_for_end(door, options.id, timeout=None)


def result(options: Namespace) -> Callable[[Backend], Raw]:
    return lambda door: door.result(options.id)


def resolve(options: Namespace) -> Callable[[Backend], SingleJobOut]:
    return lambda door: door.resolve(options.id, Resolution(options.resolution), note=options.note)


def logs(options: Namespace) -> Callable[[Backend], LogsOut]:
    """What is there already is printed at once; the answer has the rest."""

    def follow(door: Backend) -> LogsOut:
        page, sleep = door.logs(options.id, offset=options.offset, limit=LOG_PAGE_MAX), SystemClock().sleep
        while page.next < page.total or (options.follow and page.state not in ENDED_STATES):
            if page.lines:
                write(to_json(page) if options.json else render_logs(Screen.from_stdout(color=False), page))
            else:
                sleep(FOLLOW_SECONDS)
            page = door.logs(options.id, offset=page.next, limit=LOG_PAGE_MAX)
        return page

    return follow


def render_result(screen: Screen, answer: Raw) -> str:
    return "\n".join(map(sanitize, json.format(bytes(answer), indent=2).decode().split("\n")))


def render_logs(screen: Screen, answer: LogsOut) -> str:
    return "\n".join(map(sanitize, answer.lines))


# For CI: a key that follows from the commit, and what the surroundings want to hear.


GIT_SECONDS: Final = 10
_ESCAPES: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}


def add_ci_arguments(command: ArgumentParser) -> None:
    """The words of `submit` that are for CI."""
    command.add_argument(
        "--key-from-ci",
        action="store_true",
        help="make the key from the commit and the job of the CI: a re-run gets the same job",
    )
    command.add_argument(
        "--key-part",
        action="append",
        default=[],
        metavar="TEXT",
        help="tells several submissions of one CI job apart, as those of a matrix; may be repeated",
    )
    command.add_argument(
        "--retry-for",
        type=parse_duration,
        metavar="LENGTH",
        help="against a server: try again for so long; default: four attempts",
    )
    command.add_argument(
        "--wait", action="store_true", help="stay until the job has ended; its end decides the exit code"
    )
    command.add_argument(
        "--wait-for",
        type=parse_duration,
        metavar="LENGTH",
        help="the same, but no longer than this",
    )


def submission_key(options: Namespace, surroundings: CiEnvironment) -> str | None:
    """The key that was typed, or that of the commit."""
    if not options.key_from_ci:
        if options.key_part:
            raise Invalid("key", "--key-part belongs to --key-from-ci; put it into --key, or add that")
        key: str | None = options.key
        return key
    if options.key is not None:
        raise Invalid("key", "give --key or --key-from-ci, not both")
    if surroundings.missing:
        raise Invalid(
            "key",
            f"{', '.join(surroundings.missing)} is not set, so the key would not be this job's; set it, or give --key",
        )
    system, parts = (surroundings.system, surroundings.parts) if surroundings.system else ("git", (_git_commit(),))
    return _join_key_parts(system, [*parts, *options.key_part])


def waits_for_end(options: Namespace) -> bool:
    """Whether the end of the job is waited for."""
    return options.command == "submit" and (options.wait or options.wait_for is not None)


def report_to_ci(options: Namespace, surroundings: CiEnvironment, answer: Any) -> str:
    """Tell the surroundings; what is left to say on standard output."""
    job_id = getattr(answer, "job_id", "")
    if options.command != "submit" or not job_id:
        return ""
    outcome, key = answer.idempotency.outcome, answer.idempotency.key
    if surroundings.annotates:
        annotate("notice", f"onejob: {outcome} job {job_id}")
    if surroundings.output is not None:
        _append_outputs(surroundings.output, {"job_id": job_id, "outcome": outcome, "key": key or ""})
    return f"JOB_ID={job_id}" if options.key_from_ci and not options.json else ""


def annotate(level: str, text: str) -> None:
    """A line that GitHub shows at the top of a run; on standard error, for standard output may be JSON."""
    print_error(f"::{level}::" + "".join(_ESCAPES.get(letter, letter) for letter in text), without_prefix=True)


def _join_key_parts(system: str, parts: list[str]) -> str:
    # Each part is encoded, so that no two lists of parts look alike.
    text = ":".join([system, *(quote(part, safe="/._-") for part in parts)])
    return text if len(text) <= KEY_CHARS_MAX else f"{system}:sha256:{sha256(text.encode()).hexdigest()}"


def _git_commit() -> str:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Invalid("key", "there is neither a CI that is known nor a git commit here; give --key") from error
    return asked.stdout.strip()


def _append_outputs(path: str, outputs: dict[str, str]) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={sanitize(value)}\n" for name, value in outputs.items())
    except OSError as error:
        # The job is there, and that is what the exit code says.
        print_error(f"{path} cannot be written ({error.strerror}); the job is made all the same")


Render = Callable[[Screen, Any], str]


class CommandResult(NamedTuple):
    value: Any
    render: Render
    exit_code: int = DONE


class CliCommand(NamedTuple):
    # What was typed is read first, so that a mistake in it touches no store.
    prepare: Callable[[Namespace], Callable[[Backend], Any]]
    render: Render
    creates_store: bool = False


def run_command(options: Namespace, settings: CliSettings, surroundings: CiEnvironment) -> CommandResult:
    match options.command:
        case "doctor":
            from . import doctor  # with all that it looks at, and only for whoever asks it

            examined = doctor.examine(options, settings)
            return CommandResult(examined, doctor.render_examination, examined.exit_code)
        case "migrate":
            return CommandResult(admin.run_migrate(engine_url(options, settings)), admin.render_migration)
        case "apikey":
            with open_engine_backend(options, settings, creates_store=options.act == "create") as engine:
                return CommandResult(admin.run_apikey(engine, options), admin.render_api_keys)
        case "webhook-secret":
            with open_engine_backend(options, settings, creates_store=options.act == "create") as engine:
                return CommandResult(admin.run_webhook_secret(engine, options), admin.render_webhook_secret)
    if options.command == "submit":
        options.key = submission_key(options, surroundings)
    work = COMMANDS[options.command]
    ask = work.prepare(options)
    with open_backend(options, settings, creates_store=work.creates_store) as door:
        answer = ask(door)
        if waits_for_end(options) and isinstance(answer, SubmitResult):
            return _wait_for_end(door, answer, options, work.render)
        return CommandResult(answer, work.render)


def _wait_for_end(backend: Backend, answer: SubmitResult, options: Namespace, renderer: Render) -> CommandResult:
    if answer.job is None:
        raise Invalid("wait", f"job {answer.job_id} is known by its id alone; wait for it where it runs")
    job = wait_for_end(backend, answer.job_id, timeout=options.wait_for).job
    code = DONE if job.state is JobState.SUCCESS else JOB_UNSUCCESSFUL if job.state in ENDED_STATES else JOB_UNFINISHED
    return CommandResult(replace(answer, job=job), renderer, code)


def submit(options: Namespace) -> Callable[[Backend], SubmitResult | SequenceOut]:
    submission = Submission(
        type=options.type,
        input=read_job_input(options.input),
        idempotency_key=options.key,
        idempotency_ttl=options.ttl,
        scope=options.scope,
        delivery=Delivery(options.delivery),
        priority=options.priority,
        run_at=options.run_at,
        labels=dict(options.label) or None,
        estimated_cost=None if options.cost is None else to_units(to_micros("estimated_cost", options.cost)),
        reservation=options.reservation,
    )
    if options.client is not None or options.sequence is not None:
        number = _sequenced_submission(options, submission)
        return lambda door: door.submit_sequence(number)
    return lambda door: door.submit(submission)


def _sequenced_submission(options: Namespace, submission: Submission) -> SequencedSubmission:
    if waits_for_end(options):
        raise Invalid("wait", "a number of a sequence may be many jobs; wait for each with its id")
    if None in (options.client, options.sequence, options.scope, options.key):
        raise Invalid("sequence", "a number of a sequence needs --client, --sequence, --scope and --key")
    return SequencedSubmission(
        client_id=options.client,
        sequence=checked_sequence(options.sequence),
        idempotency_key=options.key,
        scope=options.scope,
        jobs=(replace(submission, idempotency_key=None, idempotency_ttl=None, scope=None),),
        idempotency_ttl=options.ttl,
    )


def jobs(options: Namespace) -> Callable[[Backend], JobsOut]:
    state = None if options.state is None else JobState(options.state)
    return lambda door: door.jobs(
        state=state, type=options.type, user=options.user, limit=options.limit, before=options.cursor
    )


def keys(options: Namespace) -> Callable[[Backend], KeysOut]:
    return lambda door: door.keys(scope=options.scope, user=options.user, limit=options.limit, cursor=options.cursor)


def explain(options: Namespace) -> Callable[[Backend], KeyOut]:
    return lambda door: door.explain(options.key, scope=options.scope, user=options.user)


COMMANDS = {
    "submit": CliCommand(submit, show.render_submission, creates_store=True),
    "job": CliCommand(job, show.render_job),
    "result": CliCommand(result, render_result),
    "logs": CliCommand(logs, render_logs),
    "resolve": CliCommand(resolve, show.render_job),
    "jobs": CliCommand(jobs, show.render_jobs),
    "cancel": CliCommand(lambda options: lambda door: door.cancel(options.id), show.render_job),
    "client": CliCommand(
        lambda options: lambda door: door.client_state(options.client, scope=options.scope),
        show.render_client_state,
    ),
    "explain": CliCommand(explain, show.render_key_history),
    "keys": CliCommand(keys, show.render_keys),
    "quota": CliCommand(admin.quota, admin.render_quota, creates_store=True),
    "usage": CliCommand(admin.usage, admin.render_usage),
    "reservations": CliCommand(admin.reservations, admin.render_reservations),
}
