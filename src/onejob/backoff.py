"""Exponential backoff: how long a loop waits before it tries again."""

from collections.abc import Callable

from .ids import random_fraction


class Backoff:
    """Seconds to wait before each attempt: `first`, then twice as long each time, at most `longest`.

    `jitter` is the part of a pause that chance may take away: with 0.2 a pause lasts 80 to 100 % of its length.
    """

    __slots__ = ("_first", "_jitter", "_longest", "_random", "seconds")

    def __init__(
        self, first: float, longest: float, *, jitter: float = 0.0, random: Callable[[], float] = random_fraction
    ) -> None:
        self._first = min(first, longest)
        self._longest = longest
        self._jitter = jitter
        self._random = random
        self.seconds = self._first  # the next pause, before chance shortens it

    def __next__(self) -> float:
        pause = self.seconds
        self.seconds = min(pause * 2, self._longest)
        return pause * (1 - self._jitter * self._random()) if self._jitter else pause

    def reset(self) -> None:
        """Begin with short pauses again: an attempt has succeeded."""
        self.seconds = self._first

    def lengthen(self) -> None:
        """Begin with the longest pause: it is known that nothing changes soon."""
        self.seconds = self._longest
