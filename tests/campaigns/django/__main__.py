"""`python -m tests.campaigns.django [--kills 20]`: payments in Django while the process is killed, and the control."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.campaigns.django.payments import POINTS, find_wrong, run_shop
from tests.support.postgres_server import Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.django", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often the process is killed at each point")
    kills = parser.parse_args().kills
    server = Server()
    wrong: list[str] = []
    try:
        server.init()
        server.start()
        with tempfile.TemporaryDirectory() as folder, run_shop(Path(folder), server.database()) as shop:
            for point in POINTS:
                found = [find_wrong(point, shop.pay_while_dying(point, n)) for n in range(kills)]
                wrong += filter(None, found)
                print(f"killed {kills} times at {point!r}: {sum(not one for one in found)} paid once", flush=True)
        with (
            tempfile.TemporaryDirectory() as folder,
            run_shop(Path(folder), server.database(), settles_after_the_view=True) as shop,
        ):
            twice = sum(shop.pay_while_dying("committed", n).payments == 2 for n in range(kills))
            print(
                f"control, settled after the view, killed {kills} times at 'committed': {twice} paid twice", flush=True
            )
            if twice != kills:
                wrong.append("the control did not pay twice")
    finally:
        server.remove()
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
