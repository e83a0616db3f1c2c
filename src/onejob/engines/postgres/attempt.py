"""One call and what became of it, for whoever stops waiting for it."""

from onejob.errors import Unavailable


class Attempt:
    """After it was given up, nothing more is begun that cannot be taken back."""

    def __init__(self) -> None:
        self.committing = False  # sent, and not answered
        self.done = False  # part of it is committed
        self.given_up = False

    def begin(self) -> None:
        if self.given_up:
            raise Unavailable("nobody waits for this any more: nothing was done")

    def commit(self) -> None:
        self.begin()
        self.committing = True
