"""What an examination finds: a verdict for each check, and the next act."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from .screen import Screen, clean
from .trouble import DONE, FAILED


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True, rename="camel"):
    check: str
    verdict: Verdict
    found: str
    act: str = ""


class Examination(Struct, frozen=True, rename="camel"):
    examined: str
    healthy: bool
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        return DONE if self.healthy else FAILED


_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def warn(check: str, found: str, act: str) -> Finding:
    return Finding(check, Verdict.WARN, found, act)


def fail(check: str, found: str, act: str = "") -> Finding:
    return Finding(check, Verdict.FAIL, found, act)


def examination(examined: str, findings: Iterator[Finding]) -> Examination:
    all_of = list(findings)
    return Examination(examined, all(one.verdict is not Verdict.FAIL for one in all_of), all_of)


def show(screen: Screen, answer: Examination) -> str:
    width = max(len(one.check) for one in answer.findings)
    lines = [f"examined {clean(answer.examined)}"]
    for one in answer.findings:
        verdict = screen.paint(_STYLES[one.verdict], one.verdict.ljust(4))
        act = f"; {one.act}" if one.act else ""
        lines.append(f"  {verdict}  {one.check.ljust(width)}  {clean(one.found + act)}")
    return "\n".join(lines)
