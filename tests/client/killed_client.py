"""Kills clients between write, send and receive, and verifies that `resume` completes what they left.

`python -m tests.client.killed_client URL OUTBOX points|random SEED`. It runs in its own process, so that it may fork.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

import onejob
from onejob.testing import KillPoints

SUBMISSIONS = 3
DEATHS = 25
QUICK = onejob.RetryPolicy(deadline=10.0, attempt_timeout=5.0, pause_first=0.005, pause_max=0.05)


class KillPointTransport(httpx.BaseTransport):
    """Reaches a kill point before a request is sent, in the middle of it, and when the response is received."""

    def __init__(self, points: KillPoints) -> None:
        self._inner = httpx.HTTPTransport()
        self._points = points

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self._points.reach("send")
            body = request.read()
            request.stream = httpx.Request("POST", request.url, content=self._halves(body)).stream
        response = self._inner.handle_request(request)
        self._points.reach("receive")
        return response

    def _halves(self, body: bytes) -> Any:
        yield body[: len(body) // 2]
        self._points.reach("half")
        yield body[len(body) // 2 :]


def open_client(url: str, path: str, points: KillPoints, wrote: Callable[[], object]) -> onejob.Client:
    client = onejob.Client(url, outbox=path, retry=QUICK, http=httpx.Client(transport=KillPointTransport(points)))
    outbox: Any = client.outbox
    for name in ("write_with_new_key", "write_next_sequence", "settle"):
        act = getattr(outbox, name)

        def reaching(*words: Any, act: Callable[..., Any] = act, name: str = name, **more: Any) -> Any:
            done = act(*words, **more)
            if name != "settle":
                wrote()  # from here on the submission must not be lost
            points.reach(name)
            return done

        setattr(outbox, name, reaching)
    return client


def submit(client: onejob.Client, n: int) -> None:
    """Alternately with a generated key and with a sequence number."""
    if n % 2:
        client.submit("killed", n, labels={"n": str(n)})
    else:
        client.submit_next(scope="killed", jobs=[onejob.Submission(type="killed", input=n, labels={"n": str(n)})])


def submit_until_killed(url: str, path: str, first: int, points: KillPoints, report: int) -> None:
    """In a child: submit and report each step, until a kill point or the parent kills it."""
    now = [first]
    with open_client(url, path, points, lambda: os.write(report, b"w%d\n" % now[0])) as client:
        for n in range(first, first + (SUBMISSIONS if points._at else 10_000)):
            now[0] = n
            os.write(report, b"i%d\n" % n)
            submit(client, n)
            os.write(report, b"d%d\n" % n)
    os._exit(0)


def kill_once(url: str, path: str, first: int, at: int | None, seconds: float) -> dict[str, set[int]]:
    """The submissions that were started (i), written (w) and answered (d)."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            submit_until_killed(url, path, first, KillPoints(at), writer)
        finally:
            os._exit(1)
    os.close(writer)
    if at is None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
    with os.fdopen(reader) as lines:
        words = lines.read().split()
    return {kind: {int(word[1:]) for word in words if word[0] == kind} for kind in "iwd"}


def verify(client: onejob.Client, started: set[int], answered: set[int], written: set[int]) -> None:
    counts: Counter[int] = Counter()
    before: str | None = None
    while True:
        page = client.jobs(type="killed", before=before, limit=1000)
        counts.update(int(job.labels["n"]) for job in page.jobs)
        if page.next is None:
            break
        before = page.next
    twice = {n for n, times in counts.items() if times > 1}
    assert not twice, f"two jobs for {twice}"
    assert answered <= counts.keys(), f"answered, but lost: {answered - counts.keys()}"
    assert written <= counts.keys(), f"written, but lost: {written - counts.keys()}"
    assert counts.keys() <= started, f"never submitted: {counts.keys() - started}"


def main(url: str, path: str, how: str, seed: int) -> None:
    chance = random.Random(seed)
    started, answered, deaths = set[int](), set[int](), 0
    first = 0
    # Each submission reaches write, send, half, receive and settle; a sequence number first reads its state by GET.
    for at in range(1, 6 * SUBMISSIONS + 1) if how == "points" else range(DEATHS):
        point = at if how == "points" else None
        reported = kill_once(url, path, first, point, chance.uniform(0.005, 0.15))
        started |= reported["i"]
        answered |= reported["d"]
        deaths += 1
        first = max([*started, first]) + 1
        with onejob.Client(url, outbox=path, retry=QUICK) as client:
            assert client.outbox is not None
            for resumed in client.resume():
                assert resumed.error is None, resumed.error
            assert not client.outbox.pending()
            verify(client, started, answered, reported["w"])
    print(f"{deaths} deaths, {len(started)} submissions started, {len(answered)} answered, none lost, none doubled")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
