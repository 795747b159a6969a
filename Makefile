# `make demo` and `make test` do all set-up on a fresh machine (Python 3.11+; Debian packages where root or sudo).
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
SECONDS ?=

.PHONY: demo demo-live test test-fast bench lint lock packages clean

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

lock:
	$(BIN)/pip-compile --quiet --extra dev --strip-extras --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml

test: $(VENV)/.installed packages lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-fast: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not slow and not jvm"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

packages:
	@sh .ci/packages

clean:
	rm -rf $(VENV) build
