"""Where a command works: on an engine, or against a server."""

from argparse import Namespace

from onejob.core.invalid import Invalid
from onejob.opening import URL_DEFAULT
from onejob.settings import CliSettings

from .calls import ServerClient, patient
from .direct import EngineBackend
from .door import Backend
from .remote import ServerBackend
from .stores import require_store

TENANT_DEFAULT = "default"


def open_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> Backend:
    """The door that the options name. `makes`: a store that is not there may be made."""
    if options.url is not None:
        return ServerBackend(build_server_client(options, settings))
    return open_engine_backend(options, settings, creates_store=creates_store)


def open_engine_backend(options: Namespace, settings: CliSettings, *, creates_store: bool) -> EngineBackend:
    if options.api_key is not None:
        raise Invalid("api key", "an engine takes no API key; name a server with --url, or leave it out")
    url = engine_url(options, settings)
    if not creates_store:
        require_store(url)
    return EngineBackend(url, tenant=options.tenant or TENANT_DEFAULT)


def engine_url(options: Namespace, settings: CliSettings) -> str:
    return options.engine or settings.engine or URL_DEFAULT


def build_server_client(options: Namespace, settings: CliSettings) -> ServerClient:
    if options.tenant is not None:
        raise Invalid("tenant", "a server knows the tenant from the API key; leave --tenant out")
    retry_for = getattr(options, "retry_for", None)
    retry = None if retry_for is None else patient(retry_for)
    return ServerClient(options.url, options.api_key or settings.api_key, retry)
