/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_cost.c: calls of which a measure prints what they take by each way (probe_cost.h):
 *
 *	pair BYTES LIVE    allocation and free, with so many allocations of 4 KiB alive
 *	info OTHERS        free memory, asked among so many other processes that have some
 *	launch             a launch on device 1, which has no limit
 *	limited US         on device 0, which has one; the kernel takes so long
 *	start OTHERS       from cuInit to the first allocation, among others; measures itself
 */
#define _GNU_SOURCE
#include "probe.h"
#include "probe_cost.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define SAVING_US 20000 /* then the share has time to spend, and no launch waits */

static uint64_t argument[2]; /* the numbers behind the name */

/* Starts processes that have memory, and that end with this one. */
static void hold_others(uint64_t others)
{
	int go[2], ready[2];
	char c;
	NEED(!pipe(go) && !pipe(ready));
	for (uint64_t i = 0; i < others; i++)
		if (fork() == 0) {
			close(go[1]);
			use_device(1);
			NEED(take(2 * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
			NEED(read(go[0], &c, 1) == 0);
			_exit(0);
		}
	for (uint64_t i = 0; i < others; i++)
		NEED(read(ready[0], &c, 1) == 1);
}

static CUresult (*allocate[2])(CUdeviceptr *, size_t), (*release[2])(CUdeviceptr);

static void allocate_and_free(int way)
{
	CUdeviceptr at;
	NEED(allocate[way](&at, argument[0]) == CUDA_SUCCESS && release[way](at) == CUDA_SUCCESS);
}

static void measure_pair(void)
{
	allocate[0] = (CUresult(*)(CUdeviceptr *, size_t))fakegpu_function("cuMemAlloc_v2");
	release[0] = (CUresult(*)(CUdeviceptr))fakegpu_function("cuMemFree_v2");
	allocate[1] = cuMemAlloc_v2;
	release[1] = cuMemFree_v2;
	use_device(0);
	for (uint64_t live = argument[1]; live; live--)
		NEED(take(4096) == CUDA_SUCCESS);
	compare(allocate_and_free, 100, 0);
}

static CUresult (*info[2])(size_t *, size_t *);

static void ask(int way)
{
	size_t free_bytes, total;
	NEED(info[way](&free_bytes, &total) == CUDA_SUCCESS);
}

static void measure_info(void)
{
	hold_others(argument[0]);
	info[0] = (CUresult(*)(size_t *, size_t *))fakegpu_function("cuMemGetInfo_v2");
	info[1] = cuMemGetInfo_v2;
	use_device(0);
	NEED(take(2 * MIB) == CUDA_SUCCESS && take(4096) == CUDA_SUCCESS);
	compare(ask, 100, 0);
}

typedef CUresult launcher(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
static launcher *launch[2];
static CUfunction kernel;

static void refuse(int way)
{
	launch[way](kernel, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void run(int way)
{
	NEED(launch[way](kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
}

static void use_kernel(CUdevice device, uint64_t us)
{
	CUmodule module;
	char name[32];
	snprintf(name, sizeof name, "work_%lluus", (unsigned long long)us);
	use_device(device);
	launch[0] = (launcher *)fakegpu_function("cuLaunchKernel");
	launch[1] = cuLaunchKernel;
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&kernel, module, name) == CUDA_SUCCESS);
}

/* The driver refuses these launches at once: the quickest answer it has. */
static void measure_launch(void)
{
	use_kernel(1, 1);
	compare(refuse, 2000, 0);
}

/* Of kernels of 1 us a batch has about two bursts. */
static void measure_limited(void)
{
	use_kernel(0, argument[0]);
	for (int i = 0; i < 100; i++) { /* then its cost is known, and what is remembered is full */
		run(1);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	}
	compare(run, 500, SAVING_US);
}

static void measure_start(void)
{
	hold_others(argument[0]);
	double start = now();
	use_device(0);
	NEED(take(2 * MIB) == CUDA_SUCCESS);
	printf("%.0f\n", now() - start);
}

static const struct {
	const char *name;
	void (*measure)(void);
} calls[] = {
	{"pair", measure_pair},
	{"info", measure_info},
	{"launch", measure_launch},
	{"limited", measure_limited},
	{"start", measure_start},
};

int main(int argc, char **argv)
{
	for (int i = 2; i < argc && i < 4; i++)
		argument[i - 2] = strtoull(argv[i], NULL, 10);
	for (size_t i = 0; argc > 1 && i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(argv[1], calls[i].name))
			return calls[i].measure(), 0;
	return 2;
}
