/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weak_entry_test.c: weaknesses that interception libraries have been found to have in the ways
 * into the driver, by number; which test holds which is in hami-core/test/README.md.
 */
#include "machine.h"

static void on_driver(const char *version, const char *name, const char *const *variables)
{
	char path[1024];
	snprintf(path, sizeof path, "%s/cuda-%s:%s", getenv("VGPU_TEST_FAKE"), version, getenv("VGPU_TEST_FAKE"));
	setenv("LD_LIBRARY_PATH", path, 1);
	probe(name, variables);
}

TEST("weakness 1, 2: look-ups with RTLD_NEXT answer every time, from where the caller is")
{
	machine(LIMITS);
	probe("rtld-next", NULL);
	done();
}

TEST("weakness 3: names that only begin with cu start nothing, and nothing ends a program without CUDA")
{
	machine("vgpu-limits 1\nregion /proc/no/vgpu.cache\ndevice 0 " U0 " memory=67108864 cores=50\n");
	probe("untouched", NULL);
	probe("versioned-lookup", NULL);
	CHECK_EQ(run((char *const[]){"sh", "-c", "exit 0", NULL}, NULL), 0);
	CHECK(strstr(output, "libvgpu") == NULL);
	done();
}

TEST("weakness 4: wherever the library lies, no look-up runs into itself")
{
	machine(LIMITS);
	probe("exact", (const char *const[]){"FAKEGPU_SELF_LOOKUP", "1", NULL});
	probe("versioned-lookup", (const char *const[]){"FAKEGPU_SELF_LOOKUP", "1", NULL});
	done();
}

TEST("weakness 5: drivers that resolve through dlsym while they are loaded and started")
{
	static const char *const versions[] = {"12.8", "13.0"}, *const probes[] = {"exact", "threads", "race", "per-thread"};
	machine(LIMITS);
	for (int v = 0; v < 2; v++)
		for (int i = 0; i < 4; i++)
			on_driver(versions[v], probes[i], (const char *const[]){"FAKEGPU_SELF_LOOKUP", "1", NULL});
	done();
}

TEST("weakness 6: cuGetProcAddress gives the variant of the version asked for, hooked or not")
{
	machine(LIMITS);
	probe("proc-address", NULL);
	probe("advice", NULL);
	/* cuCtxCreate has four */
	on_driver("12.8", "generation", (const char *const[]){"PROBE_CUDA", "12080", NULL});
	on_driver("13.0", "generation", (const char *const[]){"PROBE_CUDA", "13000", NULL});
	done();
}

TEST("weakness 7: per-thread twins are limited and stay per-thread twins")
{
	machine(LIMITS);
	probe("per-thread", NULL);
	probe("proc-address", NULL);
	done();
}

TEST("weakness 9: what a driver has not got is an error, not a jump to 0")
{
	machine(LIMITS);
	on_driver("11.0", "generation", (const char *const[]){"PROBE_CUDA", "11000", NULL});
	done();
}

TEST("weakness 10: cuMemGetInfo takes NULL, and more in use than the limit is no error")
{
	machine(LIMITS);
	probe("null-arguments", NULL);
	probe("context-over", NULL);
	done();
}

TEST("weakness 11: the total is the card's without a limit, and never more than the card")
{
	machine(HEAD "device 0 " U0 " memory=0 cores=50\ndevice 1 " U1 " memory=9999999999 cores=0\n");
	probe("above-card", NULL);
	done();
	machine(NULL);
	probe("above-card", NULL);
	probe("above-card", (const char *const[]){"CUDA_DEVICE_SM_LIMIT", "30", NULL});
	done();
}

TEST("weakness 12: a shell has neither libcuda nor NVML in it")
{
	machine(LIMITS);
	CHECK_EQ(run((char *const[]){"sh", "-c", "while read l; do case $l in *libcuda.so*|*libnvidia*) exit 1;; esac; done < /proc/$$/maps", NULL}, NULL), 0);
	done();
}

TEST_MAIN
