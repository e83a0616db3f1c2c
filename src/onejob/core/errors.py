"""The exceptions of the core: an invalid value, and the root of all errors of onejob."""


class OnejobError(Exception):
    """The root of all exceptions of onejob; see onejob.errors for the tree."""

    retryable = False


class Invalid(OnejobError, ValueError):
    """An invalid value: `what` names it, the message says the next act."""

    def __init__(self, what: str, message: str) -> None:
        # Both are passed on, so that a pickled copy can be rebuilt from its arguments.
        super().__init__(what, message)
        self.what = what
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotTheOwner(Invalid):
    """The value is valid but belongs to another caller."""
