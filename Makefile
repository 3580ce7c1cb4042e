# One word per task; `make help` lists them. Every target does its own set-up in a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV ?= .venv
JOBS ?= 2
ARGS ?=
GPU_PYTHON ?= python3

# The first interpreter that really runs (a version manager's shim may exist and fail), fits and can make environments.
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
ifeq ($(origin PYTHON), undefined)
PYTHON = $(shell for p in python3.12 python3.11 python3.13 python3; do \
	if $$p -c '$(FITS)' > /dev/null 2>&1; then command -v $$p; break; fi; done)
endif

# Tests start hundreds of processes: without bytecode on disk each compiles 500 modules anew, which takes most of its time.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Where packages come from is left to pip's own settings; which versions, to constraints.txt.
INSTALL := $(PIP) install -qq --constraint constraints.txt

.PHONY: help venv demo gpt examples test slow interpret kernels proof-kernels proof mutants golden ratchets triton36 plan pack gpu check format lint stubs types layers api bench bench-ops docs docs-site gallery wheel typed-wheel clean parity

help:  ## This list.
	@echo "Use it:"
	@grep -E '^[a-z0-9-]+:.*##!' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([^:]*):.*##! /  \1\t/' | expand -t 17
	@echo "Work on it:"
	@grep -E '^[a-z0-9-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([^:]*):.*## /  \1\t/' | expand -t 17

$(VENV)/.made:
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 to 3.13 with venv found (on Debian: apt install python3-venv);" \
		"name one with make PYTHON=/path/to/python"; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) setuptools
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing tstatic with what the demo needs"
	@$(INSTALL) --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing tstatic with what tests and checks need (torch is large: this may take minutes)"
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $(VENV)/.demo $@

venv: $(VENV)/.dev  ## Make the environment .venv with the pinned versions.

demo: $(VENV)/.demo  ##! Train a digit classifier on real data, save it, load it again.
	@$(BIN)/python examples/digits.py $(ARGS)

gpt: $(VENV)/.demo  ##! Train a small GPT on Python's own library (ARGS="--places 2", ARGS=--resume).
	@$(BIN)/python examples/gpt.py $(ARGS)

examples: $(VENV)/.demo  ##! Train every model of examples/, and tell what each reached (ARGS="gan" for one).
	@$(BIN)/python examples $(ARGS)

# The second ring runs whatever the first one said. Exit code 5 says that ARGS left no test in a ring, which is a failure only if
# it did so in both.
RINGS = first=0; second=0; echo "ring 1 of 2: everything but the generated kernels"; \
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --ignore tests/kernels -m "$(1)" $(ARGS) || first=$$?; \
	echo "ring 2 of 2: the generated kernels in Triton's interpreter"; \
	TSTATIC_CPU_BACKEND=interpret $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "$(1)" $(ARGS) || second=$$?; \
	case $$first-$$second in 0-0|0-5|5-0) ;; \
	*) echo "exit codes of pytest: $$first in ring 1, $$second in ring 2"; exit 1;; esac

test: $(VENV)/.dev  ##! Run the tests, kernels in an interpreter (ARGS="-k name"; a quarter of an hour).
	@$(call RINGS,not slow)

slow: $(VENV)/.dev  ## Run what `make test` leaves out: drawn programs, trainings (a quarter of an hour).
	@$(call RINGS,slow)

interpret: $(VENV)/.dev  ## Run the generated kernels in Triton's interpreter only.
	@TSTATIC_CPU_BACKEND=interpret $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

TRITON36 := .venv-triton36
# The Python of GPU machines where there is one: on the path, or among those of pyenv.
DEVICE_PYTHON = $(shell for p in python3.12 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.12.*/bin/python $(PYTHON); do \
	if $$p -c 'import venv, ensurepip' > /dev/null 2>&1; then command -v $$p; break; fi; done)
