"""Cancel a job that has not ended."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import (
    JOB_ID_EXAMPLE,
    add_job_argument,
    add_target_arguments,
    add_verb_key_argument,
    job_id,
    verb_key,
)
from onejob.cli.command import CommandResult, call_backend

from .job import render_job

EXAMPLE = f"onejob cancel {JOB_ID_EXAMPLE}"


def add_arguments(command: ArgumentParser) -> None:
    add_job_argument(command)
    add_verb_key_argument(command)
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    wanted, key = job_id(options), verb_key(options)
    return call_backend(options, lambda backend: backend.cancel(wanted, idempotency_key=key), render_job)
