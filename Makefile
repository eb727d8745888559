# SPDX-License-Identifier: Apache-2.0
#
# Two targets matter to a newcomer: `make demo` and `make test`. Everything they
# need beyond Go, gcc, make and root they install or build themselves.

SHELL       := /bin/bash
GO          ?= go
BIN         := $(CURDIR)/.sandbox/bin
ARCH        ?= amd64,arm64
TEST_ARCH   ?= amd64
FUZZTIME    ?= 60s
BENCHTIME   ?= 1s
KILLS       ?= 150
# go-nvml resolves the driver's symbols when they are called and not when the
# program starts; the linker must leave them unbound until then.
LAZY        := -ldflags=-extldflags=-Wl,-z,lazy
# The same flags for whatever is compiled: what tests, sandbox and images have in common is compiled
# once. The tags keep cgo out of packages net and os/user, and so out of all that imports them;
# without its path, a clone's code is the same as another clone's.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -tags=netgo,osusergo)
# How much is tested: fewer rounds, and without the suites and tests that wait for testing.Short,
# unless SHORT is empty.
SHORT       ?= -short
# `make lint` vets. Where nothing is cached, `go test` would look at every package once more, with the
# race detector's build.
GOTEST      := $(GO) test -vet=off $(LAZY)
PRODUCTS    := deviceshare-scheduler deviceshare-device-plugin deviceshare-webhook deviceshare-view deviceshare-hook kubectl-deviceshare kubectl-deviceshare-simulate

# Decoders are fuzzed where they do not link Volcano: go instruments every package
# it links, which takes ten minutes there.
FUZZED      := ./sharing ./config ./deviceplugin ./plugins/admission ./view/capture ./view/usage

.DEFAULT_GOAL := help
# One after the other also under `make -j`: parts build into the same folders, and there is one
# sandbox. What is compiled inside of a part is compiled side by side.
.NOTPARALLEL:
.PHONY: help build images release demo sandbox sandbox-down test check test-all test-go test-c test-e2e test-images gpu-build gpu gpu-dry fuzz bench instructions openb scale rooms rooms-nodes plans histories mutate chaos sabotage kills hostile pictures fleet versions format lint clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the programs and the library into .sandbox/bin and hami-core/build
	@mkdir -p $(BIN)
	@for p in $(PRODUCTS); do echo "building $$p"; $(GO) build $(LAZY) -o $(BIN)/$$p ./cmd/$$p || exit 1; done
	@$(MAKE) --no-print-directory -C hami-core

images: ## build the images of the product as OCI layouts into .sandbox/images, without Docker; ARCH=amd64,arm64 FIPS=v1.0.0
	@$(GO) -C manifests/images build -o $(BIN)/images . && $(BIN)/images build --arch $(ARCH) --fips "$(FIPS)"

# A SIGN_KEY that was given and is empty is an error, not a release without a signature.
release: ## write images, kubectl plugin, chart, plain manifest, list of contents and checksums of one version into dist; VERSION=v0.2.0 SIGN_KEY=PATH FIPS=v1.0.0
	@[ -n "$(VERSION)" ] || { echo "which version? make release VERSION=v0.2.0"; exit 2; }
	@$(GO) -C manifests/images build -o $(BIN)/images . && $(BIN)/images release --version $(VERSION) --arch $(ARCH) --downloads "$(DOWNLOADS)" \
	  --fips "$(FIPS)" $(if $(filter-out undefined,$(origin SIGN_KEY)),--sign-key "$(SIGN_KEY)")

demo: ## run the main job on a real cluster on this machine and show what happened
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox demo

sandbox: ## start a cluster and leave it running; prints the kubeconfig line
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox up

sandbox-down: ## stop the cluster that `make sandbox` left running
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox down

check: lint ## what to run while you edit: formatting, vet, architecture, pages, and every package that decides; 90 s with warm caches
	$(GO) test -vet=off -short . $(PURE)
	$(GO) test -vet=off -short -run 'Page' $(PAGED)

# One part after the other: each keeps all processors busy by itself, and what waits for another
# program is not starved by a third. Neither C nor Go tests run again while nothing has changed that
# they read, unless AGAIN says so.
test: lint test-c test-go test-e2e test-images ## one suite for each promise: C under sanitizers, Go, the real cluster, the images; AGAIN=1 also what has passed

