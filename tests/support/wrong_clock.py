"""`python -m tests.support.wrong_clock SECONDS serve …`: runs `onejob` with a wall clock that is off."""

import sys
import time

_NS_PER_SECOND = 1_000_000_000


def shift_wall_clock(seconds: int) -> None:
    time_ns, now = time.time_ns, time.time
    time.time_ns = lambda: time_ns() + seconds * _NS_PER_SECOND
    time.time = lambda: now() + seconds


if __name__ == "__main__":
    shift_wall_clock(int(sys.argv[1]))
    from onejob.cli import main

    sys.exit(main(sys.argv[2:]))
