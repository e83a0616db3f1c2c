"""What `onejob check` asks of an API that takes an Idempotency-Key: one function for each rule.

MUST: without it, a retry can do harm: something is made twice, is lost, or the answer is another request's. SHOULD: what the
draft (draft-ietf-httpapi-idempotency-key-header) says with that word. The sections are those of the draft.

A rule is judged by what the API answers: an id in its responses, or a figure that counts what was made.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from threading import Barrier, BrokenBarrierError

from msgspec import Struct

from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import format_job_id
from onejob.ids import new_job_id
from onejob.settings import environment_for_programs

from .exchange import ApiResponse, ApiTarget, Unreachable, find_path

RETRY_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
RACERS_DEFAULT, RACERS_MAX = 10, 100


class Level(StrEnum):
    MUST = "MUST"
    SHOULD = "SHOULD"


class RuleStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNJUDGED = "unjudged"


class RuleVerdict(Struct, frozen=True):
    """Of one rule; `found` says what was seen, or why it could not be judged."""

    rule: str
    level: Level
    section: str
    title: str
    status: RuleStatus
    found: str = ""


class Broken(Exception):
    """The API does not keep the rule."""


class NotAsked(Exception):
    """The rule needs an option that was not given."""


class NotJudged(Exception):
    """The rule cannot be judged by what the API shows."""


class Examiner:
    """The API and the options of a check. Every rule starts with keys of its own."""

    def __init__(
        self,
        target: ApiTarget,
        *,
        count: str = "",
        other_headers: Sequence[tuple[str, str]] = (),
        restart: str = "",
        key_is_required: bool = False,
        racers: int = RACERS_DEFAULT,
    ) -> None:
        self.target = target
        self.other_headers = tuple(other_headers)
        self.restart = restart
        self.key_is_required = key_is_required
        self.racers = racers
        self.clock = SystemClock()
        self._count = count

    def new_key(self) -> str:
        return f'"{format_job_id(new_job_id())}"'

    def require_valid_request(self) -> None:
        """Refuse to judge an API by a request that it does not accept. One that is away is judged by no rule either."""
        with suppress(Unreachable):
            status = self.target.send(self.new_key()).status
            if 400 <= status < 500 and status != 409:
                raise Invalid(
                    "request", f"the request was answered with {status}, so that nothing can be judged; "
                    "correct the URL, --body or --header"
                )  # fmt: skip

    def first(self, key: str) -> str:
        """Send the first request of a key; what it made."""
        return self.made(self.send_until_settled(key), "the first request with a key")

    def made(self, response: ApiResponse, what: str) -> str:
        if not response.is_success:
            raise Broken(f"{what} was answered with {response.status}")
        identity = self.target.identity(response)
        if not identity:
            raise NotJudged("the response does not say what was made; name its id with --id")
        return identity

    def send_until_settled(
        self, key: str, *, headers: Sequence[tuple[str, str]] | None = None, body: bytes | None = None
    ) -> ApiResponse:
        """Repeat the request while it is outstanding (409) or the server is away, as the draft tells clients to."""
        deadline = self.clock.monotonic() + RETRY_SECONDS
        while True:
            is_late = self.clock.monotonic() > deadline
            try:
                response = self.target.send(key, headers=headers, body=body)
            except Unreachable:
                if is_late:
                    raise
            else:
                # With another body, a 409 that names no time to retry is the refusal of a conflict.
                may_settle = response.status == 409 and (body is None or "retry-after" in response.headers)
                if is_late or not (response.status == 503 or may_settle):
                    return response
            self.clock.sleep(_PAUSE_SECONDS)

    def count(self) -> int | None:
        """How much was made so far, if the API tells."""
        if not self._count:
            return None
        path, _, member = self._count.removeprefix("GET ").strip().partition(" ")
        response = self.target.get(path)
        try:
            found = find_path(json.loads(response.body), member) if member else json.loads(response.body)
            return len(found) if isinstance(found, list) else int(found)
        except (ValueError, TypeError):
            raise NotJudged(
                f"{path} has no number or list at {member or 'its top'} (it answered {response.status})"
            ) from None

    def expect_made(self, before: int | None, number: int, what: str) -> None:
        after = self.count()
        if before is not None and after is not None and after - before != number:
            raise Broken(f"{what} made {after - before}, and should make {number}")


def check_distinct_keys(examiner: Examiner) -> str:
    before = examiner.count()
    first, second = examiner.first(examiner.new_key()), examiner.first(examiner.new_key())
    examiner.expect_made(before, 2, "two requests with two keys")
    if first == second:
        if before is None:
            raise NotJudged(
                "two keys got equal responses; name the id of what is made with --id, or count it with --count"
            )
        return "two keys made two"
    return "two keys made two, with ids of their own"


def check_replay(examiner: Examiner) -> str:
    before, key = examiner.count(), examiner.new_key()
    first = examiner.first(key)
    for _ in range(2):
        if (again := examiner.made(examiner.send_until_settled(key), "the repeated request")) != first:
            raise Broken(f"the repeated request was answered with something else: {_cut(again)} after {_cut(first)}")
    examiner.expect_made(before, 1, "three equal requests with one key")
    return "three requests with one key made one"


def check_replayed_status(examiner: Examiner) -> str:
    key = examiner.new_key()
    first, again = examiner.send_until_settled(key), examiner.send_until_settled(key)
    if first.status != again.status:
        raise Broken(f"{first.status}, then {again.status}")
    return f"{first.status} both times"


def check_race(examiner: Examiner) -> str:
    before, key, number = examiner.count(), examiner.new_key(), examiner.racers
    start = Barrier(number)

    def send(_: int) -> ApiResponse:
        def wait() -> None:
            with suppress(BrokenBarrierError):
                start.wait(examiner.target.timeout_seconds)

        return examiner.target.send(key, before_last_byte=wait)

    with ThreadPoolExecutor(number) as pool:
        responses = list(pool.map(send, range(number)))
    made = {examiner.made(response, "a racer") for response in responses if response.is_success}
    made.add(examiner.made(examiner.send_until_settled(key), "the request after the race"))
    if len(made) > 1:
        raise Broken(f"{number} at once with one key made {len(made)}")
    examiner.expect_made(before, 1, f"{number} at once with one key")
    if failed := sorted(
        {response.status for response in responses if response.status >= 500 and response.status != 503}
    ):
        raise Broken(f"racers were answered with {failed[0]}")
    return f"{number} at once made one; they got {', '.join(sorted({str(response.status) for response in responses}))}"


def check_outstanding(examiner: Examiner) -> str:
    """A racer that is refused learns that it may repeat the request unchanged: 409, with Retry-After."""
    key, number = examiner.new_key(), examiner.racers
    with ThreadPoolExecutor(number) as pool:
        responses = list(pool.map(lambda _: examiner.target.send(key), range(number)))
    refused = [response for response in responses if not response.is_success]
    if not refused:
        return "all waited for the first, and got its answer"
    if wrong := [response.status for response in refused if response.status != 409]:
        raise Broken(f"a duplicate of an outstanding request was answered with {wrong[0]}, not 409")
    if any("retry-after" not in response.headers for response in refused):
        raise Broken("409 without Retry-After cannot be told from a conflict")
    return "409 with Retry-After"


def check_misuse(examiner: Examiner) -> str:
    before, key = examiner.count(), examiner.new_key()
    first = examiner.first(key)
    other = examiner.send_until_settled(key, body=examiner.target.other_body)
    if other.is_success:
        same = examiner.target.identity(other) == first
        raise Broken(
            f"another body was answered with {other.status}, {'as if it were the first' if same else 'and ran'}"
        )
    if other.status >= 500:
        raise Broken(f"another body was answered with {other.status}")
    if examiner.made(examiner.send_until_settled(key), "the first request, repeated after that,") != first:
        raise Broken("after that the first request got another answer")
    examiner.expect_made(before, 1, "a key with two bodies")
    return f"refused with {other.status}; the first answer stays"


def check_misuse_status(examiner: Examiner) -> str:
    return _expect_problem(_misuse(examiner), 422)


def check_misuse_body(examiner: Examiner) -> str:
    return _expect_problem_body(_misuse(examiner))


def check_required_key(examiner: Examiner) -> str:
    if not examiner.key_is_required:
        raise NotAsked("say with --required that the API requires a key")
    before = examiner.count()
    response = examiner.target.send()
    _expect_problem(response, 400)
    examiner.expect_made(before, 0, "a request without a key")
    return _expect_problem_body(response)


def check_malformed_keys(examiner: Examiner) -> str:
    before = examiner.count()
    for text, keys in {"empty": [""], "unterminated": ['"abc'], "empty string": ['""']}.items():
        if (status := examiner.target.send(*keys).status) != 400:
            raise Broken(f"an {text} key was answered with {status}, not 400")
    examiner.expect_made(before, 0, "requests with malformed keys")
    return "empty and unterminated keys are refused with 400"


def check_two_keys(examiner: Examiner) -> str:
    before = examiner.count()
    if (status := examiner.target.send(examiner.new_key(), examiner.new_key()).status) != 400:
        raise Broken(f"two header lines with two keys were answered with {status}, not 400")
    examiner.expect_made(before, 0, "a request with two keys")
    return "refused with 400"


def check_bare_key(examiner: Examiner) -> str:
    before, key = examiner.count(), examiner.new_key()
    first = examiner.first(key)
    bare = examiner.send_until_settled(key.strip('"'))
    if bare.is_success and examiner.made(bare, "the bare form") != first:
        raise Broken("the bare form of a key is another key: clients of both kinds make two")
    examiner.expect_made(before, 1, "a quoted key and its bare form")
    return "is the same key" if bare.is_success else f"is refused with {bare.status}"


def check_header_name(examiner: Examiner) -> str:
    key = examiner.new_key()
    first = examiner.first(key)
    again = examiner.target.send(key, key_header="idempotency-KEY")
    if examiner.made(again, "the request with another case of the header's name") != first:
        raise Broken("with another case of the header's name it ran again")
    return "is found in any case"


def check_lost_answer(examiner: Examiner) -> str:
    before, key = examiner.count(), examiner.new_key()
    examiner.target.send(key, hang_up=True)
    first, second = (examiner.made(examiner.send_until_settled(key), "the retry") for _ in range(2))
    if first != second:
        raise Broken("two retries after a lost answer made two")
    examiner.expect_made(before, 1, "a request whose answer was lost, and its retries")
    return "the retries get the one that was made"


def check_other_user(examiner: Examiner) -> str:
    if not examiner.other_headers:
        raise NotAsked("give the credential of another user with --as")
    key = examiner.new_key()
    first = examiner.first(key)
    response = examiner.send_until_settled(key, headers=examiner.other_headers)
    if response.is_success and examiner.target.identity(response) == first:
        raise Broken("the same key of another user got the first user's answer")
    return f"the other user got {response.status}, and not the first one's answer"


def check_restart(examiner: Examiner) -> str:
    if not examiner.restart:
        raise NotAsked("give the command that restarts the server with --restart")
    before, key = examiner.count(), examiner.new_key()
    first = examiner.first(key)
    ran = subprocess.run(
        shlex.split(examiner.restart),
        env=environment_for_programs(),
        check=False,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    if ran.returncode:
        raise NotJudged(f"the command of --restart ended with exit code {ran.returncode}")
    again = examiner.made(examiner.send_until_settled(key), "the request after the restart")
    if again != first:
        raise Broken("the request after the restart ran again")
    examiner.expect_made(before, 1, "a request before and after a restart")
    return "the key is known after the restart"


def _misuse(examiner: Examiner) -> ApiResponse:
    key = examiner.new_key()
    examiner.first(key)
    return examiner.send_until_settled(key, body=examiner.target.other_body)


def _expect_problem(response: ApiResponse, status: int) -> str:
    if response.status != status:
        raise Broken(f"it was answered with {response.status}, not {status}")
    return str(status)


def _expect_problem_body(response: ApiResponse) -> str:
    if not response.is_problem:
        raise Broken("the error is neither application/problem+json nor linked to a description")
    return "the error describes itself"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


class CheckRule(Struct, frozen=True):
    name: str
    level: Level
    section: str
    title: str
    check: Callable[[Examiner], str]


RULES = (
    CheckRule("distinct-keys", Level.MUST, "2.2", "another key is another request", check_distinct_keys),
    CheckRule(
        "replay", Level.MUST, "2.6", "a repeated request is not executed again, and gets the first result", check_replay
    ),
    CheckRule(
        "replayed-status", Level.SHOULD, "2.6", "a replay has the status of the first response", check_replayed_status
    ),
    CheckRule("race", Level.MUST, "2.6", "equal requests at once are executed once", check_race),
    CheckRule(
        "outstanding",
        Level.SHOULD,
        "2.7",
        "a duplicate of an outstanding request waits, or gets 409",
        check_outstanding,
    ),
    CheckRule("misuse", Level.MUST, "2.2", "a key with another body is refused, and nothing is executed", check_misuse),
    CheckRule("misuse-status", Level.SHOULD, "2.7", "a key with another body gets 422", check_misuse_status),
    CheckRule("misuse-body", Level.SHOULD, "2.7", "that error describes itself", check_misuse_body),
    CheckRule("required-key", Level.SHOULD, "2.7", "a missing key gets 400 with a description", check_required_key),
    CheckRule("malformed-keys", Level.SHOULD, "2.1", "a malformed key is refused, not ignored", check_malformed_keys),
    CheckRule("two-keys", Level.SHOULD, "2.1", "a request with two keys is refused", check_two_keys),
    CheckRule("bare-key", Level.MUST, "2.1", "the unquoted form of a key is the same key, or refused", check_bare_key),
    CheckRule("header-name", Level.MUST, "2.1", "the name of the header is found in any case", check_header_name),
    CheckRule("lost-answer", Level.MUST, "1", "a retry after a lost answer makes nothing more", check_lost_answer),
    CheckRule("other-user", Level.MUST, "5", "the key of another user is another key", check_other_user),
    CheckRule("restart", Level.MUST, "2.3", "a restart forgets no key", check_restart),
)


def run_rule(rule: CheckRule, examiner: Examiner) -> RuleVerdict:
    def verdict(status: RuleStatus, found: object) -> RuleVerdict:
        return RuleVerdict(rule.name, rule.level, rule.section, rule.title, status, str(found))

    try:
        return verdict(RuleStatus.PASSED, rule.check(examiner))
    except Broken as broken:
        return verdict(RuleStatus.FAILED, broken)
    except NotAsked as reason:
        return verdict(RuleStatus.SKIPPED, reason)
    except (NotJudged, Unreachable) as reason:
        return verdict(RuleStatus.UNJUDGED, reason)