# Decoders are fuzzed by count there: before Go 1.27 the end of a fuzzer's time may be a failure of
# the test (golang/go#75804), most of all on a busy machine.
test-all: ## everything: all suites, all rounds, short slices of the laboratories
	@$(MAKE) --no-print-directory test SHORT=
	@$(MAKE) --no-print-directory gpu-dry
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5000x

# What decides: no clock, no file, no goroutine.
PURE := ./sharing/... ./config ./deviceplugin/node ./deviceplugin/checkpoint ./plugins/deviceshare/podstate ./plugins/deviceshare/holds ./plugins/deviceshare/waiting/news ./view ./view/capture ./view/usage
# Whose tests hold a page of docs to what the programs print, have and accept.
PAGED := ./cmd/kubectl-deviceshare ./cmd/kubectl-deviceshare-simulate ./e2e/laboratory/frameworks ./e2e/laboratory/versions ./manifests
# Where goroutines meet: packages of the product that start some or hold locks, and their tests. Of
# the plugin of kubectl that is `web` alone, which suite page runs.
MEETS := grep -rlE '^[[:space:]]+go (func|[a-zA-Z_.]+\()|"sync"|"sync/atomic"|x/sync/' --include=*.go cmd config deviceplugin endpoint plugins sharing view | xargs -n1 dirname | sort -u | grep -vx cmd/kubectl-deviceshare | sed 's,^,./,'

# How long the tests of one package may take beside others, on a machine that is busy with more.
LIMIT := $(if $(SHORT),40m,80m)
# Where goroutines meet they also wait: four packages keep two processors busy.
test-go: ## run the Go tests, with the race detector where goroutines meet
	set -o pipefail; raced=$$($(MEETS)) && $(GOTEST) $(SHORT) $(if $(AGAIN),-count=1) -p $$((2 * $$(nproc))) -race -timeout $(LIMIT) $$raced && \
	  $(GOTEST) $(SHORT) $(if $(AGAIN),-count=1) -timeout $(LIMIT) $$($(GO) list ./... | grep -vxF "$$($(GO) list $$raced)")

test-c: ## run the C tests, normal and with ASan and UBSan
	$(MAKE) --no-print-directory -C e2e/fakegpu test
	$(MAKE) --no-print-directory -C hami-core $(if $(SHORT),test,test-all)

test-e2e: ## run the suites on a real cluster in the sandbox
	DEVICESHARE_E2E=1 $(GOTEST) $(SHORT) -count=1 -p 1 -failfast -timeout 80m -v ./e2e/sandbox/ ./e2e/suites/

test-images: ## build the images for TEST_ARCH (amd64), with SHORT= at two places, and start what is in them; TEST_ARCH=amd64,arm64 for all
	$(GO) -C manifests/images vet ./...
	DEVICESHARE_IMAGES=$(TEST_ARCH) $(GO) -C manifests/images test $(SHORT) -count=1 -timeout 60m ./...

admission: ## 200 edits of the configuration and 100 reboots over a node full of pods, in one process: the kubelet ends none
	DEVICESHARE_EDITS=200 DEVICESHARE_REBOOTS=100 $(GOTEST) -count=1 -timeout 60m -v -run 'TestNoEditEnds|TestAfterAnyReboot' ./cmd/deviceshare-device-plugin

gpu-build: ## build all that the GPU suite needs into .sandbox/gpu, to be carried to the machine with the GPU
	@mkdir -p .sandbox/gpu
	@for d in hami-core e2e/fakegpu e2e/laboratory/gpu/load; do $(MAKE) --no-print-directory -C $$d || exit 1; done
	@cp hami-core/build/libvgpu.so e2e/fakegpu/build/cudaclient e2e/laboratory/gpu/load/build/cudaload .sandbox/gpu/
	$(GO) build -ldflags="-s -w -extldflags=-Wl,-z,lazy -X main.commit=$$(git describe --always --dirty --exclude='*' 2>/dev/null)" -o .sandbox/gpu/ ./cmd/deviceshare-device-plugin ./e2e/laboratory/gpu
	@tar czf .sandbox/gpu.tar.gz -C .sandbox gpu && ls -lh .sandbox/gpu.tar.gz

