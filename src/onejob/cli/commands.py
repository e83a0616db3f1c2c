"""From what was asked for to an answer and its text; the same for an engine and a server."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.core.invalid import Invalid
from onejob.core.sequence import checked_sequence
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.http.sequence_wire import SequenceOut
from onejob.http.wire import JobsOut, KeyOut, KeysOut
from onejob.intake import Submission
from onejob.sequences import SequencedSubmission
from onejob.settings import CiEnvironment, CliSettings

from . import apikeys, ci, migrating, quotas, show, signing, works
from .door import Backend, SubmitResult
from .reach import engine_url, open_backend, open_engine_backend
from .screen import Screen
from .trouble import DONE, JOB_UNFINISHED, JOB_UNSUCCESSFUL
from .values import read_job_input
from .waiting import wait_for_end

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
            return CommandResult(
                migrating.run_migrate(engine_url(options, settings)), migrating.render_migration
            )
        case "apikey":
            with open_engine_backend(options, settings, creates_store=options.act == "create") as engine:
                return CommandResult(apikeys.run_apikey(engine, options), apikeys.render_api_keys)
        case "webhook-secret":
            with open_engine_backend(options, settings, creates_store=options.act == "create") as engine:
                return CommandResult(
                    signing.run_webhook_secret(engine, options), signing.render_webhook_secret
                )
    if options.command == "submit":
        options.key = ci.submission_key(options, surroundings)
    work = COMMANDS[options.command]
    ask = work.prepare(options)
    with open_backend(options, settings, creates_store=work.creates_store) as door:
        answer = ask(door)
        if ci.waits_for_end(options) and isinstance(answer, SubmitResult):
            return _wait_for_end(door, answer, options, work.render)
        return CommandResult(answer, work.render)


def _wait_for_end(
    backend: Backend, answer: SubmitResult, options: Namespace, renderer: Render
) -> CommandResult:
    if answer.job is None:
        raise Invalid("wait", f"job {answer.job_id} is known by its id alone; wait for it where it runs")
    job = wait_for_end(backend, answer.job_id, timeout=options.wait_for).job
    code = (
        DONE
        if job.state is JobState.SUCCESS
        else JOB_UNSUCCESSFUL
        if job.state in ENDED_STATES
        else JOB_UNFINISHED
    )
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
        estimated_cost=options.cost,
        reservation=options.reservation,
    )
    if options.client is not None or options.sequence is not None:
        number = _sequenced_submission(options, submission)
        return lambda door: door.submit_sequence(number)
    return lambda door: door.submit(submission)


def _sequenced_submission(options: Namespace, submission: Submission) -> SequencedSubmission:
    if ci.waits_for_end(options):
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
        state=state, type=options.type, user=options.user, limit=options.limit, cursor=options.cursor
    )


def keys(options: Namespace) -> Callable[[Backend], KeysOut]:
    return lambda door: door.keys(
        scope=options.scope, user=options.user, limit=options.limit, cursor=options.cursor
    )


def explain(options: Namespace) -> Callable[[Backend], KeyOut]:
    return lambda door: door.explain(options.key, scope=options.scope, user=options.user)


COMMANDS = {
    "submit": CliCommand(submit, show.render_submission, creates_store=True),
    "job": CliCommand(works.job, show.render_job),
    "result": CliCommand(works.result, works.render_result),
    "logs": CliCommand(works.logs, works.render_logs),
    "resolve": CliCommand(works.resolve, show.render_job),
    "jobs": CliCommand(jobs, show.render_jobs),
    "cancel": CliCommand(lambda options: lambda door: door.cancel(options.id), show.render_job),
    "client": CliCommand(
        lambda options: lambda door: door.client_state(options.client, scope=options.scope),
        show.render_client_state,
    ),
    "explain": CliCommand(explain, show.render_key_history),
    "keys": CliCommand(keys, show.render_keys),
    "quota": CliCommand(quotas.quota, quotas.render_quota, creates_store=True),
    "usage": CliCommand(quotas.usage, quotas.render_usage),
    "reservations": CliCommand(quotas.reservations, quotas.render_reservations),
}
