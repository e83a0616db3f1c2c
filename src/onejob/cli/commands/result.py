"""Print the result of a job, as JSON."""

from argparse import ArgumentParser, Namespace

from msgspec import Raw

from onejob.cli.arguments import JOB_ID_EXAMPLE, add_job_argument, add_target_arguments, job_id
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize, to_json

EXAMPLE = f"onejob result {JOB_ID_EXAMPLE}"


def add_arguments(command: ArgumentParser) -> None:
    add_job_argument(command)
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    wanted = job_id(options)
    return call_backend(options, lambda backend: backend.result(wanted), render_result)


def render_result(_: Screen, response: Raw) -> str:
    return "\n".join(map(sanitize, to_json(response).split("\n")))
