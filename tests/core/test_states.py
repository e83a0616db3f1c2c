"""Every state against every move. The tables are repeated here, so that a changed rule must be changed twice."""

from enum import StrEnum

import pytest

from onejob.core.states import (
    ENDED_STATES,
    IMMUTABLE_STATES,
    JOB_MOVES,
    RECORD_MOVES,
    Delivery,
    IdempotencyStatus,
    IllegalMove,
    JobState,
    Move,
    RecordMove,
    is_allowed,
    state_after,
    status_after,
)

# A row is a state, a column a move, a dot an illegal move.
RECORDS = """
            renew     take_over  commit     reject    fail
pending     pending   pending    committed  rejected  pending
committed   .         .          .          .         .
rejected    .         .          .          .         .
"""
JOBS = """
            commit   schedule   reject  abandon  cancel
preparing   pending  scheduled  failed  failed   cancelled
scheduled   .        .          .       .        cancelled
pending     .        scheduled  .       .        cancelled
running     .        scheduled  .       .        cancelled
success     .        .          .       .        .
failed      .        .          .       .        .
cancelled   .        .          .       .        .
lost        .        .          .       .        .
"""
WORK = """
            claim    start    extend   revive   release  succeed  fail    lose  rerun
preparing   .        .        .        .        .        .        .       .     .
scheduled   pending  .        .        .        .        .        .       .     .
pending     pending  running  pending  running  pending  .        .       .     .
running     .        .        running  .        pending  success  failed  lost  .
success     .        .        .        .        .        .        .       .     .
failed      .        .        .        .        .        .        .       .     pending
cancelled   .        .        .        .        .        .        .       .     .
lost        .        .        .        .        .        success  failed  .     pending
"""


def parse_table(grid: str) -> dict[tuple[str, str], str]:
    columns, *rows = (line.split() for line in grid.strip().splitlines())
    return {
        (state, move): then
        for state, *thens in rows
        for move, then in zip(columns, thens, strict=True)
    }  # fmt: skip


RECORD_CELLS = parse_table(RECORDS)
JOB_CELLS = parse_table(JOBS) | parse_table(WORK)


def test_the_tables_name_every_state_and_every_move() -> None:
    assert set(RECORD_CELLS) == {(status, move) for status in IdempotencyStatus for move in RecordMove}
    assert set(JOB_CELLS) == {(state, move) for state in JobState for move in Move}
    assert set(RECORD_MOVES) == set(IdempotencyStatus)
    assert set(JOB_MOVES) == set(JobState)


@pytest.mark.parametrize(("status", "move"), sorted(RECORD_CELLS))
def test_a_record_moves_as_the_table_says(status: str, move: str) -> None:
    then = RECORD_CELLS[status, move]
    if then == ".":
        with pytest.raises(IllegalMove, match=f"a {status} record cannot {move}"):
            status_after(IdempotencyStatus(status), RecordMove(move))
    else:
        assert status_after(IdempotencyStatus(status), RecordMove(move)) is IdempotencyStatus(then)


@pytest.mark.parametrize(("state", "move"), sorted(JOB_CELLS))
def test_a_job_moves_as_the_table_says(state: str, move: str) -> None:
    then = JOB_CELLS[state, move]
    assert is_allowed(JobState(state), Move(move)) is (then != ".")
    if then == ".":
        with pytest.raises(IllegalMove, match=f"a {state} job cannot {move}"):
            state_after(JobState(state), Move(move))
    else:
        assert state_after(JobState(state), Move(move)) is JobState(then)


def test_terminal_states_absorb() -> None:
    for terminal in ("committed", "rejected"):
        assert {then for (status, _), then in RECORD_CELLS.items() if status == terminal} == {"."}
    for terminal in ("success", "cancelled"):
        assert {then for (state, _), then in JOB_CELLS.items() if state == terminal} == {"."}


def test_only_an_operator_moves_a_failed_or_lost_job() -> None:
    moves = {state: {move for (s, move), then in JOB_CELLS.items() if (s, then) != (s, ".") and s == state}
             for state in ("failed", "lost")}  # fmt: skip
    assert moves == {"failed": {"rerun"}, "lost": {"succeed", "fail", "rerun"}}


def test_ended_jobs_hold_no_slot_and_settled_ones_never_change() -> None:
    assert values_of(ENDED_STATES) == {"success", "failed", "cancelled", "lost"}
    assert values_of(IMMUTABLE_STATES) == {"success", "cancelled"}


def test_every_state_is_reached_from_a_submission() -> None:
    reached = {"preparing"}
    while more := {then for (state, _), then in JOB_CELLS.items() if state in reached} - reached - {"."}:
        reached |= more
    assert reached == values_of(JobState)


def test_the_words_of_the_wire_are_these() -> None:
    assert values_of(IdempotencyStatus) == {"pending", "committed", "rejected"}
    assert values_of(Delivery) == {"at_least_once", "at_most_once"}


def values_of(states: "frozenset[JobState] | type[StrEnum]") -> set[str]:
    return {state.value for state in states}
