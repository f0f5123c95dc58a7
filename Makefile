# The verbs of the project. `make help` lists those with a description.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
SEEDS ?= 0..20000
SECONDS_FUZZ ?= 60
export CARGO_TERM_COLOR ?= auto
# What scripts/build.sh has made, where cargo puts it.
SCOT = . scripts/common.sh && "$$(target_folder)/release/scot"

.PHONY: help setup setup-report setup-study demo report python-lock test check fmt lint sim sim-cache mutants mutations fuzz fuzz-xdp conformance bench lab experiment plots redis-suite kernels doc claims package try-package

help: ## list the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing for the demo and the lab, and name them
	@scripts/setup.sh

setup-report: ## the same, and what the study, the planner and retrieval need: Python
	@scripts/setup.sh --report

setup-study: ## the same, and what their tests use: Java, a browser
	@scripts/setup.sh --study

demo: setup ## namespaces: SETs beside Redis alone, the nine stages, a power failure, a count
	@scripts/build.sh
	@$(SCOT) demo

report: setup-report ## the demo with the study of its calls: target/demo.html
	@scripts/build.sh
	@scripts/python.sh --study >/dev/null
	@$(SCOT) demo --report target/demo.html

test: setup-study ## every test, then the simulator and the kill rounds
	@scripts/test.sh

check: fmt lint ## format, lints and tidy rules: seconds, offline, no root
	@$(CARGO) run -q -p xtask -- tidy

fmt: ## check the formatting (FIX=1 to change it)
	@$(CARGO) fmt --all $(if $(FIX),,-- --check)

lint: ## clippy with warnings as errors
	@$(CARGO) clippy -q --workspace --all-targets -- -D warnings

sim: ## the deterministic world: SEEDS=0..20000, or SEED=n to replay one
	@$(CARGO) run --release -q -p remedy-persist-world --example sim -- $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS))

sim-cache: ## the cache in worlds: a role dies at each step, long histories: CACHE_SEEDS=0..100000
	@CACHE_SEEDS=$(or $(CACHE_SEEDS),0..100000) $(CARGO) test --release --locked -p scotfree-sim --test cache whatever -- --nocapture
	@CACHE_SEEDS=300 $(CARGO) test --release --locked -p scotfree-sim --test cache in_long -- --nocapture

mutants: ## change the machines in SAMPLE=100 random places (SEED=n repeats a sample): who notices?
	@SAMPLE=$(or $(SAMPLE),100) SEED=$(SEED) scripts/mutants.sh

mutations: ## make each known mistake in the protocols of groups (SEEDS=1000 of each world): who notices?
	@SEEDS=$(if $(filter-out file default,$(origin SEEDS)),$(SEEDS),1000) scripts/mutations.sh

fuzz: ## every parser, SECONDS_FUZZ=60 each
	@FUZZ_ASAN=1 FUZZ_SECONDS=$(SECONDS_FUZZ) scripts/fuzz.sh

fuzz-xdp: setup ## the programs in the kernel against the machine, PACKETS=1000000 in each part they play (root)
	@EQUIVALENCE_PACKETS=$(or $(PACKETS),1000000) $(CARGO) test --release --locked -p remedy-persist-kernel --test equivalence -- --nocapture

conformance: ## Protobuf's conformance suite against the codec, its binary format; fetches the runner by npm
	@scripts/conformance.sh

bench: ## micro-benchmarks: printed, not judged
	@scripts/bench.sh

redis-suite: setup ## Redis' own tests, directly and through the proxy: the share that passes both; fetches them by apt
	@scripts/build.sh
	@scripts/redis-suite.sh

lab: setup ## the experiments in lab/experiments (EXPERIMENT=name for one); writes lab/results
	@scripts/build.sh
	@$(SCOT) lab run $(EXPERIMENT)

experiment: setup ## E=NAME: measure one experiment of lab/experiments and draw it
	@[ -f "lab/experiments/$(E).toml" ] || { echo "make experiment E=NAME; there are:" $(basename $(notdir $(wildcard lab/experiments/*.toml))) >&2; exit 2; }
	@scripts/build.sh
	@$(SCOT) lab run "$(E)" || missed=$$?; scripts/plots.sh "$(E)" && exit $${missed:-0}

plots: ## draw all results again: lab/results/plots
	@scripts/build.sh
	@$(SCOT) lab plot >/dev/null
	@scripts/plots.sh

kernels: ## on which of Debian's kernels the device's programs run: boots them; writes docs/kernels.md
	@scripts/kernels.sh

python-lock: ## the exact versions of what the study uses, anew: python/requirements.txt
	@scripts/python.sh --lock

claims: ## every claim with its verdict; exits 1 if a required value is missed
	@scripts/build.sh
	@$(SCOT) claims

package: setup ## a Debian package, a wheel and an image to be carried away: target/package
	@scripts/package.sh

try-package: ## install, try and purge these in a clean tree of Debian 12 (root, debootstrap)
	@scripts/try-package.sh

doc: ## the documentation of all crates
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
