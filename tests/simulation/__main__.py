"""`python -m tests.simulation`: a campaign of random walks, or one of them looked at closely."""

import argparse
import sys

from .campaign import replay, run_campaign, show_plan, show_result, shrink_failing_plan
from .mutants import ALL_MUTANTS, plan_for

STEPS_DEFAULT = 100_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="how many; 0: as many as the steps take")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, help=f"stop after so many ({STEPS_DEFAULT:,} unless seeds are given)")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="print the history of one walk")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="print the smallest plan that still fails")
    parser.add_argument("--mutant", choices=sorted(ALL_MUTANTS), help="replay or shrink with one mutant")
    given = parser.parse_args()
    if given.replay is not None:
        walked = replay(plan_for(given.replay, given.mutant), given.mutant)
        show_result(walked)
        return bool(walked.violations)
    if given.shrink is not None:
        plan = shrink_failing_plan(plan_for(given.shrink, given.mutant), given.mutant)
        show_result(replay(plan, given.mutant))
        show_plan(plan)
        return 1
    steps = given.steps if given.steps is not None else 0 if given.seeds else STEPS_DEFAULT
    return not run_campaign(given.start, given.seeds, steps=steps, jobs=given.jobs)


if __name__ == "__main__":
    sys.exit(main())
