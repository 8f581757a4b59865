# Everything a developer does here. `make` alone lists it; CI runs `make test` and nothing else.

# One shell line is one step: stop at the first that fails.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
# Most steps compile into one target directory: side by side they would wait for one another. `test` says which do not.
.NOTPARALLEL:

# Nodes of `make run`.
NODES ?= 3
# Fresh seeds of `make sim`; SEED=… runs one alone and shows its plan; SHRINK=1 makes one that fails as short as it can, and
# TRACE=1 writes each of its events to standard error.
# PLANS=--mixed-versions founds each cluster by an old release; `target/sim/tidelock-sim --help` lists the other plans.
SEEDS ?= 300
# The tests of the simulator run the same seeds each time, so that they fail only because of a change; the gate adds a few
# fresh ones. `make night` searches among many. Every fresh seed that fails is kept in FAILING_SEEDS.
GATE_FRESH_SEEDS := 60
FAILING_SEEDS := target/failing-seeds.txt
SEED ?=
SHRINK ?=
TRACE ?=
# How long `make fuzz` goes on.
FUZZ_SECONDS ?= 600

# Property tests draw the same cases each time, so that a red gate is the change's own doing; PROPTEST_RNG_SEED=… draws
# others.
PROPTEST_RNG_SEED ?= 1
export PROPTEST_RNG_SEED

# Tests of the real binary wait more than they compute: as many at a time as keep two cores busy.
RUST_TEST_THREADS ?= 6
export RUST_TEST_THREADS

# Always the whole workspace and one profile: selecting one package would resolve features differently and compile
# the dependencies again.
CARGO_TEST := cargo test --workspace --locked
UNIT_TESTS := $(CARGO_TEST) --config scripts/unit-tests.toml --no-fail-fast --lib --bins
OTHER_TESTS := $(CARGO_TEST) --no-fail-fast --test '*'
SIM := target/debug/tidelock-sim
# Twice as fast as that, and two minutes to build.
FAST_SIM := target/sim/tidelock-sim
TIDELOCK := cargo run --locked --release --bin tidelock --

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ' *## *' '/^[a-zA-Z][^:]*:.*## / { sub(/:.*/, "", $$1); printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Build, and run a local cluster of three nodes until Ctrl-C (NODES=3)
	@$(TIDELOCK) dev --nodes $(NODES)

.PHONY: build
build: ## Build the release binary, target/release/tidelock
	cargo build --locked --release --bin tidelock

# The binaries that the tests use, and all tests but those that test-unit compiles. Asked for one package alone, cargo would
# resolve features differently and compile most dependencies once more, which takes minutes.
.PHONY: test-binaries
test-binaries: ## Compile everything but the unit tests
	$(CARGO_TEST) --quiet --no-run --test '*'
	cargo build --workspace --locked --quiet --bins --examples

# Tests of clients, pages and faults mostly wait, so they run beside those that compute, which have a lower priority. The
# binaries are built by then; `-o test-binaries` keeps make from asking cargo again, which would wait for the other cargo.
.PHONY: test
test: tools lint docs deny test-seeds test-guard ## Every check that CI makes, with a count at the end
	scripts/at-once "nice $(MAKE) test-workers test-rust" \
		"$(MAKE) -o test-binaries test-clients test-examples test-browser test-chaos"

.PHONY: test-rust
test-rust: ## Unit tests, simulations, and tests of the real binary
	scripts/test-summary sh -c "$(UNIT_TESTS); units=\$$?; $(OTHER_TESTS) && exit \$$units"

.PHONY: test-unit
test-unit: ## Unit tests alone (TEST=part of a name)
	scripts/test-summary $(UNIT_TESTS) -- $(TEST)

.PHONY: test-e2e
test-e2e: ## Tests of the real binary alone (TEST=part of a name)
	scripts/test-summary $(CARGO_TEST) --test cli -- $(TEST)

