"""The exceptions that a handler may raise, and those that its context raises."""

from datetime import timedelta


class Fatal(Exception):
    """The job has failed, and no further attempt would help. The message is stored with the job."""


class Retry(Exception):
    """This attempt has failed; retry after a delay, while attempts are left. The message is stored with the job."""

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        if isinstance(after, (int, float)):
            after = timedelta(seconds=after)
        if after is not None and after < timedelta(0):
            raise ValueError("after is negative; give a delay of zero or more")
        self.after = after


class AttemptCancelled(Exception):
    """The job was cancelled, or this worker lost its lease: stop."""


class StepInterrupted(Fatal):
    """An at-most-once step was begun before and did not finish, so it is not run again. A handler may catch it and go on."""


class StepConflict(Fatal):
    """The name of a step was used with other arguments before."""
