"""The wire between gates and managers on record: HTTP/1.1 with bodies in msgpack, which are shown decoded."""

import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import msgpack

from tests.golden.recording import Pending, Recorder, Response, read_response
from tests.golden.test_http_exchanges import run_locally
from tests.golden.test_lifecycle import run_command
from tests.http.test_tls import make_files

from .conftest import GoldenCheck

JOB_ID = bytes.fromhex("01900000000070008000000000000001")
LOOK_UP = {"is": "LookUpJob", "tenant": "acme", "job_id": JOB_ID}
SUBMIT = {
    "is": "Submit",
    "tenant": "acme",
    "job_id": JOB_ID,
    "type": "mail",
    "input": b"{}",
    "actor": "client:x",
    "user": "ann",
}
TOKENS = {"tenant": "acme", "actor": "client:x", "wanted": 3, "managers": 2}
HELLO = {"oldest": 1, "newest": 2}
GENERATION_BYTES = 8
RECORDINGS_MAX = 5


class Gate(Recorder):
    """Sends what a gate sends: a body in msgpack, the version of the wire, the ledger, a credential."""

    ledger_id = ""
    key = ""
    is_disturbed = False  # a request took longer than a second, so that its answer began with signs of life

    def post(self, title: str, path: str, body: object = None, *, version: str = "2", ledger: str | None = None) -> Any:
        data = body if isinstance(body, bytes) else msgpack.encode(body)
        lines = [f"POST {path} HTTP/1.1", "host: localhost", f"onejob-wire: {version}"]
        lines.append(f"onejob-ledger: {self.ledger_id if ledger is None else ledger}")
        lines += [f"authorization: Bearer {self.key}"] if self.key else []
        head = "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode()
        self.note_title(title)
        self.note_request(head + (data if isinstance(body, bytes) else to_text(body, indent=None).encode()))
        with self.open_unrecorded() as pending:
            pending.connection.sendall(head + data)
            return self.read(pending, has_generation=path != "/hello" and version == "2")

    def read(self, pending: Pending, *, has_generation: bool = False) -> Response:
        response = read_response(pending.stream, "POST")
        assert response is not None
        is_closed = response.header("connection") == "close" and read_response(pending.stream, "") is None
        if response.header("transfer-encoding") == "chunked":
            self.is_disturbed = True
        else:
            self.note_responses([decoded(response, has_generation=has_generation)], is_closed=is_closed)
        return response

    def subscribe(self) -> None:
        self.note_title("a stream of settled records begins with a sign of life")
        request = f"POST /subscribe HTTP/1.1\r\nonejob-wire: 2\r\nonejob-ledger: {self.ledger_id}\r\ncontent-length: 0\r\n\r\n"
        with self.open(request.encode()) as pending:
            response = read_response(pending.stream, "POST", b".")
        assert response is not None
        self.note_responses([response])


def decoded(response: Response, *, has_generation: bool) -> Response:
    """With a readable body: the kind of the frame, the number of commits that the manager knows, and the result."""
    kind, rest = response.body[:1].decode(), response.body[1:]
    generation = ""
    if kind == "R" and has_generation:
        generation = f" generation {int.from_bytes(rest[:GENERATION_BYTES])}"
        rest = rest[GENERATION_BYTES:]
    assert int(response.header("content-length") or -1) == len(response.body)
    head = re.sub(rb"content-length: [0-9]+", b"content-length: <length>", response.head)
    return Response(head, f"{kind}{generation}\n{to_text(msgpack.decode(rest)) if rest else ''}".encode())


def to_text(value: object, indent: int | None = 2) -> str:
    """JSON with bytes in hex, and times that are masked."""
    text = json.dumps(value, indent=indent, default=lambda data: f"0x{data.hex()}" if data else "0x")
    text = re.sub(r"(?<=: |  )[12][0-9]{12}\b", "<milliseconds>", text)
    return re.sub(r"(?<=\"store_ms\": )[0-9.]+", "<milliseconds>", text)


