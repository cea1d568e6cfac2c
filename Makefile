# `make demo` and `make test` need Python 3.11 or 3.12 and nothing else: each first fills .venv.
#
# One environment serves all targets. The demonstration alone needs fewer libraries, but two
# environments would be downloaded and kept twice over, and most of the weight is JAX's own.

STEPS ?= 300000
OUT ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)
# Processes share their compiled programs on disk; one that runs out of tests takes another's.
PYTEST ?= -n logical --maxprocesses 4 --dist worksteal
# More than halves the time of compilation: simple fusions, and one thread of code generation, since
# the test processes fill the cores. Tests marked `optimized` run without, as users do. XLA ends a
# process at a flag that it does not know, and newer versions may not know these.
QUICK_FLAGS := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICK_XLA = $(shell XLA_FLAGS="$(QUICK_FLAGS)" $(BIN)/python -c "import jax; jax.devices()" \
    >/dev/null 2>&1 && echo $(QUICK_FLAGS))

BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-packaging lint docs

demo: $(READY)
	@out="$(OUT)" && $(BIN)/triglot compare ppo gymnax:CartPole-v1 \
	    --backends haiku linen nnx equinox --num-seeds 4 --seed 0 \
	    --total-steps $(STEPS) --repetitions 1 --out "$$out" \
	&& echo "The report: $$out/report.html"

test: $(READY)
	@status=0; \
	XLA_FLAGS="$(QUICK_XLA) $$XLA_FLAGS" \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow and not optimized and not packaging" \
	    || status=1; \
	$(BIN)/python -m pytest $(PYTEST) -m "not slow and optimized" || status=1; \
	exit $$status

# What builds or runs the files that are shipped (wheel, notebooks, the code in documents, exports), and
# what starts, stops and continues programs (runs, sweeps).
test-packaging: $(READY)
	XLA_FLAGS="$(QUICK_XLA) $$XLA_FLAGS" \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow and packaging"

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation: site/index.html"

# A candidate must run (a version manager's stand-in may not), be of a version that
# constraints.txt was made for, and be able to make an environment (Debian splits that off).
CANDIDATES := $(or $(PYTHON),python3.12 python3.11 python3)
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))
MAKES_VENVS := import ensurepip, venv

$(READY): pyproject.toml constraints.txt
	@found=; able=; \
	for candidate in $(CANDIDATES); do \
	    "$$candidate" -c "$(FITS)" >/dev/null 2>&1 || continue; \
	    found=$$candidate; \
	    "$$candidate" -c "$(MAKES_VENVS)" >/dev/null 2>&1 || continue; \
	    able=$$candidate; break; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "No Python 3.11 or 3.12 runs here (tried: $(strip $(CANDIDATES)))." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	elif [ -z "$$able" ]; then \
	    echo "$$found has no venv module: on Debian or Ubuntu, apt install python3-venv" >&2; exit 1; \
	fi; \
	echo "Installing into .venv with $$($$able --version), once; this takes some minutes."; \
	$(BIN)/python -c "import pip; $(FITS)" >/dev/null 2>&1 || "$$able" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	@touch $@
