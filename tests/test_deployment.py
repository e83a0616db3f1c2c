"""The files to deploy with: they parse, their commands and settings exist, and their ports and paths match."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not worth a dependency

from onejob.cli.parser import build_parser
from onejob.engines.remote.url import is_managers_url, parse_managers_url
from onejob.http.config import ServiceConfig
from onejob.settings import CLI_ONLY_VARIABLES, FILE_ONLY_FIELDS

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
UNITS = sorted((ROOT / "ops" / "systemd").glob("*.service"))
KUBERNETES = sorted((ROOT / "ops" / "kubernetes").glob("*.yaml"))
SETTINGS = {f"ONEJOB_{name.upper()}" for name in ServiceConfig.__struct_fields__ if name not in FILE_ONLY_FIELDS}
PORT, WIRE_PORT = 8001, 8002
DRAIN_SECONDS = 20
EXPOSURE_MAX = 2.5


def manifests() -> list[Any]:
    texts = [file.read_text(encoding="utf-8") for file in KUBERNETES if file.name != "kustomization.yaml"]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def pods() -> Iterator[tuple[Any, Any]]:
    """The pods that manifests describe, each with its one container."""
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            pod = manifest["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield pod, container


def command_lines() -> Iterator[list[str]]:
    for line in re.findall(r"^CMD (\[.*\])$", DOCKERFILE, flags=re.MULTILINE):
        yield json.loads(line)
    for service in COMPOSE["services"].values():
        if service.get("image") == "onejob":
            yield service["command"]
    for _, container in pods():
        yield container["args"]
    for unit in UNITS:
        for line in re.findall(
            r"^ExecStart=/opt/onejob/bin/onejob (.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE
        ):
            yield line.replace("${APP}", "shop:app").split()
    yield [
        "submit",
        "t",
        "--input",
        "1",
        "--url",
        "u",
        "--key-from-ci",
        "--retry-for",
        "10m",
        "--key-part",
        "x",
        "--wait-for",
        "1m",
    ]


@pytest.mark.parametrize("words", list(command_lines()), ids=" ".join)
def test_every_command_line_is_one_that_onejob_accepts(words: list[str]) -> None:
    options = build_parser().parse_args(words)
    if options.command == "manager":
        assert options.bind == f"0.0.0.0:{WIRE_PORT}"
    if options.command == "gate":
        assert is_managers_url(options.manager)
        parse_managers_url(options.manager)


def test_every_setting_exists() -> None:
    files = [ROOT / "Dockerfile", ROOT / "compose.yaml", ROOT / "action.yml", *KUBERNETES, *UNITS]
    files.append(ROOT / "ops" / "systemd" / "onejob.env")
    named = {name for file in files for name in re.findall(r"\bONEJOB_[A-Z_]+", file.read_text(encoding="utf-8"))}
    assert "ONEJOB_ENGINE" in named
    assert named <= SETTINGS | CLI_ONLY_VARIABLES


def test_the_image_runs_without_root_and_is_probed_where_the_service_listens() -> None:
    assert f"EXPOSE {PORT}" in DOCKERFILE
    assert f"http://127.0.0.1:{PORT}/healthz" in DOCKERFILE
    assert ServiceConfig().port == PORT
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in last_stage
    assert 'ENTRYPOINT ["onejob"]' in last_stage
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, flags=re.MULTILINE)
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in kept


def test_compose_mounts_what_exists_and_scrapes_the_service() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).is_dir() if source.startswith("./") else source in COMPOSE["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for name in ("service", "worker"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    scraped = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"service:{PORT}"
    for file in (ROOT / "ops" / "grafana").rglob("*.yml"):
        assert yaml.safe_load(file.read_text(encoding="utf-8"))["apiVersion"] == 1


def test_the_app_of_the_worker_in_compose_loads() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import jobs; print(type(jobs.app).__name__)"],
        cwd=ROOT / "ops" / "compose", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout == "App\n", ran.stderr


def test_pods_are_confined_probed_and_have_time_to_drain() -> None:
    found = dict(enumerate(pods()))
    assert len(found) == 3
    for pod, container in found.values():
        assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + 10
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["image"] == "onejob"
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe") if ports else ():
            handler = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert handler["port"] in ports
            assert handler.get("path", "/healthz") in ("/healthz", "/readyz")
        assert ports in ({}, {"http": PORT}, {"wire": WIRE_PORT})


def test_every_set_of_pods_has_a_disruption_budget_and_every_selector_finds_pods() -> None:
    made = manifests()
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in made if "template" in one["spec"]]
    budgets = [one["spec"]["selector"]["matchLabels"] for one in made if one["kind"] == "PodDisruptionBudget"]
    assert sorted(map(str, budgets)) == sorted(map(str, labels))
    selectors = [one["spec"]["selector"] for one in made if one["kind"] == "Service"]
    assert all(selector in labels for selector in selectors)
    resources = yaml.safe_load((ROOT / "ops" / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))[
        "resources"
    ]
    assert sorted(resources) == [file.name for file in KUBERNETES if file.name != "kustomization.yaml"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_builds_the_manifests() -> None:
    built = subprocess.check_output(["kubectl", "kustomize", ROOT / "ops" / "kubernetes"], text=True)
    kinds = [one["kind"] for one in yaml.safe_load_all(built)]
    assert len(kinds) == len(manifests())


def test_units_have_time_to_drain() -> None:
    for unit in UNITS:
        stop = re.search(r"^TimeoutStopSec=(\d+)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        assert stop
        assert int(stop[1]) > DRAIN_SECONDS + 10


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_units_are_valid_and_confined(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/onejob/bin/onejob", "/bin/true")
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
        verified = subprocess.run(
            ["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True, check=False
        )
        assert verified.returncode == 0, verified.stderr
        assert unit.name not in verified.stderr, verified.stderr
        words = ["systemd-analyze", "security", "--offline=true", str(tmp_path / unit.name)]
        exposure = re.search(r"exposure level for \S+: ([\d.]+)", subprocess.check_output(words, text=True))
        assert exposure
        assert float(exposure[1]) <= EXPOSURE_MAX


def test_the_action_passes_its_inputs_as_variables_and_its_shell_is_valid() -> None:
    install, submit = ACTION["runs"]["steps"]
    used = {
        name
        for step in (install, submit)
        for value in step.get("env", {}).values()
        for name in re.findall(r"inputs\.([\w-]+)", value)
    }
    assert used == set(ACTION["inputs"])
    for step in (install, submit):
        assert "${{" not in step["run"]
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    assert "$GITHUB_ACTION_PATH" in install["run"]  # its own checkout, never a name on an index
    assert set(ACTION["outputs"]) == {"job_id", "outcome", "key"}
