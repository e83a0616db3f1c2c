"""The command `serve`: its arguments, and the service it starts."""

import argparse

from onejob.errors import StoreRefused
from onejob.settings import service_config

from .screen import complain
from .trouble import DONE, UNAVAILABLE, WRONG


def arguments(command: argparse.ArgumentParser) -> None:
    # Without a default: what is not said here may be said by a variable or the file.
    command.add_argument("--host", help="default: 127.0.0.1; another one needs authentication")
    command.add_argument("--port", type=int, help="default: 8001; 0: any that is free")
    command.add_argument("--engine", metavar="URL", help="default: sqlite:///onejob.db")
    command.add_argument("--config", metavar="FILE", help="settings in TOML; ONEJOB_* variables go before it")


def serve(options: argparse.Namespace) -> int:
    """Runs until it is told to stop; the exit code."""
    from onejob.http.serve import run  # the service's own dependencies are optional

    said = {name: getattr(options, name) for name in ("host", "port", "engine")}
    try:
        run(service_config(options.config, overrides=said))
    except StoreRefused as error:
        complain(str(error))
        return WRONG
    except OSError as error:
        complain(f"{error.strerror or error}; choose another address, or end what has it")
        return UNAVAILABLE
    return DONE
