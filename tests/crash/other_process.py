"""Another process on the same file, which submits some keys and then closes the file or is killed.

`python -m tests.crash.other_process close|kill PATH KEY…` prints, for each key, its job and the journal's length.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import onejob

from .load_program import open_ledger, submission_for

ROOT = Path(__file__).resolve().parent.parent.parent
REFUSED = 4


class SubmittedKey(NamedTuple):
    job_id: str
    journal: int  # its length when the answer arrived


class OtherProcessFailed(Exception):
    """The other process printed an error and stopped."""


def submit_in_other_process(path: Path, *keys: str, end: str = "close", bound: bool = False) -> list[SubmittedKey]:
    """Submit keys in another process; `bound` applies file permissions even to root."""
    unprivileged = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if bound and not os.getuid() else []
    command = [*unprivileged, sys.executable, "-m", "tests.crash.other_process", end, str(path), *keys]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    if done.returncode == REFUSED:
        raise OtherProcessFailed(done.stderr.strip())
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return [SubmittedKey(job_id, int(journal)) for job_id, journal in lines]


async def main(end: str, path: str, *keys: str) -> None:
    ledger = await open_ledger(path)
    try:
        for key in keys:
            submission = submission_for(key)
            receipt = await ledger.submit(submission.type, submission.input, idempotency_key=key)
            print(receipt.job_id, os.stat(f"{path}-wal").st_size, flush=True)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    finally:
        await ledger.aclose()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (onejob.Unavailable, onejob.Unknown) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(REFUSED)
