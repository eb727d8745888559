# SPDX-License-Identifier: Apache-2.0
# Unit tests link the parts they test; preload_test runs programs under LD_PRELOAD on the fake
# driver. Everything runs three times: as it is, with ASan and UBSan, and with TSan; of the tests on
# the fake's own clock, where one thread of a program runs at a time, most run without TSan.
FAKE := ../e2e/fakegpu
ASAN_LIB := $(shell $(CC) -print-file-name=libasan.so)
TSAN_LIB := $(shell $(CC) -print-file-name=libtsan.so)
UNIT := limit limits table pages blocks capture region pace costs threads image

# The tables in the documentation name tests that exist.
.PHONY: test-map
test-map:
	@test/map.sh

# A file uses its own layer and lower ones only.
.PHONY: test-layers
test-layers: $(B)/libvgpu.so
	@test/layers.sh $(CC) $(B)/release/obj "$(LAYERS)" $(UNITS)

# Lines, macros and headers that a reader can rely on.
.PHONY: test-style
test-style:
	@test/style.sh src include test

.PHONY: test-headers
test-headers:
	@test/headers.sh $(CC) "$(GO)" $(B)/headers

.PHONY: fake test-all test-generator test-symbols test-stress stress test-instructions test-cost cost built passed
# `test` is shorter than `test-all`: fewer rounds, fewer kinds of kernels side by side, no look at
# the clock, and the sanitizers look at what allocates, starts, and meets in threads. As many run at
# once as there are processors; test-cost alone, because it compares times.
test:
	@$(call run_tests,VGPU_SHORT=1,$(short_tests))
test-all:
	@$(call run_tests,,$(short_tests) $(patsubst %,test-%-asan,neighbours limiter) check-arm64)
	@$(MAKE) --no-print-directory test-cost

# They look at texts, documentation and modules of Go among them, and at what was built. That takes
# seconds, and is always done.
LOOKS := test-generator test-map test-style test-layers test-headers test-symbols check-arm64
short_tests = test-limiter-tsan test-limiter test-hostile test-neighbours test-normal test-asan test-truth test-claim test-shares test-mixtures test-tsan test-stress test-instructions \
	$(filter-out check-arm64,$(LOOKS))

# What has passed is not run again until something changes that it reads; with AGAIN=1 it is.
fingerprint = $(FAKE)/test/fingerprint.sh "$$($(CC) --version) $$($(GO) version) $(FLAGS) $(1)" \
	Makefile hooks.def include src test tools $(FAKE)/Makefile $(FAKE)/src $(FAKE)/test
# $(1) variables, $(2) targets
run_tests = $(MAKE) --no-print-directory -j$$(nproc) built $(1) && passed=$(B)/passed/$$($(call fingerprint,$(1))) && \
	{ [ -z "$(AGAIN)" ] || rm -rf $$passed; } && $(MAKE) --no-print-directory -j$$(nproc) -O passed $(1) PASSED=$$passed TESTS="$(2)"

fake:
	@$(if $(PASSED),,$(MAKE) -s -C $(FAKE))

test-generator:
	@echo "== generator"
	@$(GO) vet ./tools/generate && $(GO) test ./tools/generate

define unit_tests
$(B)/$(1)/test/%_test: test/%_test.c test/testing.h $(patsubst %,$(B)/$(1)/obj/%.o,$(CORE)) | $(GENERATED)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(BASE) $(2) -Wno-missing-prototypes -o $$@ $$< $(patsubst %,$(B)/$(1)/obj/%.o,$(CORE)) -lpthread
$$(B)/$(1)/test/blocks_test: test/blocks_test.c test/testing.h $(patsubst %,$(B)/$(1)/obj/%.o,$(CORE) memory/blocks) | $(GENERATED)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(BASE) $(2) -Wno-missing-prototypes -Wl,--wrap=malloc -o $$@ $$< \
		$(patsubst %,$(B)/$(1)/obj/%.o,$(CORE) memory/blocks) -lpthread
