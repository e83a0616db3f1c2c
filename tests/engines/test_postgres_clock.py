"""What is known of the server's clock: a bound that holds, and that stays tight while answers come."""

import random

import pytest

from onejob.engines.postgres.clock import SAMPLE_SECONDS_MAX, ServerClock

OFFSET_MS = 86_400_000.0  # a day: only the speed of our own clock matters


class SimulatedClocks:
    """Our seconds, and the server's milliseconds, which run as much faster as is said."""

    def __init__(self, drift: float = 0.0) -> None:
        self.seconds = 1000.0
        self.drift = drift
        self.clock = ServerClock(lambda: self.seconds)

    @property
    def server(self) -> float:
        return self.seconds * 1000 * (1 + self.drift) + OFFSET_MS

    def sample(self, there: float, back: float) -> None:
        sent = self.seconds
        self.seconds += there
        told = self.server
        self.seconds += back
        self.clock.observe(told, sent)


@pytest.mark.parametrize("drift", [0.0, 0.0004, -0.0004])
def test_a_batch_is_never_dated_before_the_servers_clock(drift: float) -> None:
    draw = random.Random(1)
    times = SimulatedClocks(drift)
    for _ in range(5000):
        times.sample(draw.uniform(0.0001, 0.003), draw.uniform(0.0001, 0.003))
        times.seconds += draw.uniform(0, 0.002)
        latest = times.clock.latest_ms()
        assert latest is not None
        assert latest >= int(times.server)


def test_an_old_answer_gives_way_before_it_dates_a_batch_ahead() -> None:
    """The best of many answers is soon no better than a plain one: what is ahead has to be waited for."""
    times = SimulatedClocks()
    times.sample(0.00025, 0.0002)
    for _ in range(1500):
        times.sample(0.0003, 0.0002)
        latest = times.clock.latest_ms()
        assert latest is not None
        assert latest <= times.server + 0.31


def test_an_answer_that_bounds_less_changes_nothing() -> None:
    times = SimulatedClocks()
    times.sample(0.0002, 0.0002)
    times.sample(0.1, 0.0002)
    latest = times.clock.latest_ms()
    assert latest is not None
    assert latest <= times.server + 0.3


def test_a_clock_that_was_set_is_believed_at_once() -> None:
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
