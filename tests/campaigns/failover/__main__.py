"""`python -m tests.campaigns.failover`: the long campaign of failovers."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from .campaign import Campaign
from .cluster import STANDBY_NAMES, Cluster

FAILOVERS = 10
ANSWERS = 1500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.failover", description=__doc__)
    parser.add_argument("--failovers", type=int, default=FAILOVERS)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the keys that callers draw, and of which server is killed when"
    )
    parser.add_argument("--answers", type=int, default=ANSWERS, help="between two failovers")
    parser.add_argument(
        "--asynchronous", action="store_true", help="without a quorum: the campaign must find lost answers"
    )
    args = parser.parse_args()
    seed = random.randrange(1 << 32) if args.seed is None else args.seed
    print(f"seed {seed}")
    names = "" if args.asynchronous else STANDBY_NAMES
    with tempfile.TemporaryDirectory(prefix="onejob-failover-") as folder, Cluster(names) as cluster:
        campaign = Campaign(Path(folder), cluster, seed, answers=args.answers)
        asyncio.run(campaign.run(args.failovers, report=print))
    recorded = campaign.answers
    print(f"{args.failovers} failovers, {len(recorded.answers)} keys, as many jobs; {dict(recorded.counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