$$(B)/$(1)/test/capture_test: test/capture_test.c test/testing.h $$(B)/$(1)/obj/context/capture.o | $(GENERATED)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(BASE) $(2) -Wno-missing-prototypes -o $$@ $$< $$(B)/$(1)/obj/context/capture.o -lpthread
endef
$(eval $(call unit_tests,test,))
$(eval $(call unit_tests,asan,$(SANITIZE)))
$(eval $(call unit_tests,tsan,$(THREADS)))

# Programs that run under the library: never instrumented, like the programs of the world.
PROBE := $(patsubst %,test/probe_%.c,main device memory process nvml overhead green pool ways generation \
	stress import odd start hostile exact forks newer races partial relatives modules)
# Tests that run programs under the library. SUITES run under every build of it, the others have
# targets of their own.
SUITES := preload exact pools sized newer entry ways_out failures weak_entry weak_memory weak_process cases races
$(B)/test/test/cost_test: test/probe_cost.h
$(patsubst %,$(B)/test/test/%_test,$(SUITES) stress cost): $(B)/test/test/%: test/%.c test/machine.h test/testing.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -o $@ $<
$(B)/test/test/probe: $(PROBE) test/probe.h test/hostile.h $(wildcard include/*.h) | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -I$(FAKE)/src -o $@ $(PROBE) -Wl,-z,lazy -L$(FAKE)/build -l:libcuda.so.1 -ldl -lpthread
# One set of calls, two measures.
$(patsubst %,$(B)/test/test/probe_%,times steps): $(B)/test/test/%: test/%.c test/probe_cost.c test/probe_device.c test/probe_cost.h test/probe.h \
		include/cuda_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $(filter %.c,$^) -L$(FAKE)/build -l:libcuda.so.1
# What the card has given is read from the fake driver's own state.
$(B)/test/test/hostile_test: test/hostile_test.c test/attacked.h test/hostile.h test/machine.h test/testing.h $(wildcard include/*.h)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -I$(FAKE)/src -o $@ $<
SIZED := $(patsubst %,test/probe_%.c,sized device pools graphs aside)
$(B)/test/test/probe_sized: $(SIZED) test/probe_sized.h test/card.h test/probe.h $(FAKE)/src/state.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -I$(FAKE)/src -o $@ $(SIZED) -L$(FAKE)/build -l:libcuda.so.1 -ldl -lpthread
$(patsubst %,$(B)/test/test/%_test,pools sized): test/sized.h
$(B)/test/test/plugin.so: test/plugin.c | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -fPIC -shared -o $@ $< -L$(FAKE)/build -l:libcuda.so.1 -ldl
# Random programs; the fake card's own count, by the fake's own code, is what they are judged by.
$(B)/test/test/probe_truth: $(wildcard test/probe_truth*.c) test/probe_truth.h test/truth_board.h \
		include/cuda_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $(filter %.c,$^) -L$(FAKE)/build -l:libcuda.so.1 -ldl -lpthread
$(B)/test/test/truth_test: test/truth_test.c test/truth_program.c test/truth_program.h test/truth_board.h \
		test/truth_workers.h test/containers.h test/machine.h test/testing.h $(FAKE)/src/state.c $(FAKE)/src/state.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -I$(FAKE)/src -Iinclude -o $@ $(filter %.c,$^) -lpthread
# Containers of one claim, in PID and mount namespaces of their own.
$(B)/test/test/probe_claim: test/probe_claim.c test/probe.h $(wildcard include/*.h) | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $< -L$(FAKE)/build -l:libcuda.so.1 -ldl
$(B)/test/test/claim_test: test/claim_test.c test/containers.h test/machine.h test/testing.h $(FAKE)/src/state.c $(FAKE)/src/state.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -I$(FAKE)/src -o $@ $(filter %.c,$^) -lpthread
# What stands in for the driver, beside the driver.
$(B)/test/standin/%.so.driver: | fake
	@mkdir -p $(@D)
	$(Q)ln -sf $(abspath $(FAKE))/build/$*.so.1 $@
# A program that is linked to no driver and loads NVML past whatever was preloaded.
$(B)/test/test/smi: test/smi.c include/nvml_abi.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $< -ldl
# A program that is linked to no driver and calls one.
$(B)/test/test/direct: test/direct.c $(wildcard include/*.h)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -fno-plt -o $@ $<
$(B)/test/test/third.so: test/third.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -fPIC -shared -o $@ $<

# Programs of entry_test: with a constructor that uses CUDA, with names of the driver's that are
# their own.
ENTRY := $(patsubst %,$(B)/test/test/%,entry_test probe_entry entry_plugin.so entry_own.so entry_names entry_names_program \
	entry_names_library entry_names_alone entry_reload entry_wrapper.so)
$(B)/test/test/probe_entry: test/probe_entry.c test/probe_later.c test/probe_device.c test/probe_entry.h test/probe.h \
		$(wildcard include/*.h) | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -rdynamic -o $@ $(filter %.c,$^) -L$(FAKE)/build -l:libcuda.so.1 -ldl -lpthread
$(B)/test/test/entry_plugin.so: test/entry_plugin.c test/probe.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -fPIC -shared -o $@ $< -L$(FAKE)/build -l:libcuda.so.1
$(B)/test/test/entry_own.so: test/entry_own.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -fPIC -shared -Wl,-soname,entry_own.so -o $@ $<
$(B)/test/test/entry_reload: test/entry_reload.c include/cuda_abi.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $< -ldl
names = $(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -rdynamic $(1) -o $@ $< -Wl,--no-as-needed -Wl,-rpath,$(abspath $(@D)) \
	$(@D)/third.so $(2) -L$(FAKE)/build -l:libcuda.so.1 -ldl
$(B)/test/test/entry_names: test/entry_names.c $(B)/test/test/third.so | fake
	$(call names)
$(B)/test/test/entry_names_program: test/entry_names.c $(B)/test/test/third.so | fake
	$(call names,-DIN_PROGRAM)
$(B)/test/test/entry_names_library: test/entry_names.c $(B)/test/test/third.so $(B)/test/test/entry_own.so | fake
	$(call names,,$(@D)/entry_own.so)
$(B)/test/test/entry_names_alone: test/entry_names.c $(B)/test/test/third.so
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -o $@ $< -Wl,--no-as-needed -Wl,-rpath,$(abspath $(@D)) $(@D)/third.so -ldl
$(B)/test/test/entry_wrapper.so: test/entry_wrapper.c
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -fPIC -shared -o $@ $< -ldl

PROBES := $(ENTRY) $(patsubst %,$(B)/test/test/%,$(patsubst %,%_test,$(SUITES) stress cost hostile) probe probe_sized probe_times probe_steps third.so plugin.so) \
	$(B)/test/test/smi $(B)/test/test/direct $(patsubst %,$(B)/test/standin/%,libcuda.so.1 libcuda.so.driver libnvidia-ml.so.1 libnvidia-ml.so.driver)

# What the sanitizers look at in `make test`: what allocates and starts, and what meets in threads.
ADDRESSED := $(if $(VGPU_SHORT),preload exact entry failures races,$(SUITES))
THREADED := $(if $(VGPU_SHORT),exact,$(SUITES))

# $(1) variant, $(2) suites, $(3) what to preload, $(4) extra environment
define each_test
.PHONY: test-$(1) $(patsubst %,test-$(1)/%,$(UNIT) $(2))
each_test-$(1) := $(patsubst %,test-$(1)/%,$(2) $(UNIT))
test-$(1): $$(each_test-$(1))
$(patsubst %,test-$(1)/%,$(UNIT)): test-$(1)/%: $(B)/$(or $(filter-out normal,$(1)),test)/test/%_test
	@echo "== $$* ($(1))"; $(4) $$<
$(patsubst %,test-$(1)/%,$(2)): test-$(1)/%: built
	@echo "== $$* ($(1))"; $(4) LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD="$(3)" \
		VGPU_TEST_BUILD=$(abspath $(B)) VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/$$*_test
endef
$(eval $(call each_test,normal,$(SUITES),$(abspath $(B)/test/libvgpu.so)))
$(eval $(call each_test,asan,$(ADDRESSED),$(ASAN_LIB) $(abspath $(B)/asan/libvgpu.so),ASAN_OPTIONS=detect_leaks=0))
# As it is, no program's own races are looked for: only what the library does with threads.
$(eval $(call each_test,tsan,$(THREADED),$(TSAN_LIB) $(abspath $(B)/tsan/libvgpu.so)))

apart = LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD=$(abspath $(B)/test/libvgpu.so) VGPU_TEST_BUILD=$(abspath $(B)) \
	VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/$(1)_test
test-stress: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== stress"; $(call apart,stress)

# The same a thousand times: about a minute.
stress: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== stress, 1000 rounds"; VGPU_STRESS_ROUNDS=1000 $(call apart,stress)

# Somebody writes into the region: a part of it, and all of it, which takes some minutes.
.PHONY: test-hostile hostile
test-hostile: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== hostile"; $(call apart,hostile)
hostile: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== hostile, 11000 corruptions"; VGPU_HOSTILE=1 $(call apart,hostile)

# What calls execute is the same on a busy machine.
test-instructions: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== cost, instructions"; $(call apart,cost) execute
test-cost: fake $(B)/test/libvgpu.so $(PROBES)
	@echo "== cost"; $(call apart,cost)
cost: fake $(B)/test/libvgpu.so $(PROBES)
	@VGPU_COST=1 $(call apart,cost)

# Random programs for a minute (ten seconds in `make test`), half an hour, and a moment each under
# the sanitizers.
.PHONY: test-truth truth test-truth-asan test-truth-tsan
TRUTH := $(B)/test/test/truth_test $(B)/test/test/probe_truth
# $(1) seconds, $(2) what to preload
run_truth = VGPU_TRUTH_SECONDS=$${VGPU_TRUTH_SECONDS:-$(1)} LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD="$(2)" \
	VGPU_TEST_BUILD=$(abspath $(B)) VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/truth_test "of every call"
test-truth: fake $(B)/test/libvgpu.so $(TRUTH)
	@echo "== truth"; $(call run_truth,$(if $(VGPU_SHORT),10,60),$(abspath $(B)/test/libvgpu.so))
truth: fake $(B)/test/libvgpu.so $(TRUTH)
	@echo "== truth"; $(call run_truth,1800,$(abspath $(B)/test/libvgpu.so))
test-truth-asan: fake $(B)/asan/libvgpu.so $(TRUTH)
	@echo "== truth (asan)"; $(call run_truth,10,$(ASAN_LIB) $(abspath $(B)/asan/libvgpu.so))
test-truth-tsan: fake $(B)/tsan/libvgpu.so $(TRUTH)
	@echo "== truth (tsan)"; $(call run_truth,10,$(TSAN_LIB) $(abspath $(B)/tsan/libvgpu.so))

# Containers of one claim: what is theirs and what is shared, and random programs in them, against
# the card's own count. Needs root; says so where namespaces cannot be made.
.PHONY: test-claim claim
CLAIM := $(patsubst %,$(B)/test/test/%,claim_test probe_claim) $(TRUTH)
CLAIM_SEED := 15
# $(1) programs
run_claim = $(call apart,claim) && VGPU_TRUTH_PROGRAMS=$(1) VGPU_TRUTH_FIRST=$${VGPU_TRUTH_FIRST:-$(CLAIM_SEED)} \
	$(call apart,truth) "of one claim"
test-claim: fake $(B)/test/libvgpu.so $(CLAIM)
	@echo "== claim"; $(call run_claim,$(if $(VGPU_SHORT),60,100))
claim: fake $(B)/test/libvgpu.so $(CLAIM)
	@echo "== claim"; $(call run_claim,$(or $(PROGRAMS),1000))

# The exports are the hooks and nothing else; nothing is needed but the C library; no
# family of the driver is hooked in part; the test build's variable is not in the product.
test-symbols: $(B)/libvgpu.so fake
	@test/symbols.sh $(B)/libvgpu.so $(GEN)/hooks.txt $(FAKE)/build "$(GO)"

# arm64: everything compiles, links and exports the same; nothing runs here.
CROSS := aarch64-linux-gnu-
ARM := $(B)/arm64
.PHONY: check-arm64
ifeq ($(shell command -v $(CROSS)gcc),)
check-arm64:
	@echo "arm64 not checked: $(CROSS)gcc is missing (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
else
$(ARM)/obj/%.o: src/%.c | $(GENERATED)
	@mkdir -p $(@D)
	$(Q)$(CROSS)gcc $(CFLAGS) $(BASE) -c -o $@ $<
$(ARM)/obj/%.o: src/%.S
	@mkdir -p $(@D)
	$(Q)$(CROSS)gcc $(CFLAGS) $(BASE) -c -o $@ $<
$(ARM)/obj/hooks.gen.o: $(GEN)/hooks.gen.c $(GENERATED)
	@mkdir -p $(@D)
	$(Q)$(CROSS)gcc $(CFLAGS) $(BASE) -c -o $@ $<
$(ARM)/libvgpu.so: $(patsubst %,$(ARM)/obj/%.o,$(UNITS))
	$(Q)$(CROSS)gcc $(LIBFLAGS) -o $@ $^
check-arm64: $(ARM)/libvgpu.so
	@echo "== arm64"
	@test/symbols.sh -c $(CROSS) $< $(GEN)/hooks.txt $(FAKE)/build "$(GO)"
	@$(MAKE) -s -C $(FAKE) B=$(abspath $(ARM))/fake CC=$(CROSS)gcc && echo "ok the fake driver compiles and links"
endif

# The library on the fake driver's clock, which is real only outside of these tests.
virtual = $(patsubst %,$(B)/$(1)/obj/%.o,$(filter-out platform/prim_clock,$(UNITS))) $(B)/$(1)/test/virtual_clock.o
define virtual_library
$(B)/$(1)/test/virtual_clock.o: test/virtual_clock.c src/platform/prim.h
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(BASE) $(2) -c -o $$@ $$<
$(B)/$(1)/virtual/libvgpu.so: $(call virtual,$(1))
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(LDFLAGS) $(2) $$(LIBFLAGS) -o $$@ $$^
endef
$(eval $(call virtual_library,test,))
$(eval $(call virtual_library,asan,$(SANITIZE)))
$(eval $(call virtual_library,tsan,$(THREADS)))
$(patsubst %,$(B)/test/test/probe_%,tenant mixture): $(B)/test/test/%: test/%.c include/cuda_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $< -L$(FAKE)/build -l:libcuda.so.1
$(patsubst %,$(B)/test/test/%_test,shares mixtures): $(B)/test/test/%: test/%.c test/tenants.h test/folder.h test/testing.h test/blocks_model.c test/blocks_model.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -o $@ $(filter %.c,$^)
$(patsubst %,$(B)/test/test/%_test,fair borrow turns stalls): $(B)/test/test/%: test/%.c test/tenants.h test/folder.h test/testing.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -o $@ $<
on_clock = LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD="$(2)" VGPU_TEST_BUILD=$(abspath $(B)) \
	$(B)/test/test/$(1)_test

# The compute limit: on that clock, and in real time where threads and processes run at once.
$(patsubst %,$(B)/test/test/%_test,limiter limiter_live): $(B)/test/test/%: test/%.c test/limited.h test/folder.h test/testing.h include/hamicore_abi.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $<
$(B)/test/test/probe_launch: test/probe_launch.c test/probe_contexts.c test/probe_interleaved.c test/probe_launch.h test/probe.h include/cuda_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $(filter %.c,$^) -L$(FAKE)/build -l:libcuda.so.1 -lpthread
# $(1) variant, $(2) what to preload before the library
define run_limiter
	@set -e; for t in limiter=virtual/ limiter_live=; do echo "== $${t%=*} ($(1))"; LD_LIBRARY_PATH=$(abspath $(FAKE)/build) \
		VGPU_TEST_PRELOAD="$(2) $(abspath $(B)/$(1))/$${t#*=}libvgpu.so" \
		VGPU_TEST_BUILD=$(abspath $(B)) VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/$${t%=*}_test; done
endef
LIMITER := $(patsubst %,$(B)/test/test/%,limiter_test limiter_live_test probe_launch)
.PHONY: test-limiter test-limiter-asan test-limiter-tsan
test-limiter: fake $(B)/test/libvgpu.so $(B)/test/virtual/libvgpu.so $(LIMITER)
	$(call run_limiter,test,)
test-limiter-asan: fake $(B)/asan/libvgpu.so $(B)/asan/virtual/libvgpu.so $(LIMITER)
	$(call run_limiter,asan,$(ASAN_LIB))
test-limiter-tsan: fake $(B)/tsan/libvgpu.so $(B)/tsan/virtual/libvgpu.so $(LIMITER)
	$(call run_limiter,tsan,$(TSAN_LIB))

# Five workloads, alone and in pairs, under the library and under HAMi-core's formula: a table. Then
# containers of 1 to 16 processes with kernels of 20 us to 20 ms: all of that table, or a part of
# it.
.PHONY: shares test-shares mixtures test-mixtures
SHARES := $(B)/test/virtual/libvgpu.so $(patsubst %,$(B)/test/test/%,shares_test fair_test mixtures_test probe_tenant probe_mixture)
shares: fake $(SHARES)
	@echo "== shares"; $(call on_clock,shares,$(abspath $(B)/test/virtual/libvgpu.so))
	@echo "== fair"; VGPU_SHARES=1 $(call on_clock,fair,$(abspath $(B)/test/virtual/libvgpu.so))
test-shares: fake $(SHARES)
	@echo "== shares"; $(call on_clock,shares,$(abspath $(B)/test/virtual/libvgpu.so))
	@echo "== fair"; $(call on_clock,fair,$(abspath $(B)/test/virtual/libvgpu.so))
# Kernels that vary and programs that end in every way; 300 random mixtures of all that.
test-mixtures: fake $(SHARES)
	@echo "== mixtures"; $(call on_clock,mixtures,$(abspath $(B)/test/virtual/libvgpu.so))
mixtures: fake $(SHARES)
	@echo "== mixtures, 300 at random"; VGPU_MIXTURES=300 $(call on_clock,mixtures,$(abspath $(B)/test/virtual/libvgpu.so))
# Once more under the sanitizers: one thread of a program runs at a time there, so limiter_live_test
# looks for races.
.PHONY: test-neighbours test-neighbours-asan
NEIGHBOURS := $(patsubst %,$(B)/test/test/%,borrow_test turns_test stalls_test probe_tenant probe_mixture)
test-neighbours: fake $(B)/test/virtual/libvgpu.so $(NEIGHBOURS)
	@echo "== borrow"; $(call on_clock,borrow,$(abspath $(B)/test/virtual/libvgpu.so))
	@echo "== turns"; $(call on_clock,turns,$(abspath $(B)/test/virtual/libvgpu.so))
	@echo "== stalls"; $(call on_clock,stalls,$(abspath $(B)/test/virtual/libvgpu.so))
test-neighbours-asan: fake $(B)/asan/virtual/libvgpu.so $(NEIGHBOURS)
	@echo "== borrow (asan)"; $(call on_clock,borrow,$(ASAN_LIB) $(abspath $(B)/asan/virtual/libvgpu.so))
	@echo "== stalls (asan)"; $(call on_clock,stalls,$(ASAN_LIB) $(abspath $(B)/asan/virtual/libvgpu.so))

# All that tests run, so that those that run side by side find it.
built: fake all $(patsubst %,$(B)/%/libvgpu.so,test asan tsan test/virtual tsan/virtual $(if $(VGPU_SHORT),,asan/virtual)) \
	$(foreach v,test asan tsan,$(patsubst %,$(B)/$(v)/test/%_test,$(UNIT))) $(PROBES) $(CLAIM) $(LIMITER) $(SHARES) $(NEIGHBOURS)

ifdef PASSED
# Of the tests of a variant each is one by itself.
EACH := $(foreach t,$(filter-out $(LOOKS),$(TESTS)),$(or $(each_$(t)),$(t)))
passed: $(patsubst %,$(PASSED)/%,$(EACH)) $(filter $(LOOKS),$(TESTS))
	@echo "== hami-core: $(words $(EACH)) of $(words $(EACH)) have passed"
$(PASSED)/%:
	@$(MAKE) --no-print-directory $*
	@mkdir -p $(@D) && touch $@
endif
