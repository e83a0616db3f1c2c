"""The admin pages show what the ledger has, to those who may view it, and change nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import path

from onejob.django import get_ledger
from tests.support.django_project import SESSION_MIDDLEWARE

pytestmark = pytest.mark.usefixtures("project")

URLS = type("Urls", (), {"urlpatterns": [path("admin/", admin.site.urls)]})


@pytest.fixture(scope="module")
def _tables() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture
def site(_tables: None) -> Iterator[Client]:
    with override_settings(ROOT_URLCONF=URLS, MIDDLEWARE=SESSION_MIDDLEWARE):
        yield Client()


def user(name: str, *permissions: str) -> Any:
    made, _ = User.objects.get_or_create(username=name, is_staff=True)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


def test_jobs_and_keys_are_shown_to_those_who_may_view_them(site: Client) -> None:
    ledger = get_ledger()
    job = ledger.submit("charge", {"order": "<b>"}, idempotency_key="order-<7>").job
    site.force_login(user("viewer", "view_ledgerjob", "view_ledgerkey"))
    index = site.get("/admin/").content.decode()
    assert "/admin/onejob/ledgerjob/" in index
    jobs = site.get("/admin/onejob/ledgerjob/").content.decode()
    assert job is not None
    assert job.id in jobs
    assert "order-&lt;7&gt;" in jobs
    keys = site.get("/admin/onejob/ledgerkey/?scope=charge").content.decode()
    assert "order-&lt;7&gt;" in keys
    assert f"/admin/onejob/ledgerjob/{job.id}/change/" in keys
    detail = site.get(f"/admin/onejob/ledgerjob/{job.id}/change/").content.decode()
    assert "pending" in detail
    assert "created" in detail


def test_pages_follow_each_other_and_a_wrong_filter_is_named(site: Client) -> None:
    ledger = get_ledger()
    for n in range(60):
        ledger.submit("charge", {"order": n}, idempotency_key=f"order-{n}")
    site.force_login(user("viewer", "view_ledgerjob", "view_ledgerkey"))
    for page in ("ledgerjob", "ledgerkey"):
        first = site.get(f"/admin/onejob/{page}/")
        following = first.context_data["next"]
        assert following
        second = site.get(f"/admin/onejob/{page}/{following}")
        assert len(first.context_data["rows"]) + len(second.context_data["rows"]) == 60
    assert "state" in site.get("/admin/onejob/ledgerjob/?state=odd").context_data["problem"]


def test_nobody_else_sees_them_and_nobody_changes_them(site: Client) -> None:
    ledger = get_ledger()
    job = ledger.submit("charge", idempotency_key="mine").job
    assert job is not None
    change = f"/admin/onejob/ledgerjob/{job.id}/change/"
    assert site.get("/admin/onejob/ledgerjob/").status_code == 302
    site.force_login(user("other"))
    for page in ("/admin/onejob/ledgerjob/", "/admin/onejob/ledgerkey/", change):
        assert site.get(page).status_code == 403
    User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)
    site.force_login(User.objects.get(username="root"))
    assert site.get("/admin/onejob/ledgerjob/add/").status_code == 403
    assert site.post(f"/admin/onejob/ledgerjob/{job.id}/delete/", {"post": "yes"}).status_code in (302, 403)
    assert ledger.job(job.id).state == "pending"
    assert site.get("/admin/onejob/ledgerjob/nonsense/change/").status_code == 404


@pytest.mark.parametrize("model", ["ledgerjob", "ledgerkey"])
@pytest.mark.parametrize("page", ["history", "delete", "change"])
def test_pages_that_need_rows_are_refused(site: Client, model: str, page: str) -> None:
    site.force_login(User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)[0])
    site.raise_request_exception = False
    assert site.get(f"/admin/onejob/{model}/1/{page}/").status_code == (403 if page == "delete" else 404)
