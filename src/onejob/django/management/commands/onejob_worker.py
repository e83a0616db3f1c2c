"""`manage.py onejob_worker`: runs the jobs of the project's app, and the tasks that were enqueued with Django's tasks."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from msgspec.structs import replace

from onejob.cli.worker import add_worker_arguments, run_app
from onejob.django.settings import project_settings
from onejob.errors import OnejobError
from onejob.worker import App
from onejob.worker.app import load_app
from onejob.worker.handlers import Handler, describe_exception


class WorkerCommand(BaseCommand):
    help = "Run jobs of the ledger in the setting ONEJOB, until a signal stops it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        app_help = "the onejob.App, as shop.jobs:app; default: ONEJOB['APP']"
        parser.add_argument("app", metavar="MODULE:APP", nargs="?", help=app_help)
        add_worker_arguments(parser)

    def handle(self, **options: Any) -> None:
        project = project_settings()
        options["app"] = options["app"] or project.app
        try:
            app = build_app(load_app(options["app"]) if options["app"] else App())
            if not app.handlers:
                raise CommandError("there is nothing to run; set ONEJOB['APP'] or TASKS, or name an app")
            options["app"] = options["app"] or "Django's tasks"
            run_app(app, project.ledger_url(), Namespace(**options))
        except OnejobError as error:
            raise CommandError(str(error)) from error


def build_app(app: App) -> App:
    """The app with the handlers of Django's tasks too, with database connections as in a request."""
    try:
        from onejob.django.tasks import task_handlers
    except ImportError:  # a Django without tasks
        handlers = dict(app.handlers)
    else:
        handlers = task_handlers() | app.handlers
        if app.describe is not describe_exception:
            handlers = {type: replace(handler, describe=None) for type, handler in handlers.items()}
    built = copy(app)
    built.handlers = {type: _with_fresh_connections(handler) for type, handler in handlers.items()}
    return built


def _with_fresh_connections(handler: Handler) -> Handler:
    """Connections that are broken or too old are closed before and after each job, as Django does for a request."""
    if handler.is_async:
        return handler
    on_end = handler.on_end and _fresh(handler.on_end)
    return replace(handler, function=_fresh(handler.function), on_end=on_end)


def _fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run


Command = WorkerCommand  # the name that Django looks for
