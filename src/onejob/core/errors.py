"""The one error of the core's edge: a value that cannot be taken."""


class OnejobError(Exception):
    """The root of everything that onejob raises; see onejob.errors for the tree."""

    retryable = False


class Invalid(OnejobError, ValueError):
    """A value that cannot be taken: `what` names it, the message says the next act."""

    def __init__(self, what: str, message: str) -> None:
        # Both are handed on, so that a pickled copy can be made again from its arguments.
        super().__init__(what, message)
        self.what = what
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotTheOwner(Invalid):
    """The value is a right one, but somebody else's."""
