# Throughline's commands. `make help` lists them.
# PYTHON=/path/to/python3 chooses the interpreter; ARGS="…" is handed on to the program a command runs.

BIN := .venv/bin
SETUP := PYTHON='$(PYTHON)' scripts/setup
PYTEST := $(BIN)/pytest -n 4 --dist worksteal
MANY_EXAMPLES := --hypothesis-profile=many-examples
# Where ARGS contain `.py`, be it behind --ignore, proofs run too: a file may hold nothing else. `-m` in ARGS overrides it.
NO_PROOFS := $(if $(findstring .py,$(ARGS)),,-m 'not proof')
NO_HOUSE := $(if $(findstring tests/house,$(ARGS)),,--ignore tests/house)
COVERAGE := 90

# Each process of the tests would compile them anew, which takes more than a second.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-pooled test-polling test-conflicts durations quick check ci format docs docs-links open-responses mcp-conformance bench chaos hostile fuzz fuzz-api \
	migrate lock reference setup-dev chromium static house ruff mypy import-linter deptry codespell compose-file

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: ## make .venv with everything the service needs, as locked
	@$(SETUP) run

run: setup ## serve on http://127.0.0.1:8000, with a PostgreSQL of its own unless DATABASE_URL is set (HOST, PORT, ARGS)
	@exec $(BIN)/throughline serve $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)') $(ARGS)

test: setup-dev ## run the tests; a file's proofs, too, where ARGS names one (ARGS="tests/agents -k name")
	@$(PYTEST) $(NO_PROOFS) $(NO_HOUSE) $(ARGS)

test-slow: setup-dev ## run the proofs, which repeat or search more than each commit needs, and properties with 100 examples (ARGS)
	@$(PYTEST) $(MANY_EXAMPLES) -m 'proof or hypothesis' $(ARGS)

test-pooled: setup-dev ## run the tests and proofs with PgBouncer, which has to be installed, before PostgreSQL (ARGS)
	@TEST_POOLER=1 $(PYTEST) $(ARGS)

test-polling: setup-dev ## run the tests and proofs without LISTEN and NOTIFY, as with DATABASE_LISTEN=false (ARGS)
	@TEST_POLLING=1 $(PYTEST) $(ARGS)

test-conflicts: setup-dev ## run the tests and proofs while one statement in twenty ends with a serialization failure (ARGS)
	@TEST_CONFLICTS=1 $(PYTEST) $(ARGS)

durations: setup-dev ## run the tests and print where their time goes: by folder, file and test (ARGS)
	@PYTHONPATH=. $(PYTEST) -q $(NO_PROOFS) $(NO_HOUSE) -p benchmarks.suite_durations $(ARGS)

quick: setup-dev ## run the tests that need no PostgreSQL and no other process; `make house` has the house rules (ARGS)
	@$(BIN)/pytest -q -n 2 --dist worksteal -m 'not postgres and not process and not slow and not proof' $(NO_HOUSE) $(ARGS)

check: setup-dev static ## run what to run before each commit: linters, types, layers, house rules, tests
	@echo "== tests"
	@$(PYTEST) -m 'not proof' --ignore tests/house

# Coverage chooses its cheapest tracer by default: sys.monitoring, where Python can tell branches by it (3.14).
# House rules judge times, which a tracer changes: they go without, and what they run of `app` counts as not covered.
ci: setup-dev chromium static ## run everything a change must pass: `make check`, `make test-slow` and a threshold of coverage
	@echo "== proofs of the house rules"
	@$(PYTEST) $(MANY_EXAMPLES) -m 'proof or hypothesis' tests/house
	@echo "== tests"
	@$(PYTEST) $(MANY_EXAMPLES) --ignore tests/house --cov --cov-fail-under=$(COVERAGE)

# The tests of the console drive a real browser. Where it cannot be installed, they are skipped and say so.
chromium:
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -yq --no-install-recommends chromium; } \
		>/dev/null 2>&1 || echo "no Chromium: the tests of the console in a browser are skipped"

format: setup-dev ## format the code and fix what can be fixed safely
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: setup-dev ## build the site from README.md and docs/ into build/site, and fail if a link leads nowhere
	@echo "== docs"
	@$(BIN)/sphinx-build -q -W --keep-going -c docs/site . build/site

