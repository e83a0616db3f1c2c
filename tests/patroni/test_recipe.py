"""The recipe of docs/scaling.md can be read by the campaign that runs it (`python -m tests.campaigns.patroni`)."""

from pathlib import Path

from msgspec import yaml

from onejob.engine import Durability
from onejob.engines.postgres.url import parse_postgres_url
from tests.campaigns.patroni.recipe import PAGE, PORTS, SITES, Place, localize, read_recipe

PLACES = {
    name: Place(Path("/tmp") / name, {port: port + 10_000 * (n + 1) for port in PORTS}) for n, name in enumerate(SITES)
}


def test_each_site_has_its_own_ports_and_folders_and_all_know_each_other() -> None:
    recipe = read_recipe(PAGE.read_text())
    assert recipe.etcd_command("site2", PLACES)[:5] == ["etcd", "--name", "site2", "--data-dir", "/tmp/site2/etcd"]
    config = yaml.decode(recipe.patroni_file("site2", PLACES, Path("/bin")))
    assert config["name"] == "site2"
    assert config["etcd3"]["hosts"] == "127.0.0.1:12379,127.0.0.1:22379,127.0.0.1:32379"
    assert config["postgresql"]["listen"] == config["postgresql"]["connect_address"] == "127.0.0.1:25432"
    assert "@127.0.0.1:15432,127.0.0.1:25432,127.0.0.1:35432/" in localize(recipe.ledger, "site2", PLACES)


def test_the_recipe_keeps_what_it_promises() -> None:
    recipe = read_recipe(PAGE.read_text())
    shared = yaml.decode(recipe.patroni)["bootstrap"]["dcs"]
    assert shared["loop_wait"] + 2 * shared["retry_timeout"] <= shared["ttl"], "Patroni would change them"
    assert shared["synchronous_mode"] is shared["synchronous_mode_strict"] is True
    assert parse_postgres_url(recipe.ledger).durability is Durability.QUORUM
