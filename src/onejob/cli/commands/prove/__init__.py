"""Repeat the claim of one job per key on this machine: kill -9, lost answers, raced duplicates; with a report.

Real servers in processes of their own are killed with SIGKILL while callers send every key several times through a network that
loses, cuts and repeats messages. It works under a tenant of its own, and deletes what it has made.
"""

import asyncio
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from onejob.cli.render import StatusLine, write
from onejob.core.errors import Invalid
from onejob.engines import is_multi_process, redact_password
from onejob.ids import new_nonce

from .campaign import SERVE, Evidence, ProveCampaign, ProvePlan, ProveVerdict
from .report import build_report, render_json

EXAMPLE = "onejob prove postgresql://db.example/onejob --quick"
KEYS_DEFAULT, KEYS_QUICK, KEYS_MAX = 5000, 400, 1_000_000
KILLS_DEFAULT, KILLS_QUICK, KILLS_MAX = 20, 4, 1000
SECONDS_DEFAULT, SECONDS_QUICK = 600.0, 25.0
REPORT_DEFAULT = "onejob-prove"
PROVED, DISPROVED = 0, 1
_EXIT_CODES_HELP = """\
exit codes of this command:
  0   every key that was sent has one job, and it is the one that every caller was told
  1   something is wrong; another one: it could not be carried out, see `onejob --help`"""


def add_arguments(command: ArgumentParser) -> None:
    command.epilog = f"{command.epilog}\n\n{_EXIT_CODES_HELP}"
    command.add_argument(
        "url", nargs="?", metavar="URL", help="the engine, under a tenant of its own; default: a new SQLite file"
    )
    command.add_argument("--quick", action="store_true", help="fewer keys and kills: within a minute")
    command.add_argument("--keys", type=int, metavar="N", help=f"default: {KEYS_DEFAULT}, with --quick {KEYS_QUICK}")
    command.add_argument(
        "--kills", type=int, metavar="N", help=f"of servers; default: {KILLS_DEFAULT}, with --quick {KILLS_QUICK}"
    )
    command.add_argument("--seed", default="", metavar="TEXT", help="of the faults of the network; default: a new one")
    command.add_argument(
        "--report", default=REPORT_DEFAULT, metavar="FOLDER", help="for report.json; default: %(default)s"
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: Namespace) -> int:
    verdict, report = prove(options)
    if options.json:
        write(report)
    else:
        write("\n".join([*verdict.problems, f"report: {options.report}/report.json", str(verdict)]))
    return PROVED if verdict.is_kept else DISPROVED


def prove(options: Namespace, *, serve: Sequence[str] = SERVE) -> tuple[ProveVerdict, str]:
    """Run it and write the report; the verdict, and the report as JSON."""
    plan = _parse_plan(options)
    if options.url is not None and not is_multi_process(options.url):
        raise Invalid("url", "memory:// forgets with its process, so there is nothing to prove; name another engine")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onejob-prove-")))
        url = options.url or f"sqlite:///{folder / 'prove.db'}"
        shown = redact_password(options.url) if options.url else "sqlite, a new file"
        campaign = ProveCampaign(url, plan, folder, serve=serve)
        line = StatusLine()

        def show(evidence: Evidence) -> None:
            answered = sum(1 for key in evidence.keys.values() if key.job_ids)
            kills = f"{len(evidence.kills)}/{plan.kills} times kill -9"
            line.show(f"  {answered}/{plan.keys} keys answered on {shown}, {kills}")

        try:
            verdict = asyncio.run(campaign.run(show))
        finally:
            line.clear()
        if not verdict.is_kept:
            _keep_evidence(folder, Path(options.report), is_new=options.url is None)
    report = build_report(shown, plan, campaign.evidence, verdict)
    place = Path(options.report)
    place.mkdir(parents=True, exist_ok=True)
    text = render_json(report)
    (place / "report.json").write_text(text + "\n", encoding="utf-8")
    return verdict, text


def _parse_plan(options: Namespace) -> ProvePlan:
    quick = options.quick
    keys = options.keys if options.keys is not None else KEYS_QUICK if quick else KEYS_DEFAULT
    kills = options.kills if options.kills is not None else KILLS_QUICK if quick else KILLS_DEFAULT
    if not 1 <= keys <= KEYS_MAX:
        raise Invalid("keys", f"it sends 1 to {KEYS_MAX} keys; choose another number")
    if not 0 <= kills <= min(KILLS_MAX, keys):
        raise Invalid(
            "kills", f"servers are killed 0 to {KILLS_MAX} times, not more often than keys are sent; choose fewer"
        )
    seconds = SECONDS_QUICK if quick else SECONDS_DEFAULT
    return ProvePlan(keys=keys, kills=kills, seconds_max=seconds, seed=options.seed or new_nonce())


def _keep_evidence(folder: Path, place: Path, *, is_new: bool) -> None:
    """Keep the logs of the servers, and the store if it was made for this, beside the report."""
    place.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix == ".log" or (is_new and file.name.startswith("prove.db")):
            (place / file.name).write_bytes(file.read_bytes())