$(TRITON36)/.made: constraints-device.txt
	@echo "making $(TRITON36) with $(DEVICE_PYTHON): the second triton to compile kernels with (no torch, no GPU)"
	@$(DEVICE_PYTHON) -m venv --clear $(TRITON36)
	@$(TRITON36)/bin/python -m pip --disable-pip-version-check install -qq --requirement constraints-device.txt
	@touch $@

triton36: $(TRITON36)/.made  ## Make the environment whose older triton compiles kernels, too.

kernels: $(VENV)/.dev $(TRITON36)/.made  ## Compile changed kernels, a twentieth of the rest, for chips that need not be here.
	@$(BIN)/python -m pytest -n 0 tests/kernels $(ARGS)

proof-kernels: $(VENV)/.dev $(TRITON36)/.made  ## The same with 2,000 random kernels, every chip and every disassembly (hours).
	@TSTATIC_KERNELS=all $(BIN)/python -m pytest -n 0 -s tests/kernels $(ARGS)

# What is too long for every commit: 20,000 random programs, every planted fault, all kernels, 450 trainings and 200
# failures of several processes, 20 killed saves, 100,000 mutated files and expensive pickles, 20,000 refused calls, 500
# schedules of threads, forks and loaders, tests that wait at a load of 20, and the whole suite on torch's operators, on
# the late-running device and on both (hours).
proof: $(VENV)/.dev proof-kernels  ## Run all that is too long for every commit (hours; the comment above it says what).
	@TSTATIC_CPU_BACKEND=interpret TSTATIC_PROGRAMS=20000 TSTATIC_GRADIENTS=1 TSTATIC_FAULTS=all TSTATIC_SOAK=1 \
		$(BIN)/python -m pytest -n $(JOBS) --timeout 1800 tests/interpret/test_random_programs.py tests/interpret/test_faults.py \
		tests/interpret/test_fusion_properties.py tests/interpret/test_passes_and_switches.py \
		tests/interpret/test_strict.py tests/interpret/test_explained.py tests/interpret/test_programs.py \
		tests/interpret/test_gemm_epilogue.py tests/interpret/test_feedforward.py tests/interpret/test_dot_product_attention.py \
		tests/interpret/test_random_operators.py $(ARGS)
	@TSTATIC_TRAININGS=300 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/comm/test_training.py $(ARGS)
	@$(BIN)/python -m tests.comm.soak --trials 200
	@TSTATIC_CPU_BACKEND=interpret TSTATIC_CHIP_FAULTS=all $(BIN)/python -m pytest -n $(JOBS) --timeout 1800 tests/interpret/test_chip_launches.py $(ARGS)
	@TSTATIC_CPU_BACKEND=interpret TSTATIC_SOAK=1 TSTATIC_SPECIAL_RUNS=60 $(BIN)/python -m pytest -n $(JOBS) --timeout 1800 \
		tests/interpret/test_special_fusions.py tests/interpret/test_special_cases.py tests/interpret/test_one_key.py $(ARGS)
	@TSTATIC_EXPLAINED=2000 $(BIN)/python -m pytest -n $(JOBS) --timeout 1800 tests/cpu/test_explain_drawn.py $(ARGS)
	@$(BIN)/python -m tests.api.refused
	@TSTATIC_SOAK=1 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/unit/kernel_cache/test_processes.py tests/cpu/test_kernel_text.py tests/cpu/test_plan.py \
		tests/cpu/test_hash_seeds.py tests/unit/test_serial.py tests/unit/test_text.py tests/bench/test_contact.py \
		tests/cpu/test_hostile_files.py tests/cpu/test_reading_changes_nothing.py tests/cpu/test_broken_off_saves.py \
		tests/io/test_file_dataset.py tests/cli/test_streams.py tests/comm/test_ports.py $(ARGS)
	@TSTATIC_SOAK=1 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/cpu/test_sizes_from_values.py tests/cpu/test_fetched_arrays.py \
		tests/ops/test_special_forms.py tests/torch_import/test_special_families.py tests/torch_import/test_special_layers.py \
		tests/onnx/test_special_values.py $(ARGS)
	@TSTATIC_GRAPHS=all $(BIN)/python -m pytest -n $(JOBS) --timeout 1800 tests/cpu/test_captured_nets.py tests/cpu/test_captured_trainings.py \
		tests/examples/test_captured.py $(ARGS)
	@TSTATIC_CPU_BACKEND=interpret TSTATIC_GRAPHS=all $(BIN)/python -m pytest -n $(JOBS) --timeout 1800 tests/interpret/test_captured_nets.py $(ARGS)
	@TSTATIC_PARITY=all $(BIN)/python -m pytest -n 0 tests/parity/test_variable_arguments.py tests/parity/test_unknown_sizes.py $(ARGS)
	@TSTATIC_PLAN_SIZES=3000 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/cpu/test_plan_cache.py $(ARGS)
	@$(BIN)/python -m tests.helpers.deep_programs
	@TSTATIC_KILLS=20 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/cpu/test_whole_saves.py $(ARGS)
	@$(BIN)/python -m tests.cpu.soak_signals --trials 500
	@OPENBLAS_NUM_THREADS=4 $(BIN)/python -m tests.cpu.soak_threads --trials 500
	@$(BIN)/python -W ignore -m tests.unit.soak_imports --trials 500
	@$(BIN)/python -m tests.busy --load 20 --times 20
	@for backend in torch fake fake+torch torch+interpret; do TSTATIC_CPU_BACKEND=$$backend $(BIN)/python -m pytest -n $(JOBS) \
		--timeout 1800 --ignore tests/kernels --ignore tests/bench $(ARGS); done