@contextmanager
def run_manager(
    folder: Path, *options: str, wrap: Callable[[socket.socket], socket.socket] | None = None
) -> Iterator[Gate]:
    with run_command(
        folder, "manager", "--bind", "127.0.0.1:0", "--engine", "sqlite:///onejob.db", *options
    ) as process:
        assert process.stdout is not None
        found = re.search(r"https?://127\.0\.0\.1:([0-9]+)", process.stdout.readline())
        assert found
        port = int(found[1])

        def connect() -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", port), timeout=120)
            return connection if wrap is None else wrap(connection)

        yield Gate(connect)


def record_undisturbed(folder: Path, record: Callable[[Path], Gate]) -> str:
    """A recording in which no request took longer than a second, as it may on a busy machine."""
    for number in range(RECORDINGS_MAX):
        store = folder / str(number)
        store.mkdir()
        gate = record(store)
        if not gate.is_disturbed:
            return gate.text
    raise AssertionError("every recording was disturbed")


def record_commands(folder: Path) -> Gate:
    with run_manager(folder) as gate:
        record_hello(gate)
        gate.post("a job", "/execute", [SUBMIT])
        gate.post("the job, as the older version of the wire sends it", "/execute", [LOOK_UP], version="1")
        gate.post("several commands, of which one is unknown", "/execute", [LOOK_UP, {"is": "Juggle"}])
        gate.post("a command with an unknown field", "/execute", [LOOK_UP | {"colour": "red"}])
        gate.post("no command", "/execute", [])
        gate.post("more commands than are allowed", "/execute", b"\xdc\x4e\x20")
        gate.post("not an array", "/execute", {"is": "LookUpJob"})
        gate.post("not msgpack", "/execute", b"\xc1")
        gate.post("a query", "/scan", {"is": "ListJobs", "tenant": "acme"})
        gate.post("an unknown query", "/scan", {"is": "ListJugglers"})
        gate.post("a barrier", "/barrier", {"tenant": "acme"})
        gate.post("tokens of a rate", "/tokens", TOKENS)
        gate.post("no such path", "/juggle")
        gate.post("another ledger", "/execute", [LOOK_UP], ledger="0" * 32)
        gate.post("a version that is not spoken", "/execute", [LOOK_UP], version="9")
        gate.post("no version", "/execute", [LOOK_UP], version="")
        gate.subscribe()
        record_kept_connection(gate)
        record_malformed(gate)
    return gate


def record_hello(gate: Gate) -> None:
    response = gate.post("hello", "/hello", HELLO, ledger="")
    gate.ledger_id = msgpack.decode(response.body[1:])["ledger_id"]
    gate.post("a gate that is too old", "/hello", {"oldest": 0, "newest": 0})
    gate.post("a hello that is malformed", "/hello", {"oldest": "one"})


def record_kept_connection(gate: Gate) -> None:
    hello = msgpack.encode(HELLO)
    request = b"POST %b HTTP/1.1\r\ncontent-length: %d\r\nonejob-wire: 2\r\nonejob-ledger: " + gate.ledger_id.encode()
    gate.note_title("a connection is kept after a request was accepted, whatever follows")
    with gate.open_unrecorded() as pending:
        for path in (b"/hello", b"/juggle", b"/hello"):
            gate.note_request(request % (path, len(hello)) + b"\r\n\r\n" + to_text(HELLO, indent=None).encode())
            pending.connection.sendall(request % (path, len(hello)) + b"\r\n\r\n" + hello)
            gate.read(pending)


