"""Judge from outside whether an HTTP API keeps what the Idempotency-Key header promises.

It works with any API and knows nothing of the ledger. It sends real requests, so it refuses other hosts than this machine
unless told otherwise.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from msgspec import Struct

from onejob.cli.render import to_json, write
from onejob.core.errors import Invalid

from .exchange import ApiTarget, vary
from .rules import RACERS_DEFAULT, RACERS_MAX, RULES, CheckRule, Examiner, Level, RuleStatus, RuleVerdict, run_rule

EXAMPLE = """onejob check http://127.0.0.1:8000/orders --body '{"amount": 5}' --id order.id"""
ALL_KEPT, BROKEN, NOT_JUDGED = 0, 1, 2
_EXIT_CODES_HELP = """\
exit codes of this command:
  0   every MUST is kept (with --strict: every SHOULD as well)
  1   one is not
  2   wrong usage, or it could not be judged: the API cannot be reached, refuses the request, or does not show what it made"""


class CheckReport(Struct, frozen=True, rename="camel"):
    url: str
    strict: bool
    verdicts: list[RuleVerdict]

    @property
    def exit_code(self) -> int:
        if any(self.is_fatal(verdict) for verdict in self.verdicts):
            return BROKEN
        return NOT_JUDGED if any(verdict.status is RuleStatus.UNJUDGED for verdict in self.verdicts) else ALL_KEPT

    def is_fatal(self, verdict: RuleVerdict) -> bool:
        return verdict.status is RuleStatus.FAILED and (self.strict or verdict.level is Level.MUST)

    def count(self, status: RuleStatus) -> int:
        return sum(verdict.status is status for verdict in self.verdicts)


def add_arguments(command: ArgumentParser) -> None:
    command.epilog = f"{command.epilog}\n\n{_EXIT_CODES_HELP}"
    command.add_argument(
        "url", metavar="URL", help="of the request that makes something, e.g. http://127.0.0.1:8000/orders"
    )
    command.add_argument("--method", default="POST", metavar="WORD", help="default: %(default)s")
    command.add_argument("--body", default="{}", metavar="JSON", help="the body of the request: JSON, or @file")
    command.add_argument(
        "--vary", default="", metavar="PATH", help="the member that another body differs in, e.g. order.amount"
    )
    command.add_argument("--other-body", metavar="JSON", help="another valid body, instead of --vary")
    command.add_argument("--id", default="", metavar="PATH", help="where a response names what was made, e.g. job.id")
    command.add_argument(
        "--count",
        default="",
        metavar="'GET PATH MEMBER'",
        help="a figure or list that counts what was made, e.g. 'GET /orders total'",
    )
    command.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated")
    command.add_argument(
        "--as",
        dest="other_header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="the header of another user",
    )
    command.add_argument(
        "--restart", default="", metavar="COMMAND", help="restarts the server; the check waits until it answers"
    )
    _add_run_arguments(command)


