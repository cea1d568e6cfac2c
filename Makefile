# `make` lists the targets. Each needs Python 3.11, 3.12 or 3.13 and first fills .venv.
#
# One environment serves all targets; what only the tests, the linters and the documentation need, a
# third of the weight, is added by the first target that needs it.

.DEFAULT_GOAL := help

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
# Without flags nothing may be left, not even a space: XLA takes it for the name of a file of flags.
QUICK = XLA_FLAGS="$(strip $(QUICK_XLA) $$XLA_FLAGS)"

BIN := .venv/bin
READY := .venv/.ready
READY_DEV := .venv/.ready-dev
READY_TORCH := .venv/.ready-torch
READY_SUITES := .venv/.ready-suites
READY_ALL := .venv/.ready-all

.PHONY: help install demo quick test test-slow test-packaging test-torch test-suites test-commands lint docs

# A target's line of help is what stands after `##`.
help:
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do \
	    printf 'make %-16s%s\n' "$$name" "$$text"; \
	done
	@echo
	@echo "Each needs Python 3.11, 3.12 or 3.13 with its module venv. The first time, it"
	@echo "installs 1.3 GB into .venv (demo) or 2 GB (the others), over the network."
	@echo
	@echo "make demo STEPS=20000 OUT=runs/quick     a shorter demonstration"
	@echo "make test PYTHON=/path/to/python3.12     with another Python"

install: $(READY)  ## installs triglot with all libraries into .venv (1 minute)
	@echo "Installed. Now: . $(BIN)/activate && triglot --help"

demo: $(READY)  ## trains PPO on four libraries, writes a report (3 minutes)
	@$(BIN)/triglot compare ppo gymnax:CartPole-v1 \
	    --backends haiku linen nnx equinox --num-seeds 4 --seed 0 \
	    --total-steps $(STEPS) --repetitions 0 --out "$(OUT)"

# ROOM is a folder below tests, such as core/rl; without it, those of the files that changed.
quick: $(READY_DEV)  ## the tests of one room: make quick ROOM=core/rl
	@folders="$(if $(ROOM),tests/$(ROOM),$$($(BIN)/python .ci/changed.py))"; \
	if [ -z "$$folders" ]; then \
	    echo "Nothing changed since the last commit: name a room, such as make quick ROOM=core/rl"; \
	else \
	    $(QUICK) $(BIN)/python -m pytest $(PYTEST) \
	        -m "not slow and not optimized and not packaging" $$folders; \
	fi

test: $(READY_DEV)  ## the tests (6 to 9 minutes)
	@status=0; \
	$(QUICK) \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow and not optimized and not packaging" \
	    || status=1; \
	$(BIN)/python -m pytest $(PYTEST) -m "not slow and optimized" || status=1; \
	exit $$status

# All cases of the tables of which `make test` runs a covering set, and what trains for minutes, with
# PyTorch and all suites. FOLDERS are those to run: the weekly workflow divides them among machines.
# What the documents print is left to `make test-commands`.
FOLDERS ?= tests
test-slow: $(READY_ALL)  ## what is too long for each change, as every week (hours)
	@status=0; \
	$(QUICK) $(BIN)/python -m pytest $(PYTEST) \
	    -m "slow and not optimized" --ignore tests/project/test_commands.py $(FOLDERS) || status=1; \
	$(BIN)/python -m pytest $(PYTEST) -m "slow and optimized" $(FOLDERS) || [ $$? -eq 5 ] || status=1; \
	exit $$status

# What builds or runs the files that are shipped (wheel, notebooks, the code in documents, exports), and
# what starts, stops and continues programs (runs, sweeps).
test-packaging: $(READY_DEV)  ## what is shipped: wheel, documents, killed runs (9 minutes)
	$(QUICK) \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow and packaging"

# PyTorch is no part of the extra `all`, for its size: 0.2 GB for CPUs, 3 GB with CUDA.
test-torch: $(READY_TORCH)  ## the tests of PyTorch modules, with PyTorch (6 minutes)
	$(QUICK) \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow and not optimized" -k torch

# Navix, XLand-MiniGrid and Playground are no part of `all`: with what they bring they have 0.9 GB.
test-suites: $(READY_SUITES)  ## the tests of all suites of environments (5 minutes)
	$(QUICK) \
	    $(BIN)/python -m pytest $(PYTEST) -m "not slow" tests/envs

# Each command takes what it takes a user, so nothing runs beside it. PAGE is a part of a page's name.
PAGE ?= md
test-commands: $(READY_DEV)  ## runs each documented command as printed (hours)
	$(BIN)/python -m pytest -n 0 -m slow -v --durations 0 -k $(PAGE) tests/project/test_commands.py

lint: $(READY_TORCH)  ## ruff and Pyright, which reads PyTorch's types (1 minute)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(READY_DEV)  ## the documentation site, site/index.html (1 minute)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The documentation: site/index.html"

# A candidate must run (a version manager's stand-in may not), be of a version that
# constraints.txt was made for, and be able to make an environment (Debian splits that off).
# An environment that is there is kept, unless another Python is named.
CANDIDATES := $(or $(PYTHON),python3.12 python3.11 python3.13 python3)
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
MAKES_VENVS := import ensurepip, venv

define install
@found=; able=; \
for candidate in $(if $(PYTHON),,$(BIN)/python) $(CANDIDATES); do \
    "$$candidate" -c "$(FITS)" >/dev/null 2>&1 || continue; \
    found=$$candidate; \
    "$$candidate" -c "$(MAKES_VENVS)" >/dev/null 2>&1 || continue; \
    able=$$candidate; break; \
done; \
if [ -z "$$found" ]; then \
    echo "No Python 3.11, 3.12 or 3.13 runs here (tried: $(strip $(CANDIDATES)))." >&2; \
    echo "Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; \
elif [ -z "$$able" ]; then \
    echo "$$found has no venv module: on Debian or Ubuntu, apt install python3-venv" >&2; exit 1; \
fi; \
"$$able" .ci/install.py $(1)
endef

$(READY): pyproject.toml constraints.txt
	$(call install,all)
	@touch $@

$(READY_DEV): pyproject.toml constraints.txt
	$(call install,all dev)
	@touch $(READY) $@

$(READY_TORCH): pyproject.toml constraints.txt
	$(call install,all dev torch)
	@touch $(READY) $(READY_DEV) $@

$(READY_SUITES): pyproject.toml constraints.txt
	$(call install,all dev suites)
	@touch $(READY) $(READY_DEV) $@

$(READY_ALL): pyproject.toml constraints.txt
	$(call install,all dev suites torch)
	@touch $(READY) $(READY_DEV) $(READY_SUITES) $(READY_TORCH) $@
