"""Settings have the seed's names and defaults, and an invalid value is refused by its name."""

import math

import pytest

from onejob.core.errors import Invalid
from onejob.settings import ENTRIES_MAX, SECONDS_MAX, CliSettings, IdempotencyConfig

SECONDS = [
    "pending_ttl_seconds", "committed_ttl_seconds", "rejected_ttl_seconds",
    "cleanup_interval_seconds", "pending_wait_timeout",
]  # fmt: skip


def test_the_defaults_are_the_seeds() -> None:
    config = IdempotencyConfig.from_env({})
    assert config == IdempotencyConfig()
    assert config == IdempotencyConfig(
        pending_ttl_seconds=60.0,
        committed_ttl_seconds=300.0,
        rejected_ttl_seconds=60.0,
        max_entries=100_000,
        cleanup_interval_seconds=10.0,
        wait_for_pending=True,
        pending_wait_timeout=30.0,
    )


def test_every_setting_has_its_variable() -> None:
    environ = {
        "IDEMPOTENCY_PENDING_TTL_SECONDS": "1",
        "IDEMPOTENCY_COMMITTED_TTL_SECONDS": "2.5",
        "IDEMPOTENCY_REJECTED_TTL_SECONDS": " 3 ",
        "IDEMPOTENCY_MAX_ENTRIES": "4",
        "IDEMPOTENCY_CLEANUP_INTERVAL_SECONDS": ".5",
        "IDEMPOTENCY_WAIT_FOR_PENDING": "false",
        "IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "0",
        "IDEMPOTENCY_MAX_WAITERS": "5",
        "PATH": "/bin",
    }
    config = IdempotencyConfig.from_env(environ)
    assert config == IdempotencyConfig(
        pending_ttl_seconds=1.0,
        committed_ttl_seconds=2.5,
        rejected_ttl_seconds=3.0,
        max_entries=4,
        cleanup_interval_seconds=0.5,
        wait_for_pending=False,
        pending_wait_timeout=0.0,
        max_waiters=5,
    )


def test_without_a_mapping_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDEMPOTENCY_MAX_ENTRIES", "7")
    assert IdempotencyConfig.from_env().max_entries == 7


def test_booleans_are_read_in_any_case() -> None:
    for text, meant in [("true", True), ("TRUE", True), ("1", True), ("Yes", True), ("on", True),
                        ("False", False), ("0", False), ("NO", False), ("oFf", False)]:  # fmt: skip
        assert IdempotencyConfig.from_env({"IDEMPOTENCY_WAIT_FOR_PENDING": text}).wait_for_pending is meant


@pytest.mark.parametrize("field", [*SECONDS, "max_entries", "wait_for_pending"])
def test_an_invalid_variable_is_refused_by_its_name(field: str) -> None:
    variable = f"IDEMPOTENCY_{field.upper()}"
    wrong = [
        "",
        " ",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "-1",
        "-0.5",
        "ten",
        "1_000",
        "10s",
        "0x10",
        "\u0661",
        "1e999",
        "1,5",
    ]
    for text in wrong:
        with pytest.raises(Invalid, match=variable) as caught:
            IdempotencyConfig.from_env({variable: text})
        assert caught.value.what == variable
        assert "set it to" in str(caught.value)


@pytest.mark.parametrize("field", SECONDS)
def test_a_time_is_finite_positive_and_at_most_a_year(field: str) -> None:
    for wrong in [math.nan, math.inf, -math.inf, -1, -1e-9, SECONDS_MAX + 1, 10**400, True, "60", None]:
        with pytest.raises(Invalid, match=field):
            IdempotencyConfig(**{field: wrong})  # type: ignore[arg-type]  # what untyped callers do
    largest = IdempotencyConfig.from_env({f"IDEMPOTENCY_{field.upper()}": str(SECONDS_MAX)})
    assert getattr(largest, field) == SECONDS_MAX


def test_only_the_wait_may_be_zero() -> None:
    assert IdempotencyConfig(pending_wait_timeout=0).pending_wait_timeout == 0
    for field in [field for field in SECONDS if field != "pending_wait_timeout"]:
        with pytest.raises(Invalid, match=field):
            IdempotencyConfig(**{field: 0.0})  # type: ignore[arg-type]  # mypy cannot know the field


def test_entries_are_a_whole_number_from_1_to_ten_million() -> None:
    assert IdempotencyConfig(max_entries=ENTRIES_MAX).max_entries == 10_000_000
    for wrong in [0, -1, ENTRIES_MAX + 1, 1.0, math.nan, True, "5", None]:
        with pytest.raises(Invalid, match="max_entries"):
            IdempotencyConfig(max_entries=wrong)  # type: ignore[arg-type]  # what untyped callers do
    for text in ["0", "1.0", "1e3", "99999999", "9" * 30]:
        with pytest.raises(Invalid, match="IDEMPOTENCY_MAX_ENTRIES"):
            IdempotencyConfig.from_env({"IDEMPOTENCY_MAX_ENTRIES": text})


def test_wait_for_pending_is_a_bool() -> None:
    for wrong in [1, 0, "true", None]:
        with pytest.raises(Invalid, match="wait_for_pending"):
            IdempotencyConfig(wait_for_pending=wrong)  # type: ignore[arg-type]  # what untyped callers do


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        IdempotencyConfig().max_entries = 5  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("IDEMPOTENCY_COMMITED_TTL_SECONDS", "IDEMPOTENCY_COMMITTED_TTL_SECONDS"),
        ("IDEMPOTENCY_MAX_ENTRY", "IDEMPOTENCY_MAX_ENTRIES"),
        ("IDEMPOTENCY_PENDING_TTL", "IDEMPOTENCY_PENDING_TTL_SECONDS"),
        ("IDEMPOTENCY_WAIT_FOR_PENDNG", "IDEMPOTENCY_WAIT_FOR_PENDING"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(variable: str, meant: str) -> None:
    with pytest.raises(Invalid, match=f"{variable} is not a setting; did you mean {meant}") as caught:
        IdempotencyConfig.from_env({variable: "1"})
    assert caught.value.what == variable


def test_other_variables_with_the_same_prefix_are_ignored() -> None:
    others = {"IDEMPOTENCY_TABLE": "x", "IDEMPOTENCY_KEY": "y", "IDEMPOTENCY_": "", "OTHER_MAX_ENTRIES": "1"}
    assert IdempotencyConfig.from_env(others) == IdempotencyConfig()


def test_a_misspelt_variable_of_the_command_is_refused_and_service_variables_are_known() -> None:
    with pytest.raises(Invalid, match="ONEJOB_ENGIN is not a setting; did you mean ONEJOB_ENGINE"):
        CliSettings.from_env({"ONEJOB_ENGIN": "memory://"})
    with pytest.raises(Invalid, match="did you mean ONEJOB_API_KEY"):
        CliSettings.from_env({"ONEJOB_APIKEY": "x"})
    service = {
        "ONEJOB_PORT": "1",
        "ONEJOB_SERVICE_HOST": "10.0.0.1",
        "ONEJOB_PORT_8001_TCP": "tcp://",
        "ONEJOB_X": "",
    }
    assert CliSettings.from_env(service) == CliSettings()
