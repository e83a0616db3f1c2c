"""Load an object that a setting or the command line names by its import path, `module:name`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from onejob.core.errors import Invalid
from onejob.ledger.leases import describe_error


def load_object(import_path: str, *, what: str, label: str) -> Any:
    """Import `module:name`, also from the working directory; `what` and `label` name it in an error."""
    module, colon, path = import_path.partition(":")
    if not (module and colon and path):
        raise Invalid(what, f"{label} is {import_path!r}, which is not an import path; write it as module:name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that nothing there shadows an installed package
    try:
        loaded: Any = import_module(module)
        for name in path.split("."):
            loaded = getattr(loaded, name)
    except Exception as error:  # a module may raise anything while it is imported
        raise Invalid(what, f"{label}: {import_path} cannot be imported ({describe_error(error)}); fix it") from error
    return loaded
