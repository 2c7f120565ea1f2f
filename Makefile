# Each target sets up what it needs on a fresh machine: a C compiler, CPython 3.10+ and the package
# index that pip is configured for.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
C_FILES := $(filter-out csrc/_core.c,$(wildcard csrc/*.[ch] tests/core/c/*.[ch] tests/core/crash/*.[ch]))
# What a build must get through without a warning; users' builds do not fail over a new compiler's.
STRICT := -Wall -Wextra -Werror
# cffi's generated binding is compiled by these flags as well
BUILD := CFLAGS="$(STRICT)" $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: all demo test check check-c check-python tests bench soak crash mutants clean
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

test: check tests

check: check-c check-python

check-c: $(VENV)/.stamp-dev
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	for file in $(filter-out csrc/_core.c,$(wildcard csrc/*.c)); do \
	    gcc -std=c11 -O2 $(STRICT) -Wshadow -Wconversion -Wno-sign-conversion -fanalyzer \
	        -c -o /dev/null $$file || exit 1; \
	done

check-python: $(VENV)/.stamp-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

tests: $(VENV)/.stamp-dev
	$(BIN)/pytest --benchmark-skip

bench: $(VENV)/.stamp-dev
	$(BIN)/pytest bench --benchmark-only

soak: $(VENV)/.stamp-dev
	$(BIN)/python tests/config/soak.py 3600

# Deaths: in every state, and not only two in a row as in `make tests`.
crash: $(VENV)/.stamp-dev
	PIX_CRASH_DEPTH=0 $(BIN)/pytest -s tests/core/test_crash_states.py

mutants: $(VENV)/.stamp-dev
	$(BIN)/python tests/mutants/run.py

clean:
	rm -rf $(VENV) build dist *.egg-info csrc/_core.c pix_shm/_core*.so
