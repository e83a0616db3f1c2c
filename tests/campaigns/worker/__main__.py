"""`python -m tests.campaigns.worker`: the long campaign of killed workers."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgres_server import Server

from .campaign import run_campaign
from .steps_campaign import run_steps_campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=240.0)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--engine", metavar="URL", help="default: a new SQLite file")
    where.add_argument("--postgres", action="store_true", help="start a PostgreSQL server for it")
    parser.add_argument("--steps", type=int, metavar="KILLS", help="kill workers between the steps of their handlers")
    options = parser.parse_args()
    if options.steps:
        return prove_steps(options)
    with tempfile.TemporaryDirectory() as folder, _engine(options, folder) as url:
        verdict = run_campaign(
            url,
            Path(folder),
            jobs=options.jobs,
            workers=options.workers,
            seed=options.seed,
            seconds_max=options.seconds,
        )
    print(
        f"{verdict.jobs} jobs, {options.workers} workers, {verdict.kills} kills, {verdict.attempts} attempts, "
        f"{verdict.lost} lost, {verdict.seconds:.1f} s, {len(verdict.violations)} wrong"
    )
    for text in verdict.violations[:20]:
        print(f"  {text}")
    return bool(verdict.violations)


def prove_steps(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder, _engine(options, folder) as url:
        verdict = run_steps_campaign(url, Path(folder), jobs=4, kills=options.steps, seed=options.seed)
    print(
        f"{verdict.kills} kills between steps, {verdict.effects} effects, {verdict.repeated} of interrupted steps repeated, "
        f"{verdict.interrupted} at-most-once steps interrupted, {len(verdict.violations)} wrong"
    )
    for text in verdict.violations[:20]:
        print(f"  {text}")
    return bool(verdict.violations)


@contextmanager
def _engine(options: argparse.Namespace, folder: str) -> Iterator[str]:
    if not options.postgres:
        yield options.engine or f"sqlite:///{folder}/jobs.db"
        return
    server = Server()
    try:
        server.init()
        server.start()
        yield server.database()
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
