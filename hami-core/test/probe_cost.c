/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_cost.c: prints what something takes, in nanoseconds. Calls are timed in bursts, straight to
 * the fake driver and through whatever library is in front by turns: "without with". The slowest
 * fifth of each is left out.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define BURSTS 400

void *fakegpu_function(const char *symbol);

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double usual(double *bursts)
{
	double sum = 0;
	qsort(bursts, BURSTS, sizeof *bursts, by_size);
	for (int i = 0; i < BURSTS * 4 / 5; i++)
		sum += bursts[i];
	return sum / (BURSTS * 4 / 5);
}

/* One call of burst(way) is `calls` calls by way 0 or 1. */
static void compare(void (*burst)(int way), int calls)
{
	static double took[2][BURSTS];
	for (int i = 0; i < BURSTS * 2; i++) {
		double start = now();
		burst(i % 2);
		took[i % 2][i / 2] = (now() - start) / calls;
		NEED(cuCtxSynchronize() == CUDA_SUCCESS);
	}
	printf("%.2f %.2f\n", usual(took[0]), usual(took[1]));
}

static CUresult (*allocate[2])(CUdeviceptr *, size_t), (*release[2])(CUdeviceptr);

static uint64_t size = 2 * MIB;

static void pairs(int way)
{
	CUdeviceptr at;
	for (int i = 0; i < 100; i++)
		NEED(allocate[way](&at, size) == CUDA_SUCCESS && release[way](at) == CUDA_SUCCESS);
}

/* One allocation and its free, of 2 MiB or of PROBE_SIZE bytes. */
void probe_cost_pair(void)
{
	const char *other = getenv("PROBE_SIZE");
	if (other)
		size = strtoull(other, NULL, 10);
	allocate[0] = (CUresult(*)(CUdeviceptr *, size_t))fakegpu_function("cuMemAlloc_v2");
	release[0] = (CUresult(*)(CUdeviceptr))fakegpu_function("cuMemFree_v2");
	allocate[1] = cuMemAlloc_v2;
	release[1] = cuMemFree_v2;
	use_device(0);
	compare(pairs, 100);
}

static CUresult (*info[2])(size_t *, size_t *);

static void ask(int way)
{
	size_t free_bytes, total;
	for (int i = 0; i < 100; i++)
		NEED(info[way](&free_bytes, &total) == CUDA_SUCCESS);
}

static void hold_others(int others);

/* Asking for free memory, beside PROBE_PROCESSES processes that have some. */
void probe_cost_info(void)
{
	hold_others(atoi(getenv("PROBE_PROCESSES")));
	info[0] = (CUresult(*)(size_t *, size_t *))fakegpu_function("cuMemGetInfo_v2");
	info[1] = cuMemGetInfo_v2;
	use_device(0);
	NEED(take(2 * MIB) == CUDA_SUCCESS && take(4096) == CUDA_SUCCESS);
	compare(ask, 100);
}

typedef CUresult launcher(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
launcher cuLaunchKernel;
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
static launcher *launch[2];
static CUfunction kernel;

static void refused(int way)
{
	for (int i = 0; i < 2000; i++)
		launch[way](kernel, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void launches(int way)
{
	for (int i = 0; i < 500; i++)
		NEED(launch[way](kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
}

static void use_kernel(CUdevice device)
{
	CUmodule module;
	use_device(device);
	launch[0] = (launcher *)fakegpu_function("cuLaunchKernel");
	launch[1] = cuLaunchKernel;
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&kernel, module, "work_1us") == CUDA_SUCCESS);
}

/* Device 1 has no limit. The driver refuses these launches at once: the quickest answer it has. */
void probe_cost_launch(void)
{
	use_kernel(1);
	compare(refused, 2000);
}

/* Device 0 has one. A batch is about two bursts. */
void probe_cost_limited(void)
{
	use_kernel(0);
	compare(launches, 500);
}

/* Starts processes that have memory, and that end with this one. */
static void hold_others(int others)
{
	int go[2], ready[2];
	char c;
	NEED(!pipe(go) && !pipe(ready));
	for (int i = 0; i < others; i++)
		if (fork() == 0) {
			close(go[1]);
			use_device(1);
			NEED(take(2 * MIB) == CUDA_SUCCESS && write(ready[1], "x", 1) == 1);
			NEED(read(go[0], &c, 1) == 0);
			_exit(0);
		}
	for (int i = 0; i < others; i++)
		NEED(read(ready[0], &c, 1) == 1);
}

/*
 * From cuInit to the first allocation, in a process beside PROBE_PROCESSES others that have memory.
 */
void probe_cost_start(void)
{
	hold_others(atoi(getenv("PROBE_PROCESSES")));
	double start = now();
	use_device(0);
	NEED(take(2 * MIB) == CUDA_SUCCESS);
	printf("%.0f\n", now() - start);
}
