# SPDX-License-Identifier: Apache-2.0
#
# Two targets matter to a newcomer: `make demo` and `make test`. Everything they
# need beyond Go, gcc, make and root they install or build themselves.

SHELL       := /bin/bash
GO          ?= go
BIN         := $(CURDIR)/.sandbox/bin
FUZZTIME    ?= 60s
BENCHTIME   ?= 1s
# go-nvml resolves the driver's symbols when they are called and not when the
# program starts; the linker must leave them unbound until then.
LAZY        := -ldflags=-extldflags=-Wl,-z,lazy
GOTEST      := $(GO) test $(LAZY)
PRODUCTS    := deviceshare-scheduler deviceshare-device-plugin deviceshare-webhook

# Decoders are fuzzed where they do not link Volcano: go instruments every package
# it links, which takes ten minutes there.
FUZZED      := ./sharing ./config ./deviceplugin ./plugins/admission

.DEFAULT_GOAL := help
.PHONY: help build demo sandbox sandbox-down test test-race test-c test-e2e gpu-build gpu fuzz bench lint clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the three programs and the library into .sandbox/bin and hami-core/build
	@mkdir -p $(BIN)
	@for p in $(PRODUCTS); do echo "building $$p"; $(GO) build $(LAZY) -o $(BIN)/$$p ./cmd/$$p || exit 1; done
	@$(MAKE) --no-print-directory -C hami-core

demo: ## run the main job on a real cluster on this machine and show what happened
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox demo

sandbox: ## start a cluster and leave it running; prints the kubeconfig line
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox up

sandbox-down: ## stop the cluster that `make sandbox` left running
	@$(GO) run $(LAZY) ./e2e/cmd/sandbox down

test: lint test-c test-race test-e2e ## run every test: C, Go with the race detector, the real cluster

test-race: ## run the Go tests of every module with the race detector
	$(GOTEST) -race -timeout 20m ./...

test-c: ## run the C tests, normal and with ASan and UBSan
	$(MAKE) --no-print-directory -C e2e/fakegpu test
	$(MAKE) --no-print-directory -C hami-core test

test-e2e: ## run the suites on a real cluster in the sandbox
	DEVICESHARE_E2E=1 $(GOTEST) -count=1 -p 1 -timeout 40m -v ./e2e/sandbox/ ./e2e/suites/

gpu-build: ## build what the GPU suite needs into .sandbox/gpu
	@mkdir -p .sandbox/gpu
	@$(MAKE) --no-print-directory -C hami-core
	@$(MAKE) --no-print-directory -C e2e/fakegpu
	@cp hami-core/build/libvgpu.so e2e/fakegpu/build/cudaclient .sandbox/gpu/
	$(GO) build -ldflags='-s -w -extldflags=-Wl,-z,lazy' -o .sandbox/gpu/ ./cmd/deviceshare-device-plugin ./e2e/gpu

gpu: gpu-build ## run the GPU suite on a machine with an NVIDIA GPU (root; changes nothing of the card)
	.sandbox/gpu/gpu --dir .sandbox/gpu

fuzz: ## fuzz every decoder for FUZZTIME each (60s)
	@set -e; for p in $$(grep -rl --include='*_test.go' '^func Fuzz' $(FUZZED) | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | awk '{print $$2}' | sort -u); do \
	    echo "fuzzing $$p $$f for $(FUZZTIME)"; \
	    $(GOTEST) -run='^$$' -fuzz="^$$f\$$" -fuzztime=$(FUZZTIME) $$p; \
	  done; done

bench: ## compare fit, refuse and session open with the in-tree code, in one run
	$(GOTEST) -run='^$$' -bench=. -benchmem -benchtime=$(BENCHTIME) ./sharing/place/ ./plugins/deviceshare/

lint: ## go vet and gofmt over every package
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet $(LAZY) ./...

clean: ## remove what was built and stop a sandbox that is running
	-@$(GO) run $(LAZY) ./e2e/cmd/sandbox down 2>/dev/null
	rm -rf .sandbox
	@$(MAKE) --no-print-directory -C hami-core clean
	@$(MAKE) --no-print-directory -C e2e/fakegpu clean
