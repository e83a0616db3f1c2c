"""List the workers that were heard of within the last minute."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize, table_lines
from onejob.resources.operators import Workers

EXAMPLE = "onejob workers"


def add_arguments(command: ArgumentParser) -> None:
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    return call_backend(options, lambda backend: backend.workers(), render_workers)


def render_workers(screen: Screen, response: Workers) -> str:
    if not response.workers:
        return "no workers were heard of within the last minute; start one with `onejob worker MODULE:APP`"
    return "\n".join(_worker_lines(screen, response))


def _worker_lines(screen: Screen, response: Workers) -> list[str]:
    heads = ("NAME", "HOST", "PID", "VERSION", "BUSY", "DONE", "SEEN", "TENANTS", "TYPES")
    rows = [
        (
            sanitize(worker.name),
            sanitize(worker.host),
            str(worker.pid),
            sanitize(worker.version),
            f"{worker.running}/{worker.concurrency}",
            str(sum(worker.ended.values())),
            screen.ago(worker.seen_at),
            "all" if worker.all_tenants else "own",
            sanitize(", ".join(worker.types)),
        )
        for worker in response.workers
    ]
    return table_lines(screen, heads, rows)
