# Every target that needs Python sets up .venv first; see scripts/setup.
SHELL := /bin/sh
.DEFAULT_GOAL := help

DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
# A file of tests stays in one process. Each may start an engine of some 2 GiB, so a few.
PARALLEL_TESTS ?= -n logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
GPU_CHECK_ARGS ?=
VLLM ?= 0.33.0
# The GPU check needs PyTorch with CUDA, which .venv has not: the machine's own Python.
GPU_CHECK_PYTHON ?= $(shell python3 -c "import numpy" 2>&1 | grep -q . && echo .venv/bin/python || echo python3)

.PHONY: help setup demo test check check-vllm compiled check-compiled docs bench gpu-check clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 19

setup: ## create or update .venv from requirements/ (the others do it by themselves)
	@sh scripts/setup >&2

demo: setup ## serve a hybrid model with vLLM and watch it come back (DEMO_ARGS="--json")
	@.venv/bin/kvcellar demo $(DEMO_ARGS)

test: setup ## run the tests, a few at a time (TEST_ARGS="-k index"; "-n 0" for one)
	@.venv/bin/python -m pytest $(PARALLEL_TESTS) $(TEST_ARGS)

check: setup ## format check, lint, import contracts, types, size guide
	@sh scripts/check

check-vllm: setup ## run the contract tests with another vLLM, without its compiled parts (VLLM=0.33.0)
	@sh scripts/check_vllm $(VLLM) $(PARALLEL_TESTS) $(TEST_ARGS)

compiled: setup ## build the package with its planner compiled, into build/compiled/site (needs a C compiler)
	@sh scripts/compile

check-compiled: setup ## run the planner's and the replay's tests against that build
	@sh scripts/check_compiled $(PARALLEL_TESTS) $(TEST_ARGS)

docs: ## build the documentation's site into build/site, with all links checked
	@sh scripts/docs

bench: setup ## measure every number that the README and docs quote (BENCH_ARGS="--help")
	@.venv/bin/python benchmarks/run_all.py $(BENCH_ARGS)

gpu-check: ## check copies, their order and their speed on a GPU (GPU_CHECK_ARGS=--fake without one)
	@$(GPU_CHECK_PYTHON) benchmarks/gpu_check.py $(GPU_CHECK_ARGS)

clean: ## remove .venv, caches and build leftovers
	@rm -rf .venv .venv-docs build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	@find src -name '*.so' -exec rm -f {} +
	@find . -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +
