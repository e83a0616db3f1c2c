"""Two servers, 64 connections each, the same keys, users and sequences: nobody waits in a circle or meets a 5xx."""

import random
from pathlib import Path

import pytest

from tests.postgres_server import Server

from .crowd import crowded

SECONDS = 8.0


@pytest.mark.timeout(180)
async def test_a_crowd_after_the_same_keys_users_and_sequences_meets_no_trouble(
    postgres: Server, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    crowd = await crowded(tmp_path, postgres.database(), seed, SECONDS)
    print(dict(crowd.counts))
    assert crowd.counts["202"] > 100
    assert "deadlock detected" not in (postgres.folder / "log").read_text()
