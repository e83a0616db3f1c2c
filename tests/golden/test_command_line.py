"""Every command of `onejob`, as it is typed and as it answers: on a fresh SQLite store, and against a server."""

import re
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from onejob import Delivery, JobState, sync
from tests.golden.command_line import CommandLineSession, clean_environment, shift_wall_clock
from tests.golden.conftest import FILES, GoldenCheck

STORE = "sqlite:///onejob.db"
MEASURED = "file system|disk|fsync|sqlite|clock|journal"  # by `onejob doctor`, on this machine


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> CommandLineSession:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.setenv("ONEJOB_ENGINE", STORE)
    shift_wall_clock(monkeypatch)
    session = CommandLineSession(capfd)
    session.masker.name(str(tmp_path), "<folder>")
    return session


def test_every_command_is_in_a_record() -> None:
    commands = re.findall(r"(?m)^\$ onejob (.+) --help$", (FILES / "help.txt").read_text(encoding="utf-8"))
    records = "\n".join(path.read_text(encoding="utf-8") for path in (FILES / "cli").glob("*.txt"))
    assert len(commands) > 50
    assert not [command for command in commands if not re.search(rf"(?m)^\$ onejob {command}\b", records)]


def test_jobs_and_keys(session: CommandLineSession, golden: GoldenCheck) -> None:
    session.show("""
        submit charge --key charge-1 --input '{"order": "ORD-1", "amount": 42}' --label shop=eu --priority 3
        submit charge --key charge-1 --input '{"amount": 43, "order": "ORD-1"}' --label shop=eu --priority 3
    """)
    session.run("""
        submit mail --key later --run-at 2040-06-01T12:00:00Z --ttl 48h --delivery at_most_once
        submit mail --label n=1
        submit mail --key next --client host1:billing --sequence 1 --scope acme --input [1]
        submit mail --key next --client host1:billing --sequence 1 --scope acme --input [1] --json
        submit mail --key gap --client host1:billing --sequence 5 --scope acme --input [1] --json
    """)
    session.show("""
        jobs
        job <id-1>
        explain charge-1 --scope charge
        keys
        client state host1:billing --scope acme
        client state nobody --scope acme
    """)
    session.run("""
        jobs --state scheduled --type mail --since 2h --until 2033-01-01T00:00:00Z
        jobs --label shop=eu --user local
        jobs --limit 2
        jobs --limit 2 --cursor <id-3>
        keys --scope charge --limit 1
        job <id-1> --input
        job <id-1> --sites
    """)
    session.show("cancel <id-1> --idempotency-key c1")
    session.run("explain charge-1 --scope charge")
    golden("cli/jobs.txt", session.text)


def test_work_and_what_operators_do(session: CommandLineSession, golden: GoldenCheck) -> None:
    for name, job_id in make_ended_jobs().items():
        session.masker.name(job_id, f"<{name}>")
    session.show("""
        job <done>
        job <failed>
        result <done>
        logs <done>
        types
        workers
        stats
        schedules list
        explain failed --scope order
    """)
    session.run("""
        result <failed>
        logs <done> --offset 1 --follow
        top
        types pause order
        types --json
        types resume order --json
        types nonsense order
        schedules pause nightly
        schedules resume nightly --json
        schedules pause weekly
        schedules delete nightly
        resolve <failed> rerun --note 'the card was renewed' --idempotency-key r1
        resolve <lost> succeeded --json
        resolve <done> rerun
        job <lost>
        jobs --cancel
        jobs --yes
        jobs --type charge --state lost --resolve failed
        jobs --type charge --state lost --resolve failed --yes
        jobs --type order --cancel --yes --json
        jobs --type nothing --rerun --yes
    """)
    golden("cli/work.txt", session.text)


def make_ended_jobs() -> dict[str, str]:
    """One that was done, one that failed, two whose worker died, and a schedule."""
    with sync.open(STORE, sweep=False) as queue:
        made = {"done": queue.submit("order", {"n": 1}, idempotency_key="done").job_id}
        (attempt,) = queue.claim("order", start=True)
        queue.finish_step(queue.begin_step(attempt, "pay", [1]), {"paid": True})
        queue.begin_step(attempt, "mail")
        queue.extend(attempt, logs=["first line", "second line"], offset=0, progress={"percent": 90})
        queue.finish(attempt, {"total": 42})
        made["failed"] = queue.submit("order", {"n": 2}, idempotency_key="failed").job_id
        (attempt,) = queue.claim("order", start=True)
        queue.finish(attempt, error="PaymentDeclined", message="card 4711 has expired", final=True)
        for name in ("lost", "lost-too"):
            made[name] = queue.submit("charge", idempotency_key=name, delivery=Delivery.AT_MOST_ONCE).job_id
        queue.claim("charge", start=True, limit=2, lease=timedelta(milliseconds=100))
        while any(queue.job(made[name]).state is not JobState.LOST for name in ("lost", "lost-too")):
            queue.admin.sweep()
        queue.admin.register_schedule("nightly", type="report", timetable="0 3 * * * Europe/Berlin", catch_up=1)
    return made


