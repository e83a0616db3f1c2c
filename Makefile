# One command for each thing. Needs make and Python 3.11 or later, nothing else.
PYTHON ?= python3
ARGS ?=
WORKERS ?= 4
PYTHONS ?=

BIN := .venv/bin
SERVABLE := .venv/.servable
READY := .venv/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# A file whose hash is not in the list is refused; so is a source archive, whose build would fetch unlisted files.
# uv does it in a second where pip takes eleven.
UV := $(shell command -v uv 2>/dev/null)
LOCKED := --require-hashes --only-binary :all: -r
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(PIP)) $(LOCKED)
INSTALL_ONEJOB := $(PIP) --no-deps --no-build-isolation -e .
TEST := $(BIN)/pytest -n $(WORKERS) --dist=worksteal
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' -c constraints.txt pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup serve quick test test-matrix check format bench docs golden site screenshots lock sbom dist wheels prove clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-17s %s\n' "$$target" "$$text"; done

setup: $(READY) ## Make .venv with onejob and everything to work on it

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("onejob needs Python 3.11 or later: make PYTHON=python3.11")'
	@echo 'making .venv, the Python environment of this folder'
	@$(PYTHON) -m venv .venv

$(SERVABLE): pyproject.toml requirements/serve.txt | $(BIN)/python
	@echo 'installing what serving needs into .venv (once, about 15 seconds)'
	@$(INSTALL) requirements/serve.txt
	@echo 'installing onejob from this folder'
	@$(INSTALL_ONEJOB)
	@touch $@

$(READY): requirements/dev.txt $(SERVABLE)
	@echo 'installing what the tests need into .venv, PostgreSQL and an S3 server too (once, about 30 seconds)'
	@$(INSTALL) requirements/dev.txt
	@touch $@

serve: $(SERVABLE) ## Run the service on this machine
	$(BIN)/onejob serve $(ARGS)

quick: $(READY) ## Run the tests that start no program, in about a minute
	$(BIN)/pytest -n auto --dist=worksteal -m "not long and not matrix" $(ARGS)

test: $(READY) ## Run every rule on every engine; ARGS="-k key" for some
	$(TEST) -m "not matrix" $(ARGS)

test-matrix: $(READY) ## Run the same rules behind every layer of every engine
	$(TEST) -m matrix $(ARGS)

check: $(READY) ## Check format, lint, types and the repository layout
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py

format: $(READY) ## Format the code and apply lint fixes
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

bench: .venv/.bench ## Measure what a submission costs, and the bars it must hold; ARGS=--publish renews docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

.venv/.bench: requirements/bench.txt $(READY)
	@$(INSTALL) requirements/bench.txt
	@touch $@

docs: $(READY) ## Write the pages that are made from the code; only docs/modules.md is committed
	$(BIN)/python -m docs.generate

golden: $(READY) ## Write again what tests/golden has on record
	RENEW_GOLDEN=1 $(BIN)/pytest -q -p no:randomly tests/golden

site: .venv/.docs ## Build the documentation site in build/site
	$(BIN)/python -m docs.build_site

.venv/.docs: requirements/docs.txt | $(BIN)/python
	@$(INSTALL) requirements/docs.txt
	@touch $@

screenshots: $(READY) ## Take the pictures of docs/console.md again; needs Chromium
	$(BIN)/python -m docs.screenshots

lock: .venv/.release ## Lock versions and hashes again, after a change of pyproject.toml or constraints.txt
	$(LOCK) --group build --extra bucket --extra postgres --extra service -o requirements/serve.txt
	$(LOCK) --group build --all-extras --group dev -c requirements/serve.txt -o requirements/dev.txt
	$(LOCK) --group bench -c requirements/dev.txt -o requirements/bench.txt
	$(LOCK) --group release -c requirements/dev.txt -o requirements/release.txt
	$(LOCK) --group docs -c requirements/dev.txt -o requirements/docs.txt

sbom: .venv/.release ## Write sbom.json (CycloneDX): everything that serving installs, with licences
	@$(PYTHON) -m venv --clear --without-pip build/serving
	@$(subst -m pip,-m pip --python build/serving,$(PIP)) $(LOCKED) requirements/serve.txt
	@$(subst -m pip,-m pip --python build/serving,$(INSTALL_ONEJOB))
	$(BIN)/cyclonedx-py environment build/serving --pyproject pyproject.toml --mc-type application --output-reproducible -o sbom.json

dist: .venv/.release $(SERVABLE) ## Build the wheel and the source archive into build/dist, and check what an index would show
	@rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist >/dev/null
	$(BIN)/twine check --strict build/dist/*

wheels: dist ## Try the wheel in a clean environment for each Python and extra; PYTHONS="3.11 3.12 3.13"
	$(BIN)/python -m tests.campaigns.wheels $(PYTHONS)

.venv/.release: requirements/release.txt | $(BIN)/python
	@$(INSTALL) requirements/release.txt
	@touch $@

prove: $(READY) ## Run the long campaigns: simulations, gates and managers, a faulty proxy, contention, killed workers, failovers
	$(BIN)/onejob prove --report build/prove
	$(BIN)/python -m tests.campaigns.model_based --steps 100000
	$(BIN)/python -m tests.campaigns.postgres_races
	$(BIN)/pytest -q -n $(WORKERS) tests/campaigns/remote_matrix.py
	$(BIN)/pytest -q tests/campaigns/bucket_conformance.py
	$(BIN)/python -m tests.campaigns.bucket --rounds 300
	$(BIN)/python -m tests.campaigns.manager
	$(BIN)/python -m tests.campaigns.manager --sqlite
	$(BIN)/python -m tests.campaigns.client
	$(BIN)/python -m tests.campaigns.contention
	$(BIN)/python -m tests.campaigns.worker
	$(BIN)/python -m tests.campaigns.worker --postgres
	$(BIN)/python -m tests.campaigns.worker --steps 50
	$(BIN)/python -m tests.campaigns.worker --steps 50 --postgres
	$(BIN)/python -m tests.campaigns.killed_payments
	$(BIN)/python -m tests.campaigns.django
	$(BIN)/python -m tests.campaigns.failover
	$(BIN)/python -m tests.campaigns.patroni
	$(BIN)/python -m tests.campaigns.sites
	$(BIN)/python -m tests.campaigns.simulation.bucket --seeds 1000
	$(BIN)/python -m tests.campaigns.simulation $(ARGS)

clean: ## Remove everything that was made here
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist sbom.json
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
