# Everything that is done with this repository, one command each. `make` lists it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.biqe-setup
NODE_STAMP := web/node_modules/.biqe-setup
# Tests run two at a time, so each keeps to one thread.
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_MINUTES ?= 3
ATLAS_SOURCES ?= build/atlas-sources
DEMO_RUN := build/demo-run
PROXIES := build/proxies/.biqe-fetched
QUESTION := SELECT ?river ?city WHERE { ?river :flows_through :Germany, :France . ?city :located_on ?river }

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix docs-check docs proxies atlas-sources atlas atlas-model page wheel bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: $(STAMP)  ## create .venv with biqe and all it needs; instant when nothing changed

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no python3 found; install Python 3.11 or newer" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: $(PYTHON) is too old; use 'make setup PYTHON=/path/to/python3.11'" >&2; exit 2; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $(STAMP)
	@echo "ready: $(BIN)/biqe --help"

demo: setup  ## train on the embedded atlas (about 3 minutes), find hidden facts, ask the paper's question
	@echo "-- 1. The question, to the model that ships with biqe: cities on rivers through Germany and France"
	$(BIN)/biqe ask atlas '$(QUESTION)' --top 8
	@echo "-- 2. Train a model of your own on the atlas, $(DEMO_MINUTES) minutes"
	@rm -rf $(DEMO_RUN)
	$(BIN)/biqe train atlas --minutes $(DEMO_MINUTES) --out $(DEMO_RUN)
	@echo "-- 3. The same question, to the model that was just trained"
	$(BIN)/biqe ask $(DEMO_RUN) '$(QUESTION)' --top 8

# The page is tested in Debian's Chromium. Without it, and without the right to install it, those tests are skipped.
test: check proxies  ## ruff, the format check, mypy and the docs check, then all tests
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
		|| { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-liberation; } \
		|| echo "chromium could not be installed; the tests of the page will be skipped" >&2
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

check: setup  ## ruff, the format check, mypy and the docs check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory docs-check

fix: setup  ## let ruff repair and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs-check: setup docs  ## links, the site, the paper map and generated tables agree with the code
	$(BIN)/python tools/check_links.py
	$(BIN)/python tools/check_paper_map.py
	$(BIN)/python tools/results_table.py --check

docs: setup  ## the documentation as a site, build/docs; a link that leads nowhere stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: build/docs/index.html"

# Unpacked, not installed: installing them would start them on ports 80 and 443. Without them their tests are skipped.
proxies: $(PROXIES)  ## fetch Debian's nginx and Caddy into build/, for the tests of the recipes in deploy/

$(PROXIES):
	@mkdir -p $(dir $@)
	@command -v apt-get >/dev/null && cd $(dir $@) && { apt-get download -qq nginx caddy 2>/dev/null \
		|| { apt-get update -qq && apt-get download -qq nginx caddy; }; } \
		&& for package in *.deb; do dpkg -x $$package . || exit 1; done && touch $(notdir $@) \
		|| echo "nginx and Caddy could not be fetched; the tests of their recipes are skipped unless they are installed" >&2

atlas-sources:  ## fetch the public-domain files that the atlas is built from (needs apt-get, dpkg and npm)
	@mkdir -p $(ATLAS_SOURCES)
	cd $(ATLAS_SOURCES) && apt-get download libmagics++-data && dpkg -x libmagics++-data_*.deb . \
		&& npm pack world-atlas@2.0.2 && tar -xzf world-atlas-*.tgz

atlas: setup  ## build the embedded graph anew from its sources
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[atlas]' --no-build-isolation
	$(BIN)/python tools/build_atlas.py --sources $(ATLAS_SOURCES) --out src/biqe/atlas/graph

atlas-model: setup  ## train the model that ships with the atlas anew, by the plain command (6 minutes)
	@rm -rf build/atlas-run
	$(BIN)/biqe train atlas --minutes 5 --out build/atlas-run
	$(BIN)/python tools/ship_atlas_model.py build/atlas-run

page: $(NODE_STAMP)  ## build the page from web/ (needs node and npm)
	cd web && npm run --silent check && npm run --silent build

$(NODE_STAMP): web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "error: no npm found; install node 20.19 or newer" >&2; exit 2; }
	cd web && npm install --no-save --no-audit --no-fund  # as locked; npm ci wants the compilers of every platform, too
	@touch $(NODE_STAMP)

wheel: setup  ## dist/biqe-*.whl, with the atlas and its model inside
	@rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist
	@ls -l dist

bench: setup  ## list the benchmarks; run one with .venv/bin/python benchmarks/NAME.py
	@$(BIN)/python tools/list_benchmarks.py

clean:  ## remove what can be made again: .venv, build, dist, caches
	rm -rf $(VENV) build dist web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
