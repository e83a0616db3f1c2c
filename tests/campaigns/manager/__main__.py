"""`python -m tests.campaigns.manager`: the long campaign of gates and managers that are killed, frozen and cut off."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.support.postgres_server import Server

from .campaign import Campaign, Plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.manager", description=__doc__)
    parser.add_argument("--sqlite", action="store_true", help="a SQLite file behind one manager, instead of PostgreSQL")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of keys, gates and lost replies")
    parser.add_argument("--share", type=float, default=1.0, help="of the campaign's length, to run less of it")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    plan = Plan().shortened(options.share)
    with tempfile.TemporaryDirectory(prefix="onejob-manager-") as name:
        folder = Path(name)
        if options.sqlite:
            return run(Campaign(f"sqlite:///{folder}/onejob.db", folder, plan, options.seed, managers=1))
        server = Server()
        try:
            server.init()
            server.start()
            return run(Campaign(server.database(), folder, plan, options.seed, managers=2))
        finally:
            server.remove()


def run(campaign: Campaign) -> int:
    asyncio.run(campaign.run(lambda line: print(line, flush=True)))
    for text in campaign.too_slow:
        print(f"TOO SLOW: {text}")
    return bool(campaign.too_slow)


if __name__ == "__main__":
    sys.exit(main())
