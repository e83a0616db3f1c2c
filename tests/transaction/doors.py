"""Every driver behind the same few methods, so that one test serves them all. Blocking ones have a thread of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from onejob.transaction import InTransaction

READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"
ISOLATION_LEVELS = (READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE)


class RollBack(Exception):
    """Leave a transaction without its commit."""


class Door(Protocol):
    """One connection. `call` runs a verb of its `commands` in the transaction."""

    async def begin(self, isolation: str = READ_COMMITTED) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def execute(self, sql: str) -> None: ...
    async def call(self, verb: str, *arguments: Any, **options: Any) -> Any: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def transaction(door: Door, isolation: str = READ_COMMITTED) -> AsyncIterator[Door]:
    await door.begin(isolation)
    try:
        yield door
    except RollBack:
        await door.rollback()
    except BaseException:
        await door.rollback()
        raise
    else:
        await door.commit()


class AsyncpgDoor:
    def __init__(self, in_transaction: InTransaction, connection: Any) -> None:
        self.connection = connection
        self.commands = in_transaction.asyncpg(connection)

    async def begin(self, isolation: str = READ_COMMITTED) -> None:
        await self.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self.connection.execute("ROLLBACK")

    async def execute(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(self.commands, verb)(*arguments, **options)

    async def close(self) -> None:
        await self.connection.close()


class AsyncPsycopgDoor(AsyncpgDoor):
    def __init__(self, in_transaction: InTransaction, connection: Any) -> None:
        self.connection = connection
        self.commands = in_transaction.apsycopg(connection)


class AsyncSessionDoor:
    def __init__(self, in_transaction: InTransaction, url: str) -> None:
        self._engine = create_async_engine(url, poolclass=NullPool)
        self.session = AsyncSession(self._engine)
        self.commands = in_transaction.asession(self.session)

    async def begin(self, isolation: str = READ_COMMITTED) -> None:
        await self.session.connection(execution_options={"isolation_level": isolation})

    async def commit(self) -> None:
        try:
            await self.session.commit()
        except BaseException:
            await self.rollback()
            raise

    async def rollback(self) -> None:
        await self.session.rollback()

    async def execute(self, sql: str) -> None:
        await self.session.execute(text(sql))

    async def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(self.commands, verb)(*arguments, **options)

    async def close(self) -> None:
        await self.session.close()
        await self._engine.dispose()


class SyncDoor:
    """A blocking driver in its own thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        return await self.run(lambda: getattr(self.commands(), verb)(*arguments, **options))

    def commands(self) -> Any:
        raise NotImplementedError


class PsycopgDoor(SyncDoor):
    def __init__(self, in_transaction: InTransaction, url: str) -> None:
        super().__init__()
        self._inside = in_transaction
        self.connection = psycopg.connect(url)

    def commands(self) -> Any:
        return self._inside.psycopg(self.connection)

    async def begin(self, isolation: str = READ_COMMITTED) -> None:
        self.connection.isolation_level = psycopg.IsolationLevel[isolation.replace(" ", "_")]

    async def commit(self) -> None:
        await self.run(self.connection.commit)

    async def rollback(self) -> None:
        await self.run(self.connection.rollback)

    async def execute(self, sql: str) -> None:
        await self.run(self.connection.execute, sql)

    async def close(self) -> None:
        await self.run(self.connection.close)
        self._thread.shutdown()


class SessionDoor(SyncDoor):
    def __init__(self, in_transaction: InTransaction, url: str) -> None:
        super().__init__()
        self._inside = in_transaction
        self._engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        self.session = Session(self._engine)

    def commands(self) -> Any:
        return self._inside.session(self.session)

    async def begin(self, isolation: str = READ_COMMITTED) -> None:
        await self.run(lambda: self.session.connection(execution_options={"isolation_level": isolation}))

    async def commit(self) -> None:
        try:
            await self.run(self.session.commit)
        except BaseException:
            await self.rollback()
            raise

    async def rollback(self) -> None:
        await self.run(self.session.rollback)

    async def execute(self, sql: str) -> None:
        await self.run(self.session.execute, text(sql))

    async def close(self) -> None:
        await self.run(self.session.close)
        self._engine.dispose()
        self._thread.shutdown()


class DjangoDoor(SyncDoor):
    """`transaction.atomic`, taken apart: `set_autocommit(False)` is what its outermost block does too."""

    ALIAS = "inside"

    def __init__(self, in_transaction: InTransaction, url: str) -> None:
        super().__init__()
        self._inside = in_transaction
        self._url = url
        self._atomic: Any = None

    async def open(self) -> None:
        await self.run(connect_django, self.ALIAS, self._url)

    def commands(self) -> Any:
        return self._inside.django(self.ALIAS)

    async def begin(self, isolation: str = READ_COMMITTED) -> None:
        await self.run(self._begin, isolation)

    def _begin(self, isolation: str) -> None:
        from django.db import connections, transaction

        self._atomic = transaction.atomic(using=self.ALIAS)
        self._atomic.__enter__()
        with connections[self.ALIAS].cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")

    async def commit(self) -> None:
        await self.run(self._atomic.__exit__, None, None, None)

    async def rollback(self) -> None:
        await self.run(self._atomic.__exit__, RollBack, RollBack(), None)

    async def execute(self, sql: str) -> None:
        from django.db import connections

        def execute() -> None:
            with connections[self.ALIAS].cursor() as cursor:
                cursor.execute(sql)

        await self.run(execute)

    async def close(self) -> None:
        from django.db import connections

        await self.run(lambda: connections[self.ALIAS].close())  # noqa: PLW0108 - a connection belongs to its thread
        self._thread.shutdown()


def connect_django(alias: str, url: str) -> None:
    """A connection for this thread; the settings are made once per process."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.db import connections
    from django.db.utils import load_backend

    if not settings.configured:
        settings.configure(USE_TZ=True)
    if not apps.ready:
        django.setup()
    parts = urlsplit(url)
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {},
        "TIME_ZONE": None,
        "TEST": {},
    }
    connections[alias] = load_backend(database["ENGINE"]).DatabaseWrapper(database, alias)


async def open_door(name: str, in_transaction: InTransaction, url: str) -> Door:
    match name:
        case "asyncpg":
            return AsyncpgDoor(in_transaction, await asyncpg.connect(url))
        case "apsycopg":
            return AsyncPsycopgDoor(in_transaction, await psycopg.AsyncConnection.connect(url, autocommit=True))
        case "psycopg":
            return PsycopgDoor(in_transaction, url)
        case "session":
            return SessionDoor(in_transaction, url)
        case "asession":
            return AsyncSessionDoor(in_transaction, url.replace("postgresql:", "postgresql+asyncpg:"))
        case "asession-psycopg":
            return AsyncSessionDoor(in_transaction, url.replace("postgresql:", "postgresql+psycopg:"))
    door = DjangoDoor(in_transaction, url)
    await door.open()
    return door


DOORS = ("asyncpg", "apsycopg", "psycopg", "session", "asession", "asession-psycopg", "django")
