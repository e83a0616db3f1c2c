"""`python -m tests.campaigns.simulation`: run a campaign of simulations, or replay or shrink one of them."""

import argparse
import sys

from .campaign import replay, run_campaign, show_plan, show_result, shrink_failing_plan
from .mutants import ALL_MUTANTS, plan_for

STEPS_DEFAULT = 100_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds; 0: until --steps are done")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--steps", type=int, help=f"stop after this many steps (default {STEPS_DEFAULT:,}, or no limit with --seeds)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="print the trace of one simulation")
    parser.add_argument(
        "--shrink", type=int, metavar="SEED", help="print a smaller plan that violates the same invariant"
    )
    parser.add_argument("--mutant", choices=sorted(ALL_MUTANTS), help="replay or shrink with this mutant")
    options = parser.parse_args()
    if options.replay is not None:
        result = replay(plan_for(options.replay, options.mutant), options.mutant)
        show_result(result)
        return bool(result.violations)
    if options.shrink is not None:
        plan = shrink_failing_plan(plan_for(options.shrink, options.mutant), options.mutant)
        show_result(replay(plan, options.mutant))
        show_plan(plan)
        return 1
    steps = options.steps if options.steps is not None else 0 if options.seeds else STEPS_DEFAULT
    return not run_campaign(options.start, options.seeds, steps=steps, jobs=options.jobs)


if __name__ == "__main__":
    sys.exit(main())
