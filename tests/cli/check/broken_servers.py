"""An HTTP API with idempotency keys that is right, or wrong in one way, for `onejob check` to tell apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from time import sleep
from typing import Any

RIGHT, NO_KEYS, CHECK_THEN_ACT, ANY_BODY, FORGETFUL, SHARED_KEYS, REFUSING = (
    "right", "ignores keys", "checks, then acts", "compares no bodies", "forgets", "shares keys between users", "refuses",
)  # fmt: skip


class OrderServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, mistake: str) -> None:
        super().__init__(("127.0.0.1", 0), OrderHandler)
        self.mistake = mistake
        self.mismatch_status = 422
        self.orders = 0
        self.answers: dict[Any, tuple[bytes, bytes]] = {}
        self.one_at_a_time = Lock()
        self.counter = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the test."""

    def make_order(self) -> bytes:
        sleep(0.05 if self.mistake == CHECK_THEN_ACT else 0.01)
        with self.counter:
            self.orders += 1
            return json.dumps({"id": self.orders}).encode()

    def answer(self, key: str, user: str, body: bytes) -> tuple[int, bytes]:
        if self.mistake == REFUSING:
            return 401, b"{}"
        if self.mistake == NO_KEYS:
            return 201, self.make_order()
        if self.mistake == CHECK_THEN_ACT:
            return self._answer_once(key, user, body)
        with self.one_at_a_time:
            return self._answer_once(key, user, body)

    def _answer_once(self, key: str, user: str, body: bytes) -> tuple[int, bytes]:
        identity = key if self.mistake == SHARED_KEYS else (user, key)
        if identity not in self.answers:
            made = self.make_order()
            self.answers[identity] = (body, made)
        first, made = self.answers[identity]
        return (self.mismatch_status, b"{}") if first != body and self.mistake != ANY_BODY else (201, made)


class OrderHandler(BaseHTTPRequestHandler):
    server: OrderServer

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        if self.path == "/restart" and self.server.mistake == FORGETFUL:
            self.server.answers.clear()
        self._send(200, json.dumps({"total": self.server.orders}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        keys = self.headers.get_all("idempotency-key") or []
        if self.server.mistake == NO_KEYS:
            self._send(*self.server.answer("", "", body))
        elif len(keys) != 1 or keys[0].count('"') not in (0, 2) or not keys[0].strip('"'):
            self._send(400, b"{}")
        else:
            self._send(*self.server.answer(keys[0].strip('"'), self.headers.get("x-user", ""), body))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def run_order_server(mistake: str) -> Iterator[OrderServer]:
    server = OrderServer(mistake)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