mutants: $(VENV)/.dev  ## Plant faults one at a time, and see each caught (ARGS=WORD; a quarter of an hour).
	@$(BIN)/python -m tests.mutants $(ARGS)

parity: $(VENV)/.dev  ## Record Paddle's answers to all calls, compare ours, list what has none (minutes).
	@[ -x .venv-paddle/bin/python ] || $(BIN)/python bench/paddle_env.py paddle
	@[ -x .venv-fluid/bin/python ] || $(BIN)/python bench/paddle_env.py fluid
	@$(BIN)/python -m tests.parity.record
	@TSTATIC_PARITY=all $(BIN)/python -m pytest -n 0 tests/parity $(ARGS)
	@$(BIN)/python -m tests.parity.census
	@$(BIN)/python -m tests.parity.attributes

golden: $(VENV)/.dev $(TRITON36)/.made  ## Put the figures of compiled kernels on record anew.
	@$(BIN)/python tests/kernels/golden.py --write
	@$(BIN)/python tests/kernels/golden.py --write --python $(TRITON36)/bin/python

ratchets: $(VENV)/.dev  ## Lower the numbers of tests/unit/ratchets.json that the source is better than.
	@$(BIN)/python -m tests.helpers.measures

check: lint types layers  ## All that must hold before a commit: format, lint, types, layers, fast tests.
	@$(BIN)/python -m pytest -n $(JOBS) --ignore tests/kernels -m "not slow" $(ARGS)

format: $(VENV)/.dev  ## Format, and mend what the linter can mend.
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

lint: $(VENV)/.dev  ## Check format and lint rules.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

stubs: $(VENV)/.made  ## Write the stubs for type checkers and editors anew (*.pyi; not in git).
	@$(BIN)/python setup.py stubs

types: $(VENV)/.dev stubs  ## Check types, strictly.
	@$(BIN)/mypy

layers: $(VENV)/.dev  ## Check that imports point down only.
	@PYTHONPATH=. $(BIN)/lint-imports --no-cache --no-logo

api: $(VENV)/.dev  ## Write the frozen public signatures and the stubs anew.
	@$(BIN)/python tests/api/regenerate.py

bench: $(VENV)/.dev  ##! Measure CPU speed; the table goes to bench/results/.
	@$(BIN)/python bench/cpu.py $(ARGS)

bench-ops: $(VENV)/.dev  ## Measure operators and fusions by `tstatic bench`; a page in bench/results/.
	@file=bench/results/ops-$$(date -u +%F).json; env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m tstatic bench --json $$file $(ARGS); $(BIN)/python bench/ops_page.py $$file

