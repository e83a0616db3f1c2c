"""`python -m tests.campaigns.patroni`: kills the site of the primary under load, with etcd, Patroni, manager and gate."""

import argparse
import asyncio
import random
import signal
import sys

from .campaign import Campaign
from .cluster import ThreeSites, find_missing_program

KILLS = 5
LOAD_SECONDS = 8.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.patroni", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of gates and pauses")
    parser.add_argument("--load-seconds", type=float, default=LOAD_SECONDS, help="before and after each kill")
    parser.add_argument("--patroni", default="patroni", help="the program; default: the one that is installed")
    parser.add_argument(
        "--asynchronous", action="store_true", help="without a quorum: the campaign must find lost answers"
    )
    options = parser.parse_args()
    if missing := find_missing_program(options.patroni):
        print(f"skipped: not installed: {missing} (Debian: apt install etcd-server patroni python3-etcd postgresql)")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no server is left behind
    print(f"seed {options.seed}", flush=True)
    with ThreeSites(patroni=options.patroni, is_synchronous=not options.asynchronous) as cluster:
        campaign = Campaign(cluster, options.seed, load_seconds=options.load_seconds)
        failovers = asyncio.run(campaign.run(options.kills, lambda line: print(line, flush=True)))
    pauses = sorted(failover.pause for failover in failovers)
    print(f"{options.kills} sites killed; no new job for {pauses[0]:.1f} to {pauses[-1]:.1f} s each time")
    keys = len(campaign.load.jobs)
    print(f"{keys} keys sent twice, {keys} jobs on every node, 0 lost; {dict(campaign.load.counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
