"""Every code that the package sends or understands has its row in `onejob.codes`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import generate
from onejob.codes import CODES, HTTP_API_CODES, NextAction
from onejob.core.command import is_temporary_refusal
from onejob.core.replies import Reason, Refused
from onejob.errors import SubmissionRefused, WorkRefused
from onejob.http.problems import to_problem

ROOT = Path(__file__).parents[1]
PROBLEM_BUILDERS = {"problem", "problem_response"}
# A claim that loses a race looks for another job, and a ledger reads its settings again; no caller sees the reason.
INTERNAL_REASONS = {Reason.NOT_READY, Reason.TOO_LATE, Reason.SETTINGS_CHANGED}
WORK_REASONS = (
    Reason.TIMED_OUT,
    Reason.NOT_ALLOWED,
    Reason.SEQUENCE_GAP,
    Reason.STEP_CONFLICT,
    Reason.STEP_INTERRUPTED,
)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in INTERNAL_REASONS])
def test_every_reason_that_reaches_a_client_has_a_code(reason: Reason) -> None:
    assert to_problem(SubmissionRefused(key="k", reason=reason, message="text")).code in HTTP_API_CODES


@pytest.mark.parametrize("reason", WORK_REASONS)
def test_every_refusal_of_a_worker_has_a_code(reason: Reason) -> None:
    assert to_problem(WorkRefused(reason, "text", {})).code == reason in HTTP_API_CODES


def test_every_code_that_is_sent_has_a_row() -> None:
    sent = {code for path in (ROOT / "src").rglob("*.py") for code in built_codes(path)}
    assert sent - CODES.keys() == set()
    assert sent >= {"UNAUTHORIZED", "KEY_MISSING"}, "the scan finds nothing"


def test_every_code_is_listed_once_and_tells_a_client_what_to_do() -> None:
    listed = generate.errors()
    for code, row in CODES.items():
        assert listed.count(f"| `{code}` |") == 1
        assert row.next_action is not NextAction.KEEP
        assert 400 <= row.status < 600
        assert row.title


def test_a_code_is_retryable_only_if_the_client_retries_it() -> None:
    for row in CODES.values():
        assert not row.retryable or row.next_action in (NextAction.RETRY, NextAction.WAIT)


def built_codes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PROBLEM_BUILDERS:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


@pytest.mark.parametrize("reason", list(Reason))
def test_a_refusal_of_the_moment_settles_no_earlier_attempt(reason: Reason) -> None:
    if reason not in INTERNAL_REASONS and is_temporary_refusal(Refused(reason, "text", 0)):
        assert not CODES[reason].settles
