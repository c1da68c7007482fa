# Each target sets up what it needs, and says what it installs (scripts/setup.sh).
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -E)
STACKHOUND := .venv/bin/stackhound

.DEFAULT_GOAL := help
.PHONY: help build record test test-kernels lint fuzz bench bench-gate clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

build: ## set up .venv, with stackhound in it: .venv/bin/stackhound
	@scripts/setup.sh build

record: build ## record ten seconds of this machine: flame.html, and stackhound.hound for the other commands
	$(SUDO) $(STACKHOUND) record -d 10 -o stackhound.hound
	$(STACKHOUND) export stackhound.hound -o flame.html

test: ## run all tests; those that load BPF programs need root or sudo, and say so when skipped
	@scripts/setup.sh test
	@scripts/test.sh

test-kernels: ## run the tests that depend on the kernel on another one, under QEMU: make test-kernels KERNEL=6.1
	@scripts/setup.sh test
	@.venv/bin/python scripts/kernels $(or $(KERNEL),6.12)

lint: ## check style, types, licences and the direction of dependencies
	@scripts/setup.sh lint
	@scripts/lint.sh

fuzz: ## fuzz each parser for a minute
	@scripts/setup.sh lint
	@scripts/fuzz.sh

bench: ## measure against the targets in docs/performance.md; needs root or sudo
	@scripts/setup.sh bench
	$(SUDO) .venv/bin/python -m benches

bench-gate: ## compare what this checkout costs in counts (instructions, allocations, verifier) with its parent commit
	@scripts/setup.sh gate
	@scripts/answered.sh $(SUDO) $(STACKHOUND) bench gate --config benches/gate/bench.toml --strict 'HEAD^' .

clean: ## remove everything that was built here
	rm -rf .venv target src/stackhound/_native*.so tests/oracles/node_modules
