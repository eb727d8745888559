# SPDX-License-Identifier: Apache-2.0
# Unit tests link the parts they test; preload_test runs programs under LD_PRELOAD on
# the fake driver. Everything runs twice: as it is, and with ASan and UBSan.
FAKE := ../e2e/fakegpu
ASAN_LIB := $(shell $(CC) -print-file-name=libasan.so)
TSAN_LIB := $(shell $(CC) -print-file-name=libtsan.so)
UNIT := limit limits table region pace threads

.PHONY: fake test-normal test-asan test-tsan test-generator test-symbols test-fake test-stress stress test-cost cost
test: test-generator test-fake test-model test-normal test-stress test-cost test-asan test-limiter test-limiter-asan test-tsan test-symbols

fake:
	@$(MAKE) -s -C $(FAKE)

test-fake: fake
	@echo "== fake driver"
	@$(MAKE) -s -C $(FAKE) test

test-generator:
	@echo "== generator"
	@$(GO) vet ./tools/generate && $(GO) test ./tools/generate

define unit_tests
$(B)/$(1)/test/%_test: test/%_test.c test/testing.h $(patsubst %,$(B)/$(1)/obj/%.o,$(CORE)) | $(GENERATED)
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CFLAGS) $$(BASE) $(2) -Wno-missing-prototypes -o $$@ $$< $(patsubst %,$(B)/$(1)/obj/%.o,$(CORE)) -lpthread
endef
$(eval $(call unit_tests,test,))
$(eval $(call unit_tests,asan,$(SANITIZE)))
$(eval $(call unit_tests,tsan,$(THREADS)))

# Programs that run under the library: never instrumented, like the programs of the world.
PROBE := $(patsubst %,test/probe_%.c,main memory process nvml overhead ways generation stress cost)
$(patsubst %,$(B)/test/test/%_test,preload ways_out failures generations stress cost): $(B)/test/test/%: test/%.c test/machine.h test/testing.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -o $@ $<
$(B)/test/test/probe: $(PROBE) test/probe.h include/cuda_abi.h include/nvml_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $(PROBE) -Wl,-z,lazy -L$(FAKE)/build -l:libcuda.so.1 -ldl -lpthread
$(B)/test/test/plugin.so: test/plugin.c | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -fPIC -shared -o $@ $< -L$(FAKE)/build -l:libcuda.so.1 -ldl
# What stands in for the driver, beside the driver.
$(B)/test/standin/libcuda.so.driver: | fake
	@mkdir -p $(@D)
	$(Q)ln -sf $(abspath $(FAKE))/build/libcuda.so.1 $@
$(B)/test/test/third.so: test/third.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -fPIC -shared -o $@ $<

PROGRAMS := $(patsubst %,$(B)/test/test/%,preload_test ways_out_test failures_test generations_test stress_test cost_test probe third.so plugin.so) \
	$(B)/test/standin/libcuda.so.1 $(B)/test/standin/libcuda.so.driver

# $(1) variant, $(2) what to preload, $(3) extra environment
define run_all
	@set -e; for t in $(UNIT); do echo "== $$t ($(1))"; $(3) $(B)/$(1)/test/$${t}_test; done; \
	for t in preload ways_out failures generations; do echo "== $$t ($(1))"; LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD="$(2)" \
		VGPU_TEST_BUILD=$(abspath $(B)) VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/$${t}_test; done
endef

test-normal: fake $(B)/libvgpu.so $(B)/test/libvgpu.so $(patsubst %,$(B)/test/test/%_test,$(UNIT)) $(PROGRAMS)
	$(call run_all,test,$(abspath $(B)/test/libvgpu.so),)

apart = LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD=$(abspath $(B)/test/libvgpu.so) VGPU_TEST_BUILD=$(abspath $(B)) \
	VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/$(1)_test
test-stress: fake $(B)/test/libvgpu.so $(PROGRAMS)
	@echo "== stress"; $(call apart,stress)

# The same a thousand times: about a minute.
stress: fake $(B)/test/libvgpu.so $(PROGRAMS)
	@echo "== stress, 1000 rounds"; VGPU_STRESS_ROUNDS=1000 $(call apart,stress)

test-cost: fake $(B)/test/libvgpu.so $(PROGRAMS)
	@echo "== cost"; $(call apart,cost)
cost: fake $(B)/test/libvgpu.so $(PROGRAMS)
	@VGPU_COST=1 $(call apart,cost)

test-asan: fake $(B)/libvgpu.so $(B)/asan/libvgpu.so $(patsubst %,$(B)/asan/test/%_test,$(UNIT)) $(PROGRAMS)
	$(call run_all,asan,$(ASAN_LIB) $(abspath $(B)/asan/libvgpu.so),ASAN_OPTIONS=detect_leaks=0)

# As it is, no program's own races are looked for: only what the library does with threads.
test-tsan: fake $(B)/tsan/libvgpu.so $(patsubst %,$(B)/tsan/test/%_test,$(UNIT)) $(PROGRAMS)
	$(call run_all,tsan,$(TSAN_LIB) $(abspath $(B)/tsan/libvgpu.so),)

# The exports are the hooks and nothing else; nothing is needed but the C library; no
# family of the driver is hooked in part; the test build's variable is not in the product.
test-symbols: $(B)/libvgpu.so fake
	@test/symbols.sh $(B)/libvgpu.so $(GEN)/hooks.txt $(FAKE)/build "$(GO)"

# The compute limit in real time on the fake device.
$(B)/test/test/limiter_test: test/limiter_test.c test/testing.h include/hamicore_abi.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $<
$(B)/test/test/probe_launch: test/probe_launch.c test/probe.h include/cuda_abi.h | fake
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Iinclude -o $@ $< -L$(FAKE)/build -l:libcuda.so.1 -lpthread
define run_limiter
	@echo "== limiter ($(1))"; LD_LIBRARY_PATH=$(abspath $(FAKE)/build) VGPU_TEST_PRELOAD="$(2)" \
		VGPU_TEST_BUILD=$(abspath $(B)) VGPU_TEST_FAKE=$(abspath $(FAKE)/build) $(B)/test/test/limiter_test
endef
.PHONY: test-limiter test-limiter-asan
test-limiter: fake $(B)/test/libvgpu.so $(B)/test/test/limiter_test $(B)/test/test/probe_launch
	$(call run_limiter,test,$(abspath $(B)/test/libvgpu.so))
test-limiter-asan: fake $(B)/asan/libvgpu.so $(B)/test/test/limiter_test $(B)/test/test/probe_launch
	$(call run_limiter,asan,$(ASAN_LIB) $(abspath $(B)/asan/libvgpu.so))

# Workloads on a virtual clock: arithmetic only, so once is enough.
$(B)/test/test/pace_model_test: test/pace_model_test.c test/pace_model.c test/pace_model.h test/testing.h src/pace.c src/pace.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -std=gnu11 $(WARN) -Isrc -o $@ test/pace_model_test.c test/pace_model.c src/pace.c
.PHONY: test-model
test-model: $(B)/test/test/pace_model_test
	@echo "== pace model"
	@$<