docs-links: setup-dev ## ask the network for each address that the documents name
	@$(BIN)/sphinx-build -q -b linkcheck -c docs/site . build/links

open-responses: setup-dev ## run the compliance tests of Open Responses, cloned and installed into FOLDER; needs bun
	@OPEN_RESPONSES=$(abspath $(FOLDER)) $(PYTEST) tests/openai_interface/test_open_responses.py $(ARGS)

mcp-conformance: ## run the official conformance suite of MCP against a running service without keys (URL); needs Node 22
	@for revision in 2025-11-25 2026-07-28; do \
		npx --yes @modelcontextprotocol/conformance@0.2.0-alpha.12 server --url $(or $(URL),http://127.0.0.1:8000)/mcp \
			--requirements $$revision --expected-failures tests/mcp_server/conformance-expected.yml $(ARGS) || exit 1; \
	done

bench: setup-dev ## replay recorded conversations through the running service and print the table (ARGS)
	@$(BIN)/python -m benchmarks.replay $(ARGS)

chaos: setup-dev ## kill, pause and cut everything and count what is lost: about an hour (ARGS="senders streams --factor 0.2")
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

# What clients, providers, Slack, operators' code and the database can do wrong. The last program does it to a running
# service and prints its memory and its longest stall.
HOSTILE := $(addprefix tests/,house/test_linear_expressions.py \
	execution/test_json_schema.py turn/test_refused_turns.py llm/test_model_streams.py llm/test_bounded_calls.py \
	llm/test_provider_keys.py db/test_external_ids.py db/test_search_catch_up.py api/test_waiting_for_a_worker.py \
	db/test_skipped_messages.py turn/test_outages.py execution/test_heartbeats.py api/test_connection_limits.py \
	db/test_waiting_readers.py summary/test_summaries_on_demand.py tools/test_hostile_tools.py \
	runs/test_worker_health.py api/test_body_budget.py api/test_bad_input.py api/test_openapi_document.py \
	db/test_retention.py service/test_start.py slack/test_slack_hostile_fields.py)
hostile: setup-dev ## do to the service what once hurt it, and print its memory and longest stall (ARGS="--only provider")
	@$(BIN)/pytest -q -n 2 $(HOSTILE)
	@$(BIN)/python -m benchmarks.hostile $(ARGS)

fuzz: setup-dev ## play 200,000 random sessions through the context engine and judge every prompt (ARGS="--runs 20000")
	@cd tests && ../$(BIN)/python -m context.fuzz $(ARGS)

fuzz-api: setup-dev ## send about 2,000 requests made from the OpenAPI document to a running service (URL)
	@$(BIN)/schemathesis run $(or $(URL),http://127.0.0.1:8000)/openapi.json --checks not_a_server_error \
		--max-examples 110 --seed 1 $(ARGS)

migrate: setup ## bring the database to the newest schema (DATABASE_URL, or the embedded one)
	@$(BIN)/throughline db upgrade $(ARGS)

# Needs uv (https://docs.astral.sh/uv/). The run lock holds the providers' extras and what building the package needs;
# the dev lock adds the dev group at the same versions. Neither names a registry.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links --all-extras pyproject.toml --group build
lock: ## resolve the dependencies anew and write both locks (needs uv; ARGS="--upgrade")
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }
	$(LOCK) --group dev $(ARGS) -o requirements-dev.lock
	$(LOCK) --constraint requirements-dev.lock $(ARGS) -o requirements.lock

reference: setup-dev ## make the reference pages and .env.example anew from the code; a house rule compares them
	@PYTHONPATH=app:. $(BIN)/python -m scripts.reference

setup-dev:
	@$(SETUP) dev

# Each of them uses one core: two run at a time, the longest first, and where make can do it, each prints by itself.
static: setup-dev
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
		mypy house docs ruff import-linter deptry codespell compose-file

mypy:
	@echo "== mypy"
	@$(BIN)/mypy app tests benchmarks chaos docs/examples docs/site scripts/reference

ruff:
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

import-linter:
	@echo "== import-linter"
	@$(BIN)/lint-imports

deptry:
	@echo "== deptry"
	@$(BIN)/deptry .

codespell:
	@echo "== codespell"
	@$(BIN)/codespell

compose-file:
	@echo "== docker-compose.yml"
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

house: setup-dev
	@echo "== house rules"
	@$(BIN)/pytest -q -m 'not proof' tests/house
