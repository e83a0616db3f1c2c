"""HTTPS without a proxy: `tls_cert` and `tls_key`."""

import datetime
import ssl
from http.client import HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from onejob.core.errors import Invalid
from onejob.http.config import ServiceConfig
from onejob.http.serve import check_listener_settings
from tests.support.raw_http import Server, receive_all, run_server


class Files(NamedTuple):
    cert: Path
    key: Path

    @property
    def settings(self) -> str:
        return f'tls_cert = "{self.cert}"\ntls_key = "{self.key}"\n'


def make_files(folder: Path, *, password: bytes = b"") -> Files:
    """A self-signed certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, SHA256())
    )
    folder.mkdir(exist_ok=True)
    files = Files(folder / "cert.pem", folder / "key.pem")
    files.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return files


def statuses(server: Server, context: ssl.SSLContext) -> list[int]:
    """The statuses of two requests on one connection."""
    connection = HTTPSConnection("127.0.0.1", server.port, timeout=120, context=context)
    found = []
    for _ in range(2):
        connection.request("POST", "/api/jobs", b'{"type": "t"}', {"Idempotency-Key": "k"})
        response = connection.getresponse()
        response.read()
        found.append(response.status)
    connection.close()
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_with_a_certificate_speaks_only_https(tmp_path: Path, settings: str, workers: int) -> None:
    files = make_files(tmp_path / "tls")
    with run_server(tmp_path, f"{settings}{files.settings}workers = {workers}\n") as server:
        assert "https://127.0.0.1:" in server.ready_line
        context = ssl.create_default_context(cafile=str(files.cert))
        assert [statuses(server, context) for _ in range(4)] == [[202, 202]] * 4
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not receive_all(connection).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in server.log.read_text()


def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    one, other = make_files(tmp_path / "one"), make_files(tmp_path / "other")
    locked = make_files(tmp_path / "locked", password=b"secret")
    check_listener_settings(ServiceConfig(tls_cert=str(one.cert), tls_key=str(one.key)))
    for cert, key in ((one.cert, other.key), (one.key, one.key), (tmp_path / "none", one.key), locked):
        with pytest.raises(Invalid, match="cannot be used"):
            check_listener_settings(ServiceConfig(tls_cert=str(cert), tls_key=str(key)))