def _add_run_arguments(command: ArgumentParser) -> None:
    command.add_argument("--required", action="store_true", help="the API requires a key")
    command.add_argument(
        "--racers", type=int, default=RACERS_DEFAULT, metavar="N", help="requests at once; default: %(default)s"
    )
    command.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="of one request; default: 30")
    command.add_argument("--only", default="", metavar="A,B", help="check only these rules")
    command.add_argument("--strict", action="store_true", help="fail also if a SHOULD is not kept")
    command.add_argument(
        "--yes-this-makes-real-orders", action="store_true", help="check a host other than this machine"
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--junit", action="store_true", help="print JUnit XML")


def run(options: Namespace) -> int:
    report = _check(options)
    write(to_json(report) if options.json else render_junit(report) if options.junit else render_text(report))
    return report.exit_code


def _check(options: Namespace) -> CheckReport:
    rules = _chosen_rules(options.only)
    target = _build_target(options)
    if not (target.is_loopback or options.yes_this_makes_real_orders):
        raise Invalid(
            "url", f"{target.parts.hostname} is not this machine, and a check makes real things there: use a test "
            "system, or add --yes-this-makes-real-orders"
        )  # fmt: skip
    if not 2 <= options.racers <= RACERS_MAX:
        raise Invalid("racers", f"a race needs 2 to {RACERS_MAX} requests; choose a number in between")
    examiner = Examiner(
        target,
        count=options.count,
        other_headers=_parse_headers(options.other_header),
        restart=options.restart,
        key_is_required=options.required,
        racers=options.racers,
    )
    examiner.require_valid_request()
    return CheckReport(target.url, options.strict, [run_rule(rule, examiner) for rule in rules])


def render_text(report: CheckReport) -> str:
    width = max(len(verdict.rule) for verdict in report.verdicts)
    lines = [
        f"{verdict.status:<8}  {verdict.level:<6}  {verdict.rule:<{width}}  {verdict.title} (section {verdict.section})"
        + (f"\n{'':{20 + width}}{verdict.found}" if verdict.found else "")
        for verdict in report.verdicts
    ]
    counts = ", ".join(f"{report.count(status)} {status}" for status in RuleStatus)
    return "\n".join([f"checked {report.url}", *lines, counts])


def render_junit(report: CheckReport) -> str:
    """One test case for each rule. A SHOULD that is not kept fails only with --strict; otherwise it is in the output."""
    tags = {RuleStatus.SKIPPED: "skipped", RuleStatus.UNJUDGED: "error"}
    cases = []
    for verdict in report.verdicts:
        tag = "failure" if report.is_fatal(verdict) else tags.get(verdict.status, "")
        name = f"name={quoteattr(f'{verdict.rule}: {verdict.title}')} classname={quoteattr(f'onejob.check.{verdict.level}')}"
        inside = f"<{tag} message={quoteattr(verdict.found)}/>" if tag else ""
        if verdict.status is RuleStatus.FAILED and not inside:
            inside = f"<system-out>{_escape(f'SHOULD, not kept: {verdict.found}')}</system-out>"
        cases.append(f"  <testcase {name}>{inside}</testcase>")
    failures = sum(report.is_fatal(verdict) for verdict in report.verdicts)
    head = f'<testsuite name={quoteattr(f"onejob check {report.url}")} tests="{len(report.verdicts)}" failures="{failures}"'
    counts = f' errors="{report.count(RuleStatus.UNJUDGED)}" skipped="{report.count(RuleStatus.SKIPPED)}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head + counts, *cases, "</testsuite>"])


def _escape(text: str) -> str:
    return quoteattr(text, {'"': "&quot;"})[1:-1]


def _chosen_rules(only: str) -> Sequence[CheckRule]:
    if not only:
        return RULES
    names = [name.strip() for name in only.split(",")]
    if unknown := set(names) - {rule.name for rule in RULES}:
        raise Invalid(
            "only", f"there is no rule {min(unknown)}; the rules are {', '.join(rule.name for rule in RULES)}"
        )
    return [rule for rule in RULES if rule.name in names]


def _build_target(options: Namespace) -> ApiTarget:
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid("url", "the URL is not that of an HTTP API; write http://127.0.0.1:8000/orders")
    body = _read_body(options.body)
    other_body = vary(body, options.vary) if options.other_body is None else _read_body(options.other_body)
    if other_body == body:
        raise Invalid("other body", "it is the same body; give one that differs")
    return ApiTarget(
        url=options.url,
        method=options.method,
        body=body,
        other_body=other_body,
        headers=_parse_headers(options.header),
        id_path=options.id,
        timeout_seconds=options.timeout,
    )


def _read_body(text: str) -> bytes:
    data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    try:
        json.loads(data)
    except ValueError:
        raise Invalid("body", "the body is not JSON; correct it") from None
    return data


def _parse_headers(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = [line.partition(":") for line in lines]
    if any(not (name.strip() and colon) for name, colon, _ in pairs):
        raise Invalid("header", "a header is a name, a colon and a value; write 'Authorization: Bearer …'")
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)
