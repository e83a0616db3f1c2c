"""What a handler may raise to say more than that it failed."""

from datetime import timedelta


class Fatal(Exception):
    """The job has failed, and no further attempt would help. The message is kept with the job."""


class Retry(Exception):
    """This attempt has failed; try again after so long, if attempts are left. The message is kept with the job."""

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        if isinstance(after, (int, float)):
            after = timedelta(seconds=after)
        if after is not None and after < timedelta(0):
            raise ValueError("a job is not tried again in the past; give a length of time from now on")
        self.after = after


class AttemptCancelled(Exception):
    """The job is not this worker's any more: it was cancelled, or its lease was lost. Stop."""
