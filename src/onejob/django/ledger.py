"""The ledger of a Django project: opened once in each process, closed when a test changes the setting."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from onejob.middleware.blocking import BlockingLayer
from onejob.sync import SyncLedger

from .settings import project_settings

if TYPE_CHECKING:
    from onejob.transaction import InTransaction, SyncCommands

_layers: list[BlockingLayer] = []


def get_layer() -> BlockingLayer:
    """The layer of the project: one for all views and threads."""
    if not _layers:
        _layers.append(BlockingLayer(lambda: project_settings().ledger_url(), project_settings().rules))
    return _layers[0]


def get_ledger() -> SyncLedger:
    """The ledger of the project, opened once in each process: `get_ledger().submit(…)`."""
    return get_layer().ledger


def ledger_database() -> str:
    """The alias of the database that has the ledger; raises ImproperlyConfigured if it is elsewhere."""
    using = project_settings().database
    if not using:
        raise ImproperlyConfigured(
            "the ledger is in no database of this project, so a transaction cannot include it; "
            "set ONEJOB['DATABASE'] to the alias of a PostgreSQL database, and move the ledger there"
        )
    return using


def in_transaction() -> "SyncCommands":
    """Submit in the transaction of the project's database: `inside().submit(…)`. The job exists from its commit on."""
    using = ledger_database()
    get_ledger()  # its tables are made when it is opened
    return _inside(project_settings().ledger_url()).django(using)


@lru_cache
def _inside(url: str) -> "InTransaction":
    # Imported here: a project whose ledger is a file has no driver of PostgreSQL.
    from onejob.engines.postgres.url import parse_postgres_url
    from onejob.transaction import InTransaction

    return InTransaction(schema=parse_postgres_url(url).schema)


def close_layer() -> None:
    """Close the ledger in this process; the next use opens it again, as it is configured then."""
    while _layers:
        _layers.pop().close()


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    """Tests change settings."""
    if setting in ("ONEJOB", "DATABASES"):
        project_settings.cache_clear()
        close_layer()


setting_changed.connect(_on_setting_changed)