def test_limits_and_reservations(session: CommandLineSession, golden: GoldenCheck) -> None:
    session.show("""
        quota set 42 --max-concurrent 5 --per-hour 10 --cost 12.50 --period day --action warn
        quota show 42
    """)
    session.run("""
        quota set --default --max-concurrent 1
        quota set --ceiling --per-day 1000 --json
        quota show --default
        quota show --ceiling
        quota show 7
        quota clear 42 --json
        submit charge --cost 1.25
        submit charge --cost 1.25
        submit charge --cost 1.25 --json
        submit charge --reservation absent
    """)
    session.show("usage")
    session.run("""
        usage --user 42
        quota clear --default
    """)
    with sync.open(STORE, sweep=False) as queue:
        session.masker.name(queue.reserve_job_slot("local", ttl_seconds=300) or "", "<reservation>")
    session.show("reservations list")
    session.run("""
        reservations list --user 42
        reservations release <reservation>
        reservations release <reservation> --json
    """)
    golden("cli/limits.txt", session.text)


def test_credentials_and_settings(session: CommandLineSession, golden: GoldenCheck) -> None:
    session.run("""
        apikey list
        apikey create ci --role submitter --role worker --user 42 --tenant acme
        apikey create ops --json
        apikey list --tenant acme
        apikey list --json
        apikey rotate <id-2> --overlap 1h
        apikey rotate <id-2> --json
        apikey revoke <id-2>
        apikey revoke <id-2> --json
        apikey list
        apikey revoke 000000000000
        gatekey create dc1 --for-tenant acme --expires 90d
        gatekey create fra --site
        gatekey create fra --site --for-tenant acme --json
        gatekey list
        gatekey list --json
        gatekey rotate <id-4> --overlap 1h
        gatekey revoke <id-4> --json
        gatekey list
        webhook-secret create --tenant acme
        webhook-secret rotate --tenant acme --json
        webhook-secret create --tenant acme
    """)
    session.show("settings")
    session.run("""
        settings set key_owner=user window=48h --dry-run
        settings set key_owner=user window=48h
        settings --json
        submit charge --key live
        settings set key_owner=tenant
        settings set key_owner=tenant --json
        settings set nonsense=1
        settings set window
    """)
    golden("cli/credentials.txt", session.text)


def test_stores_and_files(session: CommandLineSession, golden: GoldenCheck) -> None:
    session.run("""
        jobs
        backup copy.db
        restore copy.db
        settings
        migrate
        migrate --json
        submit charge --key one --input 1
        submit charge --key two --input 2 --scope other
        export
        export keys.csv
        export keys.csv
        export keys.jsonl --force --json
        export --format jsonl --scope charge
        import keys.csv --engine sqlite:///new.db
        import keys.jsonl --engine sqlite:///new.db --json
        keys --engine sqlite:///new.db
        import absent.csv
        import keys.csv --from-line 0
        backup copy.db
        backup copy.db
        backup copy.db --force --json
        submit charge --key three
        restore
        restore keys.csv
        restore copy.db
        restore copy.db --json
        restore --accept-loss
        restore --accept-loss --force
        jobs
        backup copy.db --engine memory://
    """)
    files = [f"{name}:\n{Path(name).read_text(encoding='utf-8')}" for name in ("keys.csv", "keys.jsonl")]
    golden("cli/stores.txt", "\n".join([session.text, *map(session.masker.mask, files)]))


def test_a_store_is_examined(session: CommandLineSession, golden: GoldenCheck) -> None:
    """What is found depends on the machine; what is looked for does not."""
    session.run("submit charge --key one")
    session.show("doctor")
    session.run("""
        doctor --engine memory:// --json
        doctor --engine sqlite:///absent.db
        doctor --engine sqlite:////no/such/folder/onejob.db
    """)
    text = re.sub(rf"(?m)^  (?:ok|warn) +({MEASURED})  .*", r"  <verdict>  \1  <measured>", session.text)
    members = r'",\n +"verdict": )"\w+"(,\n +"found": )"[^"]+"(,\n +"act": )"[^"]*"'
    golden("cli/doctor.txt", re.sub(rf'("check": "(?:{MEASURED}){members}', r"\1<verdict>\2<measured>\3<advice>", text))


