"""The bars: what is least accepted and what is wanted. One list, read by the benchmarks, the table and the plot."""

from msgspec import Struct


class Bar(Struct, frozen=True):
    """A ratio has a least, a cost has a most; `want` is the better figure that is aimed at."""

    name: str
    want: float
    least: float | None = None
    most: float | None = None

    def is_held(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def is_wanted(self, value: float) -> bool:
        return value >= self.want if self.least is not None else value <= self.want

    @property
    def limit(self) -> float:
        found = self.least if self.least is not None else self.most
        assert found is not None
        return found


SQLITE_OVER_POSTGRESQL = Bar("library, SQLite / PostgreSQL, 64 callers, equal fill", least=1.2, want=1.5)
HTTP_NEW = Bar("HTTP, new / empty application, 64 connections", least=0.33, want=0.45)
HTTP_DUPLICATE = Bar("HTTP, duplicate / empty application, 64 connections", least=0.58, want=0.7)
HTTP_OVER_PGBENCH = Bar("HTTP, new on PostgreSQL / pgbench, 64 connections", least=0.6, want=0.8)
OVER_PROCRASTINATE = Bar("library on PostgreSQL / procrastinate, 16 callers", least=8, want=12)
OVER_DBOS = Bar("library on PostgreSQL / DBOS, 16 callers", least=20, want=30)
WORK_OVER_PROCRASTINATE = Bar("jobs through 1 worker on PostgreSQL / procrastinate", least=7, want=10)
# The peer keeps its keys in a Redis that does not write to disk.
MIDDLEWARE_SQLITE = Bar("middleware, new, SQLite / asgi-idempotency-header, 64 connections", least=4, want=6)
MIDDLEWARE_POSTGRESQL = Bar("middleware, new, PostgreSQL / asgi-idempotency-header, 64 connections", least=4, want=6)
MIDDLEWARE_ONE = Bar("middleware, new, PostgreSQL / asgi-idempotency-header, 1 connection", least=0.9, want=1.2)
GROWTH_SQLITE = Bar("cost at 1,000,000 keys / 1,000, SQLite, random keys", most=1.5, want=1.2)
GROWTH_SQLITE_ORDERED = Bar("cost at 1,000,000 keys / 1,000, SQLite, time-ordered keys", most=1.5, want=1.2)
GROWTH_POSTGRESQL = Bar("cost at 1,000,000 keys / 1,000, PostgreSQL, random keys", most=1.5, want=1.2)
PAGES_SQLITE = Bar("slowest page of the console at 1,000,000 jobs, SQLite, ms", most=300, want=300)
PAGES_POSTGRESQL = Bar("slowest page of the console at 1,000,000 jobs, PostgreSQL, ms", most=300, want=300)

BARS = (
    SQLITE_OVER_POSTGRESQL,
    HTTP_NEW,
    HTTP_DUPLICATE,
    HTTP_OVER_PGBENCH,
    OVER_PROCRASTINATE,
    OVER_DBOS,
    WORK_OVER_PROCRASTINATE,
    MIDDLEWARE_SQLITE,
    MIDDLEWARE_POSTGRESQL,
    MIDDLEWARE_ONE,
    GROWTH_SQLITE,
    GROWTH_SQLITE_ORDERED,
    GROWTH_POSTGRESQL,
    PAGES_SQLITE,
    PAGES_POSTGRESQL,
)
