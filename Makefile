# `make demo` and `make test` set everything up by themselves: Python 3.11 or later, git and make are enough.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Tests run side by side: one thread each, unless the caller sets another number; as many processes as
# there are cores for these threads, at most two. JOBS sets another number of processes.
test test-all docs: export OMP_NUM_THREADS ?= 1
JOBS ?= $(shell n=$$(( $$(nproc) / $${OMP_NUM_THREADS:-1} )); echo $$(( n < 1 ? 1 : n > 2 ? 2 : n )))

.PHONY: demo explorer map docs build test test-all lint format clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/plot_demo.py
	$(BIN)/mcdensity demo --output demo

# The explorer on the docs' start page, and its pictures (these need Chromium).
explorer: demo
	cp demo/explore.html docs/_static/explorer.html
	$(BIN)/python docs/explorer_pictures.py

# The picture of who imports whom, in docs/images.
map:
	$(PYTHON) docs/import_map.py

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -n -q docs docs/_build/html
	@echo "Documentation: docs/_build/html/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(JOBS) -q

test-all: lint
	$(BIN)/python -m pytest -n $(JOBS) -q -m 'slow or not slow'

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A wheel and a source distribution in dist/.
build: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf .venv demo dist docs/_build docs/gallery docs/api .mypy_cache .pytest_cache .ruff_cache
