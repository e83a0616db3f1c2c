# One command for each thing. Needs make and Python 3.11 or later, nothing else.
PYTHON ?= python3
ARGS ?=
WORKERS ?= 3

BIN := .venv/bin
SERVABLE := .venv/.servable
READY := .venv/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# The pip that comes with Python 3.11 cannot read dependency groups, so they are printed for it.
GROUP := $(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")'

.DEFAULT_GOAL := help
.PHONY: help setup serve test check format bench docs prove clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-14s %s\n' "$$target" "$$text"; done

setup: $(READY) ## Make .venv with onejob and everything to work on it

$(SERVABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("onejob needs Python 3.11 or later: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# The build backend is installed first, so that it is pinned like the rest.
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation -e '.[postgres,service]'
	@touch $@

$(READY): $(SERVABLE)
	@$(GROUP) dev > .venv/dev.txt
	@$(PIP) --no-build-isolation -e '.[client,postgres,service]' -r .venv/dev.txt
	@touch $@

serve: $(SERVABLE) ## Run the service on this machine
	$(BIN)/onejob serve $(ARGS)

test: $(READY) ## Run every test; ARGS="-k key" for some
	$(BIN)/pytest -n $(WORKERS) --dist=worksteal $(ARGS)

check: $(READY) ## Check format, lint, types and the repository layout
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layout.py

format: $(READY) ## Format the code and apply lint fixes
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

bench: .venv/.bench ## Measure what a submission costs, and the bars it must hold
	$(BIN)/python -m bench $(ARGS)

.venv/.bench: $(READY)
	@$(GROUP) bench > .venv/bench.txt
	@$(PIP) -r .venv/bench.txt
	@touch $@

docs: $(READY) ## Renew the generated pages
	$(BIN)/python docs/generate.py

prove: $(READY) ## Run the long campaigns: simulations, a faulty proxy, contention, killed workers, failovers
	$(BIN)/python -m tests.engines.model_based --steps 100000
	$(BIN)/python -m tests.client
	$(BIN)/python -m tests.http.contention
	$(BIN)/python -m tests.worker
	$(BIN)/python -m tests.worker --postgres
	$(BIN)/python -m tests.worker --steps 50
	$(BIN)/python -m tests.worker --steps 50 --postgres
	$(BIN)/python -m tests.failover
	$(BIN)/python -m tests.simulation $(ARGS)

clean: ## Remove everything that was made here
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
