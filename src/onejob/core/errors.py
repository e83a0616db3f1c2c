"""The exceptions of the core: an invalid value, and the root of onejob's errors."""


class OnejobError(Exception):
    """The root of onejob's exceptions; see onejob.errors for the tree."""

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
