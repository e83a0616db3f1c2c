"""A project with a ledger of its own, and users in a database in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

from onejob.django.ledger import close_layer
from tests.support import django_project


@pytest.fixture
def ledger_setting(tmp_path: Path) -> dict[str, Any]:
    return {"LEDGER": f"sqlite:///{tmp_path / 'keys.db'}", "SCOPE": owner, "LEASE": 5}


@pytest.fixture
def project(ledger_setting: dict[str, Any]) -> Iterator[None]:
    with override_settings(ONEJOB=ledger_setting):
        yield
    close_layer()


@pytest.fixture
def client(project: None) -> Client:
    """Exceptions are answered, as in production."""
    return Client(raise_request_exception=False)


@pytest.fixture
def serve() -> Callable[[Any], None]:
    """Serve every path with this view."""

    def use(view: Any) -> None:
        django_project.views["current"] = view

    return use


def owner(request: Any) -> str | None:
    """The user of REST framework, else the one in a header."""
    user = getattr(request, "user", None)
    return str(getattr(user, "username", "")) or request.META.get("HTTP_X_USER", "ann") or None
