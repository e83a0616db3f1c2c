"""HTTP/1.1 on the wire: connections, framing, limits, and what is not well-formed."""

from tests.golden.recording import Recorder

SUBMIT = b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n\r\n"
JSON = b'{"type": "t"}'
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
BAD_FRAMING = {
    "a length and chunks": b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 13\r\nContent-Length: 14\r\n",
    "the same length twice": b"Content-Length: 13\r\nContent-Length: 13\r\n",
    "a list of lengths": b"Content-Length: 13, 13\r\n",
    "a negative length": b"Content-Length: -1\r\n",
    "a length in hex": b"Content-Length: 0x0d\r\n",
    "a length with a sign": b"Content-Length: +13\r\n",
    "a length that overflows": b"Content-Length: 99999999999999999999\r\n",
    "an unknown coding": b"Transfer-Encoding: gzip, chunked\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
}


def get(target: bytes, *lines: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: localhost", *lines, CLOSE])


def record_connections(api: Recorder) -> None:
    api.send("a connection is kept alive", HEALTH + b"\r\n", HEALTH + b"\r\n", responses=1)
    api.send("until the client asks for its end", HEALTH + CLOSE)
    api.send("the words of Connection are not case-sensitive", HEALTH + b"connection: Keep-Alive, CLOSE\r\n\r\n")
    api.send("pipelined requests are answered in their order", HEALTH + b"\r\n" + get(b"/nowhere") + HEALTH + b"\r\n")
    pipelined = [SUBMIT + b"Idempotency-Key: k\r\nContent-Length: 13\r\n\r\n" + JSON for _ in (1, 2)]
    api.send("a pipelined retry", b"".join(pipelined), responses=2)
    api.send("the client half-closes after its request", HEALTH + b"\r\n", half_close=True)
    api.send("the client half-closes within a head", HEALTH[:20], half_close=True)
    api.send("the client half-closes within a body", SUBMIT + b"Content-Length: 13\r\n\r\n" + JSON[:5], half_close=True)
    api.send("the client half-closes at once", b"", half_close=True)
    api.send("HTTP/1.0 closes", b"GET /healthz HTTP/1.0\r\n\r\n")
    api.send("HTTP/1.0 with keep-alive closes too", b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    api.send("HTTP/1.0 gets a stream without chunks", b"GET /api/jobs/x/events HTTP/1.0\r\n\r\n")
    api.send("HTTP/1.2", b"GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n")
    api.send("HTTP/2 with prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    api.send(
        "an upgrade is ignored",
        HEALTH + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        responses=1,
    )
    api.send(
        "a WebSocket is not opened",
        HEALTH + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AA==\r\n\r\n",
        responses=1,
    )
    api.send("CONNECT", b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n")
    api.send("empty lines before a request", b"\r\n\r\n" + get(b"/healthz"))
    api.send("a TLS hello", bytes.fromhex("160301002f0100002b0303") + b"\x00" * 38)


def record_bodies(api: Recorder) -> None:
    api.send(
        "a body in chunks",
        SUBMIT
        + b"Transfer-Encoding: chunked\r\n"
        + CLOSE
        + b"5\r\n"
        + JSON[:5]
        + b"\r\n8;x=y\r\n"
        + JSON[5:]
        + b"\r\n0\r\n\r\n",
    )
    api.send(
        "a body in chunks with a trailer",
        SUBMIT
        + b"Transfer-Encoding: chunked\r\n"
        + CLOSE
        + b"d\r\n"
        + JSON
        + b"\r\n0\r\nIdempotency-Key: late\r\n\r\n",
    )
    expecting = SUBMIT + b"Content-Length: 13\r\nExpect: 100-continue\r\n"
    api.send("a body that waits for 100 Continue", expecting + b"\r\n", JSON, responses=1)
    api.send("Expect with the body behind it", expecting + CLOSE + JSON)
    api.send(
        "Expect with a body that is too large", SUBMIT + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
    )
    api.send("Expect of something else", SUBMIT + b"Content-Length: 13\r\nExpect: 200-ok\r\n" + CLOSE + JSON)
    api.send("a body that is too large, before it is sent", SUBMIT + b"Content-Length: 99999999\r\n\r\n")
    api.send("a body of GET is ignored", HEALTH + b"Content-Length: 3\r\n" + CLOSE + b"abc")
    api.send("a length of zero", SUBMIT + b"Content-Length: 0\r\n" + CLOSE)
    api.send("no length", SUBMIT + CLOSE)
    for title, lines in BAD_FRAMING.items():
        api.send(title, SUBMIT + lines + CLOSE + JSON)
    send_bad_chunks(api)


def send_bad_chunks(api: Recorder) -> None:
    chunked = SUBMIT + b"Transfer-Encoding: chunked\r\n" + CLOSE
    api.send("a chunk without a size", chunked + b"\r\n")
    api.send("a chunk with a wrong size", chunked + b"xyz\r\n")
    api.send("a chunk that is longer than its size", chunked + b"3\r\n" + JSON + b"\r\n0\r\n\r\n")
    api.send(
        "chunks of HTTP/1.0",
        b"POST /api/jobs HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n" + JSON + b"\r\n0\r\n\r\n",
    )


def record_heads(api: Recorder) -> None:
    for title, data in {
        "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
        "two Hosts": HEALTH + b"Host: localhost\r\n\r\n",
        "an empty Host": b"GET /api/jobs HTTP/1.1\r\nHost:\r\n" + CLOSE,
        "a foreign Host": b"GET /api/jobs HTTP/1.1\r\nHost: evil.example\r\n" + CLOSE,
        "a Host with a port": b"GET /healthz HTTP/1.1\r\nHost: [::1]:8001\r\n" + CLOSE,
        "a header without a colon": HEALTH + b"broken\r\n\r\n",
        "a header with a space in its name": HEALTH + b"X Y: 1\r\n\r\n",
        "a space before the colon": HEALTH + b"X : 1\r\n\r\n",
        "an empty name": HEALTH + b": 1\r\n\r\n",
        "a folded header": HEALTH + b"X: 1\r\n 2\r\n" + CLOSE,
        "a NUL in a value": HEALTH + b"X: a\x00b\r\n\r\n",
        "bytes beyond ASCII in a value": HEALTH + b"X: \xe4\xff\r\n" + CLOSE,
        "a value with spaces around it": HEALTH + b"X-Request-Id: \t a \t\r\n" + CLOSE,
        "lines that end with LF": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        "a bare CR": b"GET /healthz HTTP/1.1\rHost: localhost\r\n\r\n",
        "an unknown method": get(b"/healthz", method=b"BREW"),
        "a method in lower case": get(b"/healthz", method=b"get"),
        "a method of HTTP that no path has": get(b"/healthz", method=b"LOCK"),
        "no version": b"GET /healthz\r\n\r\n",
        "two spaces": b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,
        "a target with a space": b"GET /health z HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "nonsense": b"hello\r\n\r\n",
    }.items():
        api.send(title, data)
    api.send("100 headers", HEALTH + b"".join(b"X-%d: 1\r\n" % n for n in range(98)) + CLOSE)
    api.send("101 headers", HEALTH + b"".join(b"X-%d: 1\r\n" % n for n in range(99)) + CLOSE)
    api.send("a head of the most that is allowed", HEALTH + b"X: " + b"x" * 16_300 + b"\r\n" + CLOSE)
    api.send("a head that is too long", HEALTH + b"X: " + b"x" * 17_000 + b"\r\n" + CLOSE)
    api.send("a target that is too long", get(b"/" + b"x" * 17_000))


def record_targets(api: Recorder) -> None:
    for target in (
        b"http://localhost/healthz",
        b"http://evil.example/healthz",
        b"https://localhost/healthz?x=1",
        b"//localhost/healthz",
        b"/healthz#top",
        b"/healthz?",
        b"/%68ealthz",
        b"/healthz%00",
        b"/api/jobs/%2e%2e/%2e%2e/healthz",
        b"/api/../healthz",
        b"/healthz;v=1",
        b"/api/jobs/a%2Fb",
        b"/api/jobs/%C3%A4",
        b"/api/jobs/%C3",
        b"/api/jobs?type=a+b%20c&limit=5",
        b"/api/jobs?%74ype=t",
        b"/api/jobs?type=%zz",
        b"/api/jobs?&",
        b"/api/jobs?type=\xc3\xa4",
        b"/api/j\xc3\xb6bs",
        b"*",
    ):
        api.send(f"GET {target.decode('latin-1').encode('unicode_escape').decode()}", get(target))
    api.send("OPTIONS *", get(b"*", method=b"OPTIONS"))
    api.send(
        "OPTIONS of CORS, which is off",
        get(b"/api/jobs", b"Origin: http://a.example", b"Access-Control-Request-Method: POST", method=b"OPTIONS"),
    )
    api.send("HEAD of an unknown path", get(b"/nowhere", method=b"HEAD"))
    api.send("HEAD of a stream", get(b"/api/jobs/x/events", method=b"HEAD"))
