"""Writes the pages that follow from the code: `make docs`. A test fails when one is out of date."""

from pathlib import Path

from onejob.core.states import ENDED, JOB_MOVES, RECORD_MOVES, SETTLED, IdempotencyStatus, JobState

HERE = Path(__file__).parent


def states() -> str:
    """Every state and every legal move, as the tables in core/states.py have them."""
    lines = [
        "# States and moves",
        "",
        "Made from `src/onejob/core/states.py` by `make docs`. A move that is not here is refused.",
        "",
        "## Records",
        "",
        "| status | " + " | ".join(IdempotencyStatus) + " |",
        "|---" * (len(IdempotencyStatus) + 1) + "|",
    ]
    for status, record_moves in RECORD_MOVES.items():
        cells = [", ".join(m for m, to in record_moves.items() if to is other) for other in IdempotencyStatus]
        lines.append(f"| **{status}** | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Jobs",
        "",
        "| from | move | to |",
        "|---|---|---|",
    ]
    for state, moves in JOB_MOVES.items():
        lines += [f"| {state} | {move} | {to} |" for move, to in moves.items()]
    lines += [
        "",
        f"Ended (no slot, no worker): {_list(ENDED)}. Of these, {_list(SETTLED)} never change again;",
        "a failed or lost job can be run again by an operator.",
        "",
    ]
    return "\n".join(lines)


def _list(states: frozenset[JobState]) -> str:
    return ", ".join(state for state in JobState if state in states)


PAGES = {"states.md": states}

if __name__ == "__main__":
    for name, render in PAGES.items():
        (HERE / name).write_text(render(), encoding="utf-8")
