"""A Django project for tests in this process: settings are made once, and each test says what its view does."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections
from django.urls import re_path

APPS = ["auth", "contenttypes", "sessions", "messages", "admin"]
TASKS_APPS = [] if django.VERSION >= (6,) else ["django_tasks"]  # Django 6.0 has tasks of its own
SESSION_MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
CONTEXT_PROCESSORS = [
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
]

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="tests",
    USE_TZ=True,
    INSTALLED_APPS=[*(f"django.contrib.{name}" for name in APPS), "rest_framework", *TASKS_APPS, "onejob.django"],
    MIDDLEWARE=["onejob.django.IdempotencyMiddleware"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        "ledger": {"ENGINE": "django.db.backends.postgresql"},  # a test says where it is
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {"context_processors": CONTEXT_PROCESSORS},
        }
    ],
    TASKS={"default": {"BACKEND": "onejob.django.tasks.OnejobBackend"}},
    LOGGING_CONFIG=None,
    ONEJOB={"LEDGER": "memory://"},
)
django.setup()


def use_database(alias: str, url: str) -> None:
    """Connect an alias to another database, in this thread and in those that begin later."""
    parts = urlsplit(url)
    connections[alias].close()
    place = {"NAME": parts.path[1:], "USER": parts.username, "HOST": parts.hostname, "PORT": parts.port}
    connections.settings[alias].update(place)
    connections[alias].settings_dict.update(place)


views: dict[str, Callable[[Any], Any]] = {}


def serve(request: Any) -> Any:
    return views["current"](request)


urlpatterns = [re_path("^.*$", serve)]
