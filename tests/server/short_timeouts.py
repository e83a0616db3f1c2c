"""A server with short timeouts, and helpers for tests with hostile, broken or slow clients."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.raw_http import BODY, Server, run_server

HEAD_SECONDS = 0.8
BODY_SECONDS = 1.0
IDLE_SECONDS = 1.2
# A timeout is noticed a little late, and on a busy machine much later. What waits for it ends as soon as it comes.
SLACK_SECONDS = 20.0
POST = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\n"
DATA = json.dumps(BODY).encode()


@contextmanager
def run_server_with_short_timeouts(
    folder: Path, settings: str, *, body_seconds: float = BODY_SECONDS
) -> Iterator[Server]:
    deadlines = {"head": HEAD_SECONDS, "body": body_seconds, "idle": IDLE_SECONDS}
    lines = (f"{name}_seconds_max = {seconds}\n" for name, seconds in deadlines.items())
    with run_server(folder, settings + "".join(lines)) as running:
        yield running


def check_still_healthy(server: Server) -> None:
    """The same process still serves, and has logged no error."""
    assert server.ask("GET", "/healthz").status == 200
    log = server.log.read_text()
    assert " error " not in log
    assert "Traceback" not in log


def is_key_unused(server: Server, key: str) -> bool:
    """Submits the key: True if that creates its job."""
    return bool(server.submit(key).body["idempotency"]["outcome"] == "created")
