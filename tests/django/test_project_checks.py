"""`manage.py check` finds a wrong setting before a request does, and says what to write instead."""

from typing import Any

import pytest
from django.apps import apps
from django.test import override_settings

from onejob.django.apps import check_project
from tests.support import django_project  # noqa: F401 - configures Django


def found(**setting: Any) -> dict[str, str]:
    with override_settings(ONEJOB=setting):
        return {message.id: message.msg for message in check_project()}


def test_a_right_setting_has_no_message() -> None:
    assert found(LEDGER="sqlite:///keys.db", SCOPE=str, RULES=["POST /a", ("POST /b", "required")], LEASE=30) == {}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({}, "names no store"),
        ({"LEDGER": "memory://", "SCOOP": 1}, "no member SCOOP; choose from"),
        ({"DATABASE": "other"}, "not in DATABASES"),
        ({"LEDGER": "memory://", "RULES": ["GET /x"]}, "safe method"),
        ({"LEDGER": "memory://", "RULES": [("POST /x", "sometimes")]}, "sometimes"),
        ({"LEDGER": "memory://", "HEADERS": ["set-cookie"]}, "remove set-cookie"),
        ({"LEDGER": "memory://", "LEASE": -1}, "lease"),
        ({"LEDGER": "memory://", "SCOPE": 7}, "not callable"),
        ({"LEDGER": "memory://", "SCOPE": "shop.nothing"}, "shop"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(setting: dict[str, Any], said: str) -> None:
    messages = found(**setting)
    assert list(messages) == ["onejob.E001"]
    assert said in messages["onejob.E001"]


def test_a_setting_that_is_missing_is_an_error() -> None:
    with override_settings(ONEJOB=None):
        assert [message.id for message in check_project()] == ["onejob.E001"]


def test_a_ledger_in_a_database_that_is_not_postgresql_is_an_error() -> None:
    assert "a PostgreSQL database only" in found(DATABASE="default", SCOPE=str)["onejob.E002"]


def test_a_store_in_memory_and_keys_without_users_are_warnings() -> None:
    assert list(found(LEDGER="memory://")) == ["onejob.W001", "onejob.W002"]


def test_an_app_that_cannot_be_loaded_is_an_error() -> None:
    messages = found(LEDGER="sqlite:///keys.db", SCOPE=str, APP="nowhere:app")
    assert "nowhere" in messages["onejob.E003"]


def test_a_project_without_an_automatic_field_is_not_warned() -> None:
    with override_settings(DEFAULT_AUTO_FIELD="django.db.models.AutoField"):
        config = apps.get_app_config("onejob")
        assert config.default_auto_field == "django.db.models.BigAutoField"
        assert config._is_default_auto_field_overridden
