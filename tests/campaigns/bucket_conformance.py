"""The shipped suite on a bucket in a folder, behind every wrapper: part of `make prove`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onejob.clock import FakeClock
from onejob.conformance import World
from onejob.engine import Engine
from onejob.engines.bucket import BucketEngine
from tests.engines.test_conformance import WRAPPERS, ExactContract, wrapped_world


class TestBucketBehindWrappers(ExactContract):
    @pytest.fixture(params=WRAPPERS)
    async def world(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
        clock = FakeClock()

        async def opened() -> Engine:
            return await BucketEngine.open(f"file://{tmp_path / 'bucket'}?replica={tmp_path}", clock=clock)

        async with wrapped_world(request.param, opened, clock) as world:
            yield world


del ExactContract  # pytest would collect it here too
