"""One call and what became of it, for whoever stops waiting for it."""

from onejob.errors import Unavailable


class CallState:
    """After it was given up, nothing more is begun that cannot be taken back."""

    def __init__(self) -> None:
        self.committing = False  # sent, and not answered
        self.has_committed = False  # part of it is committed
        self.timed_out = False

    def raise_if_timed_out(self) -> None:
        if self.timed_out:
            raise Unavailable("nobody waits for this any more: nothing was done")

    def begin_commit(self) -> None:
        self.raise_if_timed_out()
        self.committing = True
