"""The Django app `onejob.django`, and its system checks: `manage.py check` finds a wrong setting before a request does."""

from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from onejob.errors import OnejobError
from onejob.worker.app import load_app

from .settings import ProjectSettings, authenticated_user, project_settings

MIDDLEWARE = "onejob.django.IdempotencyMiddleware"
_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


class OnejobConfig(AppConfig):
    name = "onejob.django"
    label = "onejob"
    verbose_name = "onejob"
    default_auto_field = "django.db.models.BigAutoField"  # for models without rows: else `manage.py check` warns (W042)

    def ready(self) -> None:
        register(check_project)


def check_project(**_: Any) -> list[CheckMessage]:
    """E001: the setting is wrong. E002: the store cannot be used. E003: the app of the worker cannot be loaded."""
    try:
        project = project_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="docs/django.md lists the members of ONEJOB.", id="onejob.E001")]
    return [*_check_store(project), *_check_scope(), *_check_app(project)]


def _check_store(project: ProjectSettings) -> Iterator[CheckMessage]:
    try:
        url = project.ledger_url()
    except ImproperlyConfigured as error:
        yield Error(str(error), id="onejob.E002")
        return
    if url.startswith("memory:"):
        yield Warning(
            "ONEJOB['LEDGER'] is in the memory of a process: a restart forgets every key, and processes share none.",
            hint="Use sqlite:///keys.db on one machine, or a PostgreSQL database.",
            id="onejob.W001",
        )


def _check_scope() -> Iterator[CheckMessage]:
    given = settings.ONEJOB.get("SCOPE", authenticated_user)
    if given is authenticated_user and MIDDLEWARE in settings.MIDDLEWARE and _AUTHENTICATION not in settings.MIDDLEWARE:
        yield Warning(
            "Keys belong to the user who is logged in, and no middleware logs one in: requests with a key get 401.",
            hint=f"Add {_AUTHENTICATION} to MIDDLEWARE, or set ONEJOB['SCOPE'] to a function that returns the owner.",
            id="onejob.W002",
        )


def _check_app(project: ProjectSettings) -> Iterator[CheckMessage]:
    if not project.app:
        return
    try:
        load_app(project.app)
    except OnejobError as error:
        yield Error(f"ONEJOB['APP']: {error}", id="onejob.E003")
