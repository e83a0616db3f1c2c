"""Pages of the Django admin for jobs and keys. They only read, from the ledger itself, whatever its engine is."""

from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.template.response import TemplateResponse
from django.urls import reverse

from onejob.core.states import JobState
from onejob.errors import Invalid, NotFound, OnejobError
from onejob.resources.jobs import JobView
from onejob.resources.keys import KeySummary

from .ledger import get_ledger
from .models import LedgerJob, LedgerKey

PAGE_ROWS = 50
VALUE_CHARS_MAX = 200


class LedgerAdmin(admin.ModelAdmin):
    """A page of rows that `load_page` reads; nobody may change them here."""

    columns: ClassVar[tuple[str, ...]] = ()
    filters: ClassVar[tuple[str, ...]] = ()
    cursor_name = ""

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def change_view(self, request: Any, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        raise Http404("the rows of this list have no page of their own")

    def history_view(self, request: Any, object_id: str, extra_context: Any = None) -> Any:
        raise Http404("the admin log knows nothing of the ledger; the page of a job has its events")

    def delete_view(self, request: Any, object_id: str, extra_context: Any = None) -> Any:
        raise PermissionDenied

    def load_page(self, filters: dict[str, str]) -> tuple[list[list[Any]], str | None]:
        """The rows of a page, and the cursor of the next one."""
        raise NotImplementedError

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        names = (*self.filters, self.cursor_name)
        filters = {name: request.GET[name] for name in names if request.GET.get(name)}
        rows: list[list[Any]] = []
        following, problem = None, ""
        try:
            rows, following = self.load_page(filters)
        except Invalid as error:
            problem = str(error)
        except OnejobError as error:
            problem = f"the ledger cannot be read: {error}"
        context = {
            "columns": self.columns,
            "rows": rows,
            "filters": [(name, filters.get(name, "")) for name in self.filters],
            "next": following and "?" + urlencode(filters | {self.cursor_name: following}),
            "problem": problem,
        }
        return self._render(request, "list", context)

    def _render(self, request: Any, page: str, context: dict[str, Any]) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        title = str(self.opts.verbose_name_plural).capitalize()
        context = {**self.admin_site.each_context(request), "title": title, "opts": self.opts, **context}
        return TemplateResponse(request, f"admin/onejob/{page}.html", context)


@admin.register(LedgerJob)
class JobAdmin(LedgerAdmin):
    columns = ("job", "type", "state", "key", "attempts", "created", "ended", "error")
    filters = ("state", "type", "user")
    cursor_name = "before"

    def load_page(self, filters: dict[str, str]) -> tuple[list[list[Any]], str | None]:
        names = ("state", "type", "user", "before")
        state, type, user, before = (filters.get(name) for name in names)
        page = get_ledger().jobs(limit=PAGE_ROWS, state=state, type=type, user=user, before=before)
        return [_job_row(job) for job in page], page.next

    def change_view(self, request: Any, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        """One job, with the events of its key."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        ledger = get_ledger()
        try:
            job = ledger.job(object_id)
            history = ledger.explain(job.key, scope=job.scope) if job.key else None
        except (NotFound, Invalid) as error:
            raise Http404(str(error)) from error
        names = ("id", "type", "state", "key", "scope", "user", "actor", "delivery", "priority", "attempts", "error")
        times = ("created_at", "run_at", "started_at", "ended_at")
        fields = [(name.replace("_", " "), _shown(getattr(job, name))) for name in (*names, *times)]
        events = (
            [(_shown(event.at), event.what, event.actor, event.detail) for event in history.events] if history else []
        )
        return self._render(request, "detail", {"title": f"Job {job.id}", "fields": fields, "events": events})


@admin.register(LedgerKey)
class KeyAdmin(LedgerAdmin):
    columns = ("key", "scope", "status", "job", "hits", "conflicts", "first seen", "expires")
    filters = ("scope",)
    cursor_name = "cursor"

    def load_page(self, filters: dict[str, str]) -> tuple[list[list[Any]], str | None]:
        page = get_ledger().keys(limit=PAGE_ROWS, scope=filters.get("scope"), cursor=filters.get("cursor"))
        return [_key_row(history) for history in page], page.next


def _job_row(job: JobView) -> list[Any]:
    shown = (job.type, job.state, job.key, job.attempts, job.created_at, job.ended_at, job.error)
    return [_job_link(job), *[(_shown(value), "") for value in shown]]


def _key_row(history: KeySummary) -> list[Any]:
    shown = (history.hits, history.conflicts, history.first_seen, history.expires_at)
    job = _job_link(history.job) if history.job is not None else ("", "")
    names = (history.key, history.scope, history.status.name)
    return [*[(_shown(value), "") for value in names], job, *[(_shown(value), "") for value in shown]]


def _job_link(job: JobView) -> tuple[str, str]:
    return job.id, reverse("admin:onejob_ledgerjob_change", args=(job.id,))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return (value.value if isinstance(value, JobState) else str(value))[:VALUE_CHARS_MAX]
