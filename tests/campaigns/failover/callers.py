"""Callers that submit by the ledger or over HTTP, and retry with the same key until they get an answer."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import onejob
from tests.support.raw_http import KeepAliveClient, submission

TYPE, INPUT = "charge", {"amount": 42}
WINDOW = timedelta(hours=1)  # shorter than the day by which some clocks are off
BODY = {"type": TYPE, "input": INPUT, "idempotencyTtlSeconds": WINDOW.seconds}
# Slow enough that a small machine has time for the servers.
PACE_SECONDS = 0.004
ANSWER_SECONDS_MAX = 120.0
_RETRY_SECONDS = 0.05
_RECENT = 60


class RecordedAnswers:
    """The answers of all callers: one job for each key."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sent_keys: list[str] = []
        self.answers: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    def draw_key(self) -> str:
        """A new key, a recent one that may be in flight, or an old one, maybe from before a failover."""
        draw = self.random.random()
        if self.sent_keys and draw < 0.3:
            return self.random.choice(self.sent_keys[-_RECENT:])
        if self.sent_keys and draw < 0.4:
            return self.random.choice(self.sent_keys)
        self.sent_keys.append(f"key-{len(self.sent_keys)}")
        return self.sent_keys[-1]

    def record_answer(self, key: str, job_id: str) -> None:
        self.counts["answers"] += 1
        first = self.answers.setdefault(key, job_id)
        assert first == job_id, f"{key} was answered with {first}, and then with {job_id}"


async def submit_by_ledger(answers: RecordedAnswers, queue: onejob.Ledger, stop: asyncio.Event) -> None:
    while not stop.is_set():
        key = answers.draw_key()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while (job_id := await _try_ledger(answers, queue, key)) is None:
                await asyncio.sleep(_RETRY_SECONDS)
        answers.record_answer(key, job_id)
        await asyncio.sleep(PACE_SECONDS)


async def _try_ledger(answers: RecordedAnswers, queue: onejob.Ledger, key: str) -> str | None:
    try:
        receipt = await queue.submit(TYPE, INPUT, idempotency_key=key, idempotency_ttl=WINDOW)
    except (onejob.Unavailable, onejob.Unknown) as error:
        answers.counts[type(error).__name__] += 1
        return None
    return receipt.job_id


async def submit_by_http(answers: RecordedAnswers, port: Callable[[], int], stop: asyncio.Event) -> None:
    """The port is read for every connection: a server that was killed restarts on another one."""
    client: KeepAliveClient | None = None
    while not stop.is_set():
        key = answers.draw_key()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while True:
                client, job_id = await _try_http(answers, client, port, key)
                if job_id is not None:
                    break
                await asyncio.sleep(_RETRY_SECONDS)
        answers.record_answer(key, job_id)
        await asyncio.sleep(PACE_SECONDS)
    if client is not None:
        client.close()


async def _try_http(
    answers: RecordedAnswers, client: KeepAliveClient | None, port: Callable[[], int], key: str
) -> tuple[KeepAliveClient | None, str | None]:
    """One attempt: the connection to reuse, and the job id if there was an answer."""
    try:
        client = client or await KeepAliveClient.connect(port())
    except OSError:
        answers.counts["refused connections"] += 1
        return None, None
    reply = await client.ask(submission(key, BODY))
    if reply is None:
        answers.counts["lost connections"] += 1
        client.close()
        return None, None
    if reply.status == 202:
        return client, str(reply.body["job"]["id"])
    assert (reply.status, reply.code) == (503, "SERVICE_UNAVAILABLE"), reply
    assert reply.body["error"]["retryable"]
    assert "retry-after" in reply.headers
    answers.counts["503"] += 1
    return client, None
