"""Where a command works: on an engine, or against a server."""

from argparse import Namespace

from onejob.core.invalid import Invalid
from onejob.opening import URL_DEFAULT
from onejob.settings import CommandLine

from .calls import Server, patient
from .direct import EngineDoor
from .door import Door
from .remote import ServerDoor
from .stores import must_exist

TENANT_DEFAULT = "default"


def door_of(options: Namespace, settings: CommandLine, *, makes: bool) -> Door:
    """The door that the options name. `makes`: a store that is not there may be made."""
    if options.url is not None:
        return ServerDoor(server_of(options, settings))
    return engine_of(options, settings, makes=makes)


def engine_of(options: Namespace, settings: CommandLine, *, makes: bool) -> EngineDoor:
    if options.api_key is not None:
        raise Invalid("api key", "an engine takes no API key; name a server with --url, or leave it out")
    url = engine_url(options, settings)
    if not makes:
        must_exist(url)
    return EngineDoor(url, tenant=options.tenant or TENANT_DEFAULT)


def engine_url(options: Namespace, settings: CommandLine) -> str:
    return options.engine or settings.engine or URL_DEFAULT


def server_of(options: Namespace, settings: CommandLine) -> Server:
    if options.tenant is not None:
        raise Invalid("tenant", "a server knows the tenant from the API key; leave --tenant out")
    retry_for = getattr(options, "retry_for", None)
    retry = None if retry_for is None else patient(retry_for)
    return Server(options.url, options.api_key or settings.api_key, retry)
