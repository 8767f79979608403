# Every target sets itself up: `make test` in a clean clone is enough.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Each pytest-xdist worker starts one nats-server of its own; tests wait more than they compute, so there are more than cores.
PYTEST_ARGS ?= -n 4
CLUSTER_TESTS ?= tests/integration tests/contract
CLUSTER_SHORT := \
	tests/integration/test_fence.py::test_the_fence_rises_over_retry_replace_reschedule_takeover_and_a_new_life \
	tests/integration/test_scenarios_submit.py::test_a_hundred_concurrent_replaces_are_a_hundred_generations_and_the_last_one_wins \
	tests/integration/test_scenarios_submit.py::test_scenario_43_a_hundred_concurrent_submits_are_one_run_that_all_callers_get \
	tests/integration/test_recovery_rows.py::test_row_2_a_worker_that_dies_between_claim_and_outcome \
	tests/integration/test_limits.py::test_scenario_31_a_limit_of_n_is_n_never_more_and_not_less \
	tests/integration/test_cluster.py::test_setup_takes_the_copies_of_every_stream_from_one_to_three
DEMO_ARGS ?=
BENCH_ARGS ?=
# `make chaos SECONDS=600 SEED=7 SERVERS=3`: without a seed one is drawn and printed.
SECONDS ?= 600
SEED ?=
SERVERS ?= 1
CHAOS_ARGS ?=
# `make sim SEEDS=10000`; `make sim SEED=4711` runs that one again and shows all of it.
SEEDS ?= 200
MUTANTS_ARGS ?=
FUZZ_ARGS ?=
# `make model MODEL_ARGS="--most 1000000 outbox"`: more states of the scenarios whose names contain that.
MODEL_ARGS ?=

.DEFAULT_GOAL := test
.PHONY: venv prometheus charts demo test test-cluster test-cluster-short soak lint format types model sim minute chaos mutants fuzz bench clean

venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# What tests of rules and dashboards need; they are left out where it cannot be had.
prometheus: $(VENV)/prometheus/usr/bin/promtool

$(VENV)/prometheus/usr/bin/promtool:
	scripts/get_prometheus.sh $(VENV)/prometheus

# What tests of image, compose file and chart need; likewise.
charts: $(VENV)/charts/helm

$(VENV)/charts/helm: $(STAMP) scripts/get_chart_tools.py
	$(BIN)/python scripts/get_chart_tools.py $(VENV)/charts
	touch -h $@

demo: $(STAMP)
	$(BIN)/tenure demo $(DEMO_ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not long"

# What talks to a server, on three that replicate: `make test-cluster CLUSTER_TESTS=tests/integration/test_fence.py`. As long as it takes:
# each test makes streams with three copies, 24 minutes in all. CI does `make test-cluster-short`: what tells most.
test-cluster: $(STAMP)
	TENURE_TEST_SERVERS=3 $(BIN)/python -m pytest -n 2 --timeout 180 -m "not long" $(CLUSTER_TESTS)

test-cluster-short: $(STAMP)
	TENURE_TEST_SERVERS=3 $(BIN)/python -m pytest -n 0 $(CLUSTER_SHORT)

# All tests, with all that they can do: more runs, seeds, worlds and kills (an hour).
soak: $(STAMP)
	TENURE_SOAK=1 $(BIN)/python -m pytest $(PYTEST_ARGS) --timeout 900

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy

model: $(STAMP)
	$(BIN)/python -m tests.model --large $(MODEL_ARGS)

chaos: $(STAMP)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --servers $(SERVERS) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

sim: $(STAMP)
	$(BIN)/python -m tests.sim --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

# A minute of ten workers and 1,000 keys, which may take a processor ten seconds.
minute: $(STAMP)
	$(BIN)/python -m tests.sim --minute

# Take each guard of the protocol away in turn and see that a test notices: `make mutants MUTANTS_ARGS="--only tail"`.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

# Whatever anybody may have stored or sent, steered by what of the code it reaches: `make fuzz FUZZ_ARGS="--seconds 300 record"`.
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

bench: $(STAMP)
	$(BIN)/tenure bench $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist nats-data .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
