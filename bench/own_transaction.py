"""A submission in the caller's own transaction against procrastinate's `defer` in one, alternating on one server."""

from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

import onejob
from onejob.transaction import InTransaction

from .database import database_server
from .report import Report
from .submissions import submission

PAIRS_PER_ROUND = 150
RATIO_MAX = 1.1


async def own_transaction(report: Report, rounds: int) -> None:
    report.title("A submission in the caller's transaction (psycopg, microseconds of the statement, p50)")
    if find_spec("procrastinate") is None:
        report.row("without procrastinate, which is not installed", "-")
        return
    server = database_server()
    try:
        server.init()
        server.start()
        await _compare(report, server.database(), rounds * PAIRS_PER_ROUND)
    finally:
        server.remove()


async def _compare(report: Report, url: str, pairs: int) -> None:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=4))
    async with onejob.open(url, sweep=False), app.open_async():
        await app.schema_manager.apply_schema_async()
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await connection.execute("CREATE TABLE orders (name text)")
        commands = InTransaction().apsycopg(connection)

        async def submit(key: str) -> None:
            one = submission(key)
            await commands.submit(one.type, one.input, idempotency_key=key)

        async def defer(key: str) -> None:
            one = submission(key)
            await app.configure_task(one.type, queueing_lock=key, connection=connection).defer_async(**one.input)

        sides = {"onejob": submit, "procrastinate": defer}
        await _measure(connection, sides, "warm", 50)
        new = await _measure(connection, sides, "new", pairs)
        replayed = await _measure(connection, {"onejob": submit}, "new", pairs)
        aborts = {name: await _aborts_transaction(connection, side) for name, side in sides.items()}
        await connection.close()
    for name, microseconds in new.items():
        report.row(f"{name}, a new key", f"{microseconds:,.0f}")
    report.row("onejob, a known key", f"{replayed['onejob']:,.0f}")
    report.bar("onejob / procrastinate, a new key", new["onejob"] / new["procrastinate"], most=RATIO_MAX)
    for name, does_abort in aborts.items():
        report.row(f"{name}, a known key aborts the transaction", "yes" if does_abort else "no")
    report.bar("onejob, transactions aborted by a known key", float(aborts["onejob"]), most=0.5)


async def _measure(connection: Any, sides: dict[str, Any], name: str, count: int) -> dict[str, float]:
    """Microseconds of each side's statement, one transaction after the other, each with a row of the application."""
    measured: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(count):
        for side, work in sides.items():
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES ('one')")
                begin = perf_counter()
                await work(f"{name}-{number}")
                measured[side].append((perf_counter() - begin) * 1e6)
    return {side: median(values) for side, values in measured.items()}


async def _aborts_transaction(connection: Any, submit: Any) -> bool:
    try:
        async with connection.transaction(force_rollback=True):
            try:
                await submit("new-0")
            except Exception as error:  # noqa: BLE001 - procrastinate reports a known key by an exception
                del error
            await connection.execute("SELECT 1")
    except psycopg.errors.InFailedSqlTransaction:
        return True
    return False
