"""What `apikey` and `gatekey` share: their subcommands, and how a key and its new secret are printed."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from onejob.engines import redact_password
from onejob.sync import SyncLedger

from .arguments import add_command, add_engine_arguments, add_subcommands, parse_duration
from .backend import EngineBackend
from .command import CommandResult, call_engine
from .render import Screen, field_lines, sanitize, table_lines


class KeyView(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def rotated_at(self) -> datetime | None: ...
    @property
    def old_secret_until(self) -> datetime | None: ...
    @property
    def revoked_at(self) -> datetime | None: ...


class CredentialCommands(Struct, frozen=True, kw_only=True):
    """What differs between API keys and gate keys."""

    command: str
    member: str  # of the JSON
    noun: str
    article: str
    owner: str
    list_example: str
    create_example: str
    add_create_arguments: Callable[[ArgumentParser], None]
    open: Callable[[SyncLedger], Any]
    create: Callable[[Any, Namespace], Coroutine[Any, Any, Any]]
    fields: Callable[[Any, str], list[tuple[str, str]]]  # of a key, with what separates the items of a list
    advice: str  # after a new secret
    is_of_tenant: bool = True
    shows_store: bool = False

    def add_arguments(self, command: ArgumentParser) -> None:
        subcommands, name = add_subcommands(command), f"{self.article} {self.noun}"
        onejob = f"onejob {self.command}"
        create = add_command(subcommands, "create", f"Create {name}. Its secret is printed once.", self.create_example)
        self.add_create_arguments(create)
        listing = add_command(subcommands, "list", f"List the {self.noun}s of a {self.owner}.", self.list_example)
        example = f"{onejob} rotate 5f0c2a9d4b7e --overlap 1h"
        rotate = add_command(subcommands, "rotate", f"Give {name} a new secret.", example)
        rotate.add_argument(
            "--overlap",
            type=parse_duration,
            default=parse_duration("24h"),
            metavar="DURATION",
            help="how long the old secret stays valid; default: 24h",
        )
        revoke = add_command(subcommands, "revoke", f"Revoke {name} for good.", f"{onejob} revoke 5f0c2a9d4b7e")
        for subcommand in (rotate, revoke):
            subcommand.add_argument("id", metavar="ID", help=f"the id that `{onejob} list` shows")
        for subcommand in (create, listing, rotate, revoke):
            add_engine_arguments(subcommand, tenant=self.is_of_tenant)

    def run(self, options: Namespace) -> CommandResult:
        creates = options.subcommand == "create"
        return call_engine(options, lambda engine: self._call(engine, options), self._render, creates_store=creates)

    def _call(self, engine: EngineBackend, options: Namespace) -> dict[str, Any]:
        keys, wait = self.open(engine.ledger), engine.ledger.run
        match options.subcommand:
            case "list":
                return {f"{self.member}s": list(wait(keys.list()))}
            case "revoke":
                return {self.member: wait(keys.revoke(options.id))}
            case "rotate":
                made = wait(keys.rotate(options.id, overlap=options.overlap))
            case _:
                made = wait(self.create(keys, options))
        store = {"store": redact_password(engine.url)} if self.shows_store else {}
        return {self.member: made.key, "secret": made.text, **store}

    def _render(self, screen: Screen, response: dict[str, Any]) -> str:
        if self.member not in response:
            return self._render_list(screen, response[f"{self.member}s"])
        key = response[self.member]
        rows = [("name", sanitize(key.name)), *self.fields(key, ", "), ("status", _status(screen, key))]
        rows.append(("store", sanitize(response.get("store", ""))))
        lines = [f"{self.noun} {screen.paint('bold', key.id)}", *field_lines(screen, rows)]
        if "secret" in response:
            lines += ["", f"  {screen.paint('bold', response['secret'])}", "", self.advice]
        return "\n".join(lines)

    def _render_list(self, screen: Screen, keys: list[Any]) -> str:
        if not keys:
            return f"no {self.noun}s"
        heads = ["ID", "NAME", *(name.upper() for name, _ in self.fields(keys[0], ",")), "STATUS"]
        rows = [
            [key.id, sanitize(key.name), *(text for _, text in self.fields(key, ",")), _status(screen, key)]
            for key in keys
        ]
        return "\n".join(table_lines(screen, heads, rows))


def _status(screen: Screen, key: KeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {screen.time(key.revoked_at)}"
    expires_at = getattr(key, "expires_at", None)  # API keys have none
    if expires_at is not None:
        return f"{'expired' if expires_at <= screen.now else 'valid until'} {screen.time(expires_at)}"
    if key.old_secret_until is not None and key.old_secret_until > screen.now:
        return f"valid, the old secret until {screen.time(key.old_secret_until)}"
    return f"valid since {screen.time(key.rotated_at or key.created_at)}"
