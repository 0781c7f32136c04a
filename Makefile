# `make test` and `make demo` do all the set-up. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

CARGO ?= cargo
export QUICK
# Set where the binaries of target/debug are those of this tree already.
export ONLOOKER_BUILT

.PHONY: help
help:
	@echo 'make demo          a watched machine on this one: agent and a sample program in a namespace, read from outside, and the dashboard over it'
	@echo 'make test          every gate and test (set-up included)'
	@echo 'make bench         all benches (an hour and a half); each prints RESULT lines; QUICK=1 for under a minute each'
	@echo '  bench-torn         torn reads: guarded blocks and single words against hostile copies'
	@echo '  bench-cost         what a counter, a commit and a histogram record cost the program'
	@echo '  bench-agent        the idle agent: memory and context switches'
	@echo '  bench-responder    ns of softirq for a READ answered by the BPF responder (root)'
	@echo '  bench-dta          what a telemetry report takes of a core, beside other collectors (root)'
	@echo '  bench-dta-beside   metrics that are read every 10 ms beside a million telemetry reports a second (root)'
	@echo '  bench-dta-query    how fast a core answers questions to telemetry in its memory (root)'
	@echo '  bench-collectors   ns of softirq for a block of computed kernel metrics (root)'
	@echo '  bench-kernel-cost  a full sample of kernel metrics: computed, published, sampled, and by node_exporter (root)'
	@echo '  bench-overhead     what a host that is read every 10 ms notices of it (root)'
	@echo '  bench-parity       every metric of the node-exporter dashboard beside node_exporter: how it is acquired, whether it is equal'
	@echo '  bench-accuracy     how far readings are from the truth, by the way of acquiring them (root)'
	@echo '  bench-granularity  what being read costs a floating-point program, by the way of acquiring values (root)'
	@echo '  bench-latency      a READ on an idle, saturated and flooded core, beside the agent over TCP and node_exporter (root)'
	@echo '  bench-victim       what being monitored costs Redis: Onlooker, node_exporter, netdata (root; 25 minutes)'
	@echo '  bench-scheduler-latency  what counting how long tasks wait costs them, and Redis (root; ten minutes)'
	@echo '  bench-tables       16,384 TCP connections and 40 control groups as tables, beside ss and a C program; a host with 100,000 sockets (root)'
	@echo '  bench-store        the frame store beside Prometheus'\'' head and VictoriaMetrics, on rows of real agents: values a second, bytes a value, memory (root, Go; 25 minutes)'
	@echo '  bench-open         a controller over a store of 10 GiB, started with no file in memory: until it listens, and until it answers (root; 25 GB of disk; ten minutes)'
	@echo '  bench-query        the queries of a node dashboard over 24 hours of 100 hosts, beside Prometheus 3.16 and VictoriaMetrics with the same samples (Go, 20 GB of disk; an hour)'
	@echo '  bench-dashboard    a dashboard of 30 panels loaded while 24 hosts are read every 10 ms: time of a load, lateness of the reads, then and with slow rules (root; eleven minutes)'
	@echo '  bench-alerts       a disk fills, a host is cut off, the kernel kills a process: pending, firing, received by an Alertmanager, resolved (root; a minute)'
	@echo '  bench-top          what onlooker top takes at 100 ms, and what each view reads of a host (root, tmux; a minute and a half)'
	@echo '  bench-farm         10,000 hosts of 1 KiB and of 690 series, 1,000 every 100 ms: lateness, gaps, CPU by thread, memory (root; 50 minutes)'
	@echo '  bench-checks       a program of 200 series plants spikes, stuck and negative values, resets and silence: each marked with the right reason, and nothing else (root; six minutes)'
	@echo '  bench-causes       five faults planted in a fleet of 24 hosts, looked for in the dashboard from its first page: actions and time (root; 25 minutes)'
	@echo '  bench-ui           how fluid the dashboard is: rows of 10 ms, a day of 100 hosts, a fleet of 10,000; frames and times in Chromium (root; six minutes)'
	@echo '  bench-forward      a filled store sent to a sink, VictoriaMetrics, InfluxDB and Prometheus 3.16 as fast as they take it, both sides disturbed; read back (Go; four minutes)'
	@echo '  bench-forward-live  28 hosts read every 10 ms and sent as they come: to a sink that counts, to the three at half of what they take, down for ten minutes; read back (root, Go; an hour and a half)'
	@echo '  bench-processing   from checked frames of real agents to the log, durable: values a second of one core, warm and with 2,000 hosts; allocations (root)'
	@echo '  bench-churn        a thousand short-lived regions a second: the agent'\''s CPU, time to the first frame (root)'
	@echo '  bench-acquisition  metrics, hosts and programs as in a published study, against one controller: shares of CPU, memory, network; what `onlooker capacity` predicts (root; 14 minutes)'
	@echo '  bench-requester    one soft requester thread beside its bare sockets'
	@echo 'make dta-longevity how long telemetry lives in a table of keys, beside the model (three minutes)'
	@echo 'make sim           64 to 10,000 hosts read at once over a simulated network, by what bounds their READs (a minute)'
	@echo 'make crash-test    a controller killed 200 times, its store damaged 400 times: nothing durable lost, nothing wrong'
	@echo 'make soak-fleet    24 hosts read every 10 ms for 22 minutes: gaps, lateness, memory, bytes (root)'
	@echo 'make soak-many     300 to 10,000 targets every second, 24 every 10 ms to 1 s: lag, refused rows, bytes a value, memory, HTTP; killed (root; 50 minutes)'
	@echo 'make soak-ui       pages left open for an hour: what they keep (root)'
	@echo 'make conformance   Prometheus'\'' own test of PromQL over the store, 100,000 random queries, how queries are printed, answers over HTTP by its OpenAPI document (Go)'
	@echo 'make sql-interop   40 questions to the store'\''s Parquet files: DuckDB, ClickHouse (chDB), our own reader and PromQL give the same answers, also after kills'
	@echo 'make attack        an unprivileged program and somebody at the HTTP port do their worst for a minute; honest hosts and users must not notice (root)'
	@echo 'make soak-agent    the agent killed 100 times while it is read and a program counts (root)'
	@echo 'make ui            the dashboard: checked, tested, built'
	@echo 'make lab           guests with other kernels and soft-RoCE: lab-smoke, lab-contract, lab-devices, lab-verbs, lab-cost, lab-pairs, lab-faults, lab-table, lab-push, lab-lane, kernel tests, lab-kernel'
	@echo '  lab-cost           one-sided READs beside RPC and TCP: latency, and the watched processes'\'' CPU (8 minutes)'
	@echo '  lab-table          READs of every pair of requester and responder: sizes, losses, every word; QUICK=1 for 6.12 only'
	@echo '  lab-push           a thousand short-lived regions a second: time to the first frame, directory read or written to the reader; QUICK=1 for 6.12 only'
	@echo '  lab-lane           lanes for READs set and undone on virtio-net; QUICK=1 for 6.12 only'
	@echo '  lab-faults         each fault of the RDMA path in two guests: time to recovery, wrong values, gaps (ten minutes)'
	@echo '  lab-kernel         the agent on Debian 6.1 and 6.12: every metric beside node_exporter, containers, faults (root; 15 minutes)'
	@echo 'make book          docs/ as a book: build/book/html (mdBook, which is compiled once where there is none)'
	@echo 'make fuzz          the property harnesses for FUZZ_SECONDS (60) each'
	@echo 'scripts/record make bench-torn   any of the above; its RESULT lines become part of SPECIFICATION.md'
	@echo 'make audit         known vulnerabilities in dependencies (needs the network)'