def test_programs(session: CommandLineSession, golden: GoldenCheck) -> None:
    with sqlite3.connect("shop.db") as shop:
        shop.executescript(SHOP_OUTBOX)
    shop.close()
    session.run("""
        run-once backup --output 1k -- sh -c 'echo out; echo problem >&2'
        run-once backup --output 1k --verbose -- sh -c 'echo out; echo problem >&2'
        run-once backup -- sh -c 'echo other'
        run-once fails -- sh -c 'exit 3'
        run-once kept --keep-failures -- sh -c 'exit 4'
        run-once kept --keep-failures --verbose -- sh -c 'exit 4'
        run-once absent -- /no/such/program
        run-once
        run-once k --window soon -- true
        explain backup --scope run-once
        relay --schema
        relay --schema postgresql
        relay --schema mysql --table outbox
        relay
        relay --from sqlite:///shop.db --once
        relay --from sqlite:///shop.db --once --json
        relay --from sqlite:////no/such/folder/shop.db --once
        check
        check http://127.0.0.1:1/orders
        prove nonsense
        prove memory://
        worker absent:app
        worker app
        serve --host 0.0.0.0
        serve --workers none
        serve --config absent.toml
        gate
        manager --bind nowhere
        completion tcsh
    """)
    golden("cli/programs.txt", re.sub(r"it ended on \S+ at", "it ended on <host> at", session.text))


SHOP_OUTBOX = """
    CREATE TABLE onejob_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, input TEXT NOT NULL,
        idempotency_key TEXT NOT NULL, scope TEXT, first_tried_at BIGINT, failed TEXT);
    INSERT INTO onejob_outbox (type, input, idempotency_key) VALUES ('charge', '{"n": 1}', 'row-1');
    INSERT INTO onejob_outbox (type, input, idempotency_key) VALUES ('charge', '{"n": 2}', 'row-1');
    INSERT INTO onejob_outbox (type, input, idempotency_key, scope) VALUES ('charge', '3', 'row-3', 'orders');
"""


def test_wrong_words_and_missing_things(session: CommandLineSession, golden: GoldenCheck) -> None:
    session.run("""
        --version
        nonsense
        submit
        submit charge --input nonsense
        submit charge --input @absent.json
        submit charge --key ''
        submit charge --ttl soon
        submit charge --ttl 500d --key k
        submit charge --run-at tomorrow
        submit charge --label nonsense
        submit charge --delivery never
        submit charge --sequence 1
        submit charge --site fra --json
        submit charge --wait-for 1s --json
        jobs --limit 0
        jobs --state nonsense
        jobs --since yesterday
        job nonsense
        job 01a1e305-b1fa-7420-b68b-a05f87952eb0
        job 01a1e305-b1fa-7420-b68b-a05f87952eb0 --json
        result 01a1e305-b1fa-7420-b68b-a05f87952eb0
        logs 01a1e305-b1fa-7420-b68b-a05f87952eb0
        cancel 01a1e305-b1fa-7420-b68b-a05f87952eb0
        resolve 01a1e305-b1fa-7420-b68b-a05f87952eb0 rerun
        resolve 01a1e305-b1fa-7420-b68b-a05f87952eb0 perhaps
        explain absent --scope charge
        explain absent
        quota set 42 --max-concurrent many
        quota set --default 42
        reservations release absent
        jobs --engine nonsense://x
        jobs --engine sqlite:////no/such/folder/onejob.db
        jobs --engine sqlite:///onejob.db --url http://127.0.0.1:1
        jobs --url nonsense
    """)
    golden("cli/mistakes.txt", session.text)


def test_a_submission_in_ci(
    session: CommandLineSession, golden: GoldenCheck, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {"ACTIONS": "true", "REPOSITORY": "acme/shop", "SHA": "5f0c2a9d4b7", "WORKFLOW": "Build: all"}
    for name, value in (variables | {"JOB": "deploy", "OUTPUT": str(tmp_path / "output")}).items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    session.run("""
        submit deploy --key-from-ci
        submit deploy --key-from-ci --key-part eu --json
        submit deploy --key-from-ci --input 1
        submit deploy --key-part eu
    """)
    output = session.masker.mask((tmp_path / "output").read_text())
    golden("cli/ci.txt", f"{session.text}\nGITHUB_OUTPUT:\n{output}")
