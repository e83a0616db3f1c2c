"""The long form of the fault campaign: `python -m tests.campaigns.client [SUBMISSIONS] [SEED]`."""

import sys
import tempfile
from pathlib import Path

from onejob.cli.commands.prove.faulty_proxy import PASS, cut
from tests.campaigns.client.campaign import ANSWER_BYTES, run_campaign

from .faulty_proxy import seeded_faults

if __name__ == "__main__":
    words = sys.argv[1:]
    submissions = int(words[0]) if words else 10_000
    seed = int(words[1]) if words[1:] else 1
    choose = seeded_faults(seed, faults_max=6, answer_bytes=ANSWER_BYTES, delay_seconds=0.6)
    with tempfile.TemporaryDirectory() as folder:
        result = run_campaign(Path(folder), submissions, choose, callers=32)
    print(
        f"seed {seed}: {result.submissions} submissions, one job each, in {result.attempts} attempts: {result.fault_counts}"
    )
    with tempfile.TemporaryDirectory() as folder:
        cuts = run_campaign(Path(folder), ANSWER_BYTES, lambda key, attempt: PASS if attempt else cut(int(key[-6:])))
    print(f"cut at every byte: {cuts.submissions} submissions, one job each, in {cuts.attempts} attempts")