.PHONY: setup-build setup-lint setup-test setup-lab setup-bench
setup-build setup-lint setup-test setup-lab setup-bench: setup-%:
	@scripts/setup $*

.PHONY: build
build: setup-build
	scripts/ui build
	scripts/build

.PHONY: demo
demo: build
	build/onlooker demo

# --- gates -------------------------------------------------------------------------------------------------------------------------------

# Packages come while lint computes. The last four wait more than they compute, so two of them run at once.
.PHONY: test
test: setup-lint ui-dist
	@+$(MAKE) --no-print-directory --output-sync=line -j2 setup-later lint
	@+$(MAKE) --no-print-directory --assume-old=ui-dist unit
	@+$(MAKE) --no-print-directory e2e ONLOOKER_BUILT=1
	@+$(MAKE) --no-print-directory --output-sync=target -j2 sdk-c loom ui lab-smoke
	@echo 'make test: all passed'

.PHONY: lint
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) deny --log-level error check licenses bans sources
	python3 docs/format/vectors.py --check
	scripts/check-links
	python3 crates/wire/tests/vectors/generate.py --check
	python3 -B -m unittest discover --start-directory scripts
	scripts/circles
	scripts/specification --check
	scripts/specification --stale --gates
	shellcheck -x $$(git ls-files | xargs -d '\n' awk 'FNR == 1 && /^#!.*\/(ba|da)?sh/ { print FILENAME } FNR > 1 { nextfile }')

