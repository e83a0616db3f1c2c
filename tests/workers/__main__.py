"""`python -m tests.workers`: the long campaign."""

import argparse
import sys
import tempfile
from pathlib import Path

from .campaign import campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--engine", metavar="URL", help="default: a new SQLite file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.engine or f"sqlite:///{folder}/jobs.db"
        verdict = campaign(
            url,
            Path(folder),
            jobs=options.jobs,
            workers=options.workers,
            seed=options.seed,
            seconds_max=options.seconds,
        )
    print(
        f"{verdict.jobs} jobs, {options.workers} workers, {verdict.kills} kills, {verdict.attempts} attempts, "
        f"{verdict.lost} lost, {verdict.seconds:.1f} s, {len(verdict.wrong)} wrong"
    )
    for text in verdict.wrong[:20]:
        print(f"  {text}")
    return bool(verdict.wrong)


if __name__ == "__main__":
    sys.exit(main())
