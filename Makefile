# `make demo` and `make test` do all set-up on a fresh machine (Python 3.11+; Debian packages where root or sudo).
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
SECONDS ?=
ARGS ?=

.PHONY: demo demo-live test test-fast bench lint lock packages clean

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps -e .
	touch $@

# Plays a recording of a real JVM: live table, page and /metrics at http://127.0.0.1:9464. SECONDS=20 ends it early.
demo: $(VENV)/.installed
	$(BIN)/streamer replay streamer/demo/shop.json --fidelity flow $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

# The same with a live JVM under the emulated PT.
demo-live: $(VENV)/.installed
	@sh .ci/packages qemu-user openjdk-17-jdk-headless gcc libc6-dev
	mkdir -p build/demo && javac --release 17 -d build/demo streamer/demo/Shop.java
	$(BIN)/streamer run --emulate --fidelity flow $(ARGS) -- java -cp build/demo Shop $(or $(SECONDS),60) 60

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
