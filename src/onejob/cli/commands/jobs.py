"""List jobs, newest first; or cancel, rerun or resolve all that match."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from onejob.cli.arguments import (
    add_paging_arguments,
    add_target_arguments,
    choices,
    parse_duration,
    parse_label,
    parse_time,
)
from onejob.cli.backend import Backend
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.exit_codes import DONE, FAILED
from onejob.cli.render import Screen, sanitize, table_lines
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.core.work import Resolution
from onejob.ids import new_nonce
from onejob.ledger.operators import BULK_ERRORS_MAX, BulkAction
from onejob.ledger.reads import JobFilter
from onejob.resources.jobs import Jobs

EXAMPLE = "onejob jobs --state lost --type charge --since 2h --rerun"
_WORDS: Final = {
    BulkAction.CANCEL: ("cancel", "cancelled"),
    BulkAction.RERUN: ("run again", "run again"),
    BulkAction.RESOLVE_SUCCEEDED: ("resolve as succeeded", "resolved as succeeded"),
    BulkAction.RESOLVE_FAILED: ("resolve as failed", "resolved as failed"),
}


class BulkReport(Struct, frozen=True, rename="camel"):
    """What became of an act on all jobs that match a filter."""

    action: BulkAction
    matched: int
    changed: int
    errors: list[str]
    confirmed: bool = True


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("--state", choices=choices(JobState), metavar="STATE", help=f"one of {', '.join(JobState)}")
    command.add_argument("--type", metavar="TYPE", help="only jobs of this type")
    command.add_argument("--user", metavar="NAME", help="only jobs of this user")
    command.add_argument("--label", type=parse_label, metavar="NAME=VALUE", help="only jobs with this label")
    for name, text in (("--since", "not before this time"), ("--until", "not after this time")):
        command.add_argument(
            name, type=parse_moment, metavar="TIME", help=f"created {text}: 2h (ago), or 2030-01-31T12:00:00Z"
        )
    add_paging_arguments(command)
    act = command.add_argument_group("one act on all jobs that match, not only on a page")
    either = act.add_mutually_exclusive_group()
    either.add_argument("--cancel", action="store_true", help="cancel those that have not ended")
    either.add_argument("--rerun", action="store_true", help="run failed or lost ones again")
    verdicts = [verdict.value for verdict in Resolution if verdict is not Resolution.RERUN]
    either.add_argument(
        "--resolve", choices=verdicts, metavar="WORD", help=f"decide about lost ones: {', '.join(verdicts)}"
    )
    act.add_argument("--yes", action="store_true", help="do not ask; otherwise the number of jobs is shown first")
    add_target_arguments(command)


def parse_moment(text: str) -> datetime | timedelta:
    """A time, or how long ago it was."""
    if text[:1].isdigit():
        return parse_duration(text) if text[-1:].isalpha() and "T" not in text else parse_time(text)
    raise ArgumentTypeError(f"{text!r} is not a time; use 2h for two hours ago, or e.g. 2030-01-31T12:00:00Z")


def run(options: Namespace) -> CommandResult:
    wanted, action = _parse_filter(options), _parse_action(options)
    if action is None:
        page = asdict(wanted) | {"before": options.cursor, "limit": options.limit}
        return call_backend(options, lambda backend: backend.jobs(**page), render_jobs)
    if wanted == JobFilter():
        raise Invalid("filter", "this would change every job; name a state, a type or another filter")
    result = call_backend(
        options, lambda backend: _act_on_jobs(backend, action, wanted, is_confirmed=options.yes), render_report
    )
    failed = bool(result.value.errors) or not result.value.confirmed
    return result._replace(exit_code=FAILED if failed else DONE)


def _parse_filter(options: Namespace) -> JobFilter:
    now = to_utc(SystemClock().wall_ms())
    after, before = (now - at if isinstance(at, timedelta) else at for at in (options.since, options.until))
    return JobFilter(
        state=None if options.state is None else JobState(options.state),
        type=options.type,
        user=options.user,
        label=options.label,
        created_after=after,
        created_before=before,
    )


def _parse_action(options: Namespace) -> BulkAction | None:
    if options.resolve is not None:
        return BulkAction(f"resolve-{options.resolve}")
    if options.rerun or options.cancel:
        return BulkAction.RERUN if options.rerun else BulkAction.CANCEL
    if options.yes:
        raise Invalid("yes", "--yes belongs to --cancel, --rerun or --resolve; name one of them")
    return None


def _act_on_jobs(backend: Backend, action: BulkAction, wanted: JobFilter, *, is_confirmed: bool) -> BulkReport:
    """Act on all jobs that match, page by page, after somebody has confirmed how many they are."""
    count = backend.count_jobs(action, wanted)
    if not count.matched:
        return BulkReport(action, 0, 0, [])
    number = f"more than {count.matched}" if count.more else str(count.matched)
    if not is_confirmed and not _ask_to_confirm(f"{_WORDS[action][0]} {number} jobs"):
        return BulkReport(action, count.matched, 0, [], confirmed=False)
    key, matched, changed, errors, cursor = f"cli-{new_nonce()}", 0, 0, list[str](), None
    while True:
        page = backend.bulk_action(action, wanted, before=cursor, idempotency_key=key)
        matched, changed, errors = matched + page.matched, changed + page.changed, errors + page.errors
        if page.next is None:
            return BulkReport(action, matched, changed, errors[:BULK_ERRORS_MAX])
        cursor = page.next


def _ask_to_confirm(act: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Invalid("yes", f"this would {act}, and nobody can be asked; add --yes if that is what you want")
    sys.stderr.write(f"onejob: {act}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def render_jobs(screen: Screen, response: Jobs) -> str:
    rows = [
        (job.id, job.state, screen.time(job.created_at), sanitize(job.type), sanitize(job.key or ""))
        for job in response.jobs
    ]
    lines = table_lines(screen, ("JOB", "STATE", "CREATED", "TYPE", "KEY"), rows) if rows else ["no jobs"]
    if response.next is not None:
        lines.append(screen.paint("dim", f"more: --cursor {sanitize(response.next)}"))
    return "\n".join(lines)


def render_report(screen: Screen, response: BulkReport) -> str:
    if not response.matched:
        return "no jobs match; nothing was done"
    if not response.confirmed:
        return f"nothing was done; {response.matched} jobs match"
    lines = [f"{response.changed} of {response.matched} jobs {_WORDS[response.action][1]}"]
    lines += [screen.paint("red", f"  {sanitize(error)}") for error in response.errors]
    return "\n".join(lines)
