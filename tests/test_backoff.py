"""Pauses between attempts: doubling, bounded, shortened by chance."""

from onejob.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [next(backoff) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert Backoff(2.0, 0.5).seconds == 0.5


def test_pauses_are_short_again_after_a_success_and_long_at_once_when_nothing_can_change() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [next(backoff), next(backoff)] == [0.1, 0.2]
    backoff.reset()
    assert next(backoff) == 0.1
    backoff.lengthen()
    assert [next(backoff), next(backoff)] == [0.5, 0.5]


def test_chance_shortens_a_pause_by_no_more_than_the_jitter() -> None:
    drawn = iter([0.0, 0.5, 1.0])
    backoff = Backoff(1.0, 1.0, jitter=0.5, random=lambda: next(drawn))
    assert [next(backoff) for _ in range(3)] == [1.0, 0.75, 0.5]
    assert all(0.8 < next(Backoff(1.0, 1.0, jitter=0.2)) <= 1.0 for _ in range(100))


def test_no_number_of_attempts_overflows() -> None:
    backoff = Backoff(0.1, 30.0)
    for _ in range(10_000):
        next(backoff)
    assert next(backoff) == 30.0
