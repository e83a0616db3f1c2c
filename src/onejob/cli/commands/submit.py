"""Submit a job, or get the one that the key already created."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Raw
from msgspec.structs import replace

from onejob.cli.arguments import add_target_arguments, choices, parse_duration, parse_label, parse_time
from onejob.cli.backend import Backend, SubmitResult, server_url
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.exit_codes import DONE, JOB_UNFINISHED, JOB_UNSUCCESSFUL
from onejob.cli.render import Screen, annotate, field_lines, job_line, key_in_scope, paint_state, print_error, sanitize
from onejob.cli.wait import wait_for_end
from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX, canonical_json
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.limits import to_micros, to_units
from onejob.core.replies import SequenceOutcome
from onejob.core.sequence import checked_sequence
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission
from onejob.resources.submissions import SequenceReceipt
from onejob.settings import CiEnvironment, CliSettings, environment_for_programs

EXAMPLE = """onejob submit charge --key charge-ORD-123 --input '{"order": "ORD-123", "amount": 42}'"""
GIT_SECONDS: Final = 10


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("type", metavar="TYPE", help="the type of the job")
    command.add_argument(
        "--input", default="null", metavar="JSON", help="the input: JSON, @file, or - for standard input"
    )
    command.add_argument("--key", help="one key per intended job, the same on every retry")
    command.add_argument("--scope", help="the namespace of the key; default: the job type")
    command.add_argument("--client", metavar="ID", help="the client whose sequence this is the next number of")
    command.add_argument("--sequence", type=int, metavar="N", help="the number; with --client, --scope and --key")
    command.add_argument(
        "--ttl", type=parse_duration, metavar="DURATION", help="the window of the key; default: the server's, or 24h"
    )
    command.add_argument("--priority", type=int, default=0, metavar="N", help="higher runs earlier; default: 0")
    command.add_argument("--run-at", type=parse_time, metavar="TIME", help="not before, e.g. 2030-01-31T12:00:00Z")
    command.add_argument(
        "--label", type=parse_label, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    command.add_argument(
        "--delivery",
        choices=choices(Delivery),
        default=Delivery.AT_LEAST_ONCE.value,
        metavar="WORD",
        help=f"{' or '.join(Delivery)}; default: %(default)s",
    )
    command.add_argument("--cost", metavar="AMOUNT", help="the estimated cost, e.g. 12.50")
    command.add_argument("--reservation", metavar="ID", help="a slot that was reserved for the job")
    command.add_argument(
        "--site", action="append", metavar="NAME", help="a data centre that runs it; may be repeated, needs --url"
    )
    _add_ci_arguments(command)
    add_target_arguments(command)


def _add_ci_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--key-from-ci",
        action="store_true",
        help="derive the key from the commit and the CI job: a re-run gets the same job",
    )
    command.add_argument(
        "--key-part",
        action="append",
        default=[],
        metavar="TEXT",
        help="distinguishes several submissions of one CI job, e.g. of a matrix; may be repeated",
    )
    command.add_argument(
        "--retry-for",
        type=parse_duration,
        metavar="DURATION",
        help="against a server: retry for this long; default: four attempts",
    )
    command.add_argument(
        "--wait", action="store_true", help="wait until the job has ended; its state decides the exit code"
    )
    command.add_argument(
        "--wait-for", type=parse_duration, metavar="DURATION", help="the same, but no longer than this"
    )


def run(options: Namespace) -> CommandResult:
    settings, ci = CliSettings.from_env(), CiEnvironment.from_env()
    options.key = submission_key(options, ci)
    options.ttl = options.ttl or (settings.window if server_url(options, settings) is None else None)
    submit = _prepare(options)
    result = call_backend(
        options, lambda backend: _wait_if_wanted(backend, submit(backend), options), render, creates_store=True
    )
    if not isinstance(result.value, SubmitResult):
        return result
    code = _exit_code(result.value) if _waits_for_end(options) else DONE
    return result._replace(exit_code=code, last_line=_report_to_ci(options, ci, result.value))


def _prepare(options: Namespace) -> Callable[[Backend], SubmitResult | SequenceReceipt]:
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
    # Checked before it is put into a request body: text that is not a JSON value could add members to that body.
    canonical_json(data)
    return Raw(data)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid("input", f"{path} cannot be read ({error.strerror}); name a file of JSON") from error


def _waits_for_end(options: Namespace) -> bool:
    return options.wait or options.wait_for is not None


def _wait_if_wanted(
    backend: Backend, submitted: SubmitResult | SequenceReceipt, options: Namespace
) -> SubmitResult | SequenceReceipt:
    if not (_waits_for_end(options) and isinstance(submitted, SubmitResult)):
        return submitted
    if submitted.job is None:
        raise Invalid("wait", f"job {submitted.job_id} is known by its id alone; wait for it where it runs")
    return replace(submitted, job=wait_for_end(backend, submitted.job_id, timeout=options.wait_for).job)


def _exit_code(submitted: SubmitResult) -> int:
    state = submitted.job and submitted.job.state
    return DONE if state is JobState.SUCCESS else JOB_UNSUCCESSFUL if state in ENDED_STATES else JOB_UNFINISHED


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


def _report_to_ci(options: Namespace, ci: CiEnvironment, response: SubmitResult) -> str:
    """Write outputs and annotations for the CI system; returns the last line of standard output."""
    outcome, key = response.idempotency.outcome, response.idempotency.key
    if ci.annotates:
        annotate("notice", f"onejob: {outcome} job {response.job_id}")
    if ci.output is not None:
        _append_outputs(ci.output, {"job_id": response.job_id, "outcome": outcome, "key": key or ""})
    return f"JOB_ID={response.job_id}" if options.key_from_ci and not options.json else ""


def _join_key_parts(system: str, parts: list[str]) -> str:
    # Each part is encoded, so that no two lists of parts give the same key.
    text = ":".join([system, *(quote(part, safe="/._-") for part in parts)])
    return text if len(text) <= KEY_CHARS_MAX else f"{system}:sha256:{sha256(text.encode()).hexdigest()}"


def _git_commit() -> str:
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            env=environment_for_programs(),
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
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


def render(screen: Screen, response: SubmitResult | SequenceReceipt) -> str:
    if isinstance(response, SequenceReceipt):
        return _render_sequence(screen, response)
    outcome = response.idempotency.outcome
    style = "green" if outcome == "created" else "cyan"
    lines = [f"{screen.paint(style, outcome)} job {screen.paint('bold', sanitize(response.job_id))}"]
    rows = [("state", paint_state(screen, response.job.state))] if response.job else []
    if response.idempotency.key is not None:
        rows.append(("key", key_in_scope(response.idempotency.key, response.idempotency.scope)))
    if response.idempotency.expires_at is not None:
        rows.append(("window", f"until {screen.time_ago(response.idempotency.expires_at)}"))
    rows += [("warning", screen.paint("yellow", sanitize(warning.message))) for warning in response.warnings]
    return "\n".join(lines + field_lines(screen, rows))


def _render_sequence(screen: Screen, response: SequenceReceipt) -> str:
    style = "green" if response.outcome is SequenceOutcome.COMMITTED else "cyan"
    head = f"{screen.paint(style, response.outcome)} number {screen.paint('bold', str(response.assigned_sequence))}"
    rows = [("job", job_line(screen, job)) for job in response.jobs]
    rows += [
        ("client", f"{sanitize(response.client_id)} in scope {sanitize(response.scope)}"),
        ("key", sanitize(response.key)),
    ]
    if response.expires_at is not None:
        rows.append(("window", f"until {screen.time_ago(response.expires_at)}"))
    return "\n".join([head, *field_lines(screen, rows)])