gpu: ## run the GPU suite on a machine with an NVIDIA GPU, 9 minutes; GPUFLAGS='-experiments 7,8 -json FILE' and more
	@[ -x .sandbox/gpu/gpu ] || { echo "no .sandbox/gpu/gpu: run 'make gpu-build' where Go and gcc are, and bring .sandbox/gpu here"; exit 2; }
	.sandbox/gpu/gpu -dir .sandbox/gpu $(GPUFLAGS)

gpu-dry: ## run the GPU suite's logic on the fake driver, a minute; its figures mean nothing
	@for d in hami-core e2e/fakegpu e2e/laboratory/gpu/load; do $(MAKE) --no-print-directory -C $$d || exit 1; done
	$(GO) run ./e2e/laboratory/gpu -fake $(GPUFLAGS)

fuzz: ## fuzz every decoder for FUZZTIME each (60s), or so often (5000x)
	@set -e; for p in $$(grep -rl --include='*_test.go' '^func Fuzz' $(FUZZED) | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | awk '{print $$2}' | sort -u); do \
	    echo "fuzzing $$p $$f for $(FUZZTIME)"; \
	    $(GOTEST) -run='^$$' -fuzz="^$$f\$$" -fuzztime=$(FUZZTIME) $$p; \
	  done; done

bench: ## compare fit, refuse and session open with the in-tree code; print how much of what is asked MIG can give
	$(GOTEST) -run='^$$' -bench=. -benchmem -benchtime=$(BENCHTIME) ./sharing/place/ ./sharing/plan/ ./sharing/mig/... ./plugins/deviceshare/

# What `make instructions` compares: not the benchmarks that take minutes.
COUNTED ?= Predicate|Decision|SessionOpen|Place|Find|Fit

instructions: ## compare how many instructions benchmarks take at BASE (a commit) and here, by valgrind: exacter than times; COUNTED='Place|Find' for some
	@$(GO) run ./e2e/laboratory/cmd/instructions --base '$(BASE)' --bench '$(COUNTED)' ./sharing/place ./sharing/plan ./sharing/mig ./plugins/deviceshare

# A folder with a list of nodes and lists of pods in the form of the openb trace; see docs/placement.md.
DATA   ?= data/openb
SEEDS  ?= 10
CYCLES ?= 2
PART   ?= 1

