"""For CI: a key that follows from the commit, and what the surroundings want to hear."""

import subprocess
from argparse import ArgumentParser, Namespace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from onejob.core.invalid import Invalid
from onejob.core.key import KEY_CHARS_MAX
from onejob.settings import CiEnvironment

from .screen import print_error, sanitize
from .values import parse_duration

GIT_SECONDS: Final = 10
_ESCAPES: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}


def add_ci_arguments(command: ArgumentParser) -> None:
    """The words of `submit` that are for CI."""
    command.add_argument(
        "--key-from-ci",
        action="store_true",
        help="make the key from the commit and the job of the CI: a re-run gets the same job",
    )
    command.add_argument(
        "--key-part",
        action="append",
        default=[],
        metavar="TEXT",
        help="tells several submissions of one CI job apart, as those of a matrix; may be repeated",
    )
    command.add_argument(
        "--retry-for",
        type=parse_duration,
        metavar="LENGTH",
        help="against a server: try again for so long; default: four attempts",
    )
    command.add_argument(
        "--wait", action="store_true", help="stay until the job has ended; its end decides the exit code"
    )
    command.add_argument(
        "--wait-for",
        type=parse_duration,
        metavar="LENGTH",
        help="the same, but no longer than this",
    )


def submission_key(options: Namespace, surroundings: CiEnvironment) -> str | None:
    """The key that was typed, or that of the commit."""
    if not options.key_from_ci:
        if options.key_part:
            raise Invalid("key", "--key-part belongs to --key-from-ci; put it into --key, or add that")
        key: str | None = options.key
        return key
    if options.key is not None:
        raise Invalid("key", "give --key or --key-from-ci, not both")
    if surroundings.missing:
        raise Invalid(
            "key",
            f"{', '.join(surroundings.missing)} is not set, so the key would not be this job's; set it, or give --key",
        )
    system, parts = (
        (surroundings.system, surroundings.parts) if surroundings.system else ("git", (_git_commit(),))
    )
    return _join_key_parts(system, [*parts, *options.key_part])


def waits_for_end(options: Namespace) -> bool:
    """Whether the end of the job is waited for."""
    return options.command == "submit" and (options.wait or options.wait_for is not None)


def report_to_ci(options: Namespace, surroundings: CiEnvironment, answer: Any) -> str:
    """Tell the surroundings; what is left to say on standard output."""
    job_id = getattr(answer, "job_id", "")
    if options.command != "submit" or not job_id:
        return ""
    outcome, key = answer.idempotency.outcome, answer.idempotency.key
    if surroundings.annotates:
        annotate("notice", f"onejob: {outcome} job {job_id}")
    if surroundings.output is not None:
        _append_outputs(surroundings.output, {"job_id": job_id, "outcome": outcome, "key": key or ""})
    return f"JOB_ID={job_id}" if options.key_from_ci and not options.json else ""


def annotate(level: str, text: str) -> None:
    """A line that GitHub shows at the top of a run; on standard error, for standard output may be JSON."""
    print_error(
        f"::{level}::" + "".join(_ESCAPES.get(letter, letter) for letter in text), without_prefix=True
    )


def _join_key_parts(system: str, parts: list[str]) -> str:
    # Each part is encoded, so that no two lists of parts look alike.
    text = ":".join([system, *(quote(part, safe="/._-") for part in parts)])
    return text if len(text) <= KEY_CHARS_MAX else f"{system}:sha256:{sha256(text.encode()).hexdigest()}"


def _git_commit() -> str:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Invalid(
            "key", "there is neither a CI that is known nor a git commit here; give --key"
        ) from error
    return asked.stdout.strip()


def _append_outputs(path: str, outputs: dict[str, str]) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={sanitize(value)}\n" for name, value in outputs.items())
    except OSError as error:
        # The job is there, and that is what the exit code says.
        print_error(f"{path} cannot be written ({error.strerror}); the job is made all the same")
