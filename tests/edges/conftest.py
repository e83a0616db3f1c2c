"""A ledger on each engine, with a clock that the test moves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import onejob
from onejob.clock import FakeClock


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> FakeClock:
    """Where a test has a store that many share, its clock is that store's."""
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if parameters.get("url") == "postgres":
        return request.getfixturevalue("store_clock")  # type: ignore[no-any-return]  # pytest does not know it
    return FakeClock()


@pytest.fixture
async def queue(url: str, clock: FakeClock) -> AsyncIterator[onejob.Ledger]:
    config = onejob.IdempotencyConfig(pending_wait_timeout=0)
    async with onejob.open(url, clock=clock, config=config, sweep=False) as ledger:
        yield ledger
