"""No command prints a secret, whatever is wrong with what it was given."""

from pathlib import Path

import pytest

import onejob
from onejob.engine import Durability
from onejob.engines import has_password, open_engine, redact_password
from onejob.http.config import ServiceConfig
from onejob.http.serve import ready_line
from onejob.settings import exposed_secrets
from tests.support.command_line import CommandRunner
from tests.support.raw_http import run_server

SECRET = "S3cr3t"
URLS = [
    f"postgresql://me@127.0.0.1:1/db?password={SECRET}",
    f"postgresql://127.0.0.1:1/db?user=me&PASSWORD={SECRET}",
    f"postgresql://me:{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:x@{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:{SECRET}@[127.0.0.1:1/db",
    f"postgresql://me:{SECRET}@127.0.0.1:port/db",
    f"postgresql://me:{SECRET}",
    f"postgresql://me:x/{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:12/{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:x?{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:12?{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:x#{SECRET}@127.0.0.1:1/db",
    f"postgresql://me:{SECRET}\N{DOUBLE EXCLAMATION MARK}\N{CARE OF}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1/db?port={SECRET}",
    f"postgresql://127.0.0.1:1/db?schema=public;password={SECRET}",
    f"postgresql://127.0.0.1:1/db?durability=disk;password={SECRET}",
    f"postgresql://127.0.0.1:1/db?migrate=on;password={SECRET}",
    f"postgresql://127.0.0.1:1/db?target_session_attrs=any;password={SECRET}",
    f"postgresql:/me:{SECRET}@127.0.0.1:1/db",
    f"host=127.0.0.1 password={SECRET}",
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onejob.engines.postgres.OPEN_SECONDS", 0.1)
    return CommandRunner(capsys)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("command", ["doctor", "migrate", "jobs"])
def test_no_command_prints_the_password_of_an_engine(run: CommandRunner, command: str, url: str) -> None:
    result = run(command, "--engine", url)
    assert result.code != 0
    assert SECRET not in result.out + result.err


@pytest.mark.parametrize("url", URLS)
async def test_no_exception_quotes_the_password_of_an_engine(
    url: str, run: CommandRunner, caplog: pytest.LogCaptureFixture
) -> None:
    assert SECRET not in redact_password(url)
    assert SECRET not in ready_line(ServiceConfig(engine=url), "http://127.0.0.1:1", Durability.DISK)
    with pytest.raises(onejob.OnejobError) as caught:
        await open_engine(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("url", [f"http://me:{SECRET}@host", f"http://host/?key={SECRET}", f"http://é:{SECRET}@host"])
def test_no_command_prints_the_credentials_of_a_server(run: CommandRunner, url: str) -> None:
    result = run("jobs", "--url", url)
    assert result.code != 0
    assert SECRET not in result.out + result.err


def test_a_client_refuses_a_malformed_api_key_without_quoting_it() -> None:
    with pytest.raises(onejob.Invalid, match="as it was printed") as caught:
        onejob.Client("http://127.0.0.1:1", api_key=f"{SECRET}\n")
    assert SECRET not in str(caught.value)


CONFIGS = {
    'auth = true\n[jwt]\nalgorithms = ["HS256"]\nsecret = "x"': ["jwt.secret"],
    'engine = "postgresql://me:x@host/db"': ["engine with a password"],
    'engine = "postgresql://host/db?sslpassword=x"': ["engine with a password"],
    'engine = "postgresql://me@host/db?schema=jobs"': [],
    'engine = "sqlite:///onejob.db"': [],
}


@pytest.mark.parametrize("settings", CONFIGS)
def test_a_secret_in_a_file_that_others_may_read_is_found(settings: str, tmp_path: Path) -> None:
    path = tmp_path / "onejob.toml"
    path.write_text(settings)
    path.chmod(0o644)
    assert exposed_secrets(str(path)) == CONFIGS[settings]
    path.chmod(0o640)
    assert not exposed_secrets(str(path))


def test_a_password_is_seen_in_a_url() -> None:
    assert has_password("postgresql://me:x@host/db")
    assert not has_password("postgresql://me@host/db?sslmode=require")


def test_serve_warns_of_a_secret_in_a_file_that_others_may_read(tmp_path: Path) -> None:
    settings = f'auth = true\n[jwt]\nalgorithms = ["HS256"]\nsecret = "{SECRET * 8}"\n'
    with run_server(tmp_path, settings) as server:
        log = server.log.read_text()
    assert "chmod 600" in log
    assert "jwt.secret" in log
    assert SECRET not in log
