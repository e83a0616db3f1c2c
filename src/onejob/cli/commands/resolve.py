"""Decide about a lost job, or run a failed one again."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import (
    JOB_ID_EXAMPLE,
    add_job_argument,
    add_target_arguments,
    add_verb_key_argument,
    choices,
    job_id,
    verb_key,
)
from onejob.cli.command import CommandResult, call_backend
from onejob.core.work import Resolution

from .job import render_job

EXAMPLE = f"onejob resolve {JOB_ID_EXAMPLE} rerun --note 'the bank never got it'"


def add_arguments(command: ArgumentParser) -> None:
    add_job_argument(command)
    command.add_argument("resolution", choices=choices(Resolution), metavar="WORD", help=f"{', '.join(Resolution)}")
    command.add_argument("--note", default="", metavar="TEXT", help="the reason, for the history of the job")
    add_verb_key_argument(command)
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    wanted, key, resolution = job_id(options), verb_key(options), Resolution(options.resolution)
    return call_backend(
        options, lambda backend: backend.resolve(wanted, resolution, note=options.note, idempotency_key=key), render_job
    )
