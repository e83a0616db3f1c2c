"""The settings come from a file, environment variables and the command line; the later overrides the earlier."""

from pathlib import Path
from typing import Any

import pytest

from onejob.core.errors import Invalid
from onejob.http.config import JwtConfig, ServiceConfig
from onejob.http.serve import security_warnings
from onejob.settings import load_service_config

FILE = """
port = 9000
host = "127.0.0.2"
auth = true
cors_origins = ["https://a.example"]
rate_per_second = 5

[jwt]
algorithms = ["HS256"]
secret = "not for the environment to know"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "onejob.toml"
    path.write_text(FILE)
    return str(path)


def test_without_anything_the_defaults_hold() -> None:
    assert load_service_config(None, {}, {}) == ServiceConfig()


def test_variables_go_before_the_file_and_the_command_line_before_both(file: str) -> None:
    environ = {"ONEJOB_PORT": "9001", "ONEJOB_HOST": "127.0.0.3", "PATH": "/bin"}
    config = load_service_config(file, environ, {"port": 9002, "host": None})
    assert (config.port, config.host) == (9002, "127.0.0.3")
    assert config.cors_origins == ("https://a.example",)
    assert config.jwt == JwtConfig(algorithms=("HS256",), secret="not for the environment to know")
    assert config.rate_per_second == 5.0


def test_every_flat_setting_has_its_variable() -> None:
    environ = {
        "ONEJOB_ENGINE": "memory://",
        "ONEJOB_AUTH": "yes",
        "ONEJOB_MISMATCH_STATUS": "422",
        "ONEJOB_KEY_OWNER": "user",
        "ONEJOB_RATE_PER_SECOND": "2.5",
        "ONEJOB_RATE_BURST": "7",
        "ONEJOB_CORS_ORIGINS": "https://a.example, https://b.example",
        "ONEJOB_BODY_BYTES_MAX": "1000",
        "ONEJOB_BODY_SECONDS_MAX": "1.5",
        "ONEJOB_HEAD_BYTES_MAX": "2000",
        "ONEJOB_HEAD_SECONDS_MAX": " 2 ",
        "ONEJOB_IDLE_SECONDS_MAX": "3",
        "ONEJOB_DRAIN_SECONDS_MAX": "4",
        "ONEJOB_LOG_FORMAT": "json",
        "ONEJOB_API_KEY": "of the command, not of the service",
    }
    assert load_service_config(None, environ) == ServiceConfig(
        engine="memory://",
        auth=True,
        mismatch_status=422,
        key_owner="user",
        rate_per_second=2.5,
        rate_burst=7,
        cors_origins=("https://a.example", "https://b.example"),
        body_bytes_max=1000,
        body_seconds_max=1.5,
        head_bytes_max=2000,
        head_seconds_max=2.0,
        idle_seconds_max=3.0,
        drain_seconds_max=4.0,
        log_format="json",
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("ONEJOB_PROT", "9000"),
        ("ONEJOB_JWT", "x"),
        ("ONEJOB_PORT", ""),
        ("ONEJOB_PORT", "http"),
        ("ONEJOB_PORT", "70000"),
        ("ONEJOB_PORT", "80.5"),
        ("ONEJOB_AUTH", "maybe"),
        ("ONEJOB_MISMATCH_STATUS", "404"),
        ("ONEJOB_KEY_OWNER", "everybody"),
        ("ONEJOB_LOG_FORMAT", "xml"),
        ("ONEJOB_HEAD_SECONDS_MAX", "nan"),
        ("ONEJOB_HEAD_SECONDS_MAX", "inf"),
        ("ONEJOB_HEAD_SECONDS_MAX", "-1"),
        ("ONEJOB_BODY_BYTES_MAX", "99999999999"),
        ("ONEJOB_RATE_PER_SECOND", "0"),
    ],
)
def test_nonsense_in_a_variable_is_refused_by_its_name(variable: str, text: str) -> None:
    with pytest.raises(Invalid, match=variable):
        load_service_config(None, {variable: text})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('port = "9000"', "port in .*toml"),
        ("prot = 9000", "prot in .*toml"),
        ("port = 70000", "port in .*toml"),
        ("head_seconds_max = nan", "head_seconds_max in .*toml"),
        ("auth = 1", "auth in .*toml"),
        ("cors_origins = 'https://a.example'", "cors_origins in .*toml"),
        ("[jwt]\nsecret = 1", "jwt in .*toml"),
        ("[jwt]\nsecrets = 'x'", "jwt in .*toml"),
        ("[jwt]\nsecret = 'x'", "jwt in .*toml.*auth = true"),
        ("port = ", "is not TOML"),
        ("port = 1\nport = 2", "is not TOML"),
    ],
)
def test_nonsense_in_the_file_is_refused_by_its_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "onejob.toml"
    path.write_text(text)
    with pytest.raises(Invalid, match=message):
        load_service_config(str(path), {})


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"missing\.toml cannot be read"):
        load_service_config(str(tmp_path / "missing.toml"), {})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="is not TOML"):
        load_service_config(str(tmp_path / "bytes.toml"), {})


def test_what_the_command_line_says_wrong_is_named_as_it_is_said() -> None:
    with pytest.raises(Invalid, match="--port"):
        load_service_config(None, {}, {"port": -1})
    with pytest.raises(Invalid, match="ONEJOB_PORT"):
        load_service_config(None, {"ONEJOB_PORT": "-1"})


def test_without_a_mapping_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEJOB_PORT", "7777")
    assert load_service_config().port == 7777


def test_a_misspelt_setting_is_refused_with_the_name_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="ONEJOB_PROT is not a setting of the service; did you mean ONEJOB_PORT"):
        load_service_config(None, {"ONEJOB_PROT": "9000"})
    with pytest.raises(Invalid, match="remove it"):
        load_service_config(None, {"ONEJOB_JWT": "x"})
    path = tmp_path / "onejob.toml"
    path.write_text("body_byte_max = 1")
    with pytest.raises(Invalid, match="did you mean body_bytes_max"):
        load_service_config(str(path), {})


@pytest.mark.parametrize(
    ("jwt", "missing"),
    [
        (JwtConfig(issuer="i", audience="a"), []),
        (JwtConfig(issuer="i"), ["jwt.audience"]),
        (JwtConfig(audience="a"), ["jwt.issuer"]),
        (JwtConfig(algorithms=("HS256",), secret="s"), ["jwt.issuer", "jwt.audience"]),
    ],
)
def test_tokens_without_a_checked_issuer_or_audience_are_warned_of(jwt: JwtConfig, missing: list[str]) -> None:
    warnings = security_warnings(ServiceConfig(auth=True, jwt=jwt))
    assert len(warnings) == bool(missing)
    assert all(name in warnings[0] for name in missing)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"host": "127.0.0.1"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "192.0.2.1"}, True),
        ({"host": "0.0.0.0", "tls_cert": "c.pem", "tls_key": "k.pem"}, False),
        ({"host": "0.0.0.0", "trusted_proxies": ("10.0.0.1",)}, False),
    ],
)
def test_plain_http_on_a_network_is_warned_of(settings: dict[str, Any], warned: bool) -> None:
    warnings = security_warnings(ServiceConfig(auth=True, **settings))
    assert [("TLS" in warning, "proxy" in warning) for warning in warnings] == [(True, True)] * warned


@pytest.mark.parametrize("settings", [{"tls_cert": "c.pem"}, {"tls_key": "k.pem"}, {"trusted_proxies": ("proxy",)}])
def test_half_of_tls_and_a_proxy_without_an_address_stop_the_start(settings: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"tls_cert and tls_key|trusted_proxies"):
        ServiceConfig(**settings)
