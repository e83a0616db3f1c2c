"""`onejob relay` on a real MariaDB whose defaults are the worst: no transactions, and letters of one language."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from onejob import sync
from onejob.cli.commands.relay.outbox import Relay, RelayCounts, open_database
from onejob.clock import FakeClock
from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX
from tests.http.test_tls import make_files
from tests.support.command_line import ONEJOB
from tests.support.mariadb_server import MARIADBD, MariadbServer
from tests.support.outbox import Source, kill_relays

pytestmark = pytest.mark.skipif(
    MARIADBD is None, reason="there is no mariadbd here; install the package mariadb-server to relay from one"
)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    server = MariadbServer()
    yield server
    server.stop()


@pytest.fixture
def source(mariadb: MariadbServer, request: pytest.FixtureRequest) -> Iterator[Source]:
    source = Source(mariadb.new_database(request.node.originalname[:60]), "mysql")
    yield source
    source.close()


def test_every_row_of_mysql_becomes_one_job_and_is_deleted(source: Source, tmp_path: Path) -> None:
    source.add("k0", '{"name": "Zoë 🚀"}', scope="заказы")
    source.add("k0", '{"name": "Zoë 🚀"}', scope="заказы")
    source.add("bad", "{no json")
    source.add("K0", scope="заказы")  # another key: MySQL compares without case, and is never asked to compare
    source.execute("SET sql_mode = ''")
    source.add("x" * (KEY_CHARS_MAX + 45))  # cut off by the server, since it was told to be lenient
    with sync.open(f"sqlite:///{tmp_path / 'onejob.db'}") as ledger:
        relay = Relay(source.table, ledger.submit_prepared, FakeClock())
        assert relay.run_once() == RelayCounts(submitted=3, failed=2)
        inputs = sorted(ledger.input(job.id).decode() for job in ledger.jobs())
        assert inputs == ["1", '{"name": "Zoë 🚀"}']
    invalid, cut_off = source.rows("failed")
    assert "JSON" in invalid[0]
    assert "255 characters" in cut_off[0]


def test_a_row_that_is_rolled_back_is_never_sent(source: Source) -> None:
    source.execute("START TRANSACTION")
    source.add("never")
    source.execute("ROLLBACK")
    assert source.rows("id") == []


def test_a_relay_on_mysql_that_is_killed_or_loses_its_connection_loses_and_doubles_nothing(
    source: Source, mariadb: MariadbServer, tmp_path: Path
) -> None:
    kill_relays(source, tmp_path, kills=1, rows=60, seed=7)
    words = [*ONEJOB, "relay", "--from", source.url, "--engine", f"sqlite:///{tmp_path / 'other.db'}", "--poll", "1s"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        mariadb.end_connections()
        source.reopen()
        source.add("k")
        until = time.monotonic() + 60
        while source.rows("id") and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 0
        assert process.stdout.read() == b"1 submitted, 0 failed, 0 left\n"


def test_the_server_is_verified_if_the_url_names_its_authority(
    source: Source, mariadb: MariadbServer, tmp_path: Path
) -> None:
    verified = open_database(f"{source.url}?ssl_ca={mariadb.tls.cert}")
    with verified.connect() as connection:
        ((_, cipher),) = connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'"))
    assert cipher
    verified.dispose()
    with pytest.raises(OperationalError, match="self-signed"):
        open_database(f"{source.url}?ssl_ca={make_files(tmp_path).cert}").connect()


@pytest.mark.parametrize("url", ["mysql://u@127.0.0.1/shop?charset=latin1"])
def test_an_unknown_option_of_the_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="charset"):
        open_database(url)
