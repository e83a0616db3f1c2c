"""A process that forks traced programs, so that a run costs no start-up and strace traces nothing else.

It reads `part path acks at retries`, tab-separated. It prints the pid of a new process, which waits for its tracer
before it starts, and then its exit status.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

from . import traced_program

UNTRACED = 97
_TRACER_SECONDS = 10.0
_PR_SET_PTRACER = 0x59616D61
_ANY = -1


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            os._exit(_run_child(line.rstrip("\n").split("\t")))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run_child(arguments: list[str]) -> int:
    # Some kernels let only a parent trace, unless any process is allowed.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(_ANY), 0, 0, 0)
    until = time.monotonic() + _TRACER_SECONDS
    while "\nTracerPid:\t0\n" in Path("/proc/self/status").read_text(encoding="ascii"):
        if time.monotonic() > until:
            return UNTRACED
        time.sleep(0.001)
    try:
        return traced_program.main(*arguments)
    except BaseException:  # noqa: BLE001 - it is printed, and a forked child must end here
        sys.excepthook(*sys.exc_info())
        return 1


if __name__ == "__main__":
    main()