plan: $(VENV)/.dev  ## Count launches and bytes of training steps; the table goes to bench/results/.
	@CPU_NUM=1 $(BIN)/python bench/plan.py $(ARGS)

pack: $(VENV)/.dev  ## Write the kernels for first contact with a GPU (bench/out/gpu-pack.npz).
	@CPU_NUM=1 $(BIN)/python bench/gpu/pack.py $(ARGS)

BUDGET ?= 540
# On a machine with a GPU: PART=brief (the most knowledge first, within BUDGET=540 seconds; ARGS=--dry-run needs no GPU),
# auto (contact, programs, tests, rows within BUDGET), contact (90 s), programs (on CUDAPlace(0)), tests (of kernels), rows,
# steps (whole training steps) or loss, ARGS=folder of results; its own python3 runs it (GPU_PYTHON).
gpu:  ## On a machine with a GPU: check and time (PART=brief first; others: see above).
	@case "$(PART)" in brief) $(GPU_PYTHON) bench/gpu/brief.py $(ARGS) --budget $(BUDGET);; auto) $(GPU_PYTHON) bench/gpu/auto.py $(ARGS) --budget $(BUDGET);; contact) $(GPU_PYTHON) bench/gpu/contact.py $(ARGS);; \
		programs) $(GPU_PYTHON) bench/gpu/ring.py $(ARGS) --programs;; tests) $(GPU_PYTHON) bench/gpu/ring.py $(ARGS);; rows) $(GPU_PYTHON) bench/gpu/rows.py $(ARGS);; \
		loss) $(GPU_PYTHON) bench/gpu/linear_loss.py $(ARGS);; steps) $(GPU_PYTHON) bench/gpu/steps.py $(ARGS);; \
		*) echo "make gpu PART=brief, PART=auto, PART=contact, PART=programs, PART=tests, PART=rows, PART=steps or PART=loss"; exit 2;; esac

docs: $(VENV)/.dev  ## Write the generated pages of docs/ anew.
	@$(BIN)/python docs/regenerate.py
	@CPU_NUM=1 $(BIN)/python docs/scaling_table.py --write

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing tstatic with what the documentation site needs"
	@$(INSTALL) --no-build-isolation --editable '.[docs]'
	@touch $@

docs-site: $(VENV)/.docs  ##! Build the documentation site; it opens at build/site/index.html.
	@$(BIN)/python -m sphinx --builder html --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site $(ARGS)
	@echo "build/site/index.html"

gallery: $(VENV)/.dev  ## Run the examples with fixed seeds and record their pictures (minutes).
	@$(BIN)/python docs/gallery.py $(ARGS)
	@$(BIN)/python docs/regenerate.py

wheel: $(VENV)/.made  ## Build a wheel and run the README's example with it in a clean environment.
	@rm -rf build dist
	@$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python -m venv --clear build/clean
	@build/clean/bin/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt dist/*.whl
	@$(BIN)/python tests/helpers/snippets.py README.md > build/readme_example.py
	@cd build && CPU_NUM=1 clean/bin/python -W error readme_example.py
	@ls dist/*.whl

# In a folder with a configuration of its own: pyright would find the sources by pyproject.toml, and read them in place of the wheel.
typed-wheel: $(VENV)/.dev wheel  ## Check types of all public names of the wheel, by mypy and pyright.
	@rm -rf build/typed && mkdir build/typed
	@$(BIN)/python -m tests.api.every_module > build/typed/every_module.py
	@echo '{"reportMissingModuleSource": false}' > build/typed/pyrightconfig.json
	@cd build/typed && $(abspath $(BIN))/mypy --strict --config-file= --python-executable ../clean/bin/python every_module.py
	@cd build/typed && $(abspath $(BIN))/pyright --pythonpath ../clean/bin/python every_module.py

clean:  ## Remove everything that make made.
	@rm -rf $(VENV) $(TRITON36) .chromium build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find tstatic -name '*.pyi' -delete
	@rm -f docs/reference/*.rst
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