# What a second worker could break: protocols, watchers, faults, and the way down. On two cores nodes have one worker otherwise.
.PHONY: test-workers
test-workers: ## Tests of the real binary with two workers a node
	TIDELOCK_WORKERS=2 scripts/test-summary $(CARGO_TEST) --test cli -- \
		auth:: backups:: bytes:: config:: config_watches:: dialects:: faults:: full_disk:: lifecycle:: linearizable:: moving:: resp:: workers::

# redis-cli, redis-benchmark, redis-py, ioredis and go-redis, pinned, against three nodes.
.PHONY: test-clients
test-clients: test-binaries ## Redis clients in four languages against the real binary
	scripts/test-clients $(CURDIR)/target/debug/tidelock

# The programs of the how-to pages, on three nodes, also while the leader is killed.
.PHONY: test-examples
test-examples: test-binaries ## The examples in three languages against the real binary
	scripts/test-examples $(CURDIR)/target/debug/tidelock

.PHONY: test-browser
test-browser: test-binaries ## Pages in Chromium that attack a node, and the console as a person uses it (skipped where Chromium cannot be installed)
	scripts/test-browser $(CURDIR)/target/debug/tidelock

# Archive, Debian package, list of components and checksums.
.PHONY: dist
dist: ## Build what is released, into target/dist
	scripts/dist

