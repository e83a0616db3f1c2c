"""The findings of `onejob doctor`: a status for each check, and what to do about it."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from onejob.cli.exit_codes import DONE, FAILED
from onejob.cli.render import Screen, sanitize


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True, rename="camel"):
    check: str
    verdict: CheckStatus
    found: str
    act: str = ""


class Examination(Struct, frozen=True, rename="camel"):
    examined: str
    healthy: bool
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        return DONE if self.healthy else FAILED


_STYLES = {CheckStatus.OK: "green", CheckStatus.WARN: "yellow", CheckStatus.FAIL: "red"}


def ok(check: str, found: str) -> Finding:
    return Finding(check, CheckStatus.OK, found)


def warn(check: str, found: str, act: str) -> Finding:
    return Finding(check, CheckStatus.WARN, found, act)


def fail(check: str, found: str, act: str = "") -> Finding:
    return Finding(check, CheckStatus.FAIL, found, act)


def build_examination(examined: str, findings: Iterator[Finding]) -> Examination:
    listed = list(findings)
    return Examination(examined, none_failed(listed), listed)


def none_failed(findings: list[Finding]) -> bool:
    return all(finding.verdict is not CheckStatus.FAIL for finding in findings)


def render_examination(screen: Screen, examination: Examination) -> str:
    width = max(len(finding.check) for finding in examination.findings)
    lines = [f"examined {sanitize(examination.examined)}"]
    for finding in examination.findings:
        verdict = screen.paint(_STYLES[finding.verdict], finding.verdict.ljust(4))
        act = f"; {finding.act}" if finding.act else ""
        lines.append(f"  {verdict}  {finding.check.ljust(width)}  {sanitize(finding.found + act)}")
    return "\n".join(lines)