openb: ## place the workloads of a trace with each policy, the domain alone and through Volcano's cycles; DATA=DIR SEEDS=10 CYCLES=2 PART=1
	@ls $(DATA)/*pod_list_*.csv >/dev/null 2>&1 || { echo "no *pod_list_*.csv in $(DATA): fetch the folder data/csv of github.com/hkust-adsl/kubernetes-scheduler-simulator and say where it is: make openb DATA=DIR"; exit 2; }
	DEVICESHARE_OPENB=$(abspath $(DATA)) DEVICESHARE_OPENB_SEEDS=$(SEEDS) $(GOTEST) -count=1 -timeout 3h -v -run TestOpenb ./sharing/worth/openb
	DEVICESHARE_OPENB=$(abspath $(DATA)) DEVICESHARE_OPENB_CYCLES=$(CYCLES) DEVICESHARE_OPENB_PART=$(PART) $(GOTEST) -count=1 -timeout 6h -v -run TestOpenb ./plugins/deviceshare

# Sizes of cluster, and flags of e2e/laboratory/cmd/scale; see docs/scale.md.
NODES      ?= 200,1000,5000
SCALEFLAGS ?=
ROOM_NODES ?= 500

scale: ## place pods with and without devices in turns on clusters of simulated nodes, then with the scheduler alone; NODES=200,1000 SCALEFLAGS='--turns 5'
	@$(GO) run $(LAZY) ./e2e/laboratory/cmd/scale --nodes $(NODES) $(SCALEFLAGS)
	DEVICESHARE_SCALE=$(NODES) $(GOTEST) -count=1 -timeout 3h -v -run 'TestScale$$' ./plugins/deviceshare
	DEVICESHARE_SCALE_MEMORY=5000 $(GOTEST) -count=1 -timeout 3h -v -run 'TestScaleMemory$$' ./plugins/deviceshare

rooms: ## plan the evictions of KAI's tests at scale; ROOM_NODES=500
	DEVICESHARE_ROOM=$(ROOM_NODES) $(GOTEST) -count=1 -timeout 3h -v -run 'TestMakingRoomAtScale$$' ./plugins/deviceshare

rooms-nodes: ## the same on a cluster of simulated nodes, from the creation of pods until they are bound; ROOM_NODES=500
	@$(GO) run $(LAZY) ./e2e/laboratory/cmd/scale --nodes $(ROOM_NODES) --rooms

PLANS ?= 1000000

plans: ## compare plans of evictions with the cheapest of all sets of pods, on random small clusters; PLANS=1000000, a twentieth for several pods and for moves
	DEVICESHARE_PLANS=$(PLANS) $(GOTEST) -count=1 -timeout 3h -v -run 'TestPlans' ./sharing/plan

HISTORIES       ?= 200
HISTORIES_FIRST ?= 0

histories: ## random histories of evictions and moves in real sessions, with restarts, failures and devices of all modes; HISTORIES=200 of each kind from HISTORIES_FIRST on
	DEVICESHARE_HISTORIES=$(HISTORIES) DEVICESHARE_HISTORIES_FIRST=$(HISTORIES_FIRST) $(GOTEST) -count=1 -timeout 12h -v \
	  -run 'InAnyHistory|TestFailuresLeave|TestRoomIsMade' ./plugins/deviceshare

# What decides. docs/laboratory.md says what comes of it.
MUTATED ?= sharing sharing/place sharing/policy sharing/worth sharing/request sharing/wire sharing/mig sharing/mps sharing/hamicore sharing/timeslicing \
           sharing/podspec sharing/quota deviceplugin/node plugins/deviceshare/podstate

mutate: ## change the deciding packages operator by operator and show what no test notices; MUTATED=DIR for one of them
	@$(GO) run ./e2e/laboratory/cmd/mutate $(MUTATED)

chaos: ## kill, freeze and break the parts of an installed cluster under load, and look what it breaks; KILLS=10000 CHAOSFLAGS='--seed 7'
	@$(GO) run $(LAZY) ./e2e/laboratory/cmd/chaos --kills $(KILLS) $(CHAOSFLAGS)

sabotage: ## break each promise that chaos checks on a running cluster, and look whether it finds that; then 40 kills
	DEVICESHARE_CHAOS=1 $(GOTEST) -count=1 -timeout 60m -v -run TestChaos ./e2e/suites/

PLUGIN_KILLS  ?= 1000
KUBELET_KILLS ?= 200

kills: ## kill the device plugin PLUGIN_KILLS times (1000) and the kubelet KUBELET_KILLS times (200) while pods arrive; count those refused
	DEVICESHARE_E2E=1 DEVICESHARE_PLUGIN_KILLS=$(PLUGIN_KILLS) DEVICESHARE_KUBELET_KILLS=$(KUBELET_KILLS) \
	  $(GOTEST) -count=1 -timeout 12h -v -run 'TestInstalledCluster/refused' ./e2e/suites/

WRITES ?= 2000

hostile: ## let a user with the role edit in one namespace make WRITES random writes (2000), and look that others do not notice
	DEVICESHARE_E2E=1 DEVICESHARE_HOSTILE_WRITES=$(WRITES) $(GOTEST) -count=1 -timeout 12h -v -run 'TestInstalledCluster/hostile_user' ./e2e/suites/

pictures: ## take the pictures of docs/page.md anew, of a cluster in the sandbox
	DEVICESHARE_E2E=1 DEVICESHARE_PICTURES=$(CURDIR)/docs/pictures $(GOTEST) -count=1 -timeout 60m -v -run 'TestInstalledCluster/page$$' ./e2e/suites/

fleet: ## move four nodes from Volcano's device plugin and scheduler to this project's and back, under running pods
	DEVICESHARE_FLEET=1 $(GOTEST) -count=1 -timeout 60m -v -run TestFleet ./e2e/suites/

versions: ## run suites on control planes and kubelets of other versions of Kubernetes (docs/versions.md); KUBERNETES=1.33 for one
	@$(GO) run ./e2e/laboratory/cmd/versions $(KUBERNETES)

format: ## gofmt over every file
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

lint: format ## gofmt and go vet over every package
	$(GO) vet $(LAZY) ./...

clean: ## remove what was built and stop a sandbox that is running
	-@$(GO) run $(LAZY) ./e2e/cmd/sandbox down 2>/dev/null
	rm -rf .sandbox dist
	@$(MAKE) --no-print-directory -C hami-core clean
	@$(MAKE) --no-print-directory -C e2e/fakegpu clean
	@$(MAKE) --no-print-directory -C e2e/laboratory/gpu/load clean
