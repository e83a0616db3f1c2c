"""An app by its name, as the command line says it."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from onejob.errors import Invalid

from .app import App


def load_app(import_path: str) -> App:
    """The app that `module:name` means; modules are also found where the command is given."""
    module, colon, path = import_path.partition(":")
    if not (module and colon and path):
        raise Invalid("app", f"{import_path!r} names no app; write it as module:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that nothing there can stand in for what is installed
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # a module may raise anything while it is imported
        raise Invalid("app", f"{import_path} cannot be loaded ({error}); mend it") from error
    if not isinstance(found, App):
        raise Invalid("app", f"{import_path} is no onejob.App; name one")
    return found
