/* SPDX-License-Identifier: Apache-2.0 */
/* weak_memory_test.c: weaknesses in counting memory, by number; see weak_entry_test.c. */
#include "machine.h"

static void probes(const char *const *names, const char *const *variables)
{
	machine(LIMITS);
	for (; *names; names++)
		probe(*names, variables);
	done();
}
#define HOLD(...) probes((const char *const[]){__VA_ARGS__, NULL}, NULL)

TEST("weakness 13: a device is known by its UUID, with CUDA_VISIBLE_DEVICES as a subset, too")
{
	machine(LIMITS);
	probe("exact", (const char *const[]){"CUDA_VISIBLE_DEVICES", "0", NULL});
	probe("exact", (const char *const[]){"CUDA_VISIBLE_DEVICES", U0, NULL});
	probe("second-limited", (const char *const[]){"CUDA_VISIBLE_DEVICES", "1,0", NULL});
	done();
	machine(HEAD "device 0 " U0 " memory=0 cores=0\ndevice 1 " U1 " memory=67108864 cores=0\n");
	/* the second of the limits is the first there */
	probe("exact", (const char *const[]){"CUDA_VISIBLE_DEVICES", "1", NULL});
	done();
}

TEST("weakness 14: handles without a context, of the host, and by many threads")
{
	HOLD("off-context", "host-location", "host-pool", "handle-threads");
}

TEST("weakness 15: pointers that nobody has counted are the driver's")
{
	HOLD("unknown-pointers");
}

TEST("weakness 16: a pool's refusal is error 2, a late failure gives back, memory is freed where it is")
{
	HOLD("pools", "freed-elsewhere");
	probes((const char *const[]){"late-failure", NULL}, (const char *const[]){"FAKEGPU_FAIL", "cuMemAllocAsync:2:999", NULL});
}

TEST("weakness 17: released while mapped stays charged, threads or not")
{
	HOLD("early-release", "mappings", "handle-threads");
}

TEST("weakness 18: a trimmed pool is charged less, each pool on its device")
{
	HOLD("pools", "pool-of-own", "synchronised");
}

TEST("weakness 19: arrays, pools, graphs, contexts and code count")
{
	HOLD("arrays", "pools", "graph-memory", "context-charged", "code-charged");
}

TEST("weakness 20: nothing goes below zero")
{
	HOLD("freed-twice", "context-over");
}

TEST("weakness 21: between the check and the allocation no other process gets in")
{
	HOLD("two-race", "race");
}

#define ABOVE "1610612736 cores=0\n"

TEST("weakness 22: memory beyond the card, where it was asked for and can be had, and not elsewhere")
{
	machine(HEAD "oversubscribe on\ndevice 0 " U0 " memory=" ABOVE);
	probe("oversubscribed", NULL);
	probe("not-oversubscribed", (const char *const[]){"FAKEGPU_MANAGED", "device", NULL});
	done();
	machine(HEAD "device 0 " U0 " memory=" ABOVE);
	/* the file decides */
	probe("not-oversubscribed", (const char *const[]){"CUDA_OVERSUBSCRIBE", "true", NULL});
	done();
	machine(NULL);
	probe("oversubscribed", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "1536m", "CUDA_OVERSUBSCRIBE", "true", NULL});
	probe("not-oversubscribed", (const char *const[]){"CUDA_DEVICE_MEMORY_LIMIT_0", "1536m", "CUDA_OVERSUBSCRIBE", "yes", NULL});
	done();
}

TEST_MAIN