# What lint does not need. Where no QEMU can be had lab-smoke says so.
.PHONY: setup-later
setup-later: setup-test
	-@scripts/setup lab

# The dashboard, which becomes part of the binary that tests start.
.PHONY: ui-dist
ui-dist:
	scripts/ui build

.PHONY: unit
unit: ui-dist
	ONLOOKER_BUILT=1 scripts/unit

# The guard protocol under the model checker: every interleaving of one writer and one reader.
.PHONY: loom
loom:
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom $(CARGO) test -p onlooker-region --lib

.PHONY: sdk-c
sdk-c:
	sdk/c/run-tests

# Programs with known values in one network namespace, the reader in another; the demo, seen in Chromium; a stock Prometheus on a controller that reads two hosts;
# every metric of the node-exporter dashboard.
.PHONY: e2e
e2e:
	@e2e/run || [ $$? = 77 ]
	@e2e/demo || [ $$? = 77 ]
	@e2e/prometheus || [ $$? = 77 ]
	@e2e/parity

# The dashboard's own checks and tests.
.PHONY: ui
ui:
	scripts/ui test

.PHONY: book
book:
	scripts/book

# --- laboratory --------------------------------------------------------------------------------------------------------------------------

# 77 is a loud skip: no QEMU can be had here.
.PHONY: lab-smoke
lab-smoke:
	-@scripts/setup lab
	@lab/lab-smoke || [ $$? = 77 ]

.PHONY: lab
lab: setup-lab
	lab/lab-smoke
	lab/lab-contract
	lab/lab-devices
	lab/lab-verbs
	lab/lab-cost
	lab/lab-pairs
	lab/lab-faults
	lab/lab-table
	lab/lab-push
	lab/lab-lane
	crates/responder/tests/in-guest
	@$(MAKE) --no-print-directory lab-kernel

# Kernel metrics of the real agent in guests, beside node_exporter; containers; faults.
.PHONY: lab-kernel
lab-kernel: setup-lab setup-bench
	@lab/lab-kernel || [ $$? = 77 ]

# One-sided READs, RPC and TCP side by side in two guests: latency, and what it costs the one that is watched.
.PHONY: lab-cost
lab-cost: setup-lab
	lab/lab-cost

# Faults of the RDMA path in two guests: processes, link, device, library, limits.
.PHONY: lab-faults
lab-faults: setup-lab
	lab/lab-faults

# Device types of the responder in guests, virtio-net between two of them included.
.PHONY: lab-devices
lab-devices: setup-lab
	lab/lab-devices

# Every pair of requester and responder between two guests, through the real agent and holder.
.PHONY: lab-table
lab-table: setup-lab
	lab/lab-table

# A thousand short-lived regions a second, read over RDMA devices.
.PHONY: lab-push
lab-push: setup-lab
	lab/lab-push

# Lanes for READs on virtio-net, under kernels that make NAPI threads for whole devices only.
.PHONY: lab-lane
lab-lane: setup-lab
	lab/lab-lane

# --- benches -----------------------------------------------------------------------------------------------------------------------------

# The one program of measurements; bench/ has what some of them need around it.
BENCH = $(CARGO) run --release --quiet -p onlooker-bench --

.PHONY: bench
bench: bench-torn bench-cost bench-agent bench-responder bench-collectors bench-kernel-cost bench-parity bench-requester bench-churn bench-overhead bench-tables bench-accuracy bench-granularity bench-latency bench-scheduler-latency bench-victim

.PHONY: bench-torn
bench-torn: setup-build
	$(BENCH) torn

.PHONY: bench-cost
bench-cost: setup-build
	bench/cost

.PHONY: bench-agent
bench-agent: setup-build
	bench/agent

