"""From what was asked for to an answer and its text; the same for an engine and a server."""

from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.core.invalid import Invalid
from onejob.core.sequence import checked_sequence
from onejob.core.states import ENDED, Delivery, JobState
from onejob.http.sequence_wire import SequenceOut
from onejob.http.wire import JobsOut, KeyOut, KeysOut
from onejob.intake import Submission
from onejob.sequences import SequencedSubmission
from onejob.settings import CiSurroundings, CommandLine

from . import apikeys, ci, migrating, quotas, show, signing, works
from .door import Door, Submitted
from .reach import door_of, engine_of, engine_url
from .screen import Screen
from .trouble import DONE, UNFINISHED, UNSUCCESSFUL
from .values import job_input
from .waiting import waited

Show = Callable[[Screen, Any], str]


class Answered(NamedTuple):
    value: Any
    show: Show
    exit_code: int = DONE


class Work(NamedTuple):
    # What was typed is read first, so that a mistake in it touches no store.
    ask: Callable[[Namespace], Callable[[Door], Any]]
    show: Show
    makes: bool = False


def answered(options: Namespace, settings: CommandLine, around: CiSurroundings) -> Answered:
    match options.command:
        case "doctor":
            from . import doctor  # with all that it looks at, and only for whoever asks it

            examined = doctor.examine(options, settings)
            return Answered(examined, doctor.show, examined.exit_code)
        case "migrate":
            return Answered(migrating.perform(engine_url(options, settings)), migrating.show)
        case "apikey":
            with engine_of(options, settings, makes=options.act == "create") as engine:
                return Answered(apikeys.perform(engine, options), apikeys.show)
        case "webhook-secret":
            with engine_of(options, settings, makes=options.act == "create") as engine:
                return Answered(signing.perform(engine, options), signing.show)
    if options.command == "submit":
        options.key = ci.key_of(options, around)
    work = COMMANDS[options.command]
    ask = work.ask(options)
    with door_of(options, settings, makes=work.makes) as door:
        answer = ask(door)
        if ci.waits(options) and isinstance(answer, Submitted):
            return _ended(door, answer, options, work.show)
        return Answered(answer, work.show)


def _ended(door: Door, answer: Submitted, options: Namespace, shown: Show) -> Answered:
    if answer.job is None:
        raise Invalid("wait", f"job {answer.job_id} is known by its id alone; wait for it where it runs")
    job = waited(door, answer.job_id, timeout=options.wait_for).job
    code = DONE if job.state is JobState.SUCCESS else UNSUCCESSFUL if job.state in ENDED else UNFINISHED
    return Answered(replace(answer, job=job), shown, code)


def submit(options: Namespace) -> Callable[[Door], Submitted | SequenceOut]:
    submission = Submission(
        type=options.type,
        input=job_input(options.input),
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
        number = _number(options, submission)
        return lambda door: door.submit_sequence(number)
    return lambda door: door.submit(submission)


def _number(options: Namespace, submission: Submission) -> SequencedSubmission:
    if ci.waits(options):
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


def jobs(options: Namespace) -> Callable[[Door], JobsOut]:
    state = None if options.state is None else JobState(options.state)
    return lambda door: door.jobs(
        state=state, type=options.type, user=options.user, limit=options.limit, cursor=options.cursor
    )


def keys(options: Namespace) -> Callable[[Door], KeysOut]:
    return lambda door: door.keys(
        scope=options.scope, user=options.user, limit=options.limit, cursor=options.cursor
    )


def explain(options: Namespace) -> Callable[[Door], KeyOut]:
    return lambda door: door.explain(options.key, scope=options.scope, user=options.user)


COMMANDS = {
    "submit": Work(submit, show.submitted, makes=True),
    "job": Work(works.job, show.job),
    "result": Work(works.result, works.show_result),
    "logs": Work(works.logs, works.show_logs),
    "resolve": Work(works.resolve, show.job),
    "jobs": Work(jobs, show.jobs),
    "cancel": Work(lambda options: lambda door: door.cancel(options.id), show.job),
    "client": Work(
        lambda options: lambda door: door.client_state(options.client, scope=options.scope), show.client_state
    ),
    "explain": Work(explain, show.story),
    "keys": Work(keys, show.keys),
    "quota": Work(quotas.quota, quotas.show, makes=True),
    "usage": Work(quotas.usage, quotas.show_usage),
    "reservations": Work(quotas.reservations, quotas.show_reservations),
}