# In a Debian with systemd of its own, made in target/test-package. Needs root.
.PHONY: test-package
test-package: ## Install, run, upgrade, remove and purge the package of `make dist` (DEB=…, OLDER=binary of an earlier build)
	scripts/test-package $(or $(DEB),$(wildcard target/dist/*.deb)) $(OLDER)

.PHONY: test-deploy
test-deploy: ## The Dockerfile, the manifests for Kubernetes and the unit for systemd, by their linters
	scripts/test-deploy

.PHONY: fuzz
fuzz: ## Every parser against malformed bytes (TARGET=names of targets), for FUZZ_SECONDS=600 each
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz $(TARGET)

CHAOS := scripts/test-chaos target/debug/tidelock
CONVICT := $(CHAOS) -convict lying-disk && $(CHAOS) -convict stale-reads

.PHONY: chaos
chaos: test-binaries ## The real binary under faults, judged by porcupine (SECONDS=300, NEMESIS=names of faults, SEED=…)
	$(CHAOS) -seconds $(or $(SECONDS),300) $(if $(NEMESIS),-faults $(NEMESIS)) $(if $(SEED),-seed $(SEED))

.PHONY: chaos-convict
chaos-convict: test-binaries ## Proof that these runs find bugs: they are given two
	$(CONVICT)

# They need registries and some minutes, so they are not a part of `make test`.
.PHONY: test-metrics
test-metrics: test-binaries ## /metrics of three nodes, the alerts and the dashboard, by Prometheus and promtool
	scripts/test-metrics target/debug/tidelock

.PHONY: test-generated
test-generated: test-binaries ## Clients in Python and TypeScript, generated from /openapi.json
	scripts/test-generated-clients target/debug/tidelock

.PHONY: test-schemathesis
test-schemathesis: test-binaries ## Generated requests by /openapi.json, judged by schemathesis
	scripts/test-schemathesis target/debug/tidelock

.PHONY: test-suites
test-suites: test-binaries ## Tests of others: of Redis itself, of redis-py and of go-redis
	scripts/test-redis-suite target/debug/tidelock
	scripts/test-client-suites target/debug/tidelock

# Each step runs whatever became of the others, and the last line names those that failed.
.PHONY: night
night: test-binaries ## What takes hours: fresh seeds, all faults, the soak, the fuzzers, and the tests of others
	@failed=; \
	for step in "sim SEEDS=20000" "sim SEEDS=2000 PLANS=--mixed-versions" "sim SEEDS=2000 PLANS=--empty-disks" test-metrics test-generated test-schemathesis test-suites test-deploy docs-site "chaos SECONDS=3600" soak fuzz; do \
		echo "== make $$step"; \
		$(MAKE) $$step || failed="$$failed; $$step"; \
	done; \
	[[ -z $$failed ]] || { echo "failed: $${failed#; }"; exit 1; }

# Every fault once, some of them in pairs, and both convictions: about five minutes.
.PHONY: test-chaos
test-chaos: test-binaries
	$(CHAOS) -seconds 150
	$(CONVICT)

.PHONY: soak
soak: test-binaries ## An hour of load, restarts and changes of members (MINUTES=60), with a plot of what the nodes use, in target/soak
	mkdir -p target/soak
	$(CHAOS) -soak $(or $(MINUTES),60) -directory target/soak

.PHONY: sim
sim: ## Simulated clusters with every fault (SEEDS=300), one in detail (SEED=…), shrunk (SHRINK=1) or traced (TRACE=1)
	cargo build --locked --profile sim --package tidelock-sim
	$(FAST_SIM) $(if $(SEED),--seed $(SEED) $(if $(SHRINK),--shrink) $(if $(TRACE),--trace),--seeds $(SEEDS) --failures $(FAILING_SEEDS)) $(if $(PAIRS),--pairs) $(PLANS)

.PHONY: test-seeds
test-seeds: test-binaries ## Simulated clusters: a few fresh seeds
	$(SIM) --seeds $(GATE_FRESH_SEEDS) --keep-going --failures $(FAILING_SEEDS)

.PHONY: test-deliberate
test-deliberate: ## Only the proof that the simulator finds bugs: it is given some
	scripts/test-summary $(CARGO_TEST) --test deliberate_faults

.PHONY: test-guard
test-guard: test-binaries ## Instructions of the hot paths and of whole requests in the test build, against a baseline
	scripts/test-guard

.PHONY: bench-guard
bench-guard: ## The same of the release build, which it makes (needs valgrind; not part of the gate)
	bench/guard/guard

.PHONY: bench-compare
bench-compare: ## Tidelock beside hyper, redis-server and etcd (ARGS=--quick for a look); half an hour
	bench/compare/compare $(ARGS)

.PHONY: lint
lint: ## Formatting and clippy, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --locked --all-targets -- -D warnings

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: docs
docs: ## Build the API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --locked --no-deps

.PHONY: docs-site
docs-site: ## Build the documents as a site with search, target/docs-site
	@scripts/docs-site

.PHONY: deny
deny: tools ## Licences, duplicates and sources of the dependencies, and advisories where their list can be fetched
	@scripts/check-dependencies

.PHONY: tools
tools: ## Install what the checks need beyond a Rust toolchain
	@scripts/install-tools

.PHONY: clean-data
clean-data: ## Delete the data of local clusters, ./tidelock-data
	rm -rf ./tidelock-data

# One node each of a cluster, to be started in a terminal each: three founders in three zones, and up to three that join
# them, in zones that are covered already. The policies of the shards name three voters in three zones, so the other
# nodes have no vote. Node N has the ports 800N, 700N and 900N. `make clean-data` begins anew.
FOUNDERS := test-node-1 test-node-2 test-node-3
JOINERS := test-node-4 test-node-5 test-node-6
ZONE_1 := us-west-1a
ZONE_2 := us-west-1c
ZONE_3 := us-west-1f
ZONE_4 := us-west-1a
ZONE_5 := us-west-1c
ZONE_6 := us-west-1f

.PHONY: $(FOUNDERS) $(JOINERS)
test-node-1: ## Run node 1 of a cluster of three in this terminal
test-node-2: ## Run node 2
test-node-3: ## Run node 3
test-node-4: ## Run node 4, which joins the three
test-node-5: ## Run node 5
test-node-6: ## Run node 6
$(FOUNDERS): CLUSTER := --peers 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003
$(FOUNDERS): POLICIES := --shards 4 --shard-tag 'placement:member=3;geo:region=us-central1' --shard-tag placement:vary=geo:zone
$(JOINERS): CLUSTER := --join 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003
$(FOUNDERS) $(JOINERS): test-node-%:
	@$(TIDELOCK) serve --data-dir ./tidelock-data/test-node-$* \
		--http 127.0.0.1:800$* --resp 127.0.0.1:700$* --peer 127.0.0.1:900$* $(CLUSTER) $(POLICIES) \
		--tag geo:region=us-central1 --tag geo:zone=$(ZONE_$*)
