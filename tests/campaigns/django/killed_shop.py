"""examples/django_shop as a WSGI application that dies, once, at the point that a file names."""

import os
import signal
from collections.abc import Iterable
from inspect import unwrap
from pathlib import Path
from typing import Any

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django_application = get_wsgi_application()

from django.db import transaction  # noqa: E402 - Django is set up first
from django.db.backends.signals import connection_created  # noqa: E402
from django.db.models.signals import post_save, pre_save  # noqa: E402
from django.urls import path  # noqa: E402
from shop import urls, views  # noqa: E402
from shop.models import Payment  # noqa: E402

from onejob.django import once  # noqa: E402

POINT_FILE = Path(os.environ["SHOP_POINT_FILE"])


def die_at(point: str) -> None:
    """Kill this process if the file names this point. The file goes first, so that the retry lives."""
    if POINT_FILE.exists() and POINT_FILE.read_text() == point:
        POINT_FILE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def wrap_commit(connection: Any, **_: Any) -> None:
    commit = connection.commit

    def commit_and_die() -> None:
        die_at("settled")
        commit()
        die_at("committed")

    connection.commit = commit_and_die


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    parts: Iterable[bytes] = django_application(environ, start_response)
    die_at("answered")
    return parts


pre_save.connect(lambda **_: die_at("reserved"), sender=Payment, weak=False)
post_save.connect(lambda **_: die_at("paid"), sender=Payment, weak=False)
connection_created.connect(wrap_commit)
if os.environ.get("SHOP_SETTLES_AFTER_THE_VIEW"):  # the control: what a middleware can do at best
    settled_after = once(key="required")(transaction.atomic(unwrap(views.pay)))
    urls.urlpatterns[1:] = [path("orders/<int:order>/payment", settled_after)]
