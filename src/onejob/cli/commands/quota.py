"""Set, show and clear the limits of a user, or of a tenant's users."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

from onejob.cli.arguments import add_command, add_subcommands, add_target_arguments, choices
from onejob.cli.backend import Backend
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, field_lines, sanitize
from onejob.core.errors import Invalid
from onejob.core.limits import LIMIT_MAX, CostAction, CostLimit, Limits, Period
from onejob.resources.quotas import CostLimitView, EffectiveLimitsView, LimitsView, QuotaResponse, TenantQuotaResponse

EXAMPLE = "onejob quota set 42 --max-concurrent 5"


def add_arguments(command: ArgumentParser) -> None:
    subcommands = add_subcommands(command)
    texts = {
        "set": ("Replace the limits: what is not named is unlimited.", "--max-concurrent 5"),
        "show": ("Show the limits, and those in effect.", ""),
        "clear": ("Remove the limits.", ""),
    }
    for name, (text, words) in texts.items():
        subcommand = add_command(subcommands, name, text, f"onejob quota {name} 42 {words}".rstrip())
        subcommand.add_argument("user", nargs="?", metavar="USER", help="the user; or one of the next two")
        either = subcommand.add_mutually_exclusive_group()
        for half, of_whom in (("default", "of users without limits of their own"), ("ceiling", "of all users")):
            either.add_argument(f"--{half}", dest="half", action="store_const", const=half, help=of_whom)
        if name == "set":
            _add_limit_arguments(subcommand)
        add_target_arguments(subcommand)


def _add_limit_arguments(command: ArgumentParser) -> None:
    counts = {
        "--max-concurrent": "live jobs and reservations at a time; 0: none",
        "--per-hour": "new jobs in any hour",
        "--per-day": "new jobs in any day",
    }
    for name, text in counts.items():
        command.add_argument(name, type=_parse_count, metavar="N", help=text)
    command.add_argument("--cost", metavar="AMOUNT", help="money in a period, e.g. 100 or 12.50")
    command.add_argument(
        "--period",
        choices=choices(Period),
        default=Period.MONTH.value,
        metavar="WORD",
        help=f"of --cost: {', '.join(Period)}; default: %(default)s",
    )
    command.add_argument(
        "--action",
        choices=choices(CostAction),
        default=CostAction.BLOCK.value,
        metavar="WORD",
        help=f"beyond --cost: {' or '.join(CostAction)}; default: %(default)s",
    )


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= LIMIT_MAX):
        raise ArgumentTypeError(f"{text!r} is not a limit; use a whole number from 0 to {LIMIT_MAX}")
    return int(text)


def run(options: Namespace) -> CommandResult:
    user, half, subcommand = options.user, options.half, options.subcommand
    if (user is None) == (half is None):
        raise Invalid("user", "name a user, or --default or --ceiling; one of them")
    limits = _parse_limits(options) if subcommand == "set" else Limits()
    if subcommand == "set" and limits == Limits():
        raise Invalid("limits", "name a limit to set, or remove all with `onejob quota clear`")

    def call(backend: Backend) -> QuotaResponse | TenantQuotaResponse:
        if user is not None:
            return backend.quota(user) if subcommand == "show" else backend.set_quota(user, limits)
        return backend.tenant_quota() if subcommand == "show" else backend.set_tenant_quota(half, limits)

    return call_backend(options, call, render, creates_store=True)


def _parse_limits(options: Namespace) -> Limits:
    cost = None
    if options.cost is not None:
        cost = CostLimit.of(options.cost, options.period, options.action)
    return Limits(options.max_concurrent, options.per_hour, options.per_day, cost)


def render(screen: Screen, response: QuotaResponse | TenantQuotaResponse) -> str:
    if isinstance(response, TenantQuotaResponse):
        return "\n".join(
            [
                "default of users without limits of their own",
                *field_lines(screen, _limit_rows(response.default)),
                "ceiling over all users",
                *field_lines(screen, _limit_rows(response.ceiling)),
            ]
        )
    return "\n".join(
        [
            f"limits of {screen.paint('bold', sanitize(response.user))}",
            *field_lines(screen, _limit_rows(response.limits)),
            "in effect, with those of the tenant",
            *field_lines(screen, _limit_rows(response.effective)),
        ]
    )


def _limit_rows(limits: LimitsView | EffectiveLimitsView) -> list[tuple[str, str]]:
    counts = {"at a time": limits.max_concurrent, "per hour": limits.jobs_per_hour, "per day": limits.jobs_per_day}
    rows = [(name, str(count)) for name, count in counts.items() if count is not None]
    rows += [("cost", format_cost_limit(cost)) for cost in _cost_limits(limits)]
    return rows or [("limits", "none")]


def _cost_limits(limits: LimitsView | EffectiveLimitsView) -> Sequence[CostLimitView]:
    if isinstance(limits, EffectiveLimitsView):
        return limits.cost_limits
    return () if limits.cost_limit is None else (limits.cost_limit,)


def format_cost_limit(cost: CostLimitView) -> str:
    return f"{cost.amount} a {cost.period}, then {cost.action}"