.PHONY: bench-responder
bench-responder: setup-test
	$(BENCH) responder

.PHONY: bench-dta
bench-dta: setup-bench
	bench/bench-dta

.PHONY: bench-dta-beside
bench-dta-beside: setup-test
	$(CARGO) build --release --quiet -p onlooker -p onlooker-agent
	ONLOOKER_BUILT=1 $(BENCH) dta-beside

.PHONY: bench-dta-query
bench-dta-query: setup-test
	$(BENCH) dta-query

.PHONY: bench-collectors
bench-collectors: setup-test
	$(BENCH) collectors

.PHONY: bench-kernel-cost
bench-kernel-cost: setup-bench
	bench/kernel-cost

.PHONY: bench-top
bench-top: setup-bench
	bench/bench-top

.PHONY: bench-churn
bench-churn: setup-build
	bench/churn

.PHONY: bench-overhead
bench-overhead: setup-test
	bench/overhead

.PHONY: bench-parity
bench-parity: setup-bench
	bench/parity

.PHONY: bench-accuracy
bench-accuracy: setup-bench
	bench/accuracy

.PHONY: bench-granularity
bench-granularity: setup-bench
	bench/granularity

.PHONY: bench-tables
bench-tables: setup-test
	bench/tables
	bench/sockets

.PHONY: bench-latency
bench-latency: setup-bench
	bench/latency

.PHONY: bench-scheduler-latency
bench-scheduler-latency: setup-bench
	bench/scheduler-latency

.PHONY: bench-victim
bench-victim: setup-bench
	bench/victim

.PHONY: bench-store
bench-store: setup-test
	bench/bench-store

.PHONY: bench-processing
bench-processing: setup-test
	bench/bench-processing

.PHONY: bench-open
bench-open: setup-test
	bench/bench-open

.PHONY: bench-query
bench-query: setup-test
	bench/bench-query

.PHONY: bench-acquisition
bench-acquisition: setup-test
	bench/bench-acquisition

.PHONY: bench-alerts
bench-alerts: setup-test
	bench/bench-alerts

.PHONY: bench-forward
bench-forward: setup-bench
	bench/bench-forward

.PHONY: bench-forward-live
bench-forward-live: setup-bench
	bench/bench-forward-live

.PHONY: bench-dashboard
bench-dashboard: setup-test
	bench/bench-dashboard

.PHONY: bench-hybrid
bench-hybrid: setup-test
	$(BENCH) hybrid

.PHONY: bench-limit
bench-limit: setup-test
	$(BENCH) limit

.PHONY: bench-farm
bench-farm: setup-test
	bench/bench-farm

.PHONY: bench-bad-hosts
bench-bad-hosts: setup-test
	bench/bench-bad-hosts

.PHONY: bench-checks
bench-checks: setup-test
	bench/bench-checks

.PHONY: bench-causes
bench-causes: setup-bench ui-dist
	bench/bench-causes

.PHONY: bench-ui
bench-ui: setup-test ui-dist
	bench/bench-ui

.PHONY: conformance
conformance: setup-test
	bench/conformance/run

.PHONY: sql-interop
sql-interop: setup-test
	bench/sql-interop

.PHONY: dta-longevity
dta-longevity: setup-build
	bench/dta-longevity

.PHONY: sim
sim: setup-build
	bench/sim

.PHONY: soak-agent
soak-agent: setup-test
	bench/soak-agent

.PHONY: crash-test
crash-test: setup-test
	bench/crash-test

.PHONY: soak-fleet
soak-fleet: setup-test
	bench/soak-fleet

.PHONY: soak-many
soak-many: setup-test
	bench/soak-many

.PHONY: attack
attack: setup-test
	bench/attack

.PHONY: soak-ui
soak-ui: setup-test ui-dist
	bench/soak-ui

.PHONY: bench-requester
bench-requester: setup-test
	$(BENCH) requester

# --- longer ------------------------------------------------------------------------------------------------------------------------------

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: setup-test
	BOLERO_RANDOM_TEST_TIME_MS=$$(( $(FUZZ_SECONDS) * 1000 )) BOLERO_RANDOM_ITERATIONS=4294967295 $(CARGO) test --release --workspace

.PHONY: audit
audit:
	$(CARGO) deny check advisories