def record_malformed(gate: Gate) -> None:
    for title, data in {
        "GET": b"GET /hello HTTP/1.1\r\n\r\n",
        "HTTP/1.0": b"POST /hello HTTP/1.0\r\n\r\n",
        "chunks": b"POST /hello HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "a header twice": b"POST /hello HTTP/1.1\r\nx: 1\r\nX: 2\r\n\r\n",
        "a header without a colon": b"POST /hello HTTP/1.1\r\nx\r\n\r\n",
        "a length that is no number": b"POST /hello HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        "a stranger's body that is too large": b"POST /hello HTTP/1.1\r\ncontent-length: 5000\r\n\r\n",
        "a head that is too long": b"POST /hello HTTP/1.1\r\nx: " + b"x" * 17_000,
        "two requests at once": b"POST /hello HTTP/1.1\r\n\r\n" * 2,
        "nonsense": b"hello\r\n\r\n",
    }.items():
        gate.note_title(title)
        with gate.open(data) as pending:
            gate.read(pending)


def record_credentials(folder: Path) -> Gate:
    keys = {name: create_gate_key(folder, name, *options) for name, options in GATE_KEYS.items()}
    with run_manager(folder) as gate:
        gate.post("without a credential", "/hello", HELLO)
        gate.key = "ojg_000000000000." + "A" * 43
        gate.post("with a wrong one", "/hello", HELLO)
        gate.key = keys["all"]
        record_hello(gate)
        gate.post("a command", "/execute", [LOOK_UP])
        gate.key = keys["acme"]
        gate.post("a credential for one tenant", "/execute", [LOOK_UP])
        gate.post("acts for no other", "/execute", [LOOK_UP, LOOK_UP | {"tenant": "other"}])
        gate.post("nor lists another", "/scan", {"is": "ListJobs", "tenant": "other"})
        gate.post("nor waits for all", "/barrier", {"tenant": None})
        gate.key = keys["lon"]
        gate.post("a site looks for its jobs", "/execute", [LOOK_UP])
        gate.post("and does nothing else", "/execute", [{"is": "LookUpPolicy", "tenant": "acme", "policy_id": JOB_ID}])
        gate.post("a site lists nothing", "/scan", {"is": "ListJobs", "tenant": "acme"})
    return gate


GATE_KEYS = {"all": (), "acme": ("--for-tenant", "acme"), "lon": ("--site", "--for-tenant", "acme")}


def record_tls(folder: Path) -> Gate:
    own, client = make_files(folder / "own"), make_files(folder / "client")
    trusting = ssl.create_default_context(cafile=str(own.cert))
    nobody = ssl.create_default_context(cafile=str(own.cert))
    trusting.load_cert_chain(client.cert, client.key)

    def wrap(connection: socket.socket) -> socket.socket:
        return contexts[-1].wrap_socket(connection, server_hostname="127.0.0.1") if contexts else connection

    contexts = [trusting]
    options = ("--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-client-ca", str(client.cert))
    with run_manager(folder, *options, wrap=wrap) as gate:
        record_hello(gate)
        contexts.append(nobody)
        note_refused_connection(gate, "a gate without a certificate is refused")
        contexts.clear()
        note_refused_connection(gate, "so is one without TLS")
    return gate


def note_refused_connection(gate: Gate, title: str) -> None:
    received = b""
    with suppress(OSError), gate.open_unrecorded() as pending:
        pending.connection.sendall(b"POST /hello HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        received = pending.stream.read()
    gate.note(f"{title}, with {received.count(b'HTTP/')} responses")


def create_gate_key(folder: Path, name: str, *options: str) -> str:
    found = re.search(r"ojg_\S+", run_locally(folder, "gatekey", "create", name, *options))
    assert found
    return found[0]


def test_commands_and_queries(tmp_path: Path, golden: GoldenCheck) -> None:
    golden("http/manager_wire.txt", record_undisturbed(tmp_path, record_commands))


def test_credentials_of_gates(tmp_path: Path, golden: GoldenCheck) -> None:
    golden("http/manager_credentials.txt", record_undisturbed(tmp_path, record_credentials))


def test_certificates_of_gates(tmp_path: Path, golden: GoldenCheck) -> None:
    golden("http/manager_tls.txt", record_undisturbed(tmp_path, record_tls))
