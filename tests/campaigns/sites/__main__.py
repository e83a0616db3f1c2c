"""`python -m tests.campaigns.sites`: submissions to two sites while each of them and the home are killed and cut off."""

import argparse
import sys
import tempfile
from pathlib import Path

from .campaign import run_campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdict = run_campaign(Path(folder), jobs=options.jobs, seed=options.seed, pause=0.05, acts_min=7)
    print(
        f"{verdict.jobs} submissions to 2 sites, {verdict.cancelled} cancelled, {verdict.kills} kills, "
        f"{verdict.cuts} cuts, {verdict.seconds:.1f} s, {len(verdict.violations)} wrong"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
