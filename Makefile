# Each target sets up what it needs on a fresh machine: a C compiler, CPython 3.10+ and the package
# index that pip is configured for.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
C_FILES := $(filter-out csrc/_core.c,$(wildcard csrc/*.[ch] tests/core/c/*.[ch] tests/core/crash/*.[ch]))
# What a build must get through without a warning; users' builds do not fail over a new compiler's.
STRICT := -Wall -Wextra -Werror
# cffi's generated binding is compiled by these flags as well. They take the place of the
# interpreter's own: without a level of optimisation there would be none.
BUILD := CFLAGS="-O2 $(STRICT)" $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: all demo test missing check check-c check-python tests bench soak mutants crash clean
all: test

# One stamp for the environment and one for the built core, so that a second run starts at once.
$(VENV)/.stamp-tools: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BUILD) --upgrade pip "setuptools>=80" "cffi>=1.17"
	touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-tools build_ext.py $(filter csrc/%,$(C_FILES))
	$(BUILD) --no-build-isolation --editable ".[dev]"
	touch $@

demo: $(VENV)/.stamp-dev
	$(BIN)/python tests/demo.py

test: missing check tests

# What wants one of these tools is skipped where it is missing, and says so again at the end.
missing:
	@.ci/missing | sed 's/^/missing, so not everything is tested; apt-get install: /'

check: check-c check-python

check-c: $(VENV)/.stamp-dev
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	for file in $(filter-out csrc/_core.c,$(wildcard csrc/*.c)); do \
	    gcc -std=c11 -O2 $(STRICT) -Wshadow -Wconversion -Wno-sign-conversion \
	        -c -o /dev/null $$file || exit 1; \
	done

check-python: $(VENV)/.stamp-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

tests: $(VENV)/.stamp-dev
	$(BIN)/pytest tests

# The peers, too. UltraDict has no wheels: where it does not build it is left out, with its name.
$(VENV)/.stamp-bench: $(VENV)/.stamp-dev
	$(BUILD) --no-build-isolation --editable ".[bench]"
	-$(BIN)/pip install --quiet --disable-pip-version-check UltraDict atomics
	touch $@

# With a redis server for the time being, where one is installed; the table comes last.
bench: $(VENV)/.stamp-bench
	mkdir -p .benchmarks
	PIX_BENCH_SERVERS=1 $(BIN)/pytest bench --benchmark-only --benchmark-json=.benchmarks/run.json
	$(BIN)/python -m bench.report .benchmarks/run.json bench/results

soak: $(VENV)/.stamp-dev
	$(BIN)/python tests/config/soak.py 3600

mutants: $(VENV)/.stamp-dev
	$(BIN)/python tests/mutants/run.py

# Deaths: in every state and not only two in a row, and by the thousand. -s shows the figures.
crash: $(VENV)/.stamp-dev
	$(BIN)/python tests/core/model/run.py
	PIX_CRASH_DEPTH=0 $(BIN)/pytest -s tests/core/test_crash_states.py
	PIX_KILLS=5000 $(BIN)/pytest -s tests/core/test_kills.py -k kill_at_random
	$(BIN)/pytest -s -v tests/core/test_units.py -k damage

clean:
	rm -rf $(VENV) build dist *.egg-info csrc/_core.c pix_shm/_core*.so
