"""Two servers, 64 connections each, the same keys, users and sequences: no deadlock and no 5xx."""

import random
from pathlib import Path

import pytest

from tests.campaigns.contention import run_contention
from tests.support.postgres_server import Server

SECONDS = 8.0


@pytest.mark.timeout(900)
async def test_contention_for_keys_users_and_sequences_has_no_deadlock_and_no_5xx(
    postgres: Server, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    crowd = await run_contention(tmp_path, postgres.database(), seed, SECONDS)
    print(dict(crowd.counts))
    assert crowd.counts["202"] > 100
    assert "deadlock detected" not in (postgres.folder / "log").read_text()
