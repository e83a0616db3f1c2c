"""The estimate of the server's clock: a bound that holds, and that stays tight while replies arrive."""

import random

import pytest

from onejob.engines.postgres.clock import SAMPLE_SECONDS_MAX, ServerClock

OFFSET_MS = 86_400_000.0  # a day: only the speed of the local clock matters


class SimulatedClocks:
    """Local seconds, and the server's milliseconds, which drift."""

    def __init__(self, drift: float = 0.0) -> None:
        self.seconds = 1000.0
        self.drift = drift
        self.clock = ServerClock(lambda: self.seconds)

    @property
    def server(self) -> float:
        return self.seconds * 1000 * (1 + self.drift) + OFFSET_MS

    def sample(self, there: float, back: float) -> None:
        sent_at = self.seconds
        self.seconds += there
        server_ms = self.server
        self.seconds += back
        self.clock.observe(server_ms, sent_at)


@pytest.mark.parametrize("drift", [0.0, 0.0004, -0.0004])
def test_the_estimate_is_never_behind_the_servers_clock(drift: float) -> None:
    rng = random.Random(1)
    times = SimulatedClocks(drift)
    for _ in range(5000):
        times.sample(rng.uniform(0.0001, 0.003), rng.uniform(0.0001, 0.003))
        times.seconds += rng.uniform(0, 0.002)
        latest = times.clock.latest_ms()
        assert latest is not None
        assert latest >= int(times.server)


def test_an_old_sample_is_replaced_before_its_drift_puts_the_estimate_ahead() -> None:
    """After a while the best sample is no better than a new one, and a batch with a future timestamp has to wait."""
    times = SimulatedClocks()
    times.sample(0.00025, 0.0002)
    for _ in range(1500):
        times.sample(0.0003, 0.0002)
        latest = times.clock.latest_ms()
        assert latest is not None
        assert latest <= times.server + 0.31


def test_a_sample_with_a_wider_bound_changes_nothing() -> None:
    times = SimulatedClocks()
    times.sample(0.0002, 0.0002)
    times.sample(0.1, 0.0002)
    latest = times.clock.latest_ms()
    assert latest is not None
    assert latest <= times.server + 0.3


def test_a_server_clock_that_was_set_is_followed_at_once() -> None:
    times = SimulatedClocks()
    times.sample(0.0002, 0.0002)
    times.clock.observe(times.server + 60_000, times.seconds - 0.0002)
    latest = times.clock.latest_ms()
    assert latest is not None
    assert latest >= int(times.server + 60_000)


def test_an_old_sample_is_not_used() -> None:
    times = SimulatedClocks()
    assert times.clock.latest_ms() is None
    times.sample(0.0002, 0.0002)
    times.seconds += SAMPLE_SECONDS_MAX
    assert times.clock.latest_ms() is None
